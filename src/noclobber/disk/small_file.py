"""
Small files of noclobber's own: found without following a link, read and written whole.

They are in folders that may have come with a repository, or that other users write to. So no link is followed
in the last place, nothing waits for a FIFO or a terminal, only a regular file is read or written, and no more
of it than the caller expects.

Two ways to write, for two kinds of readers:

- `publish()`, `create()`: a reader finds the whole file or none. `publish()` replaces what has the name, and
  `publish(..., once=True)` leaves what is there and raises `FileExistsError`;
- `write_over()`: in place, for readers that hold the same mutex. After a rename over a file ext4 flushes it
  at once, which takes most of a millisecond. A kill in the middle leaves a damaged file.

Not promised: that a file survives a power cut. Commits and the ledger flush their own.
"""

from __future__ import annotations

import errno
import os
import stat

_CAREFULLY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ = os.O_RDONLY | _CAREFULLY
WRITE = os.O_WRONLY | os.O_CREAT | _CAREFULLY
NEW = WRITE | os.O_EXCL
MOST_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 16


class closing:  # noqa: N801 - it reads as a word: `with closing(descriptor):`
    """Close a descriptor at the end of a block."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def open_folder(name: str, above_fd: int | None = None, *, make: bool = False, mode: int = 0o700) -> int:
    """Open a folder, which is not a link; `make` it if there is none."""
    try:
        return os.open(name, FOLDER, dir_fd=above_fd)
    except FileNotFoundError:
        if not make:
            raise
    try:
        os.mkdir(name, mode, dir_fd=above_fd)
    except FileExistsError:
        pass
    return os.open(name, FOLDER, dir_fd=above_fd)


def open_own_folder(name: str, above_fd: int, mode: int = 0o700) -> int:
    """
    Open a folder of noclobber's own, which is made if there is none.

    A link of that name came with somebody's repository, and would lead us out of it: it is removed.
    """
    for is_last in (False, True):
        try:
            return open_folder(name, above_fd, make=True, mode=mode)
        except OSError:
            if is_last or not stat.S_ISLNK(os.stat(name, dir_fd=above_fd, follow_symlinks=False).st_mode):
                raise
        os.unlink(name, dir_fd=above_fd)
    raise AssertionError


def is_private(status: os.stat_result) -> bool:
    """True for what this user owns, and what nobody else may read or write."""
    return status.st_uid == os.geteuid() and not status.st_mode & 0o077


def read(
    name: str, folder_fd: int | None = None, *, most_bytes: int = MOST_BYTES, private: bool = False
) -> bytes:
    """
    Return all that is in a file. `OSError` for what is no regular file, or has too many bytes.

    `private`: and for what belongs to others, or what others may read or write.
    """
    with closing(os.open(name, READ, dir_fd=folder_fd)) as descriptor:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", name)
        if private and not is_private(status):
            raise PermissionError(errno.EPERM, "it belongs to others, or others may use it", name)
        data = os.read(descriptor, min(status.st_size, most_bytes) + 1)
        if len(data) != status.st_size:  # It grows or shrinks meanwhile.
            while len(data) <= most_bytes and (piece := os.read(descriptor, _CHUNK_BYTES)):
                data += piece
        if len(data) > most_bytes:
            raise OSError(errno.EFBIG, "it is too large", name)
        return data


def create(name: str, data: bytes, folder_fd: int | None = None, mode: int = 0o600) -> None:
    """Make a new file. If that fails there is none; `FileExistsError` if the name is taken."""
    descriptor = os.open(name, NEW, mode, dir_fd=folder_fd)
    try:
        with closing(descriptor):
            write_all(descriptor, data)
    except BaseException:
        remove(name, folder_fd)
        raise


def publish(
    name: str, data: bytes, folder_fd: int | None = None, mode: int = 0o600, *, once: bool = False
) -> None:
    """
    Put a file under a name, whole, in place of what is there; or `once`, if nothing is there.

    Staged under a random name: threads and processes may publish one name at the same time.
    """
    staged = f"{name}.{os.urandom(8).hex()}"
    create(staged, data, folder_fd, mode)
    try:
        if once:
            os.link(staged, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd, follow_symlinks=False)
        else:
            os.rename(staged, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
    finally:
        remove(staged, folder_fd)


def write_over(name: str, data: bytes, folder_fd: int | None = None, mode: int = 0o600) -> None:
    """Write a file in place, and make it if there is none."""
    with closing(_opened_to_write(name, 0, folder_fd, mode)) as descriptor:
        write_all(descriptor, data)
        os.ftruncate(descriptor, len(data))


def append(name: str, data: bytes, folder_fd: int | None = None, mode: int = 0o600) -> int:
    """Add to the end of a file, and make it if there is none; return how many bytes it has now."""
    with closing(_opened_to_write(name, os.O_APPEND, folder_fd, mode)) as descriptor:
        write_all(descriptor, data)
        return os.fstat(descriptor).st_size


def _opened_to_write(name: str, flags: int, folder_fd: int | None, mode: int) -> int:
    descriptor = os.open(name, WRITE | flags, mode, dir_fd=folder_fd)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", name)
    return descriptor


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes, however many calls that takes; a full disk is an `OSError`."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def remove(name: str, folder_fd: int | None = None) -> None:
    """Remove a file, if it is there."""
    try:
        os.unlink(name, dir_fd=folder_fd)
    except FileNotFoundError:
        pass
