"""One name for each parameter, and none that is silently ignored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noclobber.errors import BadRequestError
from noclobber.mcp.dispatch import understood
from noclobber.mcp.tools import REFERENCE, TOOLS
from tests.conftest import sha256
from tests.mcp.conftest import Call

CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("write_file", {"path": "plan.md", "content": "mine"}),
    ("edit_file", {"path": "plan.md", "edits": [{"oldText": "v", "newText": "w"}]}),
    ("delete_file", {"path": "plan.md"}),
    ("move_file", {"source": "plan.md", "destination": "moved.md"}),
]


@pytest.mark.parametrize(("tool", "arguments"), CHANGES)
def test_a_mistyped_parameter_is_refused_with_the_nearest_name(
    call: Call, root: Path, tool: str, arguments: dict[str, Any]
) -> None:
    """finding U2: a precondition that is dropped would overwrite what it was to protect."""
    (root / "plan.md").write_bytes(b"v1")

    refused = call(tool, **arguments, expected_sha=sha256(b"v0"))

    assert refused.is_error
    assert refused.structured["error_type"] == "BAD_REQUEST"
    assert "has no parameter 'expected_sha'. Did you mean 'expected_hash'?" in refused.content[0]["text"]
    assert [path.name for path in root.iterdir() if path.name != ".noclobber"] == ["plan.md"]
    assert (root / "plan.md").read_bytes() == b"v1"


def test_a_mistyped_parameter_of_one_file_of_several_is_refused(call: Call, root: Path) -> None:
    """finding U2, at any depth: none of the files is written."""
    files = [{"path": "a.md", "content": "1"}, {"path": "b.md", "content": "2", "expected": "ABSENT"}]

    refused = call("write_files", files=files)

    assert "has no parameter 'files[1].expected'. Did you mean 'expected_hash'?" in refused.content[0]["text"]
    assert not (root / "a.md").exists()


def test_a_parameter_that_is_like_none_is_refused_with_the_known_ones(call: Call, root: Path) -> None:
    """finding U2: the message says what would have been right."""
    refused = call("create_directory", path="new", zzz=1)

    assert "has no parameter 'zzz'. It takes: path, lock_id." in refused.content[0]["text"]
    assert not (root / "new").exists()


def test_only_reading_tools_of_the_replaced_server_ignore_what_they_do_not_know() -> None:
    """finding U2; the recorded answers show that the replaced server ignores it."""
    ignoring = {name for name, tool in TOOLS.items() if tool.ignores_unknown}

    assert ignoring == {tool.name for tool in REFERENCE if tool.annotations["readOnlyHint"]}


@pytest.mark.parametrize("name", ["expected_hash", "expected_sha256"])
@pytest.mark.parametrize(("tool", "arguments"), CHANGES)
def test_both_names_of_the_expected_hash_protect(
    call: Call, root: Path, name: str, tool: str, arguments: dict[str, Any]
) -> None:
    """finding U2: `expected_hash` as in the library; `expected_sha256` is accepted."""
    (root / "plan.md").write_bytes(b"v1")

    refused = call(tool, **arguments, **{name: sha256(b"v0")})

    assert refused.structured["error_type"] == "STALE_FILE"
    assert (root / "plan.md").read_bytes() == b"v1"
    call("read_text_file", path="plan.md")
    assert not call(tool, **arguments, **{name: sha256(b"v1")}).is_error


def test_both_names_of_the_expected_hash_protect_each_of_several_files(call: Call, root: Path) -> None:
    """finding U2: also inside a list."""
    (root / "a.md").write_bytes(b"v1")

    for name in ("expected_hash", "expected_sha256"):
        refused = call("write_files", files=[{"path": "a.md", "content": "x", name: "ABSENT"}])
        assert refused.structured["error_type"] == "STALE_FILE"


def test_two_expected_hashes_that_differ_are_refused(call: Call, root: Path) -> None:
    """finding U2: nobody can tell which of the two is meant. Equal ones, and null, are fine."""
    one, two = sha256(b"v1"), sha256(b"v2")
    (root / "plan.md").write_bytes(b"v1")
    call("read_text_file", path="plan.md")

    differing = call("write_file", path="plan.md", content="x", expected_hash=one, expected_sha256=two)
    kept = (root / "plan.md").read_bytes()
    equal = call("write_file", path="plan.md", content="v2", expected_hash=one, expected_sha256=one)
    with_null = call("write_file", path="plan.md", content="v3", expected_hash=two, expected_sha256=None)

    assert "got 'expected_hash' under two names, and they differ." in differing.content[0]["text"]
    assert differing.structured["error_type"] == "BAD_REQUEST"
    assert kept == b"v1"
    assert not equal.is_error
    assert not with_null.is_error


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["path", "content", "edits", "files", "oldText", "x"]), inner)))  # fmt: skip
def test_arguments_of_any_shape_are_taken_or_refused(value: Any) -> None:
    """N-mcp, N-input: wrong types are complaints, never crashes."""
    for tool in TOOLS.values():
        try:
            understood(tool, value if isinstance(value, dict) else {"path": value})
        except BadRequestError as refused:
            assert refused.message.startswith(f"The tool {tool.name!r} ")
