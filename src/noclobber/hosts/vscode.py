"""
VS Code's own agent. It loads Claude Code's hooks, and asks each of them about every tool.

It is recognised by its tools, and by the camel-case envelope of some versions. It asks before it reads, too,
so a file is looked at before and after: what it shows is the *document*, with what its user has not saved.
After a write the document may still wait for its user, so a file that has not changed is no race.

By its documentation and sources; not run. `noclobber install claude-code` installs the hooks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noclobber.core.actions import Action
from noclobber.core.values import Edit
from noclobber.hosts import claude_code
from noclobber.hosts.claude_code import CHECK_EVENT, KINDS, phrase, rewrite, tell, warn
from noclobber.hosts.event import (
    Event,
    acting,
    edit_action,
    edits_action,
    maybe_count,
    maybe_text,
    path,
    table,
    text,
    unknown_tool,
)
from noclobber.text import apply_patch

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from noclobber.hosts.hook_entries import ConfigFile

__all__ = [
    "CHECK_EVENT",
    "READ_TOOL",
    "TRACES",
    "hooks",
    "is_its_own",
    "phrase",
    "read",
    "rewrite",
    "tell",
    "warn",
]

READ_TOOL = "read_file"
SHELL = "run_in_terminal"
WRITERS = (
    *("create_file", "replace_string_in_file", "multi_replace_string_in_file", "insert_edit_into_file"),
    *("apply_patch", "edit_notebook_file"),
)
HARMLESS = (
    *(
        "semantic_search",
        "grep_search",
        "file_search",
        "list_dir",
        "list_code_usages",
        "test_search",
        "get_errors",
    ),
    *(
        "get_changed_files",
        "get_search_view_results",
        "get_terminal_output",
        "terminal_last_command",
        "tool_search",
    ),
    *(
        "terminal_selection",
        "get_task_output",
        "fetch_webpage",
        "github_repo",
        "get_vscode_api",
        "view_image",
    ),
    *("open_simple_browser", "manage_todo_list", "think", "runSubagent", "search_subagent", "ask_questions"),
    *(
        "copilot_getNotebookSummary",
        "read_notebook_cell_output",
        "get_project_setup_info",
        "create_directory",
    ),
)
TOOLS = (READ_TOOL, SHELL, *WRITERS)
# Tools of these names are other hosts' as well. There their parameters are named otherwise.
_SHARED = ("read_file", "apply_patch")
_PREFIXES = ("copilot_", "vscode_")


def is_its_own(payload: dict[str, Any], is_session: Callable[[str], bool]) -> bool:
    """
    True if an event that came by Claude Code's hooks is of VS Code's agent.

    `is_session` says whether a session is one of its own, of an event that does not tell by itself.
    """
    if "hookEventName" in payload:
        return True
    tool, given = payload.get("tool_name"), payload.get("tool_input")
    if tool in _SHARED:
        return isinstance(given, dict) and ("filePath" in given or "input" in given)
    if isinstance(tool, str) and (tool in TOOLS or tool in HARMLESS or tool.startswith(_PREFIXES)):
        return True
    is_claudes = tool in claude_code.TOOLS or tool in claude_code.HARMLESS
    session_id = maybe_text(payload, "session_id")
    return not is_claudes and session_id is not None and is_session(session_id)


def read(payload: dict[str, Any]) -> Event:
    """Return the host's event as ours."""
    name = maybe_text(payload, "hook_event_name", "hookEventName") or ""
    known = {
        "hook_event_name": name,
        "session_id": maybe_text(payload, "session_id", "sessionId"),
        "agent_id": maybe_text(payload, "agent_id", "agentId"),
        "tool_use_id": maybe_text(payload, "tool_use_id", "toolUseId"),
        "cwd": payload.get("cwd"),
        "timestamp": payload.get("timestamp"),
        "tool_name": "Glob",
    }
    event = claude_code.read(known, "vscode")  # All but the tool is Claude's.
    if KINDS.get(name) not in ("pre", "post", "failure"):
        return event
    tool = maybe_text(payload, "tool_name", "toolName") or ""
    event = event._replace(tool=tool, is_command=tool == SHELL, is_read_asked=True)
    event = acting(
        event, actions, payload.get("tool_input", payload.get("toolInput")), (READ_TOOL, *HARMLESS)
    )
    if event.kind != "post":
        return event
    return event.showing(_text_of(payload.get("tool_response", payload.get("toolResponse"))), is_mixed=True)


def _text_of(response: Any) -> str | None:
    if isinstance(response, str):
        return response
    from noclobber.hosts.foreign_tools import text_of

    return text_of(response)


def actions(tool: str, given: Any, kind: str) -> tuple[Action, ...]:
    """Return what a call does to files."""
    if tool in HARMLESS:
        return ()
    values = table({"tool_input": given}, "tool_input") if tool in TOOLS else given
    if tool == READ_TOOL:
        return (_lines_asked(values),)
    if tool == SHELL:
        from noclobber.shell import recognise

        found = recognise.actions(text(values, "command"), kind)
        return tuple(action for action in found if kind == "pre" or action.kind != "read")
    if tool == "apply_patch":
        found = apply_patch.actions(text(values, "input", "command"))
    elif tool == "create_file":
        found = (Action("write", path(values), content=text(values, "content")),)
    elif tool == "replace_string_in_file":
        found = (edit_action(values, ("oldString", "old_string"), ("newString", "new_string")),)
    elif tool == "multi_replace_string_in_file":
        found = _several(values)
    elif tool in WRITERS:
        found = (Action("edit", path(values)),)
    else:
        return unknown_tool(tool, values)
    return tuple(action._replace(is_certain=False) for action in found)


def _lines_asked(values: dict[str, Any]) -> Action:
    """A read of some lines, from 1: `startLine` to `endLine`, or `limit` ones from `offset`."""
    first, last = maybe_count(values, "startLine", "offset"), maybe_count(values, "endLine")
    count = maybe_count(values, "limit") if last is None else max(0, last - (first or 1) + 1)
    return Action("read", path(values), first_line=first, line_count=count)


def _several(values: dict[str, Any]) -> tuple[Action, ...]:
    """Replacements in one file or several, one action a file."""
    edits: dict[str, list[Edit]] = {}
    listed = values.get("replacements")
    for one in listed if isinstance(listed, list) else []:
        each = table({"replacements": one}, "replacements")
        change = Edit(text(each, "oldString", "old_string"), text(each, "newString", "new_string"))
        edits.setdefault(path(each), []).append(change)
    if not edits:
        return (Action("edit", path(values)),)  # Its parameters are named otherwise by now.
    return tuple(edits_action(where, tuple(changes)) for where, changes in edits.items())


# -- installation ----------------------------------------------------------------------------------

TRACES: tuple[str, ...] = ()  # Claude Code's hooks are its own.


def hooks(base: str, scope: str, portable: bool) -> ConfigFile:
    """Not asked: it is not in `HOSTS`."""
    raise NotImplementedError
