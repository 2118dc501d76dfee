"""What a write is checked against: what it says itself, else what its connection saw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import sha256
from tests.mcp.conftest import Call, Connect, events


def test_two_connections_have_seen_different_things(connect: Connect, root: Path) -> None:
    """What one agent read says nothing about what another one saw."""
    plan = root / "plan.md"
    plan.write_bytes(b"v1")
    one, two = connect(), connect()
    one("read_text_file", path="plan.md")
    two("read_text_file", path="plan.md")

    assert not two("write_file", path="plan.md", content="two's").is_error
    assert one("write_file", path="plan.md", content="one's").is_error
    assert plan.read_bytes() == b"two's"


def test_an_expected_hash_that_the_connection_saw_beats_what_it_saw_last(call: Call, root: Path) -> None:
    """Ruling 9, finding S10: whichever of the versions that were read, or written, on this connection."""
    plan = root / "plan.md"
    for version in (b"v1", b"v2"):
        plan.write_bytes(version)
        call("read_text_file", path="plan.md")
    call("write_file", path="plan.md", content="own")
    plan.write_bytes(b"v3")
    call("read_text_file", path="plan.md")

    for older in (b"v1", b"own"):
        assert call("write_file", path="plan.md", content="x", expected_hash=sha256(older)).is_error
        plan.write_bytes(older)  # Somebody took it back to that version.
        written = call("write_file", path="plan.md", content="v4", expected_hash=sha256(older))
        assert written.structured["previous_sha256"] == sha256(older)


CHANGES: dict[str, dict[str, Any]] = {
    "write_file": {"path": "plan.md", "content": "mine"},
    "edit_file": {"path": "plan.md", "edits": [{"oldText": "v2", "newText": "mine"}]},
    "delete_file": {"path": "plan.md"},
    "move_file": {"source": "plan.md", "destination": "taken.md"},
    "write_files": {"files": [{"path": "plan.md", "content": "mine"}]},
}


def with_hash(tool: str, sha256: str) -> dict[str, Any]:
    """The arguments of a change that says what it expects."""
    given = CHANGES[tool]
    if tool == "write_files":
        return {"files": [{**given["files"][0], "expected_hash": sha256}]}
    return {**given, "expected_hash": sha256}


@pytest.mark.parametrize("tool", CHANGES)
@pytest.mark.parametrize("is_strict", [False, True])
def test_the_hash_that_a_refusal_shows_is_not_a_read(
    connect: Connect, root: Path, tool: str, is_strict: bool
) -> None:
    """finding S10: `expected_hash = actual_hash` of the refusal gets the same refusal again."""
    plan = root / "plan.md"
    plan.write_bytes(b"v1")
    call = connect(strict=is_strict)
    first = call("read_text_file", path="plan.md").structured["sha256"]
    plan.write_bytes(b"v2")
    refused = call(tool, **with_hash(tool, first)).structured

    again = call(tool, **with_hash(tool, refused["actual_hash"])).structured

    assert refused["error_type"] == "STALE_FILE"
    assert again == refused
    assert plan.read_bytes() == b"v2"
    call("read_text_file", path="plan.md")
    assert not call(tool, **with_hash(tool, refused["actual_hash"])).is_error


@pytest.mark.parametrize("tool", CHANGES)
def test_a_hash_of_a_file_that_was_never_read_is_refused_with_a_sentence(
    connect: Connect, root: Path, tool: str
) -> None:
    """finding S10: another connection's read, `changes_since_read` or a guess is not this one's read."""
    (root / "plan.md").write_bytes(b"v2")
    call, other = connect(), connect()
    other("read_text_file", path="plan.md")

    refused = call(tool, **with_hash(tool, sha256(b"v2"))).structured

    assert refused["error_type"] == "UNREAD_FILE"
    assert "Read the file" in refused["message"]
    assert (root / "plan.md").read_bytes() == b"v2"


def test_a_read_that_showed_nothing_or_another_file_of_the_same_bytes_is_no_read(
    call: Call, root: Path
) -> None:
    """finding S10: the hash alone proves nothing, wherever it was shown."""
    plan = root / "plan.md"
    plan.write_bytes(b"v1\n")
    call("read_text_file", path="plan.md")
    plan.write_bytes(b"v2\n")
    (root / "twin.md").write_bytes(b"v2\n")
    twin = call("read_text_file", path="twin.md").structured
    shown = call("changes_since_read", path="plan.md").structured
    empty = call("read_text_file", path="plan.md", head=-1).structured

    refused = [
        call("write_file", path="plan.md", content="x", expected_hash=twin["sha256"]),
        call("write_file", path="plan.md", content="x", expected_hash=shown["sha256"]),
        call("write_file", path="plan.md", content="x", expected_hash=empty["sha256"]),
        call("write_file", path="plan.md", content="x", observation_id=empty["observation_id"]),
    ]

    assert [one.structured["error_type"] for one in refused] == ["STALE_FILE"] * 4
    assert plan.read_bytes() == b"v2\n"


def test_a_hash_that_was_read_in_part_does_not_pass_for_all_of_it(connect: Connect, root: Path) -> None:
    """finding S10, `partial = "deny"`: naming the newer version did not show the rest of it."""
    (root / "noclobber.toml").write_text('partial = "deny"\n')
    plan = root / "plan.md"
    plan.write_bytes(b"v1\n")
    call = connect()
    call("read_text_file", path="plan.md")
    plan.write_bytes(b"v2\nand more\n")
    part = call("read_text_file", path="plan.md", head=1).structured

    refused = call("write_file", path="plan.md", content="x", expected_hash=part["sha256"])

    assert refused.structured["error_type"] == "PARTIAL_READ"


def test_without_a_session_any_hash_counts(connect: Connect, root: Path) -> None:
    """finding S10: there, what a write says is all that there is to check it against."""
    (root / "noclobber.toml").write_text('explicit_hash = "seen"\n')
    (root / "plan.md").write_bytes(b"v2")
    anyone = connect(is_session=False, is_process=False)

    assert anyone("write_file", path="plan.md", content="x", expected_hash=sha256(b"v1")).is_error
    assert not anyone("write_file", path="plan.md", content="x", expected_hash=sha256(b"v2")).is_error


def test_an_observation_id_stands_for_the_version_that_was_read(call: Call, root: Path) -> None:
    """Ruling 9, even if the file was read again since."""
    plan = root / "plan.md"
    plan.write_bytes(b"v1")
    first = call("read_text_file", path="plan.md").structured
    plan.write_bytes(b"v2")
    second = call("read_text_file", path="plan.md").structured

    stale = call("write_file", path="plan.md", content="x", observation_id=first["observation_id"])
    fresh = call("write_file", path="plan.md", content="x", observation_id=second["observation_id"])

    assert stale.is_error
    assert not fresh.is_error


def test_an_observation_of_another_file_is_refused(call: Call, root: Path) -> None:
    """An id is of one file."""
    for name in ("a.md", "b.md"):
        (root / name).write_bytes(b"same")
    seen = call("read_text_file", path="a.md").structured

    refused = call("write_file", path="b.md", content="x", observation_id=seen["observation_id"])

    assert refused.structured["error_type"] == "BAD_REQUEST"


def test_absent_creates_and_never_replaces(call: Call, root: Path) -> None:
    """Ruling 5."""
    assert not call("write_file", path="n.md", content="1", expected_hash="ABSENT").is_error
    assert call("write_file", path="n.md", content="2", expected_hash="ABSENT").is_error
    assert (root / "n.md").read_bytes() == b"1"


def test_without_a_session_only_what_a_write_says_counts(connect: Connect, root: Path) -> None:
    """N-mcp: the protocol is stateless over HTTP; the default is the reference server's, on record."""
    plan = root / "plan.md"
    plan.write_bytes(b"v1")
    anyone = connect(is_session=False, is_process=False)
    seen = anyone("read_text_file", path="plan.md").structured
    plan.write_bytes(b"v2")

    by_hash = anyone("write_file", path="plan.md", content="x", expected_hash=seen["sha256"])
    by_id = anyone("write_file", path="plan.md", content="x", observation_id=seen["observation_id"])
    kept = plan.read_bytes()
    by_nothing = anyone("write_file", path="plan.md", content="v3")

    assert by_hash.is_error
    assert by_id.is_error
    assert kept == b"v2"
    assert not by_nothing.is_error
    assert [event["action_type"] for event in events(root)] == [
        "MUTATION_CONFLICT",
        "MUTATION_CONFLICT",
        "MUTATION",
    ]


@pytest.mark.parametrize("is_session", [True, False])
def test_strict_wants_every_change_of_an_existing_file_to_say_what_it_expects(
    connect: Connect, root: Path, is_session: bool
) -> None:
    """N-mcp, `--strict`: even after a read, because several subagents may share one connection."""
    plan = root / "plan.md"
    plan.write_bytes(b"v1")
    strict = connect(strict=True, is_session=is_session, is_process=is_session)
    seen = strict("read_text_file", path="plan.md").structured

    refused = [
        strict("write_file", path="plan.md", content="x"),
        strict("edit_file", path="plan.md", edits=[{"oldText": "v", "newText": "w"}]),
        strict("delete_file", path="plan.md"),
        strict("move_file", source="plan.md", destination="p.md"),
        strict("write_files", files=[{"path": "plan.md", "content": "x"}]),
    ]
    kept = plan.read_bytes()

    assert [one.structured["error_type"] for one in refused] == ["UNREAD_FILE"] * 5
    assert kept == b"v1"
    assert [event["action_type"] for event in events(root)] == ["MUTATION_REFUSED"] * 5
    assert not strict("write_file", path="new.md", content="x").is_error
    assert not strict("write_file", path="plan.md", content="v2", expected_hash=seen["sha256"]).is_error


def test_each_root_has_its_own_record(connect: Connect, tmp_path: Path) -> None:
    """Several roots; state is kept in the root that a file is in."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    call = connect(one, two)
    call("write_file", path=str(one / "a"), content="1")
    call("write_file", path=str(two / "b"), content="2")

    assert [event["payload"]["target_file"] for event in events(one)] == ["a"]
    assert [event["payload"]["target_file"] for event in events(two)] == ["b"]


def test_the_option_scope_does_not_mix_what_different_clients_saw(connect: Connect, root: Path) -> None:
    """finding D8: a connection remembers until it ends; without sessions there is nothing to remember by."""
    (root / "noclobber.toml").write_text('scope = "session"\n')
    anyone = connect(is_session=False, is_process=False)
    anyone("write_file", path="plan.md", content="by one client")
    (root / "plan.md").write_bytes(b"by a person")

    written = anyone("write_file", path="plan.md", content="by another client")

    assert not written.is_error


def test_a_connection_remembers_until_it_ends(connect: Connect, root: Path) -> None:
    """finding D8: turns do not exist here; what was read long ago still counts, on this connection only."""
    (root / "plan.md").write_bytes(b"v1")
    call = connect()
    call("read_text_file", path="plan.md")
    for number in range(20):
        call("write_file", path=f"other-{number}.md", content="x")
    (root / "plan.md").write_bytes(b"v2")

    assert call("write_file", path="plan.md", content="x").is_error
    call.connection.close()
    assert not call("write_file", path="plan.md", content="x").is_error
