"""
Gemini CLI: `BeforeTool` and `AfterTool`. There is no turn id and no call id; `BeforeAgent` starts a turn.

Exit 1 and a time-out let the call through, so a refusal is JSON with exit 0, never an exit code.
"""

from __future__ import annotations

from noclobber.core.actions import CallResult
from noclobber.core.light.json_text import spell_for_any_reader
from noclobber.hosts import qwen
from noclobber.hosts.event import NOTHING, Answer, Event, maybe_text, same_moment, told_to_model

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from noclobber.errors import NoclobberError
    from noclobber.hosts.hook_entries import ConfigFile

CHECK_EVENT = {"hook_event_name": "BeforeTool"}
READ_TOOL = "read_file"
KINDS = {
    "SessionStart": "session-start",
    "SessionEnd": "session-end",
    "BeforeAgent": "prompt",
    "AfterAgent": "stop",
    "BeforeTool": "pre",
    "AfterTool": "post",
}


def read(payload: dict[str, Any]) -> Event:
    """Return the host's event as ours."""
    name = maybe_text(payload, "hook_event_name") or ""
    event = Event(
        host="gemini",
        kind=KINDS.get(name, "other"),
        name=name,
        session_id=maybe_text(payload, "session_id") or "",
        agent_id=maybe_text(payload, "agent_id") or "main",
        turn_id=maybe_text(payload, "prompt_id"),
        call_id=maybe_text(payload, "tool_call_id", "tool_use_id"),
        cwd=maybe_text(payload, "cwd") or "",
        tool=maybe_text(payload, "tool_name") or "",
        result=CallResult(happened_at=same_moment(payload.get("timestamp"))),
        detail=maybe_text(payload, "source", "reason") or "",
    )
    if event.kind not in ("pre", "post"):
        return event
    event = qwen.with_tool(event, payload)
    response = payload.get("tool_response")
    if event.kind == "post" and isinstance(response, dict) and response.get("error"):
        return event._replace(kind="failure")
    return event


def phrase(event: Event, error: NoclobberError | None) -> Answer:
    """Refuse, or say nothing."""
    return (
        NOTHING
        if error is None
        else Answer(spell_for_any_reader({"decision": "deny", "reason": told_to_model(error)}))
    )


def warn(event: Event, error: NoclobberError) -> Answer:
    """Put a reason beside the tool's result."""
    told = {"hookEventName": event.name or "AfterTool", "additionalContext": told_to_model(error)}
    return Answer(spell_for_any_reader({"hookSpecificOutput": told}))


# -- installation ----------------------------------------------------------------------------------

TRACES = (".gemini", "GEMINI.md")


def hooks(base: str, scope: str, portable: bool) -> ConfigFile:
    """Return where its hooks are configured, and ours. Its timeouts are in milliseconds."""
    from noclobber.hosts.hook_entries import TIMEOUT_S, ConfigFile, command, group, notes

    writes = "write_file|replace"
    noted = f"^(read_file|read_many_files|{writes}|run_shell_command)$"
    check, note = (command("gemini", duty, portable=portable) for duty in ("check", "note"))
    about_check: dict[str, Any] = {"name": "noclobber-check", "timeout": TIMEOUT_S * 1000}
    about_note: dict[str, Any] = {"name": "noclobber-note", "timeout": TIMEOUT_S * 1000}
    entries = (
        group("BeforeTool", check, f"^({writes})$", **about_check),
        group("AfterTool", note, noted, **about_note),
        *notes(("SessionStart", "AfterAgent", "SessionEnd"), note, **about_note),
    )
    return ConfigFile("gemini", f"{base}/.gemini/settings.json", entries)
