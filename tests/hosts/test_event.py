"""
What the next version of a host may send: fields that nobody knows, and fields that have moved.

A call is understood with whatever is added to it. One that cannot be understood is refused, with a sentence that
says what to report: it never goes through in silence, and is never a crash of the host.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from noclobber.hosts import HOSTS, load
from tests.rigs.hooks import HookRig

PATCH = "*** Begin Patch\n*** Update File: a.txt\n@@\n-hello\n+HELLO\n*** End Patch\n"
EDIT = {"old_string": "hello", "new_string": "HELLO"}
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "claude-code": ("Edit", {"file_path": "a.txt", **EDIT}),
    "cline": ("editor", {"path": "a.txt", "old_text": "hello", "new_text": "HELLO"}),
    "codex": ("apply_patch", {"command": PATCH}),
    "copilot": ("edit", {"path": "a.txt", "old_str": "hello", "new_str": "HELLO"}),
    "cursor": ("Write", {"file_path": "a.txt", "content": "HELLO\n"}),
    "gemini": ("replace", {"file_path": "a.txt", **EDIT}),
    "opencode": ("edit", {"filePath": "a.txt", "oldString": "hello", "newString": "HELLO"}),
    "qwen": ("edit", {"file_path": "a.txt", **EDIT}),
}
"""A write in each host: the tool's name, and what it is given."""


def asking(host: str, root: Path, given_name: str = "", **more: Any) -> dict[str, Any]:
    """What a host asks before its write. `given_name`: where the next version puts the tool's parameters."""
    tool, given = CALLS[host]
    given = {**given, **more}
    about: dict[str, Any]
    if host in ("cline", "opencode"):
        holder = {given_name or "args": given}
        about = {"tool": tool, "sessionID": "s", "callID": "c"}
        if host == "cline":
            return {"ev": "before", "input": {**about, **holder}, "directory": str(root)}
        return {"ev": "before", "input": about, "output": holder, "directory": str(root)}
    if host == "copilot":
        about = {"sessionId": "s", "cwd": str(root), "timestamp": 1, "toolName": tool}
        return {**about, given_name or "toolArgs": given}
    about = {"session_id": "s", "conversation_id": "s", "cwd": str(root), "workspace_roots": [str(root)]}
    return {**about, **load(host).CHECK_EVENT, "tool_name": tool, given_name or "tool_input": given}


def test_every_host_is_asked_about() -> None:
    """N-hosts: a host that is added here is added there."""
    assert set(CALLS) == set(HOSTS)


@pytest.mark.parametrize("host", HOSTS)
def test_fields_that_nobody_knows_change_nothing(host: str, root: Path) -> None:
    """N-hosts, N-input: around a call, and among its parameters."""
    plain = load(host).read(asking(host, root))
    later = load(host).read({**asking(host, root, reason={"of": ["the", 2]}), "protocol": {"version": 9}})

    assert plain.trouble is None
    assert plain.kind == later.kind == "pre"
    assert [(one.kind, one.path) for one in plain.actions] == [
        ("write" if host == "cursor" else "edit", "a.txt")
    ]
    assert (later.actions, later.trouble) == (plain.actions, None)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("change", ["moved", "a list", "nothing"])
def test_a_write_whose_parameters_have_moved_is_refused_and_says_what_to_report(
    rig: HookRig, root: Path, host: str, change: str
) -> None:
    """N-hosts, N-input: nothing is let through that was not understood."""
    (root / "a.txt").write_text("hello\n")
    payload = asking(host, root, "of_the_next_version")
    if change != "moved":
        name = {"copilot": "toolArgs", "cline": "args", "opencode": "args"}.get(host, "tool_input")
        holder = payload["output" if host == "opencode" else "input"] if name == "args" else payload
        holder[name] = [1, 2] if change == "a list" else None

    answer, code = rig.call(host, payload, "check")

    said = json.dumps(answer)
    assert (code, "deny" in said) == (0, True), said
    assert "report this to the noclobber project" in said
    assert (root / "a.txt").read_text() == "hello\n"


@pytest.mark.parametrize("host", HOSTS)
def test_a_write_of_nobodys_session_is_refused_and_says_what_to_report(
    rig: HookRig, root: Path, host: str
) -> None:
    """N-hosts, N-input: what an agent has seen is kept by its session, so without one any write would pass."""
    (root / "a.txt").write_text("hello\n")
    payload = asking(host, root)
    about = payload["input"] if host in ("cline", "opencode") else payload
    for name in ("session_id", "conversation_id", "sessionId", "sessionID"):
        if name in about:
            about[f"{name}_of_the_next_version"] = about.pop(name)

    answer, code = rig.call(host, payload, "check")

    said = json.dumps(answer)
    assert (code, "deny" in said) == (0, True), said
    assert "report this to the noclobber project" in said


READS: dict[str, tuple[str, dict[str, Any], Any]] = {
    "claude-code": (
        "Read",
        {"file_path": "a.txt"},
        {"file": {"content": "hello\n", "numLines": 1, "startLine": 1, "totalLines": 1}},
    ),
    "cline": ("read_files", {"files": [{"path": "a.txt"}]}, [{"success": True, "result": "1 | hello"}]),
    "codex": ("Bash", {"command": "cat a.txt"}, "hello\n"),
    "copilot": ("view", {"path": "a.txt"}, {"resultType": "success", "textResultForLlm": "1. hello"}),
    "cursor": ("Read", {"file_path": "a.txt"}, "hello\n"),
    "gemini": ("read_file", {"file_path": "a.txt"}, {"llmContent": "hello\n"}),
    "opencode": ("read", {"filePath": "a.txt"}, {"output": "1: hello"}),
    "qwen": ("read_file", {"file_path": "a.txt"}, {"llmContent": "hello\n"}),
}
"""A read in each host: the tool's name, what it is given, and what it says."""

AFTER = {"gemini": "AfterTool", "cursor": "postToolUse"}


def telling(host: str, root: Path) -> dict[str, Any]:
    """What a host tells after a read."""
    tool, given, result = READS[host]
    about: dict[str, Any]
    if host in ("cline", "opencode"):
        about = {"tool": tool, "sessionID": "s", "callID": "r", "args": given}
        return {"ev": "after", "input": about, "output": result, "directory": str(root)}
    if host == "copilot":
        about = {"sessionId": "s", "cwd": str(root), "timestamp": 0, "toolName": tool}
        return {**about, "toolArgs": given, "toolResult": result}
    name = AFTER.get(host, "PostToolUse")
    about = {"session_id": "s", "conversation_id": "s", "cwd": str(root), "hook_event_name": name}
    return {**about, "tool_name": tool, "tool_input": given, "tool_response": result}


NEXT_VERSION = {
    "as it is": (),
    "parameters moved": ("tool_input", "toolArgs", "args"),
    "tool without a name": ("tool_name", "toolName", "tool"),
    "event without a name": ("hook_event_name", "toolResult"),
}


@pytest.mark.parametrize("change", NEXT_VERSION)
@pytest.mark.parametrize("host", HOSTS)
def test_a_read_that_is_not_understood_makes_the_session_strict_and_is_told(
    rig: HookRig, root: Path, host: str, change: str
) -> None:
    """N-hosts, N-input, ruling 22: otherwise the file counts as never read, and a stale write passes in silence."""
    file = root / "a.txt"
    file.write_text("hello\n")
    payload = telling(host, root)
    about = payload["input"] if host in ("cline", "opencode") else payload
    moved = [name for name in NEXT_VERSION[change] if name in about]
    for name in moved:
        about[f"{name}_of_the_next_version"] = about.pop(name)

    answer, code = rig.call(host, payload, "note")

    assert (code, '"deny"' in json.dumps(answer)) == (0, False)
    assert ("report this to the noclobber project" in json.dumps(answer)) == bool(moved), answer
    file.write_text("hello\na person's line\n")
    answer, code = rig.call(host, asking(host, root), "check")
    assert (code, "deny" in json.dumps(answer)) == (0, True), answer


def test_a_shell_of_another_name_that_shows_a_file_makes_the_session_strict(rig: HookRig, root: Path) -> None:
    """N-hosts, N-input, ruling 22: what it showed is somewhere in the event, nobody knows where."""
    file = root / "a.txt"
    file.write_text("hello\n")
    rig.call("codex", {**telling("codex", root), "tool_name": "terminal"}, "note")
    file.write_text("hello\na person's line\n")

    assert "deny" in json.dumps(rig.call("codex", asking("codex", root), "check")[0])


def test_a_patch_in_a_command_is_judged_whatever_the_event_is_called(rig: HookRig, root: Path) -> None:
    """N-hosts, N-input: the command line says that a call waits, so the event need not."""
    file = root / "a.txt"
    file.write_text("hello\n")
    rig.call("codex", telling("codex", root), "note")
    file.write_text("hello\na person's line\n")
    command = {"command": f"apply_patch <<'EOF'\n{PATCH}EOF"}
    payload = {**asking("codex", root), "tool_name": "Bash", "tool_input": command}
    del payload["hook_event_name"]

    assert "deny" in json.dumps(rig.call("codex", payload, "shell")[0])


def test_a_command_that_claude_code_only_watches_shows_nothing(root: Path) -> None:
    """N-hosts, 009-SC-002: `Monitor` gives its model lines later, so its result is no read, and no trouble."""
    event = {**telling("claude-code", root), "tool_name": "Monitor", "tool_input": {"command": "cat a.txt"}}
    found = load("claude-code").read(event)
    assert (found.actions, found.trouble, found.is_background) == ((), None, True)


@pytest.mark.parametrize(
    ("host", "tool"),
    [
        ("copilot", "github-mcp-server-create_pull_request"),
        ("copilot", "github-mcp-server-create_or_update_file"),
        ("cline", "github__create_pull_request"),
        ("cline", "github__create_or_update_file"),
        ("opencode", "mcp__github__create_pull_request"),
    ],
)
def test_a_tool_of_an_mcp_server_that_writes_elsewhere_is_let_be(
    rig: HookRig, root: Path, host: str, tool: str
) -> None:
    """finding S9, 009-SC-002: a branch's name has a slash in it, and a path in a repository is not one here."""
    given = {
        "owner": "o",
        "repo": "r",
        "head": "feature/x",
        "path": "a.txt",
        "content": "x",
        "branch": "main",
    }
    payload = asking(host, root)
    if host == "copilot":
        payload.update(toolName=tool, toolArgs=given)
    else:
        payload["input"]["tool"] = tool
        payload["input" if host == "cline" else "output"]["args"] = given

    assert '"deny"' not in json.dumps(rig.call(host, payload, "check")[0])
