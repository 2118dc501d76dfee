"""
Gemini CLI: `BeforeTool` and `AfterTool`. There is no turn id and no call id; `BeforeAgent` starts a turn.

Exit 1 and a time-out let the call through, so a refusal is JSON with exit 0, never an exit code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noclobber.core.actions import CallResult
from noclobber.core.json_text import spell_for_any_reader
from noclobber.hosts import qwen
from noclobber.hosts.event import (
    NOTHING,
    Answer,
    Event,
    may_rewrite,
    maybe_text,
    same_moment,
    told_to_model,
    with_content,
)

if TYPE_CHECKING:
    from noclobber.errors import NoclobberError
    from noclobber.hosts.hook_entries import ConfigFile
    from noclobber.hosts.traits import Traits

CHECK_EVENT = {"hook_event_name": "BeforeTool"}
READ_TOOL = "read_file"
# Runs a subagent. Its events look like the main agent's, so whoever asks between the two events is one.
DELEGATING_TOOL = "invoke_agent"
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
    event = event._replace(
        is_agent_unknown=maybe_text(payload, "agent_id") is None, is_delegation=event.tool == DELEGATING_TOOL
    )
    event = qwen.with_tool(event, {**payload, "tool_name": _tool(payload)})
    if event.tool == "write_file":
        event = may_rewrite(event, payload.get("tool_input"))
    response = payload.get("tool_response")
    if event.kind == "post" and isinstance(response, dict) and response.get("error"):
        return event._replace(kind="failure")
    return event


def _tool(payload: dict[str, Any]) -> str:
    """Return a tool's name; that of an MCP server's tool as other hosts spell it."""
    context = payload.get("mcp_context")
    server, tool = maybe_text(context, "server_name"), maybe_text(context, "tool_name")
    if server is not None and tool is not None:
        return f"mcp__{server}__{tool}"
    return maybe_text(payload, "tool_name") or ""


def phrase(event: Event, error: NoclobberError | None) -> Answer:
    """Refuse, or say nothing."""
    return (
        NOTHING
        if error is None
        else Answer(spell_for_any_reader({"decision": "deny", "reason": told_to_model(error)}))
    )


def warn(event: Event, error: NoclobberError) -> Answer:
    """Put a reason beside the tool's result."""
    return tell(event, told_to_model(error))


def tell(event: Event, text: str) -> Answer:
    """Put a text beside the tool's result, or beside what the user said."""
    told = {"hookEventName": event.name or "AfterTool", "additionalContext": text}
    return Answer(spell_for_any_reader({"hookSpecificOutput": told}))


def rewrite(event: Event, content: bytes) -> Answer:
    """Have other content written. Without a decision: the user is asked about the changed call."""
    changed = {"hookEventName": event.name or "BeforeTool", "tool_input": with_content(event, content)}
    return Answer(spell_for_any_reader({"hookSpecificOutput": changed}))


# -- installation ----------------------------------------------------------------------------------

TRACES = (".gemini", "GEMINI.md")


def hooks(base: str, scope: str, portable: bool) -> ConfigFile:
    """Return where its hooks are configured, and ours. Its timeouts are in milliseconds."""
    from noclobber.hosts.hook_entries import TIMEOUT_S, ConfigFile, command, group, notes
    from noclobber.hosts.matchers import MCP_READERS, MCP_WRITERS, all_but

    writers, readers = (named.replace("mcp__", "mcp_") for named in (MCP_WRITERS, MCP_READERS))
    harmless = tuple(name for name in qwen.HARMLESS if name != DELEGATING_TOOL)
    seen = ("read_file", "read_many_files", "run_shell_command", DELEGATING_TOOL)
    asked = all_but((*seen, *harmless), writers, mcp="mcp_")
    noted = all_but(harmless, writers, readers, mcp="mcp_")
    check, shell, note = (command("gemini", duty, portable=portable) for duty in ("check", "shell", "note"))
    about_check: dict[str, Any] = {"name": "noclobber-check", "timeout": TIMEOUT_S * 1000}
    about_note: dict[str, Any] = {"name": "noclobber-note", "timeout": TIMEOUT_S * 1000}
    entries = (
        group("BeforeTool", check, asked, **about_check),
        group("BeforeTool", shell, "^run_shell_command$", **{**about_check, "name": "noclobber-shell"}),
        group("BeforeTool", note, f"^{DELEGATING_TOOL}$", **about_note),
        group("AfterTool", note, noted, **about_note),
        *notes(("SessionStart", "BeforeAgent", "AfterAgent", "SessionEnd"), note, **about_note),
    )
    return ConfigFile("gemini", f"{base}/.gemini/settings.json", entries)


def traits() -> Traits:
    """Return what else differs."""
    from noclobber.hosts.traits import Recommendation

    names = ("GEMINI_PROJECT_DIR", "GEMINI_CWD", "CLAUDE_PROJECT_DIR")
    return qwen.traits_of_an_extension(
        "gemini",
        Recommendation(
            "plugin",
            "Hooks in a project do not run in a folder that was not trusted, for example with "
            "`--skip-trust`.",
        ),
        {"GEMINI_SESSION_ID": "dry", **dict.fromkeys(names, "{folder}")},
    )
