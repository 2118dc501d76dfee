"""
The ledger file as one process has it open: opened once, checked before a write, appended to after it.

A descriptor and the kernel's mutex belong together, and a fork shares both. So each process has a handle
of its own: a forked child closes what it inherited before any of its own code runs.

A hook loads this module for every write that it judges, and the rest of the ledger only when it has an
event to record. That is why `LightLedger` is here, and why this module imports so little.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from fcntl import LOCK_UN, flock
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.project import STATE_FOLDER
from noclobber.disk import mutex
from noclobber.disk.small_file import closing
from noclobber.errors import LedgerError

if TYPE_CHECKING:
    from noclobber.core.clock import Clock
    from noclobber.ledger.ledger import AgentTraceLedger, LedgerEntry
    from noclobber.ledger.line import Link

# No link is followed and nothing is waited for: a FIFO or a terminal in the ledger's place must not block.
_CAREFULLY = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
FOR_READING = os.O_RDONLY | _CAREFULLY
GROUP_APPENDS = stat.S_IRGRP | stat.S_IWGRP
FOR_APPENDING = os.O_RDWR | os.O_APPEND | os.O_CREAT | _CAREFULLY
_LOCK_LEDGER = ".lock-ledger.jsonl"  # `lock.names.LEDGER_NAME`, which is above this folder.
_REOPENINGS = 100
EVENT_BYTES = 2048  # More than an event takes, with long paths.
OTHERS_ROOM_BYTES = 16 << 10
AHEAD_BYTES = 48 << 10
FULL = (errno.ENOSPC, errno.EDQUOT)
_LEASE_SUFFIX = ".lease"  # After the ledger's own name: `lock.names` knows what begins with that.
_SEAL = b',"hash":"sha256:'  # What the last member of every line begins with; `line` has the whole.
_SEAL_BYTES = len(_SEAL) + 64 + len(b'"}\n')


class Handle:
    """What one process has open: a descriptor, and how the chain ended after its last append."""

    __slots__ = (
        *("_clock", "_lease", "_patience_s", "descriptor", "identity", "is_alone", "is_new"),
        *("link", "lock", "path", "pid", "size", "taken_bytes", "thread"),
    )

    def __init__(
        self, path: str, clock: Clock = SYSTEM_CLOCK, patience_s: float = mutex.DEFAULT_PATIENCE_S
    ) -> None:
        self.path, self._clock, self._patience_s = path, clock, patience_s
        self.pid = os.getpid()
        self.lock = Lock()  # flock does not exclude threads that share a descriptor.
        self.thread = -1  # Who is at work; a signal handler that comes back in would wait for itself.
        self.descriptor = -1
        self.identity = (-1, -1)  # Device and inode.
        self.is_new = True  # Opened, and not flushed since.
        self.size = -1  # -1: another process may have appended, so the end must be read.
        self.link: Link | None = None  # The last entry that this process saw; None before the first.
        self.taken_bytes = 0  # On the disk, with what is set aside.
        self.is_alone = False  # On a mount whose locks reach nobody else.
        self._lease: tuple[int, bytes] | None = None

    def owned(self) -> Handle:
        """Return the handle of this process, and refuse a signal handler that interrupted its own thread."""
        if self.pid != os.getpid():  # Forked by C code, so that our fork hook did not run.
            return Handle(self.path, self._clock, self._patience_s)
        if self.thread == get_ident() and self.lock.locked():
            raise LedgerError(
                self.path,
                "a signal handler used the ledger while its own thread was using it; "
                "record the event after the handler has returned",
            )
        return self

    def prepare(self, events: int = 1) -> None:
        """
        Open the file if it is not open, and raise the `LedgerError` that an append would meet now.

        The disk sets room aside for so many events, so that one that is full by then does not matter.
        """
        with self.lock:
            self.thread = get_ident()
            try:
                size = self.hold()
                self.make_room(size, EVENT_BYTES * events)
                if size not in (0, self.size) and not self._ends_in_a_seal(size):
                    from noclobber.ledger.tail import read_tail  # Torn, or not a ledger: this finds out.

                    read_tail(self.descriptor, size, self.path)
            except OSError as error:
                raise failure(self.path, "write to", error) from error
            finally:
                self.let_others_in()
                if self.descriptor >= 0:
                    flock(self.descriptor, LOCK_UN)
                self.thread = -1

    def hold(self) -> int:
        """Hold the mutex of the file that the path names now, and return the file's size."""
        for _ in range(_REOPENINGS):
            if self.descriptor < 0:
                self.descriptor, self.identity = open_ledger(self.path, FOR_APPENDING)
                self.is_new, self.is_alone = True, _reaches_this_mount_only(self.path, self.descriptor)
                _OPEN.add(self)
            if not mutex.hold(self.descriptor, patience_s=self._patience_s, clock=self._clock):
                raise self._busy()
            # The file may have been rotated or deleted since we opened it, or while we waited. No reader
            # would find a line that is written to the old one.
            try:
                if self.is_alone:
                    self._wait_for_other_mounts()
                named = os.lstat(self.path)
            except FileNotFoundError:
                named = None
            if named is not None and (named.st_dev, named.st_ino) == self.identity:
                self.taken_bytes = named.st_blocks * 512
                return named.st_size
            self.close()
        raise LedgerError(self.path, "the ledger is replaced again and again; find out which program does it")

    def make_room(self, size: int, room_bytes: int) -> None:
        """
        Let the disk set room aside behind the file's end, and for what others append before us; or `OSError`.

        The mutex is held. Nothing happens where the filesystem has no such call: NFS before 4.2, some FUSE.
        """
        room_bytes += OTHERS_ROOM_BYTES
        if self.taken_bytes >= size + room_bytes:
            return
        from noclobber.disk import ahead  # Here: most hooks find room.

        try:
            ahead.set_aside(self.descriptor, size, room_bytes + AHEAD_BYTES)
        except OSError as error:
            if error.errno not in FULL:
                return
            ahead.set_aside(self.descriptor, size, room_bytes)  # Less may be had.

    def _wait_for_other_mounts(self) -> None:
        """Take the lease that other mounts see, and forget what this one remembers of the file."""
        from noclobber.disk import filesystems, lease_file

        if self._lease is None:
            folder_fd = os.open(os.path.dirname(self.path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            name = f"{os.path.basename(self.path)}{_LEASE_SUFFIX}"
            try:
                mine = lease_file.take(name, folder_fd, patience_s=self._patience_s, clock=self._clock)
                if mine is None:
                    raise self._busy()
                self._lease, folder_fd = (folder_fd, mine), -1
            finally:
                if folder_fd >= 0:
                    os.close(folder_fd)
        filesystems.forget_cached(self.descriptor)

    def let_others_in(self) -> None:
        """Give back the lease, if there is one. The mutex is the caller's to release."""
        if self._lease is not None:
            from noclobber.disk import lease_file

            (folder_fd, mine), self._lease = self._lease, None
            lease_file.release(f"{os.path.basename(self.path)}{_LEASE_SUFFIX}", folder_fd, mine)
            os.close(folder_fd)

    def close(self) -> None:
        """Release the mutex and close the file. The last entry seen is remembered."""
        descriptor, self.descriptor, self.size = self.descriptor, -1, -1
        _OPEN.discard(self)  # Before close(): a fork in between must not close a reused number.
        self.let_others_in()
        if descriptor >= 0:
            try:
                mutex.release(descriptor)
            finally:
                os.close(descriptor)

    def _ends_in_a_seal(self, size: int) -> bool:
        end = os.pread(self.descriptor, _SEAL_BYTES, max(0, size - _SEAL_BYTES))
        return end.startswith(_SEAL) and end.endswith(b'"}\n')

    def _busy(self) -> LedgerError:
        return LedgerError(
            self.path,
            f"another process or thread has held the ledger for {self._patience_s:g} s, so nothing was "
            "recorded; look for a stopped process that has this file open (lsof, fuser)",
        )


class LightLedger:
    """A ledger by its path, for a process that may have nothing to record: the rest loads with an event."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._handle = Handle(path)
        self._loaded: AgentTraceLedger | None = None

    def prepare(self, events: int = 1) -> None:
        """Open the file, and raise the `LedgerError` that so many appends would meet now."""
        self._handle.prepare(events)

    def append(self, event: Mapping[str, Any]) -> LedgerEntry:
        """Record one event, through the file that `prepare` opened."""
        if self._loaded is None:
            from noclobber.ledger.ledger import AgentTraceLedger

            self._loaded = AgentTraceLedger(self.path, _handle=self._handle)
        return self._loaded.append(event)

    def __del__(self) -> None:
        if self._handle.pid == os.getpid():
            self._handle.close()


_OPEN: set[Handle] = set()


def _reaches_this_mount_only(path: str, descriptor: int) -> bool:
    from noclobber.disk.filesystems import is_remote, kind_of

    if not is_remote(kind_of(descriptor)):
        return False
    from noclobber.disk.reach import is_this_mount_only

    with closing(os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as folder_fd:
        return is_this_mount_only(folder_fd)


def _drop_inherited_handles() -> None:
    """
    Close the parent's descriptors in a forked child.

    They are the same open file, and the kernel's mutex belongs to it. Kept here, they would keep the
    mutex taken after the parent was killed while holding it. No LOCK_UN: that would free the parent's.
    """
    for handle in list(_OPEN):
        os.close(handle.descriptor)
        if handle._lease is not None:
            os.close(handle._lease[0])
            handle._lease = None
        handle.descriptor = handle.size = -1
        handle.lock = Lock()  # Another thread of the parent may have held the old one.
        handle.pid, handle.thread = os.getpid(), -1
    _OPEN.clear()


os.register_at_fork(after_in_child=_drop_inherited_handles)


def open_ledger(path: str, flags: int) -> tuple[int, tuple[int, int]]:
    """Open a regular file; return its descriptor, and which device and inode it is."""
    verb = "read" if flags == FOR_READING else "write to"
    try:
        is_of_lock = flags == FOR_APPENDING and path.endswith(f"/{_LOCK_LEDGER}")
        descriptor = _open_in_place(path, flags) if is_of_lock else os.open(path, flags, 0o664)
    except (OSError, ValueError) as error:
        raise failure(path, verb, error) from error
    try:
        opened = os.fstat(descriptor)
        if stat.S_ISREG(opened.st_mode):
            if flags == FOR_APPENDING and not opened.st_size:
                _share_with_group(path, descriptor, opened)
            return descriptor, (opened.st_dev, opened.st_ino)
    except OSError as error:
        os.close(descriptor)
        raise failure(path, verb, error) from error
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    raise LedgerError(path, "is not a regular file; move it away or give the ledger another path")


def _open_in_place(path: str, flags: int) -> int:
    """
    Open the record of a deliverable's locks by its canonical path; create it in that very folder only.

    Somebody may put a link in the place of a folder on the way, after the path was found; the record would be
    made wherever it leads. So the kernel is asked which folder was opened, before anything is created. A
    record that is there already needs no question: it is one of a folder that is locked as well.
    """
    try:
        return os.open(path, flags & ~os.O_CREAT)
    except FileNotFoundError:
        pass
    folder = os.path.dirname(path)
    with closing(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as folder_fd:
        if not _is_called(folder_fd, folder):
            raise FileNotFoundError(errno.ENOENT, "the folder was moved, or a link is in its place", path)
        return os.open(_LOCK_LEDGER, flags, 0o664, dir_fd=folder_fd)


def _is_called(descriptor: int, path: str) -> bool:
    """True if that is what the kernel calls an open folder, or if it cannot be asked."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}") == path
    except OSError:
        return True


def _share_with_group(path: str, descriptor: int, opened: os.stat_result) -> None:
    """
    Let the group append to a new ledger, if it may write in the project.

    Made by a member with a umask of 022 it would be closed to the others, and without a record none of their
    writes could land. They may put another file in its place anyway.
    """
    folder = os.path.dirname(path)
    if os.path.basename(folder) == STATE_FOLDER:
        folder = os.path.dirname(folder)
    project = os.stat(folder or ".")
    is_shared = project.st_mode & stat.S_IWGRP and project.st_gid == opened.st_gid
    if is_shared and opened.st_uid == os.geteuid() and opened.st_mode & GROUP_APPENDS != GROUP_APPENDS:
        os.fchmod(descriptor, stat.S_IMODE(opened.st_mode) | GROUP_APPENDS)


def failure(path: str, verb: str, error: OSError | ValueError) -> LedgerError:
    """Say what could not be done with a ledger, why, and what to do about it."""
    number = error.errno if isinstance(error, OSError) else None
    remedy = _REMEDIES.get(number or 0, "check the disk and the path")
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return LedgerError(path, f"cannot {verb} the ledger ({reason}): {remedy}", errno=number)


_REMEDIES = {
    errno.ENOENT: "its folder does not exist; create it",
    errno.ENOTDIR: "a part of its path is not a folder; give the ledger another path",
    errno.EISDIR: "there is a folder of that name; give the ledger another path",
    errno.ELOOP: "it is a symbolic link, which the ledger does not follow; give the real path",
    errno.ENXIO: "it is not a regular file; move it away or give the ledger another path",
    errno.EACCES: "this user may not; change the owner or the mode of the file and its folder",
    errno.EPERM: "this user may not; the file may be immutable or append-only (lsattr)",
    errno.EROFS: "the filesystem is read-only; remount it or give the ledger another path",
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the quota is used up; free some space",
    errno.EFBIG: "the file-size limit is reached (ulimit -f); raise it or move the ledger away",
    errno.EMFILE: "this process has too many files open (ulimit -n)",
    errno.ENAMETOOLONG: "the path is too long; give the ledger a shorter one",
}
