"""The guarded tools as a model's API sees them: `turn.tools()` and its `call`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

from noclobber import BadRequestError, Workspace, parse_stale
from noclobber.guard.tools.definitions import TOOLS
from noclobber.guard.tools.formats import FORMATS
from noclobber.guard.tools.tool_list import refuse_clashes
from noclobber.guard.turn import Turn
from tests.rigs.ledgers import recorded


@pytest.fixture
def turn(root: Path) -> Iterator[Turn]:
    with Workspace(root) as workspace, workspace.turn(agent_id="builder") as turn:
        yield turn


def spelled(api: str, name: str, arguments: dict[str, Any], call_id: str = "call-1") -> Any:
    """A model's call as each API spells it."""
    return {
        "openai": {"id": call_id, "function": {"name": name, "arguments": json.dumps(arguments)}},
        "openai-responses": {
            "type": "function_call",
            "id": "fc-9",
            "call_id": call_id,
            "name": name,
            "arguments": json.dumps(arguments),
        },
        "anthropic": {"type": "tool_use", "id": call_id, "name": name, "input": arguments},
        "gemini": {"functionCall": {"id": call_id, "name": name, "args": arguments}},
        "mcp": {"name": name, "arguments": arguments},
    }[api]


def text_of(api: str, result: dict[str, Any]) -> str:
    """The text of a result."""
    if api == "openai":
        assert (result["role"], result["tool_call_id"]) == ("tool", "call-1")
        return str(result["content"])
    if api == "openai-responses":
        assert (result["type"], result["call_id"]) == ("function_call_output", "call-1")
        return str(result["output"])
    if api == "anthropic":
        assert (result["type"], result["tool_use_id"]) == ("tool_result", "call-1")
    if api == "gemini":
        response = result["functionResponse"]
        assert response["id"] == "call-1"
        said = response["response"]
        return str(said["output"]) if "output" in said else json.dumps(said["error"])
    return str(result["content"][0]["text"])


@pytest.mark.parametrize("api", FORMATS)
def test_a_model_reads_and_writes_in_every_format(turn: Turn, root: Path, api: Any) -> None:
    """N-frameworks, finding U7: one source of schemas, five spellings."""
    (root / "plan.md").write_bytes(b"- one\n")
    tools = turn.tools(format=api)
    assert text_of(api, tools.call(spelled(api, "read_file", {"path": "plan.md"}))) == "- one\n"
    done = tools.call(spelled(api, "write_file", {"path": "plan.md", "content": "- two\n"}))
    assert text_of(api, done) == "Wrote plan.md."
    assert (root / "plan.md").read_bytes() == b"- two\n"


@pytest.mark.parametrize("api", FORMATS)
def test_a_stale_write_is_the_exact_object_in_every_format(turn: Turn, root: Path, api: Any) -> None:
    """009-FR-006, ruling 3: the 009 object, marked as an error where the API has a mark."""
    plan = root / "plan.md"
    plan.write_bytes(b"- one\n")
    tools = turn.tools(format=api)
    tools.call(spelled(api, "read_file", {"path": "plan.md"}))
    plan.write_bytes(b"- theirs\n")
    result = tools.call(spelled(api, "write_file", {"path": "plan.md", "content": "- mine\n"}))
    stale = parse_stale(text_of(api, result))
    assert stale is not None
    assert stale.path == str(plan)
    assert result.get("is_error", True)
    assert result.get("isError", True)
    if api == "mcp":
        assert parse_stale(result["structuredContent"]) is not None
    assert plan.read_bytes() == b"- theirs\n"


def test_objects_of_an_apis_own_package_are_calls_as_well(turn: Turn, root: Path) -> None:
    """N-frameworks: what an SDK returns has attributes, not keys."""
    (root / "plan.md").write_bytes(b"- one\n")
    block = SimpleNamespace(type="tool_use", id="call-1", name="read_file", input={"path": "plan.md"})
    assert text_of("anthropic", turn.tools("anthropic").call(block)) == "- one\n"
    function = SimpleNamespace(name="read_file", arguments='{"path": "plan.md"}')
    call = SimpleNamespace(id="call-1", type="function", function=function)
    assert text_of("openai", turn.tools("openai").call(call)) == "- one\n"


def test_the_schemas_are_json_schemas_and_go_over_the_wire(turn: Turn) -> None:
    """N-frameworks: each is valid, and the list is plain JSON."""
    for tool in TOOLS.values():
        jsonschema.Draft202012Validator.check_schema(tool.parameters)
    for api in FORMATS:
        assert json.loads(json.dumps(turn.tools(format=api)))  # type: ignore[arg-type]
    assert "additionalProperties" not in json.dumps(turn.tools("gemini"))


def test_the_models_call_id_is_on_record(turn: Turn, root: Path) -> None:
    """N-frameworks: identity reaches the ledger."""
    turn.tools("anthropic").call(spelled("anthropic", "write_file", {"path": "a", "content": "x"}))
    [event] = recorded(root / ".noclobber" / "agent_trace.jsonl")
    assert event["identity"]["call_id"] == "call-1"
    assert event["identity"]["agent_id"] == "builder"


WRONG = [
    ("write_file", {"content": "x"}, "path"),
    ("write_file", {"path": ["a"], "content": "x"}, "path"),
    ("write_file", {"path": "a", "content": {"text": "x"}}, "content"),
    ("write_file", {"path": "a", "content": "x", "expected_hsah": "x"}, "expected_hash"),
    ("edit_file", {"path": "a", "edits": []}, "edits"),
    ("edit_file", {"path": "a", "edits": [{"old_string": "", "new_string": ""}]}, "both empty"),
    ("edit_file", {"path": "a", "edits": [{"old_string": "x"}]}, "edits[0].new_string"),
    ("read_file", {"path": "a", "start_line": "one"}, "start_line"),
    ("move_file", {"source": "a"}, "destination"),
    ("no_such_tool", {}, "read_file"),
]


@pytest.mark.parametrize(("name", "arguments", "named"), WRONG)
def test_wrong_arguments_are_named_with_the_remedy(
    turn: Turn, root: Path, name: str, arguments: dict[str, Any], named: str
) -> None:
    """N-frameworks: the model is told which parameter, and what to send; nothing is touched."""
    (root / "a").write_bytes(b"kept\n")
    answer = turn.tools().answer(name, arguments)
    assert answer.is_error
    assert named in answer.text
    assert (root / "a").read_bytes() == b"kept\n"


def test_arguments_that_are_not_json_are_named(turn: Turn) -> None:
    """N-frameworks: half of an object, as a cut answer has it."""
    answer = turn.tools().answer("read_file", '{"path": "pl')
    assert "not JSON" in answer.text
    assert "object" in turn.tools().answer("read_file", '["plan.md"]').text


def test_what_has_one_meaning_is_accepted(turn: Turn, root: Path) -> None:
    """N-frameworks: numbers as text, null for what is not given, JSON text in the place of a list."""
    (root / "a").write_bytes(b"one\ntwo\nthree\n")
    answer = turn.tools().answer("read_file", {"path": "a", "start_line": "2", "end_line": 2.0})
    assert answer.text == "two\n"
    edits = json.dumps([{"old_string": "two", "new_string": "2"}])
    assert not turn.tools().answer("edit_file", {"path": "a", "edits": edits, "expected_hash": None}).is_error
    assert (root / "a").read_bytes() == b"one\n2\nthree\n"


def test_a_file_that_is_not_utf8_is_edited_and_never_replaced(turn: Turn, root: Path) -> None:
    """N-frameworks: the model saw U+FFFD where bytes are; written back, they would be lost."""
    (root / "a").write_bytes(b"M\xfcller\nold\n")
    tools = turn.tools()
    shown = tools.answer("read_file", {"path": "a"}).text
    shown.encode()
    refused = tools.answer("write_file", {"path": "a", "content": shown})
    assert refused.is_error
    assert "edit_file" in refused.text
    tools.answer("edit_file", {"path": "a", "edits": [{"old_string": "old", "new_string": "new"}]})
    assert (root / "a").read_bytes() == b"M\xfcller\nnew\n"


def test_a_whole_write_keeps_the_line_endings_that_were_read(turn: Turn, root: Path) -> None:
    """N-frameworks: models write `\\n`, whatever they read."""
    (root / "a").write_bytes(b"one\r\ntwo\r\n")
    tools = turn.tools()
    tools.answer("read_file", {"path": "a"})
    tools.answer("write_file", {"path": "a", "content": "one\nthree\n"})
    assert (root / "a").read_bytes() == b"one\r\nthree\r\n"


def test_a_large_file_is_read_in_parts(turn: Turn, root: Path) -> None:
    """N-frameworks: too large for a model's memory is an error that says how to go on."""
    (root / "a").write_bytes(b"a line\n" * 100_000)
    answer = turn.tools().answer("read_file", {"path": "a"})
    assert answer.is_error
    assert "start_line" in answer.text
    assert turn.tools().answer("read_file", {"path": "a", "start_line": 1, "end_line": 1}).text == "a line\n"


def test_what_is_listed_and_found_is_what_agents_may_read(turn: Turn, root: Path) -> None:
    """N-frameworks, REQ-LOCK-010: no record of noclobber's and no lock file."""
    tools = turn.tools()
    tools.answer("write_file", {"path": "docs/a.md", "content": "needle\n"})
    (root / ".lock").write_text("needle")
    assert tools.answer("list_files", {}).text == "docs/"
    assert tools.answer("list_files", {"pattern": "**/*.md"}).text == "docs/a.md"
    assert tools.answer("search_files", {"text": "needle"}).text == "docs/a.md:1: needle"
    assert tools.answer("list_files", {"path": ".."}).is_error


def test_names_can_be_kept_from_clashing(turn: Turn, root: Path) -> None:
    """N-frameworks: a prefix, and only those that are wanted."""
    tools = turn.tools("anthropic", only=["write_file"], prefix="fs_")
    assert [tool["name"] for tool in tools] == ["fs_write_file"]
    done = tools.call(spelled("anthropic", "fs_write_file", {"path": "a", "content": "x"}))
    assert "is_error" not in done
    with pytest.raises(BadRequestError, match="read_file"):
        turn.tools(only=["raed_file"])
    with pytest.raises(BadRequestError, match="anthropic"):
        turn.tools(format="antropic")  # type: ignore[arg-type]


@pytest.mark.parametrize("api", sorted(FORMATS))
def test_a_name_that_occurs_twice_is_an_error_with_the_remedy(turn: Turn, api: Any) -> None:
    """N-frameworks: a model could not say which of the two it means."""
    own = list(turn.tools(api, only=["read_file"]))
    with pytest.raises(BadRequestError, match=r"named 'read_file'.*prefix=\"fs_\""):
        turn.tools(api, beside=own)
    with pytest.raises(BadRequestError, match="'fs_read_file'"):
        turn.tools(api, prefix="fs_", beside=["fs_read_file"])
    assert turn.tools(api, prefix="fs_", beside=own)


def test_the_program_on_the_page_prints_what_the_page_says(tmp_path: Path) -> None:
    """N-frameworks, N-documented: docs/frameworks/no-framework.md, as it is."""
    page = Path(__file__).parents[3] / "docs" / "frameworks" / "no-framework.md"
    [(program, printed)] = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page.read_text(), re.S)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == printed, done.stderr


def test_a_tool_of_ones_own_as_the_page_writes_it_is_guarded(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-frameworks: the recipe for tools of one's own, in any framework."""
    page = Path(__file__).parents[3] / "docs" / "frameworks" / "no-framework.md"
    [recipe] = re.findall(r"```python\n(.*?)```", page.read_text().partition("## Tools of your own")[2], re.S)
    monkeypatch.chdir(root)
    (root / "project").mkdir()
    plan = root / "project" / "plan.md"
    plan.write_bytes(b"- one\n")
    names: dict[str, Any] = {}
    exec(recipe, names)

    assert names["ours"].answer("read_file", {"path": "plan.md"}).text == "- one\n"
    plan.write_bytes(b"- theirs\n- one\n")
    assert "STALE_FILE" in names["edit_file"]("plan.md", "one", "mine")
    assert plan.read_bytes() == b"- theirs\n- one\n"
    names["ours"].answer("read_file", {"path": "plan.md"})
    assert names["edit_file"]("plan.md", "one", "mine") == "Edited plan.md."
    names["workspace"].close()


def test_a_call_in_another_format_is_the_programs_mistake(turn: Turn) -> None:
    """N-frameworks: no model can correct it, so it is an exception."""
    with pytest.raises(BadRequestError, match="tool_use block"):
        turn.tools("anthropic").call({"function": {"name": "read_file", "arguments": "{}"}})


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("read_file", {"path": "plan.md", "start_line": "--5"}),
        ("read_file", {"path": "plan.md", "start_line": "9" * 5000}),
        ("list_files", {"pattern": "**/" * 2000}),
        ("list_files", {"pattern": "**/" * 300 + "x"}),
    ],
)
def test_no_argument_of_a_models_becomes_an_exception(
    turn: Turn, root: Path, name: str, given: dict[str, str]
) -> None:
    """N-frameworks, N-input: a number that is none, or a pattern without end, is an answer to the model."""
    (root / "plan.md").write_bytes(b"- one\n")
    (root / "a/b/c/d/e").mkdir(parents=True)
    (root / "a/b/c/d/e/f.md").write_bytes(b"")
    answer = turn.tools(format="anthropic").call(
        {"type": "tool_use", "id": "1", "name": name, "input": given}
    )
    assert answer["tool_use_id"] == "1"


def test_a_format_that_is_no_word_is_refused_like_any_other(turn: Turn) -> None:
    """N-input: a list cannot be looked up."""
    with pytest.raises(BadRequestError, match="There is no format"):
        turn.tools(format=["openai"])  # type: ignore[arg-type]


def test_a_name_that_occurs_twice_is_refused_with_the_remedy() -> None:
    """N-frameworks: a model could not say which one it means."""
    refuse_clashes(["read_file"], ["load"], "Rename it.")
    with pytest.raises(BadRequestError, match=r"'read_file'.*Rename it"):
        refuse_clashes(["read_file", "write_file"], ["load", "read_file"], "Rename it.")
