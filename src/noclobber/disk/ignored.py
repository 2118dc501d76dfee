"""
Which files of a project git ignores, by the `.gitignore` files on the way to them.

Looks at the files again only when they have changed. git itself is not run: a process for each path takes
7 ms, more than the commit, where this takes 0.07 ms; and a repository can make git run programs. Read are the
`.gitignore` files from the top of the repository down, `.git/info/exclude`, and the user's own file: where
`core.excludesFile` says, or in its usual place. Of git's configuration the user's files and the repository's
are read, without what they include.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from noclobber.disk.reading import LOOK

if TYPE_CHECKING:
    from noclobber.text.gitignore import IgnoreRule

MOST_BYTES = 1 << 20
_NAME = ".gitignore"


class GitIgnore:
    """What git ignores below one folder; nothing if that is not in a repository."""

    def __init__(self, root: str) -> None:
        self._top = _top_of(root)
        self._known: dict[str, tuple[tuple[int, int, int] | None, tuple[IgnoreRule, ...]]] = {}
        self._configured: dict[str, tuple[tuple[int, int, int] | None, str]] = {}

    def ignores(self, path: str) -> bool:
        """Return whether git ignores a file. `path` is canonical."""
        top = self._top
        if top is None or not path.startswith(f"{top}/"):
            return False
        below = path[len(top) + 1 :]
        rules = {"": self._of_the_top(top)}
        folder = ""
        for part in below.split("/")[:-1]:
            folder = f"{folder}/{part}" if folder else part
            rules[folder] = self._rules(f"{top}/{folder}/{_NAME}")
        if not any(rules.values()):
            return False
        from noclobber.text.gitignore import (
            is_ignored,  # Here: it loads `re`, and many projects ignore nothing.
        )

        return is_ignored(below, rules)

    def _of_the_top(self, top: str) -> tuple[IgnoreRule, ...]:
        """The user's own rules come first, so that the project's decide after them."""
        return (
            *self._rules(self._own_file(top)),
            *self._rules(f"{_repository(top)}/info/exclude"),
            *self._rules(f"{top}/{_NAME}"),
        )

    def _own_file(self, top: str) -> str:
        settings = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
        own = os.environ.get("GIT_CONFIG_GLOBAL")
        files = [own] if own else [f"{settings}/git/config", os.path.expanduser("~/.gitconfig")]
        for path in (f"{_repository(top)}/config", *reversed(files), "/etc/gitconfig"):
            if found := self._named_in(os.path.realpath(path)):  # Dotfiles are often links.
                return os.path.realpath(found)
        return f"{settings}/git/ignore"

    def _named_in(self, path: str) -> str:
        """Return what a file of git's configuration says of `core.excludesFile`; empty if it does not."""
        stamp = _stamp(path)
        known = self._configured.get(path)
        if known is None or known[0] != stamp:
            known = self._configured[path] = (stamp, "" if stamp is None else _excludes_file(_text(path)))
        return known[1]

    def _rules(self, path: str) -> tuple[IgnoreRule, ...]:
        stamp = _stamp(path)
        known = self._known.get(path)
        if known is None or known[0] != stamp:
            known = self._known[path] = (stamp, () if stamp is None else _rules_in(_text(path)))
        return known[1]


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def _excludes_file(text: str) -> str:
    """Return the last `excludesFile` in a `[core]` section, with the home folder put in."""
    found, section = "", ""
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("["):
            section = line[1:].partition("]")[0].strip().lower()
        name, equals, value = line.partition("=")
        if section == "core" and equals and name.strip().lower() == "excludesfile":
            found = os.path.expanduser(value.strip().strip('"'))
    return found if found.startswith("/") else ""


def _rules_in(text: str) -> tuple[IgnoreRule, ...]:
    if not any(line and not line.startswith("#") for line in text.splitlines()):
        return ()  # As git itself writes `info/exclude`: nothing but comments.
    from noclobber.text.gitignore import rules_in

    return rules_in(text)


def _top_of(root: str) -> str | None:
    folder = root
    while not os.path.lexists(f"{folder}/.git"):
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above
    return folder


def _repository(top: str) -> str:
    """Return the folder that git keeps `info/exclude` in: of a worktree, the one that it shares."""
    own = f"{top}/.git"
    if not os.path.isfile(own):
        return own
    named = _text(own)[:4096].removeprefix("gitdir:").strip()
    folder = os.path.normpath(os.path.join(top, named))
    shared = _text(f"{folder}/commondir")[:4096].strip()
    return os.path.normpath(os.path.join(folder, shared)) if shared else folder


def _text(path: str) -> str:
    """Return the beginning of a file; nothing if it cannot be read, or is not a file."""
    try:
        descriptor = os.open(path, LOOK)
    except OSError:
        return ""
    try:
        return os.read(descriptor, MOST_BYTES).decode("utf-8", "surrogateescape")
    except OSError:
        return ""
    finally:
        os.close(descriptor)
