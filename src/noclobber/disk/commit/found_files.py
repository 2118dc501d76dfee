"""What stands at a name, asked after a crash: its inode, its hash, or a descriptor of it."""

from __future__ import annotations

import os
import stat

from noclobber.disk import hashing
from noclobber.disk.commit.prints import print_of
from noclobber.disk.reading import LOOK, NOT_READABLE


def inode_of(folder_fd: int, name: str) -> int | None:
    """Return what the name stands for; None if there is nothing."""
    try:
        return os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_ino
    except FileNotFoundError:
        return None


def open_if_readable(folder_fd: int, name: str) -> int | None:
    """
    Open what is there; None if there is nothing that we may read.

    Any other error must not be taken for "somebody else's file": recovery fails, the note stays, and the next
    call tries again.
    """
    try:
        return os.open(name, LOOK, dir_fd=folder_fd)
    except OSError as error:
        if error.errno not in NOT_READABLE:
            raise
        return None


def hash_if(folder_fd: int, name: str, inode: int | None) -> str:
    """Return the hash of what is there, if it is a file (and that inode); else ""."""
    descriptor = open_if_readable(folder_fd, name)
    if descriptor is None:  # Nothing; or a link or a FIFO, which cannot be opened.
        return print_of(folder_fd, name) if inode is not None and inode_of(folder_fd, name) == inode else ""
    try:
        status = os.fstat(descriptor)
        if inode is not None and status.st_ino != inode:
            return ""
        if not stat.S_ISREG(status.st_mode):
            return print_of(folder_fd, name) if inode is not None else ""
        return hashing.of_descriptor(descriptor)
    finally:
        os.close(descriptor)


class Opened:
    """A descriptor of what is at a name, for a `with` block; None if there is nothing."""

    def __init__(self, folder_fd: int, name: str) -> None:
        self._descriptor: int | None
        try:
            self._descriptor = os.open(name, LOOK, dir_fd=folder_fd)
        except FileNotFoundError:
            self._descriptor = None

    def __enter__(self) -> int | None:
        return self._descriptor

    def __exit__(self, *exc: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
