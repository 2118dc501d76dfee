"""Tools as data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noclobber.core.actions import Action
from noclobber.core.values import Edit, ToolCall
from noclobber.errors import BadRequestError, EditMismatchError, UnknownToolError
from noclobber.guard.catalogue import FORMS, Catalogue, Tool


def actions(tool: str, **params: Any) -> tuple[Action, ...]:
    return Catalogue().actions(ToolCall(tool, params))


def changed(form: str, params: dict[str, Any], data: bytes) -> bytes:
    return FORMS[form].change(params, "/a").apply(data, "/a")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("read_file", "read"),
        ("write_to_file", "write"),
        ("write_file", "write"),
        ("apply_diff", "edit"),
        ("insert_content", "edit"),
        ("search_and_replace", "edit"),
        ("edit_file", "edit"),
        ("write_files", "write_many"),
        ("delete_file", "delete"),
        ("move_file", "move"),
    ],
)
def test_the_seeds_tools_are_registered(name: str, kind: str) -> None:
    """N-tools, R-hook: the path is found in the call's parameters."""
    catalogue = Catalogue()
    assert catalogue.tool(name).kind == kind
    assert name in {tool.name for tool in catalogue}


@pytest.mark.parametrize("name", ["execute_command", "", "READ_FILE"])
def test_what_nobody_registered_may_write_anything(name: str) -> None:
    """N-tools."""
    with pytest.raises(UnknownToolError):
        Catalogue().tool(name)


def test_parameters_become_actions() -> None:
    """N-tools: either name of the path; numbers may be spelled as text."""
    [read] = actions("read_file", file_path=Path("a.md"), start_line="2", end_line=3)
    assert (read.kind, read.path, read.first_line, read.line_count) == ("read", "a.md", 2, 2)
    [write] = actions("write_to_file", path="a.md", content=bytearray(b"x"), line_count=1)
    assert (write.kind, write.content) == ("write", b"x")
    for spelled in ({"source": "a", "destination": "b"}, {"path": "a", "new_path": "b"}):
        assert [(one.kind, one.path) for one in actions("move_file", **spelled)] == [
            ("move", "a"),
            ("create", "b"),
        ]
    [only] = actions("write_files", files={Path("a"): "x"})
    assert (only.kind, only.path, only.content) == ("write", "a", "x")
    assert actions("list_files", path="a", anything=1) == ()


@pytest.mark.parametrize(
    ("tool", "params", "near"),
    [
        ("write_file", {"path": "a", "content": "x", "expected_hsah": "0" * 64}, "'expected_hash'"),
        ("write_file", {"path": "a", "contents": "x"}, "'content'"),
        ("read_file", {"path": "a", "start": 1}, "'start_line'"),
        ("edit_file", {"path": "a", "edit": []}, "'edits'"),
        ("delete_file", {"path": "a", "zzz": 1}, "It has: path"),
        ("write_files", {"files": {"a": "x"}, "expected_hash": {}}, "'expected_hashes'"),
    ],
)
def test_a_parameter_that_a_tool_does_not_have_is_refused_with_the_nearest_name(
    tool: str, params: dict[str, Any], near: str
) -> None:
    """finding U2: a misspelled precondition must not be dropped."""
    with pytest.raises(BadRequestError, match=near):
        actions(tool, **params)


def test_the_expected_hash_has_two_names_and_one_meaning() -> None:
    """finding U2: what MCP calls it is accepted, too."""
    one, other = "0" * 64, "1" * 64
    for name in ("expected_hash", "expected_sha256"):
        assert actions("write_file", path="a", content="x", **{name: one})[0].expected_hash == one
    with pytest.raises(BadRequestError, match="differ"):
        actions("write_file", path="a", content="x", expected_hash=one, expected_sha256=other)


def test_two_names_for_the_path_must_name_one_file() -> None:
    """finding S4: the one that is checked must be the one that is written."""
    assert actions("read_file", path="a", file_path="a")[0].path == "a"
    with pytest.raises(BadRequestError, match="two different files"):
        actions("write_file", path="decoy", file_path="real", content="x")


@pytest.mark.parametrize(
    ("tool", "params"),
    [
        ("read_file", {}),
        ("read_file", {"path": 7}),
        ("read_file", {"path": None}),
        ("read_file", {"path": "a", "start_line": "x"}),
        ("read_file", {"path": "a", "start_line": 1.5}),
        ("read_file", {"path": "a", "start_line": True}),
        ("write_file", {"path": "a"}),
        ("write_file", {"path": "a", "content": None}),
        ("write_file", {"path": "a", "content": ["x"]}),
        ("write_file", {"path": "a", "content": "x", "observation_id": 7}),
        ("move_file", {"source": "a"}),
        ("write_files", {}),
        ("write_files", {"files": []}),
        ("write_files", {"files": {}}),
        ("write_files", {"files": {"a": 7}}),
        ("write_files", {"files": {"a": "x"}, "expected_hashes": {"a": "nonsense"}}),
    ],
)
def test_a_bad_parameter_is_named(tool: str, params: dict[str, Any]) -> None:
    """N-tools, N-input: BAD_REQUEST."""
    with pytest.raises(BadRequestError):
        actions(tool, **params)


@pytest.mark.parametrize(
    ("form", "params", "after"),
    [
        ("edits", {"edits": [Edit("v1", "v2")]}, b"v2\n"),
        ("edits", {"edits": [{"old": "v1", "new": "v2"}]}, b"v2\n"),
        ("edits", {"edits": [{"oldText": "v1", "newText": "v2"}]}, b"v2\n"),
        ("edits", {"edits": [{"old_string": "v", "new_string": "w", "replace_all": "true"}]}, b"w1\n"),
        ("replacement", {"old_string": "v1", "new_string": "v2"}, b"v2\n"),
        ("insertion", {"line": "1", "content": "v0"}, b"v0\nv1\n"),
        ("insertion", {"content": "v2"}, b"v1\nv2\n"),
        ("search", {"search": "V", "replace": "w", "ignore_case": "true"}, b"w1\n"),
        ("search", {"search": "v.", "replace": "w", "use_regex": True, "start_line": ""}, b"w\n"),
        ("blocks", {"diff": "<<<<<<< SEARCH\nv1\n=======\nv2\n>>>>>>> REPLACE"}, b"v2\n"),
    ],
)
def test_every_way_of_spelling_a_change_is_understood(
    form: str, params: dict[str, Any], after: bytes
) -> None:
    """N-tools: the specifications' edit tools, and those of today's hosts."""
    assert changed(form, params, b"v1\n") == after


@pytest.mark.parametrize(
    ("form", "params"),
    [
        ("edits", {}),
        ("edits", {"edits": "v1"}),
        ("edits", {"edits": Edit("a", "b")}),
        ("edits", {"edits": ["v1"]}),
        ("edits", {"edits": [{"old": "v1"}]}),
        ("replacement", {"old_string": "v1"}),
        ("insertion", {"line": 1}),
        ("search", {"search": "v1"}),
        ("blocks", {}),
    ],
)
def test_a_change_that_is_not_spelled_out_is_a_bad_request(form: str, params: dict[str, Any]) -> None:
    """N-tools, N-input."""
    with pytest.raises(BadRequestError):
        changed(form, params, b"v1\n")


def test_a_change_that_does_not_fit_is_a_mismatch() -> None:
    """EDIT_MISMATCH is about the file, BAD_REQUEST about the call."""
    with pytest.raises(EditMismatchError):
        changed("replacement", {"old": "z", "new": "y"}, b"v1\n")


@pytest.mark.parametrize(
    "tool",
    [
        Tool("x", "execute"),  # type: ignore[arg-type]
        Tool("x", "edit", form="telepathy"),  # type: ignore[arg-type]
        Tool("x", "write", path="path"),  # type: ignore[arg-type]
        Tool("x", "move", destination="to"),  # type: ignore[arg-type]
    ],
)
def test_a_tool_that_makes_no_sense_cannot_be_registered(tool: Tool) -> None:
    """N-tools, N-input."""
    with pytest.raises(BadRequestError):
        Catalogue().register(tool)
