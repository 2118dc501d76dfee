"""
Where the tools may go: the folders on the command line, or what the client names of them.

A client can narrow the roots that were given at the start, and not widen them. If none was given, the client
names them.

A path is checked twice, as the replaced server does: as it is written (`..` must not lead out), and as the
disk has it (a link must not lead out). A path that does not exist yet is checked by the nearest folder above
it that does. These checks make the error texts. What makes it safe is that every read and write is pinned
again, below one root, by `noclobber.disk.paths`, so a link that is put there after the check is not followed.

Relative paths are relative to the first root. A leading `~` is the user's home.

Not promised: a listing or a search is checked once, before it begins.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from noclobber.disk import without_links
from noclobber.disk.paths import MOST_LINKS
from noclobber.disk.system_errors import lookup_failed
from noclobber.errors import BadPathError, MissingFileError, OutsideWorkspaceError

if TYPE_CHECKING:
    from collections.abc import Iterable


class ClientPath(NamedTuple):
    """
    A path inside the roots: the name that the client gave it, absolute, and where it really is.

    Where a link leads from one root into another, the name is the real path: a name is known within a root.
    """

    name: str
    real: str
    is_there: bool = False
    """True if something was found at it, so that its folder need not be looked for."""


class Roots:
    """The folders that tools may use. Immutable; a client that names some of them gets another value."""

    def __init__(self, folders: Iterable[str]) -> None:
        shown: list[str] = []
        for folder in folders:
            # Both spellings: a client may use either, and both must pass the check of the text.
            for spelling in (folder, os.path.realpath(folder)):
                if spelling not in shown:
                    shown.append(spelling)
        self.shown = tuple(shown)
        self._real_of = {folder: os.path.realpath(folder) for folder in shown}
        self.folders = tuple(sorted({os.path.realpath(folder) for folder in shown}, key=len, reverse=True))

    def holds(self, path: str) -> bool:
        """True if an absolute, normalised path is a root or below one."""
        return any(_is_within(path, root) for root in self.shown)

    def root_of(self, real: str) -> str:
        """Return the innermost root that really holds a path."""
        return next(folder for folder in self.folders if _is_within(real, folder))

    def locate(self, given: str) -> ClientPath:
        """Return where a path leads; a refusal if that is outside, or cannot be found out."""
        name = self._absolute(given)
        if "\0" in name or not self.holds(name):
            raise _outside(name, f"{name} is not in {', '.join(self.shown)}.")
        try:
            name.encode()
        except UnicodeEncodeError:
            raise BadPathError(
                name.encode("utf-8", "replace").decode(), "No file can have this name."
            ) from None
        if without_links.leads_somewhere(name):
            return ClientPath(name, name, is_there=True)  # Then no spelling of a root on the way is a link.
        try:
            real = _real(name)
        except FileNotFoundError:
            return self._within_one_root(name, self._future(name))
        except OSError as error:
            raise lookup_failed(error, name) from None
        self._require_inside(real)
        return self._within_one_root(name, real)

    def _within_one_root(self, name: str, real: str) -> ClientPath:
        roots = [self._real_of[root] for root in self.shown if _is_within(name, root)]
        return ClientPath(name if self.root_of(real) == max(roots, key=len) else real, real)

    def _absolute(self, given: str) -> str:
        if given == "~" or given.startswith("~/"):
            given = os.path.expanduser(given)
        if not given.startswith("/"):
            given = f"{self.shown[0] if self.shown else os.getcwd()}/{given}"
        return plain(given)

    def _future(self, name: str) -> str:
        """Return where a path that does not exist yet would be; the folder above it must be inside."""
        above, below = os.path.split(name)
        if os.path.islink(name):  # Broken. What a write through it would create is a guess.
            raise self._no_parent(name, above)
        while True:
            try:
                folder = _real(above)
                break
            except FileNotFoundError:
                if os.path.islink(above):
                    raise self._no_parent(name, os.path.dirname(name)) from None
                above, part = os.path.split(above)
                below = f"{part}/{below}"
            except OSError as error:
                raise lookup_failed(error, name) from None
        self._require_inside(folder)
        return f"{folder}/{below}" if folder != "/" else f"/{below}"

    @staticmethod
    def _no_parent(name: str, folder: str) -> Exception:
        return OutsideWorkspaceError(name, f"The link leads to nothing: there is no {folder} to write in.")

    def _require_inside(self, real: str) -> None:
        if not self.holds(real):
            raise _outside(real, f"a link leads to {real}, which is not in {', '.join(self.shown)}.")


def from_arguments(folders: Iterable[str]) -> Roots:
    """Return the roots of a command line. What is not a folder is left out, with a warning on stderr."""
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
        raise MissingFileError(given[0], "None of these is a folder that can be opened.")
    return Roots(found)


def from_client(uris: Iterable[str], bound: Roots) -> Roots | None:
    """
    Return the roots that a client names, as far as they are within `bound`, the roots of the command line.

    None if nothing of them is left. Where the command line names no root, the client's are the roots.
    """
    found: list[str] = []
    for uri in uris:
        parts = urlsplit(uri)
        path = unquote(parts.path) if parts.scheme == "file" and parts.netloc in ("", "localhost") else ""
        real = os.path.realpath(path) if path.startswith("/") and "\0" not in path else ""
        if not real or not os.path.isdir(real):
            print(f"noclobber: the client's root {uri!r} is not a folder here, skipping", file=sys.stderr)
        elif not bound.folders or bound.holds(real):
            found.append(real)
        elif within := [folder for folder in bound.folders if _is_within(folder, real)]:
            found += within
        else:
            print(f"noclobber: the client's root {uri!r} is not in the roots given here", file=sys.stderr)
    return Roots(found) if found else None


def plain(path: str) -> str:
    """Return an absolute path without `.`, `..` and doubled slashes."""
    path = os.path.normpath(path)
    return path[1:] if path.startswith("//") else path  # POSIX lets two slashes mean something else.


def _real(path: str) -> str:
    """
    Return where an absolute path leads, every link followed; `OSError` as the kernel would raise it.

    `os.path.realpath` goes round in circles on a link through `/proc/PID/root` that comes back to its own
    name: to the kernel that is another file system, so it finds no loop there (finding S14).
    """
    here, links_left = "", MOST_LINKS
    rest = path.split("/")[::-1]
    while rest:
        part = rest.pop()
        if part in ("", "."):
            continue
        if part == "..":
            here = here.rpartition("/")[0]
            continue
        try:
            target = os.readlink(f"{here}/{part}")
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            here = f"{here}/{part}"  # Not a link.
            continue
        links_left -= 1
        if links_left < 0:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        here = "" if target.startswith("/") else here
        rest += target.split("/")[::-1]
    return here or "/"


def _outside(path: str, why: str) -> OutsideWorkspaceError:
    return OutsideWorkspaceError(path.replace("\0", "\\0"), f"Outside of the allowed directories: {why}")


def _is_within(path: str, root: str) -> bool:
    return path == root or path.startswith(root if root == "/" else f"{root}/")
