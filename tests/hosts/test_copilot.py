"""Copilot's payloads of the next version: unknown fields, renamed tools, fields that moved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.rigs.hooks import HookRig, refusal


@pytest.fixture
def file(rig: HookRig, root: Path) -> Path:
    """A file that the agent has read, and somebody changed since."""
    path = root / "a.txt"
    path.write_text("hello\n")
    shown = {"resultType": "success", "textResultForLlm": "hello\n"}
    seen = {"toolName": "view", "toolArgs": {"path": str(path)}, "toolResult": shown, "timestamp": 1}
    assert rig.call("copilot", {"sessionId": "s", "cwd": str(root), **seen}, "note") == ({}, 0)
    path.write_text("hello, by a person\n")
    return path


def ask(rig: HookRig, **members: Any) -> dict[str, Any]:
    """Ask before a call."""
    answer, code = rig.call(
        "copilot", {"sessionId": "s", "cwd": str(rig.root), "timestamp": 2, **members}, "check"
    )
    assert code == 0
    return answer


@pytest.mark.parametrize(
    ("tool", "more"),
    [("edit", {"old_str": "hello", "new_str": "x", "why": "new"}), ("rewrite", {"content": "x"})],
)
def test_what_a_later_version_adds_or_renames_is_still_checked(
    rig: HookRig, file: Path, tool: str, more: dict[str, Any]
) -> None:
    """N-hosts: a stale write is refused by whatever name."""
    answer = ask(rig, toolName=tool, toolArgs={"path": str(file), **more}, protocol={"version": 9})
    assert refusal(answer)["error_type"] == "STALE_FILE"


@pytest.mark.parametrize(
    "members",
    [
        {"toolName": "edit", "arguments": {"path": "a.txt", "old_str": "hello", "new_str": "x"}},
        {"tool": {"name": "edit"}, "toolArgs": {"path": "a.txt", "old_str": "hello", "new_str": "x"}},
        {"toolName": "edit", "toolArgs": {"target": {"path": "a.txt"}, "old_str": "hello", "new_str": "x"}},
        {"toolName": "edit", "toolArgs": "not JSON"},
        {"toolName": "apply_patch", "toolArgs": "diff --git a/a.txt b/a.txt"},
        {"toolName": "edit", "toolArgs": [1, 2]},
        {"toolName": 7, "toolArgs": {}},
    ],
)
def test_a_write_that_is_not_understood_is_refused_and_says_what_to_report(
    rig: HookRig, file: Path, members: dict[str, Any]
) -> None:
    """N-hosts, N-input: never silently passed, and never a crash of the host."""
    answer = ask(rig, **members)
    assert refusal(answer)["message"]
    assert answer["permissionDecision"] == "deny"
    assert "report" in answer["permissionDecisionReason"].lower()


def test_tools_that_talk_to_agents_and_shells_are_no_writers(rig: HookRig, file: Path) -> None:
    """N-hosts: `write_agent` and `write_bash` have "write" in their names, and write no file."""
    for tool in ("write_agent", "write_bash", "session_store_sql", "report_intent"):
        assert ask(rig, toolName=tool, toolArgs={"input": "x"}) == {}


@pytest.mark.parametrize("name", ["", "SessionEnd"])
def test_what_was_read_is_remembered_after_a_turn_that_copilot_calls_the_sessions_end(
    rig: HookRig, file: Path, name: str
) -> None:
    """N-hosts: driven by an editor it sends `sessionEnd` after every turn, in its own or in Claude's form."""
    about = {"sessionId": "s", "cwd": str(rig.root), "timestamp": 2, "reason": "complete"}
    rig.call("copilot", {**about, "hook_event_name": name} if name else about, "note")
    edit = {"path": str(file), "old_str": "hello", "new_str": "x"}
    assert refusal(ask(rig, toolName="edit", toolArgs=edit))["error_type"] == "STALE_FILE"

    rig.call("copilot", {**about, "reason": "user_exit"}, "note")
    assert not [left for left in rig.runtime.rglob("*") if left.is_file() and left.name != "hook.log"]
