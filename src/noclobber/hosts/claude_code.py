"""
Claude Code: `PreToolUse` and its family. `agent_id` is present only inside subagents.

A deny is JSON on stdout with exit 0; the model gets the reason as the tool's error. After a call,
`additionalContext` is added to the tool's result.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from noclobber.core.actions import Action, CallResult, Shown
from noclobber.core.json_text import spell_for_any_reader
from noclobber.core.values import Edit
from noclobber.hosts.event import (
    NOTHING,
    Answer,
    Event,
    acting,
    edit_action,
    edits_action,
    may_rewrite,
    maybe_count,
    maybe_text,
    path,
    read_action,
    same_moment,
    table,
    text,
    told_to_model,
    unknown_tool,
    with_content,
)

if TYPE_CHECKING:
    from noclobber.errors import NoclobberError
    from noclobber.hosts.hook_entries import ConfigFile
    from noclobber.hosts.traits import Traits

CHECK_EVENT = {"hook_event_name": "PreToolUse"}
READ_TOOL = "Read"
MOST_DURATION_MS = 7 * 86_400_000
KINDS = {
    "SessionStart": "session-start",
    "SessionEnd": "session-end",
    "UserPromptSubmit": "prompt",
    "PreToolUse": "pre",
    "PostToolUse": "post",
    "PostToolUseFailure": "failure",
    "Stop": "stop",
    "SubagentStop": "stop",
}
HARMLESS = (
    *("Glob", "Grep", "LS", "WebFetch", "WebSearch", "TodoWrite", "Task", "Agent", "Skill", "ExitPlanMode"),
    *("EnterPlanMode", "AskUserQuestion", "BashOutput", "KillShell", "TaskCreate", "TaskUpdate", "TaskList"),
    *("TaskGet", "TaskOutput", "TaskStop", "ToolSearch", "SlashCommand", "KillBash", "ListMcpResources"),
    *("ListMcpResourcesTool", "ReadMcpResourceTool", "LSP", "ListAgents", "SendMessage", "SendUserFile"),
    *("CronCreate", "CronDelete", "CronList", "ScheduleWakeup", "TeamCreate", "TeamDelete", "Workflow"),
    *("EnterWorktree", "ExitWorktree", "ReportFindings", "StructuredOutput", "Artifact", "Projects"),
    *("ClaudeDesign", "EndConversation", "OfferChromeSetup", "PushNotification", "RemoteTrigger"),
)


def read(payload: dict[str, Any], host: str = "claude-code") -> Event:
    """Return the host's event as ours."""
    name = maybe_text(payload, "hook_event_name") or ""
    duration_ms = payload.get("duration_ms")
    if not isinstance(duration_ms, (int, float)) or not 0 <= duration_ms < MOST_DURATION_MS:
        duration_ms = None  # JSON may have a number of four hundred digits, which no float can hold.
    event = Event(
        host=host,
        kind=KINDS.get(name, "other"),
        name=name,
        session_id=maybe_text(payload, "session_id") or "",
        agent_id=maybe_text(payload, "agent_id") or "main",
        turn_id=maybe_text(payload, "prompt_id", "turn_id"),
        call_id=maybe_text(payload, "tool_use_id"),
        cwd=maybe_text(payload, "cwd") or "",
        tool=maybe_text(payload, "tool_name") or "",
        result=CallResult(
            duration_s=None if duration_ms is None else duration_ms / 1000,
            happened_at=same_moment(payload.get("timestamp")),
        ),
        detail=maybe_text(payload, "source", "reason") or "",
    )
    if event.kind not in ("pre", "post", "failure"):
        return event
    event = event._replace(is_command=event.tool in SHELLS, is_background=event.tool == "Monitor")
    event = acting(event, actions, payload.get("tool_input"), READERS)
    tool, response = event.tool, payload.get("tool_response")
    if tool == "Write" and host == "claude-code":
        event = may_rewrite(event, payload.get("tool_input"))
    if event.kind != "post" or response is None:
        return event
    if tool.startswith("mcp__"):
        from noclobber.hosts.foreign_tools import text_of

        return event.showing(text_of(response), is_mixed=True)
    if tool == "Bash":
        return event.showing(maybe_text(response, "stdout"), is_mixed=True)
    if tool == "Read":
        return event._replace(result=event.result._replace(shown=_shown(response)))
    return event.leaving(_after(response))


def actions(tool: str, given: Any, kind: str) -> tuple[Action, ...]:
    """Return what a call does to files."""
    if tool in HARMLESS:
        return ()
    values = table({"tool_input": given}, "tool_input") if tool in TOOLS else given
    if tool == "Read":
        return (read_action(values, "file_path", "path"),)
    if tool == "Write":
        return (Action("write", path(values), content=text(values, "content", "file_text")),)
    if tool == "Edit":
        return (edit_action(values, ("old_string", "old_str"), ("new_string", "new_str")),)
    if tool == "MultiEdit":
        return (_several(values),)
    if tool == "NotebookEdit":
        return (Action("edit", path(values, "notebook_path", "file_path")),)
    if tool in SHELLS:
        from noclobber.shell import recognise

        found = recognise.actions(text(values, "command"), kind)
        # What a command shows that the host only watches comes later, and not in its result.
        return tuple(action for action in found if tool == "Bash" or kind == "pre" or action.kind != "read")
    return unknown_tool(tool, values)


READERS = ("Read", *HARMLESS)
SHELLS = ("Bash", "Monitor")
TOOLS = ("Read", "Write", "Edit", "MultiEdit", "NotebookEdit", *SHELLS)


def _several(values: dict[str, Any]) -> Action:
    listed = values.get("edits")
    where = path(values)
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        return Action("edit", where)  # Checked, but its outcome is unknown.
    changes = (
        Edit(text(one, "old_string"), text(one, "new_string"), one.get("replace_all") is True)
        for one in listed
    )
    return edits_action(where, tuple(changes))


def _shown(response: Any) -> Shown:
    file = response.get("file") if isinstance(response, dict) else None
    if not isinstance(file, dict) or not isinstance(file.get("content"), str):
        return Shown()
    first, count, total = (maybe_count(file, key) for key in ("startLine", "numLines", "totalLines"))
    if first is None or count is None or total is None:
        return Shown(file["content"])
    return Shown(file["content"], first_line=first or 1, is_part=not (first <= 1 and count >= total))


def _after(response: Any) -> str | None:
    """Return the new text where the host says it: as such, or as the old one and what it replaced in it."""
    if not isinstance(response, dict):
        return None
    whole = maybe_text(response, "updated_file")
    if whole is not None:
        return whole
    # What the host really looked for and put in: it straightens quotes, for one.
    before = maybe_text(response, "originalFile")
    old, new = maybe_text(response, "oldString"), maybe_text(response, "newString")
    if before is None or not old or new is None or old not in before:
        return None
    return before.replace(old, new) if response.get("replaceAll") is True else before.replace(old, new, 1)


def phrase(event: Event, error: NoclobberError | None) -> Answer:
    """Refuse, or say nothing: silence lets the host's own permissions decide."""
    if error is None:
        return NOTHING
    return Answer(
        spell_for_any_reader(
            {
                "hookSpecificOutput": {
                    "hookEventName": event.name or "PreToolUse",
                    "permissionDecision": "deny",
                    "permissionDecisionReason": told_to_model(error),
                }
            }
        )
    )


def warn(event: Event, error: NoclobberError) -> Answer:
    """Add a reason to the call's result. `decision: "block"` would take the result's place in Codex."""
    return tell(event, told_to_model(error))


def tell(event: Event, text: str) -> Answer:
    """Add a text to a call's result, or to what the user said."""
    told = {"hookEventName": event.name or "PostToolUse", "additionalContext": text}
    return Answer(spell_for_any_reader({"hookSpecificOutput": told}))


def rewrite(event: Event, content: bytes) -> Answer:
    """
    Have other content written. Without a decision: the host's own permissions judge the changed call.

    `permissionDecision: "allow"` would let it through where the user has to be asked.
    """
    changed = {"hookEventName": event.name or "PreToolUse", "updatedInput": with_content(event, content)}
    return Answer(spell_for_any_reader({"hookSpecificOutput": changed}))


# -- installation ----------------------------------------------------------------------------------

TRACES = (".claude", "CLAUDE.md")
LOCK_FILE_READS = "Read(//**/.lock*)"  # REQ-LOCK-010. Two slashes: from the root of the filesystem.
EVENTS = ("SessionStart", "UserPromptSubmit", "Stop", "SubagentStop", "SessionEnd")


def hooks(base: str, scope: str, portable: bool) -> ConfigFile:
    """
    Return where its hooks are configured, and ours.

    In a project, commands with this machine's paths go to the file that Claude Code keeps for one machine:
    teams commit `settings.json` (finding U4).
    """
    from noclobber.hosts import shell_prefix
    from noclobber.hosts.hook_entries import TIMEOUT_S, ConfigFile, HookMember, command, group, notes
    from noclobber.hosts.matchers import MCP_READERS, MCP_WRITERS, all_but

    asked = all_but(("Read", "Bash", *HARMLESS), MCP_WRITERS)
    noted = all_but(HARMLESS, MCP_WRITERS, MCP_READERS)
    check, shell, note = (
        command("claude-code", duty, portable=portable) for duty in ("check", "shell", "note")
    )
    read = command("claude-code", "check", portable=portable, is_of_a_read=True)
    entries = (
        # Without `onFailure` a hook that crashes or hangs lets the call through.
        group("PreToolUse", check, asked, timeout=TIMEOUT_S, onFailure="block"),
        group("PreToolUse", shell, "Bash", timeout=TIMEOUT_S),
        # Reads are not checked, except of lock files. `if` spares a process for all others.
        group("PreToolUse", read, "Read", timeout=TIMEOUT_S, **{"if": LOCK_FILE_READS}),
        group("PostToolUse", note, noted, timeout=TIMEOUT_S),
        group("PostToolUseFailure", note, noted, timeout=TIMEOUT_S),
        *notes(EVENTS, note, timeout=TIMEOUT_S),
    )
    old = (HookMember("env", shell_prefix.OLD_VARIABLE, None),)
    name = "settings.json" if portable or scope == "user" else "settings.local.json"
    return ConfigFile("claude-code", f"{base}/.claude/{name}", entries, members=old)


def traits() -> Traits:
    """Return what else differs."""
    from noclobber.hosts.traits import SIGNED, Package, Recommendation, Traits

    return Traits(
        Recommendation(
            "hooks",
            "This file is yours alone, and git leaves it out; `--portable` uses the one that a team shares.",
        ),
        os.path.expanduser("~/.claude"),
        Package(
            ".claude-plugin/plugin.json",
            "hooks/hooks.json",
            ("claude plugin marketplace add {folder}", "claude plugin install noclobber@noclobber"),
            ("claude plugin uninstall noclobber@noclobber", "claude plugin marketplace remove noclobber"),
            SIGNED,
            ".claude-plugin/marketplace.json",
        ),
        _installed_packages,
        managed=(
            "/etc/claude-code/managed-settings.json",
            "/Library/Application Support/ClaudeCode/managed-settings.json",
        ),
        hook_variables={"CLAUDECODE": "1", "CLAUDE_PROJECT_DIR": "{folder}"},
    )


def _installed_packages(home: str, project: str) -> list[str]:
    from noclobber.hosts.installations import is_enabled, read_json

    if not is_enabled([f"{home}/settings.json", f"{project}/.claude/settings.json"]):
        return []
    listed = read_json(f"{home}/plugins/installed_plugins.json")
    plugins = listed.get("plugins") if isinstance(listed, dict) else None
    return [
        f"{one['installPath']}/hooks/hooks.json"
        for name, places in (plugins.items() if isinstance(plugins, dict) else ())
        if name.startswith("noclobber@") and isinstance(places, list)
        for one in places
        if isinstance(one, dict) and isinstance(one.get("installPath"), str)
    ]
