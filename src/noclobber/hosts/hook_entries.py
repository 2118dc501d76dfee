"""
What a host's hook configuration is made of; each host's own file says where it is and what belongs in it.

There are two kinds of hooks. A `check` is asked before a write; where the host has a switch for it, a hook
that crashes or hangs then counts as a refusal. A `note` is told what happened and never blocks anything.
Reads are only ever noted, so that no hook of ours can block one. `command_line` says what the host is told if
a hook does not even run.

Used by `install` and `doctor`. A hook call does not load this module.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.errors import BadRequestError
from noclobber.hosts import HOSTS, load
from noclobber.hosts.command_line import START as START
from noclobber.hosts.command_line import command as command

if TYPE_CHECKING:
    from collections.abc import Iterable

TIMEOUT_S = 30  # A hook answers within some hundredths of a second; this is for a machine that is busy.


class HookEntry(NamedTuple):
    """One hook in a host's list for an event."""

    event: str
    value: dict[str, Any]


class HookMember(NamedTuple):
    """A member of ours in a table of the user's: `"env": {"CLAUDE_CODE_SHELL_PREFIX": "…"}`."""

    table: str
    key: str
    value: str | None
    """None: an earlier version wrote it, and it is removed."""


class ConfigFile(NamedTuple):
    """A host's configuration file, and what our hooks in it look like."""

    host: str
    path: str
    entries: tuple[HookEntry, ...] = ()
    """Added to whatever else is in the file."""
    whole: str | None = None
    """For a file that is ours alone: its content."""
    preamble: tuple[tuple[str, Any], ...] = ()
    """Members that the host requires in the file."""
    members: tuple[HookMember, ...] = ()
    """Members of tables in the file that are the user's otherwise."""


def hook_file(host: str, scope: str, project: str, *, portable: bool = False) -> ConfigFile:
    """Return where a host's hooks are configured, and our hooks. `scope` is `user` or `project`."""
    if host not in HOSTS:
        raise BadRequestError("", f"There is no host {host!r}. There are: {', '.join(HOSTS)}.")
    base = os.path.expanduser("~") if scope == "user" else project
    return load(host).hooks(base, scope, portable)


def find_hosts(project: str) -> list[str]:
    """Return the hosts that have left files in this project or in the user's home folder."""
    home = os.path.expanduser("~")
    found = []
    for host in HOSTS:
        at_home = [f"{home}/{trace}" for trace in load(host).TRACES if trace.startswith(".")]
        if is_used_in(project, host) or any(os.path.exists(path) for path in at_home):
            found.append(host)
    return found


def is_used_in(project: str, host: str) -> bool:
    """True if the host has left files in the project itself."""
    return any(os.path.exists(f"{project}/{trace}") for trace in load(host).TRACES)


def is_ours(value: Any, host: str | None = None) -> bool:
    """True for a hook, or a group of hooks, that runs noclobber (for that host)."""
    if isinstance(value, dict):
        spelled = value.get("command", value.get("bash"))
        if isinstance(spelled, str):
            ours = "noclobber/hook/start.py" in spelled or "noclobber hook " in spelled
            return ours and (host is None or f" {host}" in spelled)
        hooks = value.get("hooks")
        return isinstance(hooks, list) and bool(hooks) and all(is_ours(one, host) for one in hooks)
    return False


def is_our_member(value: Any) -> bool:
    """True for the value of such a member if we wrote it. Another program's stays, and ours is not added."""
    return isinstance(value, str) and "noclobber_text" in value


def group(
    event: str, command_line: str, matcher: str | None = None, *, name: str | None = None, **more: Any
) -> HookEntry:
    """Return an entry as Claude Code, Codex, Gemini CLI and Qwen Code write it: a matcher and its hooks."""
    named = {"name": name} if name else {}
    hook = {**named, "type": "command", "command": command_line, **more}
    return HookEntry(event, {"matcher": matcher, "hooks": [hook]} if matcher else {"hooks": [hook]})


def notes(events: Iterable[str], command_line: str, **more: Any) -> tuple[HookEntry, ...]:
    """Return a group without a matcher for each of some events."""
    return tuple(group(event, command_line, **more) for event in events)


MARK = "// Written by `noclobber install "
_COMMAND = 'const COMMAND = ["noclobber", "hook"]'
_BROKEN = 'const BROKEN = ""'
_SHELL = "const SHELL = null"


def source(host: str = "opencode", *, portable: bool = False) -> str:
    """Return a plugin's text for this machine, or for any that has `noclobber` on its path."""
    from noclobber.hosts.command_line import ASK, START, fallback

    python = os.path.realpath(sys.executable)
    words = ["noclobber", "hook"] if portable else ["/bin/sh", ASK, python, "-I", "-S", START]
    folder = os.path.dirname(os.path.abspath(__file__))
    with open(f"{folder}/{host}_plugin.js", encoding="utf-8") as file:
        program = file.read()
    assert program.count(_COMMAND) == program.count(_BROKEN) == 1
    program = program.replace(_COMMAND, f"const COMMAND = {json.dumps(words)}")
    # A plugin for any machine knows no paths, so there its commands are watched.
    if not portable:
        home = os.path.dirname(folder)
        files = {"PYTHON": python, "START": f"{home}/cli/shell_prefix.py", "FOLDER": f"{folder}/shell_env"}
        program = program.replace(_SHELL, f"const SHELL = {json.dumps(files)}")
    told = json.loads(fallback(host, "check"))["reason"]
    title = f"{MARK}{host}`; `noclobber install {host} --uninstall` removes it."
    return f"{title}\n{program.replace(_BROKEN, f'const BROKEN = {json.dumps(told)}')}"


def routes_shell(text: str) -> bool:
    """True if an installed plugin brings its host's shell to us."""
    return MARK in text and _SHELL not in text
