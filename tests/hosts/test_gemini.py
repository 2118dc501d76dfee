"""Gemini CLI: subagents, whose events look like the main agent's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.rigs.hooks import HookRig, is_denied


class Gemini:
    """A session of Gemini CLI."""

    def __init__(self, rig: HookRig) -> None:
        self.rig = rig

    def tell(self, event: str, tool: str, given: dict[str, Any], **more: Any) -> dict[str, Any]:
        duty = "check" if event == "BeforeTool" and tool != "invoke_agent" else "note"
        return self.rig.call("gemini", self.rig.tool(event, tool, given, **more), duty)[0]

    def delegate(self, event: str) -> None:
        response = {} if event == "BeforeTool" else {"tool_response": {"llmContent": "done"}}
        assert self.tell(event, "invoke_agent", {"agent_name": "generalist"}, **response) == {}

    def read(self, file: Path) -> None:
        shown = {"llmContent": file.read_text()}
        self.tell("AfterTool", "read_file", {"file_path": str(file)}, tool_response=shown)

    def edit(self, file: Path, old: str, new: str) -> bool:
        """Return whether it was let through; then it lands."""
        given = {"file_path": str(file), "old_string": old, "new_string": new}
        if is_denied(self.tell("BeforeTool", "replace", given)):
            return False
        file.write_text(file.read_text().replace(old, new))
        assert self.tell("AfterTool", "replace", given, tool_response={"llmContent": "ok"}) == {}
        return True

    def agents(self) -> list[str]:
        return [event["identity"]["agent_id"] for event in self.rig.ledger()]


@pytest.fixture
def gemini(rig: HookRig) -> Gemini:
    return Gemini(rig)


@pytest.fixture
def file(root: Path) -> Path:
    path = root / "a.txt"
    path.write_text("hello\nworld\n")
    return path


def test_what_a_subagent_wrote_the_main_agent_has_not_seen(gemini: Gemini, file: Path) -> None:
    """finding H12, R-turn: whoever asks while something is delegated is a subagent."""
    gemini.read(file)
    gemini.delegate("BeforeTool")
    gemini.read(file)
    assert gemini.edit(file, "hello", "HELLO")
    gemini.delegate("AfterTool")

    assert not gemini.edit(file, "world", "WORLD")
    gemini.read(file)
    assert gemini.edit(file, "world", "WORLD")
    assert gemini.agents() == ["subagent-1", "main", "main"]


def test_what_the_main_agent_read_holds_for_a_subagent_that_read_nothing(gemini: Gemini, file: Path) -> None:
    """finding H12: who it is cannot be told for certain, so the stricter answer is right."""
    gemini.read(file)
    file.write_text("hello\nworld\na person's line\n")
    gemini.delegate("BeforeTool")

    assert not gemini.edit(file, "hello", "HELLO")
    gemini.read(file)
    assert gemini.edit(file, "hello", "HELLO")


def test_a_second_subagent_is_another_agent(gemini: Gemini, file: Path) -> None:
    """finding H12: what the first one saw, the second has not."""
    gemini.delegate("BeforeTool")
    gemini.read(file)
    gemini.delegate("AfterTool")
    gemini.delegate("BeforeTool")
    assert gemini.edit(file, "hello", "HELLO")
    gemini.delegate("AfterTool")

    assert gemini.agents() == ["subagent-2"]


@pytest.mark.parametrize("end", ["AfterTool", "AfterAgent"])
def test_a_delegation_ends_with_its_event_or_with_the_turn(gemini: Gemini, file: Path, end: str) -> None:
    """finding H12: a subagent that was declined has no event after it."""
    gemini.delegate("BeforeTool")
    if end == "AfterTool":
        gemini.delegate("AfterTool")
    else:
        gemini.rig.call("gemini", gemini.rig.event("AfterAgent", prompt="p", prompt_response="r"), "note")
    gemini.read(file)
    assert gemini.edit(file, "hello", "HELLO")

    assert gemini.agents() == ["main"]
