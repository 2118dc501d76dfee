"""
Cline: a plugin in its own process, which `install` writes; it asks us, and skips the calls that we refuse.

Cline's hook files can only end the whole run. A plugin may skip one call and say why: the model is given the
reason as the tool's error. What the plugin sends has the members of opencode's: `ev` (`start`, `before`,
`after`, `end`), `input` (tool, sessionID, agentID, callID, args), `output`, `directory`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from noclobber.core.actions import Action
from noclobber.hosts.event import (
    Event,
    acting,
    edit_action,
    maybe_count,
    maybe_text,
    path,
    table,
    text,
    unknown_tool,
)
from noclobber.hosts.opencode import phrase, rewrite, tell, warn
from noclobber.shell import recognise

if TYPE_CHECKING:
    from noclobber.hosts.hook_entries import ConfigFile
    from noclobber.hosts.traits import Traits

__all__ = ["CHECK_EVENT", "READ_TOOL", "TRACES", "hooks", "phrase", "read", "rewrite", "tell", "warn"]

CHECK_EVENT = {"ev": "before"}
READ_TOOL = "read_files"
KINDS = {"start": "prompt", "before": "pre", "after": "post", "end": "stop"}
HARMLESS = (
    "search_codebase",
    "fetch_web_content",
    "ask_question",
    "spawn_agent",
    "skills",
    "submit_and_exit",
)
READERS = ("read_files", *HARMLESS)
TOOLS = ("read_files", "editor", "apply_patch", "run_commands")


def read(payload: dict[str, Any]) -> Event:
    """Return the host's event as ours."""
    name = maybe_text(payload, "ev") or ""
    given, output = payload.get("input"), payload.get("output")
    tool = maybe_text(given, "tool") or ""
    if "__" in tool.strip("_") and not tool.startswith("mcp__"):
        tool = f"mcp__{tool}"  # A tool of an MCP server: `server__tool`. Others say it so.
    event = Event(
        host="cline",
        kind=KINDS.get(name, "other"),
        name=name,
        session_id=maybe_text(given, "sessionID") or "",
        agent_id=maybe_text(given, "agentID") or "main",
        call_id=maybe_text(given, "callID"),
        cwd=maybe_text(payload, "directory") or "",
        tool=tool,
        is_command=tool == "run_commands",
    )
    if event.kind not in ("pre", "post"):
        return event
    holders = [holder for holder in (given, output) if isinstance(holder, dict) and "args" in holder]
    event = acting(event, actions, holders[0]["args"] if holders else None, READERS)
    if event.kind == "pre":
        return event
    results = output if isinstance(output, list) else [output]
    failed = payload.get("isError") is True or any(_failed(one) for one in results)
    if failed and (event.writes or len(results) == 1):
        return event._replace(kind="failure")
    if tool.startswith("mcp__"):
        from noclobber.hosts.foreign_tools import text_of

        return event.showing(text_of(output), is_mixed=True)
    said = maybe_text(results[0], "result") if len(results) == 1 else None
    if tool != "read_files":
        return event.showing(said, is_mixed=True)
    first = event.actions[0].first_line if event.actions else None
    return event.showing(None if said is None else _without_numbers(said), first_line=first or 1)


def _failed(result: Any) -> bool:
    return isinstance(result, dict) and (result.get("success") is False or "error" in result)


def _without_numbers(said: str) -> str:
    """Lines are shown as `12 | text`."""
    lines = said.split("\n")
    parts = [line.partition(" | ") for line in lines]
    if not all(number.strip().isdigit() and mark for number, mark, _ in parts):
        return said
    return "\n".join(shown for _, _, shown in parts)


def actions(tool: str, given: Any, kind: str) -> tuple[Action, ...]:
    """Return what a call does to files."""
    if tool in HARMLESS or tool.startswith("team_"):
        return ()
    values = table({"args": given}, "args") if tool in TOOLS else given
    if tool == "read_files":
        files = values.get("files")
        listed = files if isinstance(files, list) else [values]
        return tuple(_read_of(one) for one in listed if isinstance(one, dict))
    if tool == "editor":
        if values.get("insert_line") is not None:
            return (Action("edit", path(values)),)
        if values.get("old_text") is None:
            return (Action("write", path(values), content=text(values, "new_text")),)
        return (edit_action(values, ("old_text",), ("new_text",)),)
    if tool == "apply_patch":
        from noclobber.text import apply_patch

        return apply_patch.actions(text(values, "input", "patch"))
    if tool == "run_commands":
        commands = values.get("commands")
        listed = commands if isinstance(commands, list) else [commands]
        found: list[Action] = []
        for one in listed:
            line = one if isinstance(one, str) else maybe_text(one, "command")
            found += recognise.actions(line, kind) if line else ()
        return tuple(found)
    return unknown_tool(tool, values)


def _read_of(values: dict[str, Any]) -> Action:
    first, last = maybe_count(values, "start_line"), maybe_count(values, "end_line")
    count = None if last is None else max(0, last - (first or 1) + 1)
    return Action("read", path(values), first_line=first, line_count=count)


# -- installation ----------------------------------------------------------------------------------

TRACES = (".cline", ".clinerules")


def hooks(base: str, scope: str, portable: bool) -> ConfigFile:
    """Return where its plugin is, and ours."""
    from noclobber.hosts.hook_entries import ConfigFile, source

    return ConfigFile(
        "cline", f"{base}/.cline/plugins/noclobber.js", whole=source("cline", portable=portable)
    )


def traits() -> Traits:
    """Return what else differs."""
    from noclobber.hosts.traits import Recommendation, Traits

    # It gives a plugin 4 seconds to load, and then works without it and says nothing.
    patience = "CLINE_PLUGIN_IMPORT_TIMEOUT_MS"
    return Traits(
        Recommendation("hooks", "It is one file, a plugin of Cline's; its hook files can only end a run."),
        os.path.expanduser("~/.cline"),
        program="cline",
        variables={patience: os.environ.get(patience) or "60000"},
    )
