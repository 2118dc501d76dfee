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
