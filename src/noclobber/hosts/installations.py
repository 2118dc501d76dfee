"""
Where our hooks are installed for a host: in its configurations, of the project and of the user, and packages.

Only looks. What cannot be read counts as not there; `doctor` then says that hooks are missing, and `install`
says why the file cannot be read.
"""

from __future__ import annotations

import errno
import glob
import os
import stat
from typing import Any, NamedTuple

from noclobber.errors import NoclobberError
from noclobber.hosts import json_edit
from noclobber.hosts.hook_entries import HookEntry, hook_file, is_ours
from noclobber.hosts.plugin_source import MARK

MOST_BYTES = 4 << 20


class Installation(NamedTuple):
    """Our hooks in one place."""

    host: str
    form: str
    """`project`, `user` or `plugin`."""
    path: str
    """The file that has the hooks."""
    entries: tuple[HookEntry, ...] = ()
    """As they are in the file: one command each. Empty for a plugin in a language of its own."""

    @property
    def option(self) -> str:
        """What `noclobber install` has to be told to mean this place."""
        return {"project": "", "user": " --user", "plugin": " --as plugin"}[self.form]

    def commands(self) -> list[tuple[str, str]]:
        """Return event and command line of every hook."""
        found = []
        for entry in self.entries:
            for hook in entry.value.get("hooks", [entry.value]):
                line = hook.get("command", hook.get("bash"))
                if isinstance(line, str):
                    found.append((entry.event, line))
        return found


def find(host: str, project: str) -> list[Installation]:
    """Return every installation that the host would load in a project, if nothing stops it."""
    found = []
    for form in ("project", "user"):
        path = hook_file(host, form, project).path
        if hook_file(host, form, project).whole is not None:
            text = read(path)
            if text is not None and text.startswith(MARK):
                found.append(Installation(host, form, path))
        elif entries := entries_in(path):
            found.append(Installation(host, form, path, entries))
    if host == "claude-code" and (entries := entries_in(f"{project}/.claude/settings.json")):
        found.append(Installation(host, "project", f"{project}/.claude/settings.json", entries))
    for path in _packages(host, project):
        entries = entries_in(path)
        if entries or (host == "opencode" and os.path.exists(path)):
            found.append(Installation(host, "plugin", path, entries))
    return found


def entries_in(path: str) -> tuple[HookEntry, ...]:
    """Return our hooks in a file, in its order."""
    value = read_json(path)
    hooks = value.get("hooks") if isinstance(value, dict) else None
    return tuple(
        HookEntry(str(event), group)
        for event, groups in (hooks.items() if isinstance(hooks, dict) else ())
        for group in (groups if isinstance(groups, list) else ())
        if is_ours(group)
    )


def read_json(path: str) -> Any:
    """Return what a JSON file holds (comments are allowed), None if it cannot be read."""
    text = read(path)
    try:
        return None if text is None else json_edit.parse(text).value
    except NoclobberError:
        return None


def read(path: str) -> str | None:
    """Return a file's text, None if it cannot be read."""
    try:
        return read_plain(path, MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return None


def home_of(host: str) -> str:
    """Return the folder in which a host keeps what belongs to the user."""
    home = os.path.expanduser("~")
    if host == "codex":
        return os.environ.get("CODEX_HOME", f"{home}/.codex")
    if host == "copilot":
        return os.environ.get("COPILOT_HOME", f"{home}/.copilot")
    folders = {"claude-code": ".claude", "opencode": ".config/opencode", "cursor": ".cursor"}
    return f"{home}/{folders.get(host, f'.{host}')}"


# -- packages --------------------------------------------------------------------------------------------


def _packages(host: str, project: str) -> list[str]:
    """Return the files with hooks of installed packages, as each host records them; see `packages`."""
    home = home_of(host)
    if host in ("gemini", "qwen"):
        linked = read_json(f"{home}/extensions/noclobber/.{host}-extension-install.json")
        source = linked.get("source") if isinstance(linked, dict) and linked.get("type") == "link" else None
        folder = source if isinstance(source, str) else f"{home}/extensions/noclobber"
        return [f"{folder}/hooks/hooks.json"]
    if host == "claude-code":
        if not _is_enabled([f"{home}/settings.json", f"{project}/.claude/settings.json"]):
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
    if host == "codex":
        return sorted(glob.glob(f"{glob.escape(home)}/plugins/cache/*/noclobber/*/hooks/hooks.json"))
    if host == "copilot":
        settings = f"{home}/settings.json"
        if not _is_enabled([settings]):
            return []
        copied = glob.glob(f"{glob.escape(home)}/installed-plugins/**/hooks.json", recursive=True)
        known = (read_json(settings) or {}).get("extraKnownMarketplaces", {})
        source = known.get("noclobber", {}).get("source", {}) if isinstance(known, dict) else {}
        live = [f"{source['path']}/copilot/hooks.json"] if isinstance(source.get("path"), str) else []
        return [*live, *sorted(copied)]
    if host == "opencode":
        found = []
        for path in (f"{home}/opencode.json", f"{home}/opencode.jsonc", f"{project}/opencode.json"):
            value = read_json(path)
            listed = value.get("plugin") if isinstance(value, dict) else None
            for one in listed if isinstance(listed, list) else ():
                if isinstance(one, str) and one.startswith("file://") and "noclobber" in one:
                    found.append(f"{one.removeprefix('file://')}/noclobber.js")
        return found
    return []


def _is_enabled(settings: list[str]) -> bool:
    """True if one of some settings switches our plugin on."""
    for path in settings:
        value = read_json(path)
        enabled = value.get("enabledPlugins") if isinstance(value, dict) else None
        if isinstance(enabled, dict) and any(
            name.startswith("noclobber@") and switch is True for name, switch in enabled.items()
        ):
            return True
    return False


# Links are followed: people keep their dotfiles so.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


def read_plain(path: str, most_bytes: int = -1) -> bytes:
    """Return a regular file's bytes, or the first of them; `OSError` for everything else."""
    descriptor = os.open(path, _READ)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", path)
        return file.read(most_bytes)
