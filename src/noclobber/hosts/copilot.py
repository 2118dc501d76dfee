"""
Copilot CLI: its own camel-case events, and Claude's, because it reads `.claude/settings.json` as well.

With both files present every event arrives twice, with one and the same moment, which is how the two are told
to be one. Its own payloads name no event: what is in them tells. There is no call id and no turn id.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from noclobber.core.actions import Action, CallResult
from noclobber.core.json_text import spell_for_any_reader
from noclobber.hosts import claude_code
from noclobber.hosts.claude_code import CHECK_EVENT
from noclobber.hosts.event import (
    NOTHING,
    Answer,
    Event,
    acting,
    edit_action,
    maybe_count,
    maybe_text,
    path,
    same_moment,
    table,
    text,
    told_to_model,
    unknown_tool,
)
from noclobber.shell import recognise

if TYPE_CHECKING:
    from noclobber.errors import NoclobberError
    from noclobber.hosts.hook_entries import ConfigFile
    from noclobber.hosts.traits import Traits

__all__ = ["CHECK_EVENT", "READ_TOOL", "TRACES", "hooks", "phrase", "read", "rewrite", "tell", "warn"]

READ_TOOL = "view"
KINDS = {**claude_code.KINDS, "UserPromptSubmitted": "prompt", "ErrorOccurred": "other"}
# Driven by an editor it says `sessionEnd` ("complete") after every turn, and the session goes on. Taken for
# its end, all that the agent has read would be forgotten, and its next write would not be checked.
ENDED_BY_THE_USER = "user_exit"
HARMLESS = (
    *(
        "glob",
        "grep",
        "rg",
        "task",
        "think",
        "report_intent",
        "update_todo",
        "web_fetch",
        "web_search",
        "fetch",
    ),
    *("list_agents", "read_agent", "write_agent", "list_bash", "read_bash", "write_bash", "stop_bash"),
    *("ask_user", "show_file", "fetch_copilot_cli_documentation", "sql", "session_store_sql", "skill"),
    *("exit_plan_mode", "task_complete"),
)
# What the Claude-shaped payload calls the same tools.
ALIASES = {"Read": "view", "Write": "create", "Edit": "edit", "Bash": "bash"}
READERS = ("view", *HARMLESS)
TOOLS = ("view", "create", "edit", "str_replace", "insert", "bash", "shell", "apply_patch")


def read(payload: dict[str, Any]) -> Event:
    """Return the host's event as ours."""
    name = maybe_text(payload, "hook_event_name", "hookEventName") or _guess(payload)
    kind = KINDS.get(name, KINDS.get(name[:1].upper() + name[1:], "other"))
    tool = maybe_text(payload, "toolName", "tool_name") or ""
    tool = ALIASES.get(tool, tool)
    if "-" in tool and not tool.startswith("mcp__"):
        tool = f"mcp__{tool}"  # A tool of an MCP server: `server-tool`. None of its own has a hyphen.
    event = Event(
        host="copilot",
        kind=kind,
        name=name,
        session_id=maybe_text(payload, "sessionId", "session_id") or "",
        agent_id=maybe_text(payload, "agentId", "agent_id") or "main",
        turn_id=maybe_text(payload, "turnId", "turn_id"),
        call_id=maybe_text(payload, "toolCallId", "tool_use_id"),
        cwd=maybe_text(payload, "cwd") or "",
        tool=tool,
        result=CallResult(happened_at=same_moment(payload.get("timestamp"))),
        detail=maybe_text(payload, "source", "reason") or "",
        is_command=tool in ("bash", "shell"),
    )
    if kind == "session-end" and event.detail != ENDED_BY_THE_USER:
        return event._replace(kind="stop")
    if kind not in ("pre", "post", "failure"):
        return event
    given = payload.get("toolArgs", payload.get("tool_input"))
    event = acting(event, actions, given, READERS)
    result = payload.get("toolResult", payload.get("tool_result"))
    if kind != "post" or not isinstance(result, dict):
        return event
    if maybe_text(result, "resultType", "result_type") not in (None, "success"):
        return event._replace(kind="failure")
    said = maybe_text(result, "textResultForLlm", "text_result_for_llm")
    return event.showing(said, is_mixed=tool in ("bash", "shell") or tool.startswith("mcp__"))


def phrase(event: Event, error: NoclobberError | None) -> Answer:
    """
    Refuse, or say nothing.

    Its own hooks obey a flat `permissionDecision` only, and Claude's, which it runs as well, the nested
    one. Which of the two files this process was started from cannot be told, so the answer has both.
    """
    if error is None:
        return NOTHING
    denied = {"permissionDecision": "deny", "permissionDecisionReason": told_to_model(error)}
    nested = {"hookEventName": event.name or "PreToolUse", **denied}
    return Answer(spell_for_any_reader({**denied, "hookSpecificOutput": nested}))


def warn(event: Event, error: NoclobberError) -> Answer:
    """Add what happened to the tool's result. `decision: block` would replace it."""
    return tell(event, told_to_model(error))


def tell(event: Event, text: str) -> Answer:
    """Add a text to the tool's result, or to what the user said."""
    added = {"additionalContext": text}
    nested = {"hookEventName": event.name or "PostToolUse", **added}
    return Answer(spell_for_any_reader({**added, "hookSpecificOutput": nested}))


def rewrite(event: Event, content: bytes) -> Answer:
    """Not asked: `create` refuses a file that exists, so it has no tool that replaces a whole file."""
    raise NotImplementedError


def _guess(payload: dict[str, Any]) -> str:
    """Its own payloads do not say which event they are."""
    if "toolName" in payload or "toolArgs" in payload:
        if "error" in payload:
            return "PostToolUseFailure"
        return "PostToolUse" if "toolResult" in payload else "PreToolUse"
    if "stopReason" in payload:
        return "Stop"
    if "source" in payload:
        return "SessionStart"
    if "prompt" in payload:
        return "UserPromptSubmit"
    return "SessionEnd" if "reason" in payload else ""


def actions(tool: str, given: Any, kind: str) -> tuple[Action, ...]:
    """Return what a call does to files."""
    if tool in HARMLESS:
        return ()
    if tool == "apply_patch" and isinstance(given, str) and "*** Begin Patch" in given:
        from noclobber.text import apply_patch

        return apply_patch.actions(given)  # With GPT models the arguments are the patch itself.
    if isinstance(given, str):  # Older versions sent the arguments as JSON text.
        from noclobber.core.json_text import parse

        given = parse(given)
    values = table({"tool_input": given}, "tool_input") if tool in TOOLS else given
    if tool == "view":
        lines = values.get("view_range")
        seen = Action("read", path(values))
        if isinstance(lines, list) and len(lines) == 2:
            spread = dict(zip(("first", "last"), lines, strict=True))
            first, last = maybe_count(spread, "first"), maybe_count(spread, "last")
            count = last - first + 1 if first and last and last >= first else None
            return (seen._replace(first_line=first or 1, line_count=count),)
        return (seen,)
    if tool == "create":
        return (Action("write", path(values), content=text(values, "file_text", "content")),)
    if tool in ("edit", "str_replace"):
        return (edit_action(values, ("old_str", "old_string"), ("new_str", "new_string")),)
    if tool == "insert":
        return (Action("edit", path(values)),)
    if tool == "apply_patch":
        from noclobber.text import apply_patch

        return apply_patch.actions(text(values, "patch", "command", "input"))
    if tool in ("bash", "shell"):
        return recognise.actions(text(values, "command"), kind)
    return unknown_tool(tool, values)


# -- installation ----------------------------------------------------------------------------------

EVENTS = ("sessionStart", "userPromptSubmitted", "agentStop", "subagentStop", "sessionEnd")
TRACES = (".github/hooks", ".copilot", ".github/copilot-instructions.md")


def hooks(base: str, scope: str, portable: bool) -> ConfigFile:
    """
    Return where its hooks are configured, and ours.

    A matcher is a regular expression for a tool's whole name. Tools that are known to write nothing are left
    out, and all others asked about, so that a tool of the next version is checked, too. (After a failed call
    matchers do not count.)
    """
    from noclobber.hosts.hook_entries import TIMEOUT_S, ConfigFile, HookEntry, command

    def one(event: str, line: str, matcher: str | None = None) -> HookEntry:
        chosen = {"matcher": matcher} if matcher else {}
        return HookEntry(event, {"type": "command", **chosen, "bash": line, "timeoutSec": TIMEOUT_S})

    check, shell, note = (command("copilot", duty, portable=portable) for duty in ("check", "shell", "note"))
    others = _all_but(*HARMLESS)
    folder = f"{base}/.copilot/hooks" if scope == "user" else f"{base}/.github/hooks"
    entries = (
        one("preToolUse", check, _all_but("view", "bash", "shell", *HARMLESS)),
        one("preToolUse", shell, "bash|shell"),
        one("preToolUse", _if_lock_file(note), "view"),
        one("postToolUse", note, others),
        one("postToolUseFailure", note, others),
        *(one(event, note) for event in EVENTS),
    )
    return ConfigFile("copilot", f"{folder}/noclobber.json", entries, preamble=(("version", 1),))


def _all_but(*names: str) -> str:
    return f"(?!({'|'.join(names)})$).*"


def _if_lock_file(line: str) -> str:
    """Ask only about a read that may be of a lock file. Others go ahead within some milliseconds."""
    begin = 'noclobber_event=$(cat); case "$noclobber_event" in *.lock*) printf %s "$noclobber_event" | '
    return f"{begin}{line};; esac"


def traits() -> Traits:
    """Return what else differs."""
    from noclobber.hosts.loading import untrusted_by_copilot
    from noclobber.hosts.traits import SIGNED, Package, Recommendation, Traits

    return Traits(
        Recommendation(
            "plugin",
            "Hooks in a project do not run in a folder that was not trusted, for example with `-p`.",
        ),
        os.environ.get("COPILOT_HOME") or os.path.expanduser("~/.copilot"),
        Package(
            "plugin.json",
            "hooks.json",
            ("copilot plugin marketplace add {folder}", "copilot plugin install noclobber@noclobber"),
            ("copilot plugin uninstall noclobber@noclobber", "copilot plugin marketplace remove noclobber"),
            {**SIGNED, "hooks": "hooks.json"},
            ".github/plugin/marketplace.json",
        ),
        _installed_packages,
        untrusted_by_copilot,
        hook_shell=("bash", "-c"),
        hook_variables={"COPILOT_CLI": "1"},
        program="copilot",
        words=("--bash-env", "on"),  # It takes BASH_ENV away unless it is told not to.
    )


def _installed_packages(home: str, project: str) -> list[str]:
    import glob

    from noclobber.hosts.installations import is_enabled, read_json

    settings = f"{home}/settings.json"
    if not is_enabled([settings]):
        return []
    copied = glob.glob(f"{glob.escape(home)}/installed-plugins/**/hooks.json", recursive=True)
    known = (read_json(settings) or {}).get("extraKnownMarketplaces", {})
    source = known.get("noclobber", {}).get("source", {}) if isinstance(known, dict) else {}
    live = [f"{source['path']}/copilot/hooks.json"] if isinstance(source.get("path"), str) else []
    return [*live, *sorted(copied)]
