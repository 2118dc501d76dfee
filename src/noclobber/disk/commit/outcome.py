"""
What commits of every kind have in common: beginning again, writing down, ending, and saying what went wrong.
"""

from __future__ import annotations

import errno
import os
import stat

from noclobber.disk.commit import journal
from noclobber.disk.commit.swap import LinkAppearedError
from noclobber.errors import AccessDeniedError, FileBusyError, NoclobberError, StorageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol, TypeVar

    from noclobber.disk.commit.journal import Note
    from noclobber.disk.commit.section import Section
    from noclobber.disk.commit.swap import Swap

    Result = TypeVar("Result")

    class Closable(Protocol):
        """A file of a commit, at its end."""

        is_swapped: bool

        def close(self, *, landed: bool) -> None:
            """Close what is open."""


MOST_TRIES = 50


def starting_over(commit: Callable[[], Result], path: str) -> Result:
    """Run a commit again for as long as links appear under its feet."""
    for _ in range(MOST_TRIES):
        try:
            return commit()
        except LinkAppearedError:
            continue
    raise FileBusyError(path, "it is being replaced by links all the time; try again later.")


def planned(swap: Swap, folder: str, kind: str = "exchange") -> journal.Planned:
    """Return what the note says of a file that is about to be exchanged."""
    return journal.Planned(
        kind,
        folder,
        swap.target.name,
        swap.expected if swap.expected is not None else swap.previous,
        swap.new_hash,
        swap.swap_name,
        swap.new_inode,
    )


def conclude(section: Section, files: Sequence[Closable], in_use: list[Note], *, landed: bool) -> None:
    """
    Close every file of a commit and clear its notes, leader first; after anything unforeseen, recover.

    Exchanged, and neither landed nor restored: then an error that is not a refusal (an interrupt, an
    I/O error) cut it off. It looks exactly like a crash, and gets the same treatment while the mutex is
    still ours.
    """
    cut_off = not landed and any(file.is_swapped for file in files)
    for file in files:
        file.close(landed=landed)
    if cut_off:
        section.rescue()
    for note in in_use:
        note.clear()


def inherit_group(new_fd: int, folder_fd: int) -> None:
    """Give a file staged elsewhere the group that a set-group-id folder gives its files."""
    folder = os.fstat(folder_fd)
    if folder.st_mode & stat.S_ISGID and os.fstat(new_fd).st_gid != folder.st_gid:
        os.fchown(new_fd, -1, folder.st_gid)


def explained(error: OSError, path: str) -> BaseException:
    """Turn what the operating system said into what a user can act on."""
    if isinstance(error, NoclobberError):
        return error
    said = os.strerror(error.errno or 0)
    if error.errno in (errno.EACCES, errno.EPERM):
        return AccessDeniedError(
            path,
            f"the operating system refused ({said}); check the owner and mode of the file and its folder.",
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(
            path, f"the disk is full ({said}); the old content stands. Make room and try again."
        )
    return StorageError(path, f"the disk did not do it ({said}); the old content stands.")
