"""VS Code's agent, which runs Claude Code's hooks with tools of its own. Every way out leads on (finding H14)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noclobber.hosts.vscode import HARMLESS
from tests.rigs.hooks import HookRig, refusal

SNAKE = {"name": "hook_event_name", "session": "session_id", "tool": "tool_name", "given": "tool_input"}
CAMEL = {"name": "hookEventName", "session": "sessionId", "tool": "toolName", "given": "toolInput"}
DUTIES = ("check", "shell", "check")  # It ignores matchers, so each of the three hooks is asked.


class Agent:
    """A session of VS Code's agent, in one spelling of its envelope."""

    def __init__(self, rig: HookRig, words: dict[str, str]) -> None:
        self.rig, self.words, self.calls = rig, words, 0

    def event(self, name: str, tool: str, given: dict[str, Any], **more: Any) -> dict[str, Any]:
        words, about = self.words, {"cwd": str(self.rig.root), "timestamp": "2026-11-18T10:00:00.000Z"}
        call = {"tool_use_id" if words is SNAKE else "toolUseId": f"call_{self.calls}"}
        said = {words["name"]: name, words["session"]: "s", words["tool"]: tool, words["given"]: given}
        return {**about, **call, **said, **more}

    def asks(self, tool: str, **given: Any) -> dict[str, Any]:
        """Return the denial of a call, or nothing."""
        self.calls += 1
        answers = [
            self.rig.call("claude-code", self.event("PreToolUse", tool, given), duty)[0] for duty in DUTIES
        ]
        return next(filter(None, answers), {})

    def did(self, tool: str, response: str = "", **given: Any) -> dict[str, Any]:
        name = "tool_response" if self.words is SNAKE else "toolResponse"
        event = self.event("PostToolUse", tool, given, **{name: response})
        return self.rig.call("claude-code", event, "note")[0]

    def reads(self, path: Path, shown: str | None = None) -> None:
        given = {"filePath": str(path), "startLine": 1, "endLine": 2000}
        assert self.asks("read_file", **given) == {}
        assert self.did("read_file", path.read_text() if shown is None else shown, **given) == {}


@pytest.fixture(params=[SNAKE, CAMEL], ids=["snake", "camel"])
def agent(request: pytest.FixtureRequest, rig: HookRig) -> Agent:
    return Agent(rig, request.param)


def edits(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return an edit of `hello` by each tool that can make one."""
    one = {"filePath": str(path), "oldString": "hello", "newString": "bye"}
    patch = f"*** Begin Patch\n*** Update File: {path}\n@@\n-hello\n+bye\n*** End Patch\n"
    return [
        ("replace_string_in_file", {**one, "explanation": "e"}),
        ("multi_replace_string_in_file", {"replacements": [one], "explanation": "e"}),
        ("apply_patch", {"input": patch, "explanation": "e"}),
        ("insert_edit_into_file", {"filePath": str(path), "code": "bye\n// ...existing code..."}),
        ("edit_notebook_file", {"filePath": str(path), "editType": "edit", "newCode": "bye"}),
    ]


@pytest.mark.parametrize("number", range(5))
def test_an_edit_passes_is_refused_when_stale_and_its_own_read_leads_out(
    agent: Agent, root: Path, number: int
) -> None:
    """Finding H14: by each of its tools, in both spellings of the envelope."""
    path = root / "a.md"
    path.write_text("hello\nworld\n")
    tool, given = edits(path)[number]
    agent.reads(path)
    assert agent.asks(tool, **given) == {}
    path.write_text("bye\nworld\n")
    assert agent.did(tool, "Done.", **given) == {}
    path.write_text("hello\nby a person\n")
    if tool in ("insert_edit_into_file", "edit_notebook_file"):
        agent.reads(path)  # Nobody can foresee what these make, so they are read afterwards.
        path.write_text("hello\nby a person again\n")
    denied = agent.asks(tool, **given)
    assert refusal(denied)["error_type"] == "STALE_FILE"
    assert "read_file" in str(denied)
    agent.reads(path)
    assert agent.asks(tool, **given) == {}


def test_a_document_with_unsaved_edits_that_was_read_can_be_edited(agent: Agent, root: Path) -> None:
    """Finding H14: it shows the document, and not the file. The file has not changed, so nothing is stale."""
    path = root / "a.md"
    path.write_text("hello\nworld\n")
    agent.reads(path, shown="hello\nworld, not saved yet\n")
    given = {"filePath": str(path), "oldString": "not saved yet", "newString": "saved"}
    assert agent.asks("replace_string_in_file", **given) == {}
    assert agent.did("replace_string_in_file", "Done.", **given) == {}  # Its user has not kept it yet.
    assert agent.asks("replace_string_in_file", **given) == {}


def test_a_new_file_is_made_and_its_command_is_looked_at(agent: Agent, root: Path) -> None:
    """Finding H14: `create_file` and `run_in_terminal`."""
    path = root / "new.md"
    assert agent.asks("create_file", filePath=str(path), content="new\n") == {}
    path.write_text("new\n")
    assert agent.did("create_file", "Created.", filePath=str(path), content="new\n") == {}
    path.write_text("by a person\n")
    denied = agent.asks("run_in_terminal", command="echo x > new.md", isBackground=False, explanation="e")
    assert refusal(denied)["error_type"] == "STALE_FILE"
    assert agent.asks("run_in_terminal", command="ls", isBackground=False, explanation="e") == {}


@pytest.mark.parametrize(
    "tool", [*HARMLESS, "run_task", "copilot_writeMemory", "vscode_editSettings", "write_x"]
)
def test_what_is_not_understood_passes_and_is_in_the_log(agent: Agent, root: Path, tool: str) -> None:
    """Finding H14: never refused for ever; whoever did not ask for our hooks is not stopped by them."""
    path = root / "a.md"
    path.write_text("hello\n")
    agent.reads(path)
    assert agent.asks(tool, id="x", about={"path": "a.md"}) == {}
    assert agent.did(tool, "done", id="x", about={"path": "a.md"}) == {}
    logs = [log.read_text() for log in agent.rig.runtime.rglob("hook.log")]
    assert any(tool in log for log in logs) == (tool not in (*HARMLESS, "run_task"))


def test_claude_codes_own_events_stay_its_own(rig: HookRig, root: Path) -> None:
    """Finding H14: the tools that are known tell the two apart, also beside a session of VS Code's."""
    path = root / "a.md"
    path.write_text("hello\n")
    beside = Agent(rig, SNAKE)
    beside.reads(path)
    path.write_text("changed\n")
    own = {**rig.tool("PreToolUse", "Write", {"file_path": str(path), "content": "bye\n"}), "session_id": "s"}
    assert (
        rig.call("claude-code", own, "check")[0] == {}
    )  # Claude Code's session of that name has read nothing.
