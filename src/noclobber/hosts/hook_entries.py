"""
Where each host keeps its hooks, and what ours look like there.

Two kinds of entry. One is asked before a write (`check`): it closes the host's fail-open switch, if there
is one, so that a hook that crashes or hangs refuses. The other is told what happened (`note`) and never
stands in anybody's way. Reads are only ever told, so that nothing of ours can block one.
"""

from __future__ import annotations

import os
import shlex
import sys
from typing import Any, NamedTuple

from noclobber.errors import BadRequestError

START = f"{os.path.dirname(os.path.dirname(os.path.abspath(__file__)))}/hook/start.py"
TIMEOUT_S = 30  # Ours answers in a few hundredths; a machine may be busy.


class Entry(NamedTuple):
    """One hook in a host's list for an event."""

    event: str
    value: dict[str, Any]


class ConfigFile(NamedTuple):
    """A configuration file, and what is to be in it."""

    host: str
    path: str
    entries: tuple[Entry, ...] = ()
    """Added to what else is in the file."""
    whole: str | None = None
    """For a file that is ours alone: all of it."""
    preamble: tuple[tuple[str, Any], ...] = ()
    """Members that the file needs to be one of its kind."""


def command(host: str, duty: str, *, portable: bool = False) -> str:
    """Return the command line that a host runs."""
    if portable:
        return f"noclobber hook {host} {duty}"
    python = os.path.realpath(sys.executable)
    return " ".join(shlex.quote(word) for word in (python, "-I", "-S", START, host, duty))


def is_ours(value: Any, host: str | None = None) -> bool:
    """True for a hook entry, or a group of them, that runs noclobber (for that host)."""
    if isinstance(value, dict):
        spelled = value.get("command", value.get("bash"))
        if isinstance(spelled, str):
            ours = "noclobber/hook/start.py" in spelled or "noclobber hook " in spelled
            return ours and (host is None or f" {host}" in spelled)
        hooks = value.get("hooks")
        return isinstance(hooks, list) and bool(hooks) and all(is_ours(one, host) for one in hooks)
    return False


def place(host: str, scope: str, project: str, *, portable: bool = False) -> ConfigFile:
    """Return where a host's hooks go. `scope` is `user` or `project`."""
    base = os.path.expanduser("~") if scope == "user" else project
    maker = _MAKERS.get(host)
    if maker is None:
        raise BadRequestError("", f"There is no host {host!r}. There are: {', '.join(_MAKERS)}.")
    return maker(base, scope, portable)


def find_hosts(project: str) -> list[str]:
    """Return the hosts that this project or this user has something of."""
    home = os.path.expanduser("~")
    found = []
    for host, marks in _MARKS.items():
        at_home = [f"{home}/{mark}" for mark in marks if mark.startswith(".")]
        if is_used_in(project, host) or any(os.path.exists(path) for path in at_home):
            found.append(host)
    return found


def is_used_in(project: str, host: str) -> bool:
    """True if the host has left a trace in the project itself."""
    return any(os.path.exists(f"{project}/{mark}") for mark in _MARKS[host])


_MARKS = {
    "claude-code": (".claude", "CLAUDE.md"),
    "codex": (".codex",),
    "copilot": (".github/hooks", ".copilot", ".github/copilot-instructions.md"),
    "cursor": (".cursor", ".cursorrules"),
    "gemini": (".gemini", "GEMINI.md"),
    "opencode": (".opencode", ".config/opencode", "opencode.json", "opencode.jsonc"),
    "qwen": (".qwen", "QWEN.md"),
}


def _claude_like(
    host: str, path: str, portable: bool, checked: str, noted: str, *, closed: dict[str, Any], timeout: Any
) -> ConfigFile:
    def group(duty: str, matcher: str | None, more: dict[str, Any]) -> dict[str, Any]:
        line = {"type": "command", "command": command(host, duty, portable=portable), **timeout, **more}
        return {"matcher": matcher, "hooks": [line]} if matcher else {"hooks": [line]}

    entries = [
        Entry("PreToolUse", group("check", checked, closed)),
        Entry("PostToolUse", group("note", noted, {})),
        Entry("PostToolUseFailure", group("note", noted, {})),
        *(
            Entry(event, group("note", None, {}))
            for event in ("SessionStart", "Stop", "SubagentStop", "SessionEnd")
        ),
    ]
    return ConfigFile(host, path, tuple(entries))


def _claude_code(base: str, scope: str, portable: bool) -> ConfigFile:
    writes = "Write|Edit|MultiEdit|NotebookEdit"
    return _claude_like(
        "claude-code",
        f"{base}/.claude/settings.json",
        portable,
        writes,
        f"Read|{writes}|Bash",
        closed={"onFailure": "block"},
        timeout={"timeout": TIMEOUT_S},
    )


def _qwen(base: str, scope: str, portable: bool) -> ConfigFile:
    writes = "write_file|edit|replace"
    return _claude_like(
        "qwen",
        f"{base}/.qwen/settings.json",
        portable,
        f"^({writes})$",
        f"^(read_file|read_many_files|{writes}|run_shell_command)$",
        closed={},
        timeout={},
    )


def _codex(base: str, scope: str, portable: bool) -> ConfigFile:
    home = os.environ.get("CODEX_HOME", f"{base}/.codex") if scope == "user" else f"{base}/.codex"

    def group(duty: str, matcher: str | None) -> dict[str, Any]:
        line = {"type": "command", "command": command("codex", duty, portable=portable), "timeout": TIMEOUT_S}
        return {"matcher": matcher, "hooks": [line]} if matcher else {"hooks": [line]}

    return ConfigFile(
        "codex",
        f"{home}/hooks.json",
        (
            Entry("PreToolUse", group("check", "^apply_patch$")),
            Entry("PreToolUse", group("shell", "^Bash$")),
            Entry("PostToolUse", group("note", "^(apply_patch|Bash)$")),
            Entry("SessionStart", group("note", None)),
            Entry("Stop", group("note", None)),
            Entry("SessionEnd", group("note", None)),
        ),
    )


def _gemini(base: str, scope: str, portable: bool) -> ConfigFile:
    def group(duty: str, matcher: str | None) -> dict[str, Any]:
        line = {
            "name": f"noclobber-{duty}",
            "type": "command",
            "command": command("gemini", duty, portable=portable),
            "timeout": TIMEOUT_S * 1000,
        }
        return {"matcher": matcher, "hooks": [line]} if matcher else {"hooks": [line]}

    writes = "write_file|replace"
    return ConfigFile(
        "gemini",
        f"{base}/.gemini/settings.json",
        (
            Entry("BeforeTool", group("check", f"^({writes})$")),
            Entry("AfterTool", group("note", f"^(read_file|read_many_files|{writes}|run_shell_command)$")),
            *(Entry(event, group("note", None)) for event in ("SessionStart", "AfterAgent", "SessionEnd")),
        ),
    )


def _cursor(base: str, scope: str, portable: bool) -> ConfigFile:
    def one(duty: str, matcher: str | None = None, **more: Any) -> dict[str, Any]:
        chosen = {"matcher": matcher} if matcher else {}
        return {
            "command": command("cursor", duty, portable=portable),
            **chosen,
            "timeout": TIMEOUT_S,
            **more,
        }

    return ConfigFile(
        "cursor",
        f"{base}/.cursor/hooks.json",
        (
            Entry("preToolUse", one("check", "Write|Delete", failClosed=True)),
            Entry("postToolUse", one("note", "Write|Delete|Shell")),
            Entry("postToolUseFailure", one("note", "Write|Delete")),
            Entry("beforeReadFile", one("note")),
            *(Entry(event, one("note")) for event in ("sessionStart", "stop", "subagentStop", "sessionEnd")),
        ),
        preamble=(("version", 1),),
    )


def _copilot(base: str, scope: str, portable: bool) -> ConfigFile:
    folder = f"{base}/.copilot/hooks" if scope == "user" else f"{base}/.github/hooks"

    def one(duty: str) -> dict[str, Any]:
        return {
            "type": "command",
            "bash": command("copilot", duty, portable=portable),
            "timeoutSec": TIMEOUT_S,
        }

    # There are no matchers: every tool's event comes. `auto` finds out which of them may write.
    events = ("sessionStart", "postToolUse", "postToolUseFailure", "agentStop", "subagentStop", "sessionEnd")
    entries = (Entry("preToolUse", one("auto")), *(Entry(event, one("note")) for event in events))
    return ConfigFile("copilot", f"{folder}/noclobber.json", entries, preamble=(("version", 1),))


def _opencode(base: str, scope: str, portable: bool) -> ConfigFile:
    from noclobber.hosts.opencode_plugin import source

    folder = f"{base}/.config/opencode" if scope == "user" else f"{base}/.opencode"
    return ConfigFile("opencode", f"{folder}/plugin/noclobber.js", whole=source(portable=portable))


_MAKERS = {
    "claude-code": _claude_code,
    "codex": _codex,
    "copilot": _copilot,
    "cursor": _cursor,
    "gemini": _gemini,
    "opencode": _opencode,
    "qwen": _qwen,
}
