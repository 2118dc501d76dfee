"""
Qwen Code: Claude's events and answers, Gemini's tool names, and `edit`.

`UserPromptSubmit` fires again after each tool result, so the turn is `prompt_id` and not the prompt.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from noclobber.core.actions import Action
from noclobber.hosts import claude_code
from noclobber.hosts.claude_code import CHECK_EVENT, phrase, rewrite, tell, warn
from noclobber.hosts.event import (
    Event,
    acting,
    edit_action,
    maybe_count,
    maybe_text,
    path,
    read_action,
    table,
    text,
    unknown_tool,
)
from noclobber.shell import recognise

if TYPE_CHECKING:
    from noclobber.hosts.hook_entries import ConfigFile
    from noclobber.hosts.traits import Recommendation, Traits

__all__ = ["CHECK_EVENT", "READ_TOOL", "TRACES", "hooks", "phrase", "read", "rewrite", "tell", "warn"]

READ_TOOL = "read_file"
HARMLESS = (
    *(
        "list_directory",
        "ls",
        "search_file_content",
        "grep_search",
        "grep",
        "glob",
        "web_fetch",
        "web_search",
    ),
    *("google_web_search", "save_memory", "todo_write", "write_todos", "task", "agent", "skill", "ask_user"),
    *("exit_plan_mode", "enter_plan_mode", "ask_user_question", "delegate_to_agent", "invoke_agent"),
    *("activate_skill", "lsp", "list_agents", "send_message", "get_goal", "update_goal", "propose_goal"),
    *("cron_create", "cron_list", "cron_delete", "loop_wakeup", "create_sub_session", "structured_output"),
    *("task_create", "task_update", "task_list", "task_stop", "team_create", "team_delete", "workflow"),
    *("team_plan_approval", "request_shutdown", "tool_call", "tool_search", "read_mcp_resource"),
    *("enter_worktree", "exit_worktree", "report_findings", "record_source", "zoom_image", "display_image"),
    *("update_topic", "complete_task", "list_background_processes", "read_background_output"),
    *("list_mcp_resources", "get_internal_docs", "tracker_add_dependency", "tracker_create_task"),
    *("tracker_get_task", "tracker_list_tasks", "tracker_update_task", "tracker_visualize"),
)
READERS = ("read_file", "read_many_files", *HARMLESS)
TOOLS = (
    *("read_file", "write_file", "replace", "edit", "notebook_edit"),
    *("run_shell_command", "read_many_files"),
)


def read(payload: dict[str, Any]) -> Event:
    """Return the host's event as ours."""
    event = claude_code.read({**payload, "tool_name": "Glob"}, "qwen")  # All but the tool is Claude's.
    if event.kind not in ("pre", "post", "failure"):
        return event
    return with_tool(event, payload)


def with_tool(event: Event, payload: dict[str, Any]) -> Event:
    """Add what a tool of this family does. Gemini shares it."""
    tool = maybe_text(payload, "tool_name") or ""
    event = event._replace(tool=tool, is_command=tool == "run_shell_command")
    event = acting(event, actions, payload.get("tool_input"), READERS)
    if event.kind != "post":
        return event
    response = payload.get("tool_response")
    said = response if isinstance(response, str) else maybe_text(response, "llmContent", "output")
    display = response.get("returnDisplay") if isinstance(response, dict) else None
    if tool.startswith("mcp__"):
        from noclobber.hosts.foreign_tools import text_of

        return event.showing(text_of(response), is_mixed=True)
    if tool == "read_file":
        return _showing_part(event, said)
    if tool in ("run_shell_command", "read_many_files"):
        return event.showing(said, is_mixed=True)
    return event.leaving(maybe_text(display, "newContent"))


def _showing_part(event: Event, said: str | None) -> Event:
    """Add what a read showed. Of a part, these hosts say which lines it is, and then give the lines."""
    head = (said or "")[:400]
    at = head.find("Showing lines ")
    if said is None or at < 0 or head[:at].strip() not in _OPENINGS:
        return event.showing(said)
    first = head[at + len("Showing lines ") :].partition("-")[0]
    for rule in ("--- FILE CONTENT (truncated) ---\n", "\n---\n\n", "\n---\n"):
        _, mark, shown = said.partition(rule)
        if mark and first.isascii() and first.isdigit() and len(first) < 10:
            return event.showing(shown, first_line=max(1, int(first)), is_part=True)
    return event.showing(said)


_OPENINGS = ("", "IMPORTANT: The file content has been truncated.\nStatus:")


def actions(tool: str, given: Any, kind: str) -> tuple[Action, ...]:
    """Return what a call does to files."""
    if tool in HARMLESS:
        return ()
    values = table({"tool_input": given}, "tool_input") if tool in TOOLS else given
    if tool == "read_file":
        return (_lines_asked(values),)
    if tool == "write_file":
        return (Action("write", path(values), content=text(values, "content")),)
    if tool == "notebook_edit":
        return (Action("edit", path(values, "notebook_path", "file_path")),)
    if tool in ("replace", "edit"):
        return (edit_action(values, ("old_string",), ("new_string",)),)
    if tool == "read_many_files":
        listed = values.get("paths", values.get("include"))
        names = listed if isinstance(listed, list) else []
        return tuple(Action("read", name) for name in names if isinstance(name, str) and "*" not in name)
    if tool == "run_shell_command":
        return recognise.actions(text(values, "command"), kind)
    return unknown_tool(tool, values)


def _lines_asked(values: dict[str, Any]) -> Action:
    """A read. Gemini counts lines from 1 (`start_line`, `end_line`), Qwen from 0 (`offset`, `limit`)."""
    found = read_action(values, "file_path", "absolute_path", "path")
    offset, last = maybe_count(values, "offset"), maybe_count(values, "end_line")
    if offset is not None:
        return found._replace(first_line=offset + 1)
    if last is not None:
        first = max(1, found.first_line or 1)
        return found._replace(first_line=first, line_count=max(0, last - first + 1))
    return found


# -- installation ----------------------------------------------------------------------------------

TRACES = (".qwen", "QWEN.md")


def hooks(base: str, scope: str, portable: bool) -> ConfigFile:
    """Return where its hooks are configured, and ours."""
    from noclobber.hosts.hook_entries import ConfigFile, command, group, notes
    from noclobber.hosts.matchers import MCP_READERS, MCP_WRITERS, all_but

    asked = all_but(("read_file", "read_many_files", "run_shell_command", *HARMLESS), MCP_WRITERS)
    noted = all_but(HARMLESS, MCP_WRITERS, MCP_READERS)
    check, shell, note = (command("qwen", duty, portable=portable) for duty in ("check", "shell", "note"))
    entries = (
        group("PreToolUse", check, asked),
        group("PreToolUse", shell, "^run_shell_command$"),
        group("PostToolUse", note, noted),
        group("PostToolUseFailure", note, noted),
        *notes(claude_code.EVENTS, note),
    )
    return ConfigFile("qwen", f"{base}/.qwen/settings.json", entries)


def traits() -> Traits:
    """Return what else differs."""
    from noclobber.hosts.traits import Recommendation

    names = ("QWEN_PROJECT_DIR", "GEMINI_PROJECT_DIR", "CLAUDE_PROJECT_DIR")
    return traits_of_an_extension(
        "qwen",
        Recommendation("plugin", "Hooks in a project do not run in a folder that was not trusted."),
        {"QWEN_CODE_CLI": "1", **dict.fromkeys(names, "{folder}")},
    )


def traits_of_an_extension(host: str, recommended: Recommendation, hook_variables: dict[str, str]) -> Traits:
    """Return the traits of Qwen Code, or of Gemini CLI, which it comes from."""
    from noclobber.hosts.loading import untrusted_by_gemini
    from noclobber.hosts.traits import Package, Traits

    def installed_packages(home: str, project: str) -> list[str]:
        from noclobber.hosts.installations import read_json

        linked = read_json(f"{home}/extensions/noclobber/.{host}-extension-install.json")
        source = linked.get("source") if isinstance(linked, dict) and linked.get("type") == "link" else None
        folder = source if isinstance(source, str) else f"{home}/extensions/noclobber"
        return [f"{folder}/hooks/hooks.json"]

    return Traits(
        recommended,
        os.path.expanduser(f"~/.{host}"),
        Package(
            f"{host}-extension.json",
            "hooks/hooks.json",
            (f"{host} extensions install --consent {{package}}",),
            (f"{host} extensions uninstall noclobber",),
        ),
        installed_packages,
        untrusted_by_gemini,
        hook_shell=("bash", "-c"),
        hook_variables=hook_variables,
        program=host,
    )
