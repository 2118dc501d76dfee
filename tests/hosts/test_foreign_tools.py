"""Tools of other MCP servers, as each host's hook sees them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from noclobber.core.actions import Action
from noclobber.hosts.event import unknown_tool
from noclobber.hosts.hook_entries import hook_file
from tests.rigs.hooks import HookRig, is_denied

EDITS = [{"oldText": "a", "newText": "b"}]


def kinds(actions: tuple[Action, ...]) -> list[tuple[str, str]]:
    return [(action.kind, action.path) for action in actions]


@pytest.mark.parametrize(
    ("tool", "given", "expected"),
    [
        ("mcp__filesystem__write_file", {"path": "/p/a", "content": "x"}, [("write", "/p/a")]),
        ("mcp__filesystem__edit_file", {"path": "/p/a", "edits": EDITS}, [("edit", "/p/a")]),
        (
            "mcp__filesystem__move_file",
            {"source": "/p/a", "destination": "/p/b"},
            [("move", "/p/a"), ("create", "/p/b")],
        ),
        ("mcp__filesystem__read_text_file", {"path": "/p/a"}, [("read", "/p/a")]),
        ("mcp__desktop-commander__write_file", {"path": "/p/a", "content": "x"}, [("write", "/p/a")]),
        ("mcp__serena__replace_symbol_body", {"relative_path": "a.py", "body": "x"}, [("edit", "a.py")]),
        ("mcp__text-editor__delete_file", {"file_path": "/p/a"}, [("delete", "/p/a")]),
        ("mcp__vscode__save", {"uri": "file:///p/a%20b", "text": "x"}, [("write", "/p/a b")]),
        ("mcp__filesystem__create_directory", {"path": "/p/d"}, []),
        ("mcp__linear__create_issue", {"title": "t", "text": "x"}, []),
        ("mcp__github__create_or_update_file", {"owner": "o", "repo": "r", "path": "a", "content": "x"}, []),
        ("mcp__drive__update_file", {"uri": "https://example.com/a", "content": "x"}, []),
        ("mcp__write-helper__list_things", {"path": "/p/a"}, []),
    ],
)
def test_tools_that_plainly_write_files_here_are_understood(
    tool: str, given: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    """finding S9: by the names in common use; what is elsewhere, or names no file, is let through."""
    assert kinds(unknown_tool(tool, given)) == expected


def matchers(host: str, root: Path, event: str) -> list[str]:
    entries = hook_file(host, "project", str(root)).entries
    return [entry.value["matcher"] for entry in entries if entry.event == event and "matcher" in entry.value]


@pytest.mark.parametrize(
    ("host", "before", "after", "tool"),
    [
        ("claude-code", "PreToolUse", "PostToolUse", "mcp__filesystem__write_file"),
        ("codex", "PreToolUse", "PostToolUse", "mcp__filesystem__write_file"),
        ("qwen", "PreToolUse", "PostToolUse", "mcp__filesystem__write_file"),
        ("gemini", "BeforeTool", "AfterTool", "mcp_filesystem_write_file"),
    ],
)
def test_a_stale_write_by_another_servers_tool_is_refused(
    rig: HookRig, root: Path, host: str, before: str, after: str, tool: str
) -> None:
    """finding S9: the installed hooks match it, its reads count, and its writes are checked and recorded."""
    file = root / "a.txt"
    file.write_text("hello\n")
    read_tool = tool.replace("write_file", "read_text_file")
    for name, event in ((tool, before), (tool, after), (read_tool, after)):
        assert any(re.fullmatch(matcher, name) for matcher in matchers(host, root, event)), (name, event)

    calls = iter(range(9))

    def call(event: str, name: str, given: dict[str, Any], duty: str, **more: Any) -> dict[str, Any]:
        context = {"server_name": "filesystem", "tool_name": name.partition("filesystem")[2].strip("_")}
        extra = {"mcp_context": context} if host == "gemini" else {"tool_use_id": f"c{next(calls)}"}
        return rig.call(host, rig.tool(event, name, given, **{**extra, **more}), duty)[0]

    read, write = {"path": str(file)}, {"path": str(file), "content": "mine\n"}
    call(after, read_tool, read, "note", tool_response="hello\n")
    file.write_text("theirs\n")
    assert is_denied(call(before, tool, write, "check"))
    call(after, read_tool, read, "note", tool_response="theirs\n")
    same = {} if host == "gemini" else {"tool_use_id": "w"}
    assert call(before, tool, write, "check", **same) == {}
    file.write_text("mine\n")
    assert call(after, tool, write, "note", tool_response="ok", **same) == {}
    assert rig.kinds() == ["MUTATION_CONFLICT", "MUTATION"]


def test_a_call_that_was_about_something_else_raises_no_alarm(rig: HookRig, root: Path) -> None:
    """finding S9: a guess that was wrong costs nothing."""
    file = root / "notes.md"
    file.write_text("hello\n")
    given = {"path": "notes.md", "content": "elsewhere\n"}
    assert rig.ask("mcp__wiki__write_page", given, tool_use_id="w") == {}

    assert rig.told("mcp__wiki__write_page", given, tool_use_id="w") == {}
    assert rig.kinds() == []
    rig.read(file)
    assert rig.edit(file, "hello", "HELLO") == {}
