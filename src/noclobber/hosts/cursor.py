"""
Cursor: `preToolUse`, `postToolUse`, `beforeReadFile`. A write carries the whole new text, edits too.

Empty output counts as a failed hook, so letting a call through is said as well. A refusal sets both messages:
one is for the user, the other for the model.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from noclobber.core.actions import Action
from noclobber.core.json_text import spell_for_any_reader
from noclobber.hosts.event import (
    Answer,
    Event,
    acting,
    maybe_text,
    path,
    read_action,
    table,
    text,
    told_to_model,
    unknown_tool,
)
from noclobber.lock.names import is_lock_file
from noclobber.shell import recognise

if TYPE_CHECKING:
    from noclobber.errors import NoclobberError
    from noclobber.hosts.hook_entries import ConfigFile
    from noclobber.hosts.traits import Traits

CHECK_EVENT = {"hook_event_name": "preToolUse"}
READ_TOOL = "Read"
KINDS = {
    "sessionStart": "session-start",
    "sessionEnd": "session-end",
    "beforeSubmitPrompt": "prompt",
    "preToolUse": "pre",
    "postToolUse": "post",
    "postToolUseFailure": "failure",
    "beforeReadFile": "post",  # It brings the content that will be shown: that is the read.
    "stop": "stop",
    "subagentStop": "stop",
}
HARMLESS = ("Grep", "Glob", "LS", "SemanticSearch", "WebSearch", "WebFetch", "Task", "TodoWrite", "ReadLints")
READERS = ("Read", *HARMLESS)
TOOLS = ("Read", "Write", "Delete", "Shell")


def read(payload: dict[str, Any]) -> Event:
    """Return the host's event as ours."""
    name = maybe_text(payload, "hook_event_name") or ""
    event = Event(
        host="cursor",
        kind=KINDS.get(name, "other"),
        name=name,
        session_id=maybe_text(payload, "conversation_id", "session_id") or "",
        agent_id=maybe_text(payload, "subagent_id", "agent_id") or "main",
        turn_id=maybe_text(payload, "generation_id"),
        call_id=maybe_text(payload, "tool_use_id"),
        cwd=maybe_text(payload, "cwd") or _first_root(payload),
        tool=maybe_text(payload, "tool_name") or "",
        detail=maybe_text(payload, "source", "reason") or "",
    )
    if name == "beforeReadFile":
        event = event._replace(tool="Read").showing(maybe_text(payload, "content"))
        if is_lock_file(maybe_text(payload, "file_path") or ""):
            event = event._replace(kind="pre")  # Not shown yet: it can still be refused (REQ-LOCK-010).
        return acting(event, actions, payload, READERS)
    if event.kind not in ("pre", "post", "failure"):
        return event
    event = event._replace(is_command=event.tool == "Shell")
    event = acting(event, actions, payload.get("tool_input"), READERS)
    tool = event.tool
    if event.kind == "post":
        said = payload.get("tool_output", payload.get("tool_response"))
        said = said if isinstance(said, str) else maybe_text(said, "content", "output", "stdout")
        event = event.showing(said, is_mixed=tool == "Shell")
    return event


def _first_root(payload: dict[str, Any]) -> str:
    roots = payload.get("workspace_roots")
    return roots[0] if isinstance(roots, list) and roots and isinstance(roots[0], str) else ""


def actions(tool: str, given: Any, kind: str) -> tuple[Action, ...]:
    """Return what a call does to files."""
    if tool in HARMLESS:
        return ()
    values = table({"tool_input": given}, "tool_input") if tool in TOOLS else given
    if tool == "Read":
        return (read_action(values),)
    if tool == "Write":
        return (Action("write", path(values), content=text(values, "content", "contents")),)
    if tool == "Delete":
        return (Action("delete", path(values)),)
    if tool == "Shell":
        return recognise.actions(text(values, "command"), kind)
    return unknown_tool(tool, values)


def phrase(event: Event, error: NoclobberError | None) -> Answer:
    """Refuse, or allow explicitly."""
    if error is None:
        is_asked = event.name in ("preToolUse", "beforeReadFile", "") or event.kind == "pre"
        return Answer(spell_for_any_reader({"permission": "allow"} if is_asked else {}))
    told = told_to_model(error)
    return Answer(spell_for_any_reader({"permission": "deny", "user_message": told, "agent_message": told}))


def warn(event: Event, error: NoclobberError) -> Answer:
    """Put a reason beside the tool's result."""
    return tell(event, told_to_model(error))


def tell(event: Event, text: str) -> Answer:
    """Put a text beside the tool's result."""
    allowed = {"permission": "allow"} if event.name == "beforeReadFile" else {}
    return Answer(spell_for_any_reader({**allowed, "additional_context": text}))


def rewrite(event: Event, content: bytes) -> Answer:
    """Not asked: what Cursor does with `updated_input` was not run."""
    raise NotImplementedError


# -- installation ----------------------------------------------------------------------------------

TRACES = (".cursor", ".cursorrules")


def hooks(base: str, scope: str, portable: bool) -> ConfigFile:
    """Return where its hooks are configured, and ours."""
    from noclobber.hosts.hook_entries import TIMEOUT_S, ConfigFile, HookEntry, command

    def one(event: str, duty: str, matcher: str | None = None, **more: Any) -> HookEntry:
        chosen = {"matcher": matcher} if matcher else {}
        line = command("cursor", duty, portable=portable, event=event)
        return HookEntry(event, {"command": line, **chosen, "timeout": TIMEOUT_S, **more})

    entries = (
        # Without `failClosed` a hook that crashes or hangs lets the call through.
        one("preToolUse", "check", "Write|Delete", failClosed=True),
        one("preToolUse", "shell", "Shell"),
        one("postToolUse", "note", "Write|Delete|Shell"),
        one("postToolUseFailure", "note", "Write|Delete|Shell"),
        *(
            one(event, "note")
            for event in ("beforeReadFile", "sessionStart", "stop", "subagentStop", "sessionEnd")
        ),
    )
    return ConfigFile("cursor", f"{base}/.cursor/hooks.json", entries, preamble=(("version", 1),))


def traits() -> Traits:
    """Return what else differs."""
    from noclobber.hosts.traits import Recommendation, Traits

    return Traits(Recommendation("hooks", "There is no other way."), os.path.expanduser("~/.cursor"))
