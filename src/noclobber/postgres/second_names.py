"""
A second name for each version that a late rename could take from its place: for NFS.

An NFS client replaces a file that somebody on its own machine has open, or just looks at, in two steps: the
old file is renamed to `.nfs…`, then the new one gets its name. The second step can be revoked, the first
cannot. A machine that is cut off in the middle sends it when it is back, by name: the newest version, of
whichever machine, loses its name, and is removed when the last program there closes it. A writer that is
killed in between leaves the same.

So whoever renames gives the version that is there a second name first. And whoever finds a section overdue
leaves a mark: somebody's rename may come late. While the mark is there, each new version has a second name
from before it lands until the next one has. A guarded reader or writer that finds nothing at the path, though
there is a newest version and the mark is there, puts that version back.

Not promised: a program that has never heard of noclobber and deletes the file while the mark is there deletes
it in vain. A mark stays for an hour after the last writer that was found overdue.
"""

from __future__ import annotations

import os
from contextlib import suppress

from noclobber.disk import filesystems, hashing, paths
from noclobber.errors import ABSENT

_CHARS = 24
_PUT_ASIDE = ".nfs"


def is_put_aside(name: str) -> bool:
    """True for the name that an NFS client gives to a file which is open while it is replaced."""
    return name.startswith(_PUT_ASIDE)


class SecondNames:
    """Second names and marks, in the folder of staged files. Where they are not needed, nothing happens."""

    def __init__(self, folder: str, kind: str) -> None:
        self._folder, self.are_needed = folder, kind.startswith("nfs")
        self._root = os.path.dirname(os.path.dirname(folder))

    # -- marks: somebody's rename may come late ------------------------------------------------------------

    def mark(self, path: str) -> None:
        """Say that a rename to this path may come late. Before the section is settled, so that all see it."""
        if self.are_needed:
            # Written anew, so that its time is that of the last one.
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self._mark(path), flags, 0o600)
            try:
                os.write(descriptor, b"late\n")
            finally:
                os.close(descriptor)

    def is_marked(self, path: str) -> bool:
        """
        True if a rename to this path may come late; also if the volume does not say.

        Asked of the server: a machine that has looked before, and found no mark, remembers that for seconds.
        It would land a version without a second name while somebody's rename may come late.
        """
        if not self.are_needed:
            return False
        filesystems.refresh(self._folder)
        try:
            os.lstat(self._mark(path))
        except FileNotFoundError:
            return False
        except OSError:
            return True  # A second name too many is swept away; one too few loses a version.
        return True

    # -- second names --------------------------------------------------------------------------------------

    def give(self, path: str, sha256: str, source: str | None = None) -> None:
        """Give a version its second name: the one at the path, or one that is staged."""
        if self.are_needed and sha256 != ABSENT:
            with (
                suppress(FileExistsError, FileNotFoundError),
                paths.opened_below(self._root, source or path) as (folder_fd, leaf),
            ):
                os.link(leaf, self._name(path, sha256), src_dir_fd=folder_fd, follow_symlinks=False)

    def take_back(self, path: str, sha256: str) -> None:
        """A version needs no second name any more."""
        if self.are_needed:
            with suppress(OSError):
                os.unlink(self._name(path, sha256))

    def put_back(self, path: str, sha256: str | None) -> bool:
        """Give a version its place again, if nothing is there; None: the only one that there is."""
        if not self.are_needed:
            return False
        names = self.of(path) if sha256 is None else [self._name(path, sha256)]
        if len(names) != 1:
            return False
        try:
            if sha256 is not None and not _has(names[0], sha256):
                return False
            with paths.opened_below(self._root, path) as (folder_fd, leaf):
                os.link(names[0], leaf, dst_dir_fd=folder_fd, follow_symlinks=False)
        except OSError:
            return False  # Somebody else did, or there is none.
        return True

    def count(self, path: str, sha256: str, found: os.stat_result) -> int:
        """How many of a file's names are not its user's: the second one, and those of an NFS client."""
        if not self.are_needed:
            return 0
        folder = os.path.dirname(path)
        names = [self._name(path, sha256)]
        with suppress(OSError):
            names += [f"{folder}/{name}" for name in os.listdir(folder) if is_put_aside(name)]
        return sum(_is_same(name, found) for name in names)

    def of(self, path: str) -> list[str]:
        """The second names of this path's versions."""
        begin = f"kept-{self._key(path)}."
        return [f"{self._folder}/{name}" for name in self.leftovers() if name.startswith(begin)]

    def leftovers(self) -> list[str]:
        """Names of marks and of second names, for whoever sweeps."""
        with suppress(OSError):
            return [name for name in os.listdir(self._folder) if name.startswith(("late-", "kept-"))]
        return []

    # -- parts ---------------------------------------------------------------------------------------------

    def _mark(self, path: str) -> str:
        return f"{self._folder}/late-{self._key(path)}"

    def _name(self, path: str, sha256: str) -> str:
        return f"{self._folder}/kept-{self._key(path)}.{sha256[:_CHARS]}"

    def _key(self, path: str) -> str:
        # From the folder of staged files: machines have mounted the volume at different places.
        relative = os.path.relpath(path, os.path.dirname(self._folder))
        return hashing.of_bytes(os.fsencode(relative))[:_CHARS]


def _is_same(path: str, found: os.stat_result) -> bool:
    with suppress(OSError):
        other = os.lstat(path)
        return (other.st_dev, other.st_ino) == (found.st_dev, found.st_ino)
    return False


def _has(path: str, sha256: str) -> bool:
    with open(path, "rb") as file:
        return hashing.of_bytes(file.read()) == sha256
