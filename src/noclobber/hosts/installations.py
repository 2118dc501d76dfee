"""
Where our hooks are installed for a host: in its configurations, of the project and of the user, and packages.

Only looks. What cannot be read counts as not there; `doctor` then says that hooks are missing, and `install`
says why the file cannot be read.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Any, NamedTuple

from noclobber.errors import NoclobberError
from noclobber.hosts import json_edit, traits
from noclobber.hosts.hook_entries import MARK, HookEntry, hook_file, is_ours

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
    about = traits.of(host)
    for path in about.installed_packages(about.home, project):
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


def is_enabled(settings: list[str]) -> bool:
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
