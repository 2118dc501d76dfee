"""
Codex: writes are patches, and reads are shell commands.

Print a deny or nothing: anything else counts as a failed hook, and then the call goes ahead. A patch that is
run through the shell (`apply_patch <<EOF`) arrives as `Bash`, and no event follows it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from noclobber.core.actions import Action
from noclobber.hosts import claude_code
from noclobber.hosts.claude_code import CHECK_EVENT, phrase, rewrite, tell, warn
from noclobber.hosts.event import Event, acting, command_of, maybe_text, table, text, unknown_tool
from noclobber.shell import recognise
from noclobber.text import apply_patch

if TYPE_CHECKING:
    from noclobber.hosts.hook_entries import ConfigFile
    from noclobber.hosts.traits import Traits

__all__ = ["CHECK_EVENT", "READ_TOOL", "TRACES", "hooks", "phrase", "read", "rewrite", "tell", "warn"]

READ_TOOL = "a shell command such as `cat`"
HARMLESS = (
    *("update_plan", "view_image", "web_search", "request_user_input", "request_user_input_async"),
    *("spawn_agent", "wait", "list_agents", "create_goal", "get_goal", "update_goal", "write_stdin"),
    *("list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource"),
    # Of a namespace: its name and the tool's, with nothing between them.
    *("clocksleep", "clockcurr_time", "collaborationspawn_agent", "collaborationwait_agent"),
    *("collaborationlist_agents", "collaborationsend_message", "collaborationfollowup_task"),
    "collaborationinterrupt_agent",
)
SHELLS = ("Bash", "shell", "exec_command", "local_shell", "unified_exec")


def read(payload: dict[str, Any]) -> Event:
    """Return the host's event as ours."""
    event = claude_code.read({**payload, "tool_name": "Glob"}, "codex")  # All but the tool is Claude's.
    if event.kind not in ("pre", "post", "failure"):
        return event
    tool = maybe_text(payload, "tool_name") or ""
    event = event._replace(tool=tool, is_command=tool in SHELLS)
    event = acting(event, actions, payload.get("tool_input"), HARMLESS)
    response = payload.get("tool_response")
    said = response if isinstance(response, str) else maybe_text(response, "output", "stdout")
    if event.kind == "post" and tool == "apply_patch" and said is not None and _failed(said):
        return event._replace(kind="failure")
    if tool.startswith("mcp__"):
        from noclobber.hosts.foreign_tools import text_of

        said = text_of(response)
    return event.showing(said, is_mixed=True)


def _failed(said: str) -> bool:
    """True for a patch that Codex could not apply: the event is the same as for one that it could."""
    head = said[:200]
    return head.startswith("Exit code: ") and not head.startswith("Exit code: 0")


def actions(tool: str, given: Any, kind: str) -> tuple[Action, ...]:
    """Return what a call does to files."""
    if tool in HARMLESS:
        return ()
    if tool == "apply_patch":
        values = table({"tool_input": given}, "tool_input")
        return apply_patch.actions(text(values, "command", "input", "patch"))
    if tool in SHELLS:
        values = table({"tool_input": given}, "tool_input")
        return recognise.actions(text({"command": command_of(values) or None}, "command"), kind)
    return unknown_tool(tool, given)


# -- installation ----------------------------------------------------------------------------------

TRACES = (".codex",)


def hooks(base: str, scope: str, portable: bool) -> ConfigFile:
    """
    Return where its hooks are configured, and ours.

    Its other tools are few, rare and slow, so they are asked about as well: only `Bash` is not matched twice.
    """
    import os

    from noclobber.hosts.hook_entries import TIMEOUT_S, ConfigFile, command, group, notes
    from noclobber.hosts.matchers import MCP_READERS, MCP_WRITERS, all_but_spelled_out

    home = os.environ.get("CODEX_HOME", f"{base}/.codex") if scope == "user" else f"{base}/.codex"
    check, shell, note = (command("codex", duty, portable=portable) for duty in ("check", "shell", "note"))
    entries = (
        group("PreToolUse", check, all_but_spelled_out(("Bash",), MCP_WRITERS), timeout=TIMEOUT_S),
        group("PreToolUse", shell, "^Bash$", timeout=TIMEOUT_S),
        group("PostToolUse", note, all_but_spelled_out((), MCP_WRITERS, MCP_READERS), timeout=TIMEOUT_S),
        *notes(("SessionStart", "UserPromptSubmit", "Stop"), note, timeout=TIMEOUT_S),
        *notes(("SessionEnd",), note, timeout=3),  # Codex allows no more, and warns about more at each start.
    )
    return ConfigFile("codex", f"{home}/hooks.json", entries)


def traits() -> Traits:
    """Return what else differs."""
    import pwd

    from noclobber.hosts.loading import untrusted_by_codex
    from noclobber.hosts.traits import SIGNED, Package, Recommendation, Traits

    try:  # The user's login shell, whatever $SHELL says.
        shell = pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"
    except KeyError:
        shell = "/bin/sh"
    policy = {"installation": "AVAILABLE", "authentication": "ON_INSTALL"}
    return Traits(
        Recommendation(
            "plugin",
            "Codex asks once, for all projects, whether to trust the hooks; otherwise it asks in each "
            "project.",
        ),
        os.environ.get("CODEX_HOME") or os.path.expanduser("~/.codex"),
        Package(
            ".codex-plugin/plugin.json",
            "hooks/hooks.json",
            ("codex plugin marketplace add {folder}", "codex plugin add noclobber@noclobber"),
            ("codex plugin remove noclobber@noclobber", "codex plugin marketplace remove noclobber"),
            SIGNED,
            ".agents/plugins/marketplace.json",
            {"source": {"source": "local", "path": "./codex"}, "policy": policy, "category": "Coding"},
        ),
        _installed_packages,
        untrusted_by_codex,
        hook_shell=(shell, "-c"),
    )


def _installed_packages(home: str, project: str) -> list[str]:
    import glob

    return sorted(glob.glob(f"{glob.escape(home)}/plugins/cache/*/noclobber/*/hooks/hooks.json"))
