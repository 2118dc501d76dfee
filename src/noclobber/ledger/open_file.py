"""
What one process has open of a ledger, and how it is opened.

A descriptor and the kernel's mutex belong together, and a fork shares both. So each process has a handle
of its own: a forked child closes what it inherited before any of its own code runs.
"""

from __future__ import annotations

import errno
import os
import stat
from _thread import allocate_lock  # `threading` is a millisecond of a hook's start, for the same lock.

from noclobber.disk import mutex
from noclobber.errors import LedgerError
from noclobber.ledger.line import START

# No link is followed and nothing is waited for: a FIFO or a terminal in the ledger's place must not block.
_CAREFULLY = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
FOR_READING = os.O_RDONLY | _CAREFULLY
FOR_APPENDING = os.O_RDWR | os.O_APPEND | os.O_CREAT | _CAREFULLY


class Handle:
    """What one process has open: a descriptor, and where the chain stood after its last append."""

    __slots__ = ("descriptor", "identity", "is_new", "link", "lock", "pid", "size", "thread")

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = allocate_lock()  # flock is no barrier between threads that share a descriptor.
        self.thread = -1  # Who is appending; a signal handler that comes back in would wait for itself.
        self.descriptor = -1
        self.identity = (-1, -1)  # Device and inode.
        self.is_new = True  # Opened, and not flushed since.
        self.size = -1
        self.link = START

    def open(self, path: str) -> None:
        """Open the file that a path names now, creating it if there is none."""
        self.descriptor, self.identity = open_ledger(path, FOR_APPENDING)
        self.is_new = True
        _OPEN.add(self)

    def close(self) -> None:
        """Let go of the mutex and the file. Where the chain stood is remembered."""
        descriptor, self.descriptor, self.size = self.descriptor, -1, -1
        _OPEN.discard(self)  # Before close(): a fork in between must not close a reused number.
        if descriptor >= 0:
            try:
                mutex.release(descriptor)
            finally:
                os.close(descriptor)


_OPEN: set[Handle] = set()


def _drop_inherited_handles() -> None:
    """
    Close the parent's descriptors in a forked child.

    They are the same open file, and the kernel's mutex belongs to it. Kept here, they would keep the
    mutex taken after the parent was killed while holding it. No LOCK_UN: that would free the parent's.
    """
    for handle in list(_OPEN):
        os.close(handle.descriptor)
        handle.descriptor = handle.size = -1
        handle.lock = allocate_lock()  # Another thread of the parent may have held the old one.
        handle.pid, handle.thread = os.getpid(), -1
    _OPEN.clear()


os.register_at_fork(after_in_child=_drop_inherited_handles)


def open_ledger(path: str, flags: int) -> tuple[int, tuple[int, int]]:
    """Open a regular file; return its descriptor, and which device and inode it is."""
    verb = "read" if flags == FOR_READING else "write to"
    try:
        descriptor = os.open(path, flags, 0o666)
    except (OSError, ValueError) as error:
        raise failure(path, verb, error) from error
    try:
        opened = os.fstat(descriptor)
        if stat.S_ISREG(opened.st_mode):
            return descriptor, (opened.st_dev, opened.st_ino)
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    raise LedgerError(path, "is not a regular file; move it away or give the ledger another path")


def failure(path: str, verb: str, error: OSError | ValueError) -> LedgerError:
    """Say what could not be done with a ledger, why, and what to do about it."""
    number = error.errno if isinstance(error, OSError) else None
    remedy = _REMEDIES.get(number or 0, "check the disk and the path")
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return LedgerError(path, f"cannot {verb} the ledger ({reason}): {remedy}", errno=number)


_REMEDIES = {
    errno.ENOENT: "its folder does not exist; create it",
    errno.ENOTDIR: "a part of its path is not a folder; give the ledger another path",
    errno.EISDIR: "a folder stands there; give the ledger another path",
    errno.ELOOP: "a symbolic link stands there, and the ledger follows none; give the real path",
    errno.ENXIO: "not a regular file stands there; move it away or give the ledger another path",
    errno.EACCES: "this user may not; change the owner or the mode of the file and its folder",
    errno.EPERM: "this user may not; the file may be immutable or append-only (lsattr)",
    errno.EROFS: "the filesystem is read-only; remount it or give the ledger another path",
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the quota is used up; free some space",
    errno.EFBIG: "the file-size limit is reached (ulimit -f); raise it or move the ledger away",
    errno.EMFILE: "this process has too many files open (ulimit -n)",
    errno.ENAMETOOLONG: "the path is too long; give the ledger a shorter one",
}
