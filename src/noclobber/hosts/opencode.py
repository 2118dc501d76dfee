"""
opencode: a plugin in its own process, which `install` writes; it asks us and throws what we refuse.

The message that is thrown reaches the model word for word. What the plugin sends is what opencode gives it:
`{"ev": "before" | "after", "input": …, "output": …, "directory": …}`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from noclobber.core.actions import Action
from noclobber.core.json_text import spell_for_any_reader
from noclobber.errors import BadRequestError
from noclobber.hosts.event import (
    NOTHING,
    Answer,
    Event,
    acting,
    edit_action,
    may_rewrite,
    maybe_count,
    maybe_text,
    path,
    read_action,
    table,
    text,
    told_to_model,
    unknown_tool,
    with_content,
)
from noclobber.shell import recognise
from noclobber.text import apply_patch

if TYPE_CHECKING:
    from noclobber.errors import NoclobberError
    from noclobber.hosts.hook_entries import ConfigFile
    from noclobber.hosts.traits import Traits

CHECK_EVENT = {"ev": "before"}
READ_TOOL = "read"
KINDS = {
    "before": "pre",
    "write": "pre",  # The plugin's own tool: we carry it out.
    "after": "post",
    "failed": "failure",
    "chat.message": "prompt",
    "session.idle": "stop",
    "session.deleted": "session-end",
    "session.created": "session-start",
}
HARMLESS = (  # The plugin knows them, too.
    *("list", "grep", "glob", "webfetch", "websearch", "codesearch", "todowrite", "todoread", "task"),
    *("skill", "question", "lsp", "plan_enter", "plan_exit", "invalid", "execute", "batch"),
    *("list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource"),
)
READERS = ("read", *HARMLESS)
TOOLS = ("read", "write", "edit", "multiedit", "apply_patch", "patch", "bash")


def read(payload: dict[str, Any]) -> Event:
    """Return the host's event as ours."""
    name = maybe_text(payload, "ev") or ""
    given, output = payload.get("input"), payload.get("output")
    event = Event(
        host="opencode",
        kind=KINDS.get(name, "other"),
        name=name,
        agent_id=maybe_text(given, "agentID") or "main",
        session_id=maybe_text(given, "sessionID") or "",
        call_id=maybe_text(given, "callID"),
        cwd=maybe_text(payload, "directory", "worktree") or "",
        tool=maybe_text(given, "tool") or "",
    )
    event = event._replace(
        is_command=event.tool == "bash",
        is_routed=payload.get("routes") is True,
        formatters=_commands(payload.get("formatters")),
    )
    if event.kind not in ("pre", "post", "failure"):
        return event
    tool = event.tool
    found: Any = None
    for holder in (output, given):  # Before a call they are in the output, after it in the input.
        if isinstance(holder, dict) and "args" in holder:
            found = holder["args"]
            break
    event = acting(event, own_actions if event.name == "write" else actions, found, READERS)
    if event.name == "before" and tool == "write":
        event = may_rewrite(event, found)
    if event.kind != "post" or not isinstance(output, dict):
        return event
    if tool.startswith("mcp__"):
        from noclobber.hosts.foreign_tools import text_of

        return event.showing(text_of(output), is_mixed=True)
    about = output.get("metadata")
    display = about.get("display") if isinstance(about, dict) else None
    if tool == "read" and isinstance(display, dict):
        first, last = maybe_count(display, "lineStart"), maybe_count(display, "lineEnd")
        total = maybe_count(display, "totalLines")
        is_part = display.get("truncated") is True or (first or 1) > 1 or (last or 0) < (total or 0)
        return event.showing(maybe_text(display, "text"), first_line=first or 1, is_part=is_part)
    return event.showing(maybe_text(output, "output"), is_mixed=tool == "bash")


def _commands(listed: Any) -> tuple[str, ...]:
    """Return formatters that opencode runs inside its own tools, as the option `formatters` spells them."""
    if not listed or not isinstance(listed, list):
        return ()
    from noclobber.shell.syntax import quote

    return tuple(" ".join(quote(str(word)) for word in words) for words in listed if isinstance(words, list))


def actions(tool: str, given: Any, kind: str) -> tuple[Action, ...]:
    """Return what a call does to files."""
    if tool in HARMLESS:
        return ()
    values = table({"args": given}, "args") if tool in TOOLS else given
    if tool == "read":
        return (read_action(values, "filePath", "path"),)
    if tool == "write":
        return (Action("write", path(values, "filePath", "path"), content=text(values, "content")),)
    if tool == "edit":
        return (edit_action(values, ("oldString",), ("newString",)),)
    if tool == "multiedit":
        return (Action("edit", path(values, "filePath", "path")),)
    if tool in ("apply_patch", "patch"):
        return apply_patch.actions(text(values, "patchText", "patch"))
    if tool == "bash":
        return recognise.actions(text(values, "command"), kind)
    return unknown_tool(tool, values)


OWN_PARAMETERS = {
    "write": ("filePath", "content"),
    "edit": ("filePath", "oldString", "newString", "replaceAll"),
    "apply_patch": ("patchText",),
}


def own_actions(tool: str, given: Any, kind: str) -> tuple[Action, ...]:
    """
    Return what a call does to files that we carry out in opencode's place.

    A parameter that is not known here may change what the tool does, so it is refused.
    """
    values = table({"args": given}, "args")
    unknown = [name for name in values if name not in OWN_PARAMETERS.get(tool, ())]
    if tool not in OWN_PARAMETERS or unknown:
        what = f"the parameter {unknown[0]!r} of {tool!r}" if unknown else f"the tool {tool!r}"
        raise BadRequestError(
            "",
            f"noclobber does not know {what}, so it wrote nothing. Ask the user to update noclobber, or to "
            "report this with the version of opencode.",
            parameter=unknown[0] if unknown else "tool",
        )
    if tool == "edit":
        from noclobber.text.host_edits import OpencodeEdit  # Here: no other event needs it.

        change = OpencodeEdit(
            text(values, "oldString"), text(values, "newString"), values.get("replaceAll") is True
        )
        return (Action("edit", path(values, "filePath"), change=change),)
    return actions(tool, values, kind)


def phrase(event: Event, error: NoclobberError | None) -> Answer:
    """The plugin throws what is denied."""
    return (
        NOTHING
        if error is None
        else Answer(spell_for_any_reader({"decision": "deny", "reason": told_to_model(error)}))
    )


def warn(event: Event, error: NoclobberError) -> Answer:
    """The plugin appends it to what the tool returned."""
    return tell(event, told_to_model(error))


def tell(event: Event, text: str) -> Answer:
    """The plugin appends it to what the tool returned."""
    return Answer(spell_for_any_reader({"decision": "warn", "reason": text}))


def rewrite(event: Event, content: bytes) -> Answer:
    """The plugin puts it in the place of what the model sent; opencode then asks its user about that."""
    return Answer(spell_for_any_reader({"decision": "rewrite", "args": with_content(event, content)}))


# -- installation ----------------------------------------------------------------------------------

TRACES = (".opencode", ".config/opencode", "opencode.json", "opencode.jsonc")


def hooks(base: str, scope: str, portable: bool) -> ConfigFile:
    """Return where its plugin is, and ours."""
    from noclobber.hosts.hook_entries import ConfigFile, source

    folder = f"{base}/.config/opencode" if scope == "user" else f"{base}/.opencode"
    return ConfigFile("opencode", f"{folder}/plugin/noclobber.js", whole=source(portable=portable))


def traits() -> Traits:
    """Return what else differs."""
    from noclobber.hosts.traits import Package, Recommendation, Traits

    return Traits(
        Recommendation(
            "user",
            "It is one file. With `--user` opencode has no second folder to prepare at its first start.",
        ),
        os.path.expanduser("~/.config/opencode"),
        Package(
            "package.json",
            "noclobber.js",
            ("opencode plugin --global file://{package}",),
            (),  # It has no such command: the line in its configuration is deleted by hand.
            {"name": "noclobber-opencode", "type": "module", "main": "./noclobber.js"},
        ),
        _installed_packages,
    )


def _installed_packages(home: str, project: str) -> list[str]:
    from noclobber.hosts.installations import read_json

    found = []
    for file in (f"{home}/opencode.json", f"{home}/opencode.jsonc", f"{project}/opencode.json"):
        value = read_json(file)
        listed = value.get("plugin") if isinstance(value, dict) else None
        for one in listed if isinstance(listed, list) else ():
            if isinstance(one, str) and one.startswith("file://") and "noclobber" in one:
                found.append(f"{one.removeprefix('file://')}/noclobber.js")
    return found
