"""Tools as data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noclobber.core.values import Edit, ToolCall
from noclobber.errors import BadRequestError, EditMismatchError, UnknownToolError
from noclobber.guard.catalogue import FORMS, Catalogue, Tool


def request(tool: str, **params: Any) -> Any:
    return Catalogue().request(ToolCall(tool, params))


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
    """Issue 2.7, R-hook: the path is found in the call's parameters."""
    catalogue = Catalogue()
    assert catalogue.tool(name).kind == kind
    assert name in {tool.name for tool in catalogue}


@pytest.mark.parametrize("name", ["execute_command", "", "READ_FILE"])
def test_what_nobody_registered_may_write_anything(name: str) -> None:
    """Issue 2.7."""
    with pytest.raises(UnknownToolError):
        Catalogue().tool(name)


def test_parameters_become_a_request() -> None:
    """Issue 2.7: the first name that is present counts; numbers may be spelled as text."""
    assert request("read_file", file_path=Path("a.md"), start_line="2", end_line=3)[1:] == (
        "a.md", None, None, (), 2, 3, None, None,
    )  # fmt: skip
    assert request("write_to_file", path="a.md", content=bytearray(b"x")).content == b"x"
    assert request("move_file", source="a", destination="b").destination == "b"
    assert request("move_file", path="a", new_path="b").destination == "b"
    assert request("write_files", files={Path("a"): "x"}).files == (("a", "x", None),)


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
    """Bad input: BAD_REQUEST."""
    with pytest.raises(BadRequestError):
        request(tool, **params)


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
    """Issue 2.7: the seed's edit tools, and those of today's hosts."""
    assert FORMS[form](b"v1\n", params, "/a") == after


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
    """Bad input."""
    with pytest.raises(BadRequestError):
        FORMS[form](b"v1\n", params, "/a")


def test_a_change_that_does_not_fit_is_a_mismatch() -> None:
    """EDIT_MISMATCH is about the file, BAD_REQUEST about the call."""
    with pytest.raises(EditMismatchError):
        FORMS["replacement"](b"v1\n", {"old": "z", "new": "y"}, "/a")


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
    """Bad input."""
    with pytest.raises(BadRequestError):
        Catalogue().register(tool)
