"""
Where the tools may go: the folders on the command line, or those that the client names.

A path is judged twice, as the replaced server does: as it is written (no way out by `..`), and as the
disk has it (no way out by a link). A path that does not exist yet is judged by the nearest folder above
it that does. This is for the texts; what makes it safe is that every read and write is pinned again, below
one root, by `noclobber.disk.paths`, so a link that is swapped in after the judgement leads nowhere.

Relative paths are relative to the first root. A leading `~` is the user's home.

Not promised: listings and searches are judged once, before they look.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from noclobber.disk.paths import BESIDE_PREFIX, STATE_FOLDER
from noclobber.mcp.reference.os_errors import failed, outside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class Located(NamedTuple):
    """
    A path inside the roots: what the client called it, absolute, and where it really is.

    Where a link leads from one root into another the name is the real one: a name is known within a root.
    """

    name: str
    real: str


class Roots:
    """The folders that tools may touch. Immutable; a client that names others gets another one."""

    def __init__(self, folders: Iterable[str]) -> None:
        shown: list[str] = []
        for folder in folders:
            # Both spellings: a client may use either, and both must pass the judgement by text.
            for spelling in (folder, os.path.realpath(folder)):
                if spelling not in shown:
                    shown.append(spelling)
        self.shown = tuple(shown)
        self._real_of = {folder: os.path.realpath(folder) for folder in shown}
        self.folders = tuple(sorted({os.path.realpath(folder) for folder in shown}, key=len, reverse=True))

    def holds(self, path: str) -> bool:
        """True if an absolute, normalised path is a root or below one."""
        return any(_is_within(path, root) for root in self.shown)

    def home_of(self, real: str) -> str:
        """Return the innermost root that really holds a path."""
        return next(folder for folder in self.folders if _is_within(real, folder))

    def locate(self, given: str) -> Located:
        """Return where a path leads; `PlainError` if that is outside, or cannot be told."""
        name = self._absolute(given)
        if "\0" in name or not self.holds(name):
            raise outside(
                f"Access denied - path outside allowed directories: {name} not in {', '.join(self.shown)}",
                name,
            )
        try:
            name.encode()
        except UnicodeEncodeError:
            raise failed(errno.EINVAL, "realpath", name.encode("utf-8", "replace").decode()) from None
        try:
            real = os.path.realpath(name, strict=True)
        except FileNotFoundError:
            return self._within_one_root(name, self._future(name))
        except OSError as error:
            raise failed(error.errno, "realpath", name) from None
        self._judge_target(real)
        return self._within_one_root(name, real)

    def _within_one_root(self, name: str, real: str) -> Located:
        homes = [self._real_of[root] for root in self.shown if _is_within(name, root)]
        return Located(name if self.home_of(real) == max(homes, key=len) else real, real)

    def _absolute(self, given: str) -> str:
        if given == "~" or given.startswith("~/"):
            given = os.path.expanduser(given)
        if not given.startswith("/"):
            given = f"{self.shown[0] if self.shown else os.getcwd()}/{given}"
        return plain(given)

    def _future(self, name: str) -> str:
        """Judge a path where nothing stands by the folder that would hold it."""
        above, below = os.path.split(name)
        if os.path.islink(name):  # It points nowhere; what a write through it would create is a guess.
            raise self._homeless(name, above)
        while True:
            try:
                folder = os.path.realpath(above, strict=True)
                break
            except FileNotFoundError:
                if os.path.islink(above):
                    raise self._homeless(name, os.path.dirname(name)) from None
                above, part = os.path.split(above)
                below = f"{part}/{below}"
            except OSError as error:
                raise failed(error.errno, "realpath", name) from None
        self._judge_target(folder)
        return f"{folder}/{below}" if folder != "/" else f"/{below}"

    @staticmethod
    def _homeless(name: str, folder: str) -> Exception:
        return outside(f"Parent directory does not exist: {folder}", name)

    def _judge_target(self, real: str) -> None:
        if not self.holds(real):
            raise outside(
                f"Access denied - symlink target outside allowed directories: {real} "
                f"not in {', '.join(self.shown)}",
                real,
            )


def from_arguments(folders: Iterable[str]) -> Roots:
    """Return the roots of a command line. What is no folder is left out, with a word on stderr."""
    found = []
    given = list(folders)
    for folder in given:
        name = plain(os.path.abspath(os.path.expanduser(folder)))
        if not os.path.exists(name):
            print(f"Warning: Cannot access directory {name}, skipping", file=sys.stderr)
        elif not os.path.isdir(name):
            print(f"Warning: {name} is not a directory, skipping", file=sys.stderr)
        else:
            found.append(name)
    if given and not found:
        raise failed(errno.ENOENT, "open", *given[:1])
    return Roots(found)


def from_client(uris: Iterable[str]) -> Roots | None:
    """Return the roots that a client names; None if none of them is a folder here."""
    found = []
    for uri in uris:
        parts = urlsplit(uri)
        path = unquote(parts.path) if parts.scheme == "file" and parts.netloc in ("", "localhost") else ""
        real = os.path.realpath(path) if path.startswith("/") and "\0" not in path else ""
        if real and os.path.isdir(real):
            found.append(real)
        else:
            print(f"noclobber: the client's root {uri!r} is no folder here, skipping", file=sys.stderr)
    return Roots(found) if found else None


def plain(path: str) -> str:
    """Return an absolute path without `.`, `..` and doubled slashes."""
    path = os.path.normpath(path)
    return path[1:] if path.startswith("//") else path  # POSIX lets two slashes mean something else.


def is_ours(name: str) -> bool:
    """True for names of noclobber's own records, which listings leave out."""
    return name == STATE_FOLDER or name.startswith(BESIDE_PREFIX)


def _is_within(path: str, root: str) -> bool:
    return path == root or path.startswith(root if root == "/" else f"{root}/")
