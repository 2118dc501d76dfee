"""The exact objects that leave the library, and their recognition."""

from __future__ import annotations

import inspect
import json
import pickle
from typing import Any, Literal

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import noclobber
from noclobber import errors
from noclobber.core.json_text import spell_for_any_reader
from noclobber.core.wire import SCHEMAS, parse_refusal, parse_stale, schema, to_json, to_object
from noclobber.errors import RefusalError, StaleFileError
from noclobber.hosts import HOSTS, load
from noclobber.hosts.event import Event
from tests.conftest import sha256

PROPERTY = settings(deadline=None)  # A busy machine is no counter-example.

AUDIENCES: tuple[Literal["agent", "controller"], ...] = ("agent", "controller")
H1, H2 = sha256(b"v1"), sha256(b"v2")
STALE = StaleFileError("/ws/a.md", H1, H2)
REFUSALS = sorted(
    (
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, RefusalError) and kind is not RefusalError
    ),
    key=lambda kind: kind.__name__,
)


def valid(value: object, name: str) -> bool:
    checker = jsonschema.Draft202012Validator(schema(name))
    return bool(checker.is_valid(value))


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schemas_are_schemas(name: str) -> None:
    """Ruling 3: shipped in the package, closed."""
    loaded = schema(name)
    jsonschema.Draft202012Validator.check_schema(loaded)
    if name in ("ledger-event", "lock-record"):
        return  # Records that later versions may add to; the objects that answer a caller are closed.
    assert loaded["additionalProperties"] is False
    assert set(loaded["required"]) == set(loaded["properties"])


def test_an_unknown_schema_is_refused_by_name() -> None:
    """Ruling 3: also no way out of the package's folder."""
    with pytest.raises(ValueError, match="there is no schema"):
        schema("../../pyproject")


def test_the_controllers_object_is_exact() -> None:
    """011-FR-003, 011-SC-001: these keys, these constants, nothing else."""
    assert json.loads(to_json(STALE, "controller")) == {
        "error_type": "STALE_FILE",
        "file_path": "/ws/a.md",
        "expected_hash": H1,
        "actual_hash": H2,
        "resolution": "RE_READ_REQUIRED",
    }
    assert valid(STALE.to_controller(), "stale-file-controller")


def test_the_agents_object_is_exact() -> None:
    """009-FR-006, 009-SC-004: word for word."""
    assert json.loads(to_json(STALE)) == {
        "error_type": "STALE_FILE",
        "message": "File modified by another actor. Re-read required.",
        "details": {"path": "/ws/a.md", "baseline_hash": H1, "current_disk_hash": H2},
        "recovery_hint": (
            "Perform a new 'read_file' to see the latest changes before attempting to write again."
        ),
    }
    assert valid(STALE.to_agent(), "stale-file-agent")


@pytest.mark.parametrize("expected", [H1, "ABSENT"])
@pytest.mark.parametrize("actual", [H2, "DELETED", "NOT_A_FILE", "UNREADABLE"])
def test_every_kind_of_conflict_has_both_objects(expected: str, actual: str) -> None:
    """Ruling 5, 011-edge-deleted: the hash's place is a string always."""
    error = StaleFileError("/ws/ä b.md", expected, actual)
    assert valid(error.to_controller(), "stale-file-controller")
    assert valid(error.to_agent(), "stale-file-agent")
    for audience in AUDIENCES:
        again = parse_stale(to_json(error, audience))
        assert again is not None
        assert again.to_controller() == error.to_controller()


def _without(value: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: part for name, part in value.items() if name != key}


def _detail(**changed: object) -> dict[str, Any]:
    """The agent's object with other details."""
    return {**STALE.to_agent(), "details": {**STALE.to_agent()["details"], **changed}}


LOOSE: list[Any] = [
    {**STALE.to_controller(), "diff": "…"},
    *(_without(STALE.to_controller(), key) for key in STALE.to_controller()),
    {**STALE.to_controller(), "error_type": "stale_file"},
    {**STALE.to_controller(), "resolution": "RETRY_LATER"},
    {**STALE.to_controller(), "expected_hash": H1.upper()},
    {**STALE.to_controller(), "expected_hash": f"sha256:{H1}"},
    {**STALE.to_controller(), "expected_hash": H1 + "\n"},
    {**STALE.to_controller(), "expected_hash": "DELETED"},
    {**STALE.to_controller(), "actual_hash": "ABSENT"},
    {**STALE.to_controller(), "actual_hash": None},
    {**STALE.to_controller(), "file_path": "a.md"},
    {**STALE.to_controller(), "file_path": 7},
    [STALE.to_controller()],
    {"error": STALE.to_controller()},
    {**STALE.to_agent(), "diff": "…"},
    {**STALE.to_agent(), **STALE.to_controller()},
    *(_without(STALE.to_agent(), key) for key in STALE.to_agent()),
    {**STALE.to_agent(), "error_type": "stale_file"},
    {**STALE.to_agent(), "message": "The file changed."},
    {**STALE.to_agent(), "recovery_hint": "Read it again."},
    {**STALE.to_agent(), "details": None},
    {**STALE.to_agent(), "details": [H1, H2]},
    *(
        {**STALE.to_agent(), "details": _without(STALE.to_agent()["details"], key)}
        for key in _detail()["details"]
    ),
    _detail(diff="…"),
    _detail(path="a.md"),
    _detail(path=None),
    _detail(baseline_hash=H1.upper()),
    _detail(baseline_hash="DELETED"),
    _detail(current_disk_hash="ABSENT"),
    _detail(current_disk_hash=None),
]


@pytest.mark.parametrize("value", LOOSE)
def test_what_is_not_exactly_the_object_is_not_recognised(
    value: dict[str, Any] | list[dict[str, Any]],
) -> None:
    """011-FR-004, 011-FR-006: and the schema says the same."""
    assert parse_stale(value) is None
    assert parse_stale(json.dumps(value)) is None
    assert not valid(value, "stale-file-controller")
    assert not valid(value, "stale-file-agent")


@pytest.mark.parametrize(
    "text",
    [
        f"Error: {to_json(STALE, 'controller')}",
        f"{to_json(STALE, 'controller')} Please re-read.",
        f"```json\n{to_json(STALE, 'controller')}\n```",
        f"Error: {to_json(STALE)}",
        to_json(STALE).replace('"details":{', '"details":{"path":"/other",', 1),
        to_json(STALE)[:-1],
        to_json(STALE, "controller")[:-1],
        to_json(STALE, "controller").replace("{", '{"error_type": "STALE_FILE", ', 1),
        json.dumps(to_json(STALE, "controller")),
        "",
        "null",
        "{" * 100_000,
        b"\xff\xfe{",
    ],
)
def test_prose_around_it_or_twice_a_key_is_not_the_object(text: bytes | str) -> None:
    """011-FR-004: no wrapping, no text before or after."""
    assert parse_stale(text) is None


@pytest.mark.parametrize("audience", AUDIENCES)
@pytest.mark.parametrize("form", ["exception", "mapping", "text", "bytes", "indented"])
def test_both_objects_are_recognised_in_all_their_forms(
    form: str, audience: Literal["agent", "controller"]
) -> None:
    """011-FR-006, finding D10."""
    value = {
        "exception": STALE,
        "mapping": to_object(STALE, audience),
        "text": to_json(STALE, audience),
        "bytes": to_json(STALE, audience).encode(),
        "indented": json.dumps(to_object(STALE, audience), indent=2) + "\n",
    }[form]
    found = parse_stale(value)
    assert found is not None
    assert (found.path, found.expected, found.actual) == ("/ws/a.md", H1, H2)


@PROPERTY
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_anything_else_is_nothing(value: Any) -> None:
    """011-FR-006: recognition never raises."""
    assert parse_stale(value) is None
    assert parse_stale(json.dumps(value)) is None
    assert parse_refusal(value) is None


@pytest.mark.parametrize("kind", REFUSALS)
def test_every_other_refusal_has_one_documented_shape(kind: type[Any]) -> None:
    """N-codes: `refusal.schema.json`, for every error there is."""
    if kind is noclobber.LockContention:
        return  # It has a report of its own, for the orchestrator: the next test.
    error = kind("/ws/a.md", "Do something else.", count=1, word="x", nothing=None)
    assert valid(error.to_refusal(), "refusal")
    assert json.loads(to_json(error)) == error.to_refusal()
    assert (
        parse_refusal(error.to_refusal())
        == parse_refusal(to_json(error))
        == parse_refusal(error)
        == (kind.code, "/ws/a.md")
    )
    again = pickle.loads(pickle.dumps(error))
    assert again.to_refusal() == error.to_refusal()
    assert parse_stale(error.to_refusal()) is None


def test_contention_is_the_same_report_in_every_form() -> None:
    """finding D4, REQ-LOCK-007: one flat object, and it is recognised when it comes back."""
    error = noclobber.LockContention(
        "/ws/d/a.md",
        "locked",
        deliverable_id="D-1",
        holder="builder-1",
        lease_remaining_s=60,
        contention_time="2027-01-15T08:00:40.500000Z",
    )
    assert valid(error.to_report(), "lock-contention")
    assert error.to_refusal() == error.to_report() == json.loads(to_json(error))
    assert pickle.loads(pickle.dumps(error)).to_report() == error.to_report()
    assert parse_refusal(error) == ("LOCK_CONTENTION", "/ws/d/a.md")
    assert parse_refusal(error.to_report()) == parse_refusal(to_json(error)) == ("LOCK_CONTENTION", "")
    assert parse_refusal({**error.to_report(), "error_type": "STALE_FILE"}) is None
    assert parse_stale(error.to_report()) is None


def test_codes_are_unique() -> None:
    """N-codes: programs branch on them."""
    codes = [kind.code for kind in REFUSALS if "code" in vars(kind)]  # Others are a kind of one of these.
    assert len(set(codes)) == len(codes) > 30


def test_a_refusal_is_no_stale_object_and_the_other_way_round() -> None:
    """Ruling 3: two families."""
    assert not valid(STALE.to_controller(), "refusal")
    assert not valid(STALE.to_agent(), "refusal")
    assert parse_refusal(STALE) is None
    assert parse_refusal({**errors.FileBusyError("/a", "b").to_refusal(), "error_type": "STALE_FILE"}) is None


def test_json_of_a_path_that_is_no_utf8_can_be_printed() -> None:
    """N-input: not UTF-8; and nothing in it reaches a terminal as a command."""
    for path in (
        "/ws/\udcff",
        "/ws/\x1b[31m",
        "/ws/\u202egpj.exe",
        "/ws/\u2028",
        "/ws/\U000e0001",
        "/ws/\x85",
    ):
        text = to_json(errors.BadPathError(path, "no"))
        assert text.encode().decode().isprintable()
        assert json.loads(text)["file_path"] == path


@PROPERTY
@given(
    value=st.recursive(st.none() | st.text(st.characters()), lambda inner: st.dictionaries(st.text(), inner))
)
def test_any_reader_gets_the_same_value(value: Any) -> None:
    """finding C1: one serialiser; escapes are JSON's own."""
    text = spell_for_any_reader(value)
    assert text.isprintable()
    assert json.loads(text) == value


def strings_in(value: Any) -> list[str]:
    """Return every string in a JSON value."""
    if isinstance(value, dict):
        return [text for part in value.values() for text in strings_in(part)]
    return [value] if isinstance(value, str) else []


@pytest.mark.wrong_errors
def test_hosts_and_library_spell_a_refusal_alike() -> None:
    """finding C1, finding D4: one text for every way out, also for a lock's contention."""
    for error in (
        STALE,
        *(kind("/ws/\udcff", "Do something else.", deliverable_id="d") for kind in REFUSALS),
    ):
        assert json.loads(to_json(error)) == to_object(error)
        for host in HOSTS:
            told = load(host).phrase(Event(host, "pre", name="PreToolUse"), error)
            assert to_json(error) in strings_in(json.loads(told.stdout)), host
    contention = errors.LockContention("/ws", "no", deliverable_id="d", holder="h")
    assert set(to_object(contention)) == set(schema("lock-contention")["required"])
    with pytest.raises(TypeError, match="is not a refusal"):
        to_json(errors.NoclobberError("x"))
