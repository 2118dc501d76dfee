"""
Bytes before names: after a power cut, a name must not lead to a file whose bytes were never written.

A kernel writes a file's bytes some 30 s after the program did, and the names of files after 5. In between, a
cut leaves the new name with an empty file, and the old version is gone. For `rename` over a file ext4 and
btrfs have an exception; for exchange-rename, `link` and files on xfs there is none. So a commit waits, before
it gives a file its name, until the bytes have been written.

Not until they are *flushed*, which costs several times as much. On filesystems with a journal or a log
(`ORDERED`) that is not needed: they flush the disk themselves before they make a change of names lasting, and
what the disk had received before that is part of it. What must be over before the name is changed is

- on ext4 and xfs the write itself, because only its end makes the blocks part of the file;
- on btrfs its *ordered extent*, which enters the file into the tree some time after the write.

`FIEMAP` with its "sync" flag waits for exactly these on each of the three. Elsewhere nothing is known, and
the file is flushed. On tmpfs that does nothing, and costs nothing.

Not promised: with the mount option `nobarrier`, on ext4 without a journal, and on disks that lie about
flushes, nothing of this holds.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from collections.abc import Iterable

from noclobber.disk.c_library import INT64, function
from noclobber.disk.filesystems import filesystem_type

# Here a change of names is lasting only together with everything that was written and named before it.
ORDERED = frozenset(("ext3", "ext4", "xfs", "btrfs"))

_FIEMAP = 0xC020660B
_NO_EXTENTS = (
    (0, 8),
    (1, 8),
    (1, 4),
    (0, 4),
    (0, 4),
    (0, 4),
)  # Up to byte 1, FIEMAP_FLAG_SYNC, room for none.
_SYNC_ONLY = b"".join(number.to_bytes(size, sys.byteorder) for number, size in _NO_EXTENTS)
_START = 2  # SYNC_FILE_RANGE_WRITE
_NOT_HERE = (
    errno.EOPNOTSUPP,
    errno.ENOTTY,
    errno.EINVAL,
    errno.ENOSYS,
    errno.EBADR if sys.platform == "linux" else 0,
)
_sync_file_range = function("sync_file_range")
_BARRIER = 85  # F_BARRIERFSYNC of macOS.
_BTRFS_START_COMMIT, _BTRFS_WAIT_COMMIT = 0x80089418, 0x40089416

_types: dict[int, str] = {}


def type_of(device: int, folder: str) -> str:
    """Return the kind of filesystem that a folder is on; looked up once per device."""
    kind = _types.get(device)
    if kind is None:
        kind = _types[device] = filesystem_type(folder)
    return kind


def start(descriptor: int) -> None:
    """Have the kernel begin to write a file's bytes, so that `wait()` takes less time later."""
    if _sync_file_range is not None:
        _sync_file_range(descriptor, INT64(0), INT64(0), _START)  # A failure shows in `wait()`.


def wait(descriptor: int, kind: str) -> None:
    """Return when the bytes of a file have been written; a name that it gets now never leads to less."""
    if kind in ORDERED:
        try:
            fcntl.ioctl(descriptor, _FIEMAP, _SYNC_ONLY)
            return
        except OSError as error:
            if error.errno not in _NOT_HERE:
                raise
    flush_bytes(descriptor)


def flush_bytes(descriptor: int) -> None:
    """Flush a file's bytes to the disk."""
    if sys.platform == "darwin":
        try:
            fcntl.fcntl(descriptor, _BARRIER)
        except OSError:
            os.fsync(descriptor)
    else:
        os.fdatasync(descriptor)


def flush_names(folders: Iterable[int], kind: str) -> None:
    """
    Make changes of names lasting, all of them, before what is needed to undo them is given up.

    btrfs can flush a folder without what left it, so there the whole transaction is committed.
    """
    folders = list(folders)
    if kind == "btrfs":
        try:
            number = fcntl.ioctl(folders[0], _BTRFS_START_COMMIT, bytes(8))
            fcntl.ioctl(folders[0], _BTRFS_WAIT_COMMIT, number)
            return
        except OSError as error:
            if error.errno not in (*_NOT_HERE, errno.EPERM):
                raise
    for folder_fd in folders:
        os.fsync(folder_fd)
