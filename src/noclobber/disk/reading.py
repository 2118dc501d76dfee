"""
Read files: the one way from a path to its bytes and their hash.

Every open here follows no link in the last place, never blocks on a FIFO, and waits a moment while a commit
holds its new version back. Hash and bytes come from the same read. Nothing is created and no folder is
locked, so that a hook, which judges without committing, reads as the library does.

Three answers, for three kinds of caller:

- `look_at(path)` and `state_of(target)` return what is there, and a word where there is nothing to read;
- `hash_of(target)` is the same for a commit, which needs only the hash;
- `open_to_read(target)` raises what the operating system says.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from noclobber.core.clock import SYSTEM_CLOCK, Patience
from noclobber.disk import filesystems, forks, hashing, paths
from noclobber.disk.system_errors import EXHAUSTED, exhausted
from noclobber.errors import (
    DELETED,
    NOT_A_FILE,
    UNREADABLE,
    AccessDeniedError,
    MissingFileError,
    NoclobberError,
    NotAFileError,
)

if TYPE_CHECKING:
    from noclobber.core.clock import Clock
    from noclobber.disk.paths import PinnedPath


T = TypeVar("T")

LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY

# What opening something that way says if it is missing, no regular file, or not ours to read. Any other error
# (too many open files, a failing disk) says nothing about what is there.
NOT_READABLE = (
    errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO, errno.ENODEV,
    errno.EISDIR, errno.EWOULDBLOCK,
)  # fmt: skip
DEFAULT_PATIENCE_S = 10.0
SHORT_PATIENCE_S = 2.0  # Of a hook, whose host waits for its answer.
KEPT_BYTES = 64 << 20  # Larger content is hashed and not held.
MOST_LOOKS = 50  # Two in a row were the most that was seen.
STALE_NAP_S = 0.01


class FileState(NamedTuple):
    """What is at a path: the content's hash, or `DELETED`, `NOT_A_FILE`, `UNREADABLE`."""

    path: str
    sha256: str
    content: bytes | None = None
    """The bytes, if they were asked for and are no more than `KEPT_BYTES`."""
    changed_at_s: float = 0.0
    """When the file's bytes, mode or name last changed, by the filesystem's clock."""
    stamp: str = ""
    """What changes with the content, as it was before the content was read: see `stamp_of`."""


def look_at(
    path: str,
    root: str | None = None,
    *,
    keep: bool = False,
    patience_s: float = SHORT_PATIENCE_S,
    clock: Clock = SYSTEM_CLOCK,
) -> FileState:
    """
    Return the state of what an absolute, normalised path leads to; with its bytes if they are to be kept.

    Raises only for what no file can be called (`BadPathError`), for what is outside of `root`, and if there
    are too many open files, or too little memory, to look.
    """
    try:
        target = paths.pin(root, path)
    except MissingFileError:
        return FileState(paths.locate(path, root), DELETED)
    except NotAFileError:
        return FileState(path, NOT_A_FILE)
    except AccessDeniedError:
        return FileState(path, UNREADABLE)
    try:
        return state_of(target, keep=keep, patience_s=patience_s, clock=clock)
    finally:
        target.close()


def state_of(
    target: PinnedPath,
    *,
    keep: bool = False,
    patience_s: float = DEFAULT_PATIENCE_S,
    clock: Clock = SYSTEM_CLOCK,
) -> FileState:
    """Return the state of a pinned target."""
    for _ in range(MOST_LOOKS):
        try:
            return _state_of(target, keep, patience_s, clock)
        except NoclobberError:
            raise
        except OSError:  # See `is_replaced()`.
            ask_again(target)
    return FileState(target.path, UNREADABLE)


def _state_of(target: PinnedPath, keep: bool, patience_s: float, clock: Clock) -> FileState:
    path = target.path
    try:
        descriptor = open_to_read(target, Patience(patience_s, clock))
    except FileNotFoundError:
        return FileState(path, DELETED)
    except OSError as error:
        if error.errno in EXHAUSTED:  # That is no answer: taken for one, a write would be refused as stale.
            raise exhausted(error, path) from error
        return FileState(path, NOT_A_FILE if error.errno in (errno.ELOOP, errno.ENXIO) else UNREADABLE)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return FileState(path, NOT_A_FILE)
        content = read_all(descriptor) if keep and status.st_size <= KEPT_BYTES else None
        sha256 = (
            hashing.of_descriptor(descriptor, size_hint=status.st_size)
            if content is None
            else hashing.of_bytes(content)
        )
        changed_at_s = max(status.st_mtime, status.st_ctime)
        return FileState(path, sha256, content, changed_at_s, stamp_of(status))
    except OSError as error:
        if is_replaced(error):
            raise
        return FileState(path, UNREADABLE)
    finally:
        forks.close(descriptor)


def is_replaced(error: OSError) -> bool:
    """
    True if an *open* file says that it was replaced on another machine, or through another mount.

    On NFS it says ESTALE. FUSE filesystems that work by path (bindfs with `hard_remove`) say ENOENT, although
    a file is under that name all the time: it is not to be taken for a deleted one.
    """
    return error.errno in (errno.ESTALE, errno.ENOENT) and not isinstance(error, NoclobberError)


def stamp_of(status: os.stat_result) -> str:
    """
    Return what changes with every change of a file's content, without reading it.

    But for two changes within one tick of the filesystem's clock: so it may tell that a file is worth
    a look, and never that a write may go ahead.
    """
    return f"{status.st_ino}.{status.st_size}.{status.st_mtime_ns}.{status.st_ctime_ns}"


def hash_of(target: PinnedPath) -> str:
    """Return the hash of what is at a pinned target now, or the word for why there is none."""
    return state_of(target).sha256


def open_to_read(target: PinnedPath, patience: Patience) -> int:
    """
    Open a file, without following a link and without blocking on a FIFO. `forks.close()` it.

    A commit hides its new version for a moment, and a non-blocking open() fails meanwhile with EWOULDBLOCK.
    BlockingIOError: that lasted longer than `patience`.
    """
    while True:
        try:
            return open_name(target)
        except BlockingIOError:
            if not patience.nap():
                raise


def open_path(path: str, patience_s: float = SHORT_PATIENCE_S) -> int:
    """The same by a path whose folder nobody holds, for callers that only look. `os.close()` it."""
    patience = Patience(patience_s, SYSTEM_CLOCK)
    while True:
        try:
            return os.open(path, LOOK)
        except BlockingIOError:
            if not patience.nap():
                raise


def open_name(target: PinnedPath) -> int:
    """Open what is at a pinned name now. `forks.close()` it."""
    return _while_listed(target, lambda: forks.open_tracked(target.name, LOOK, dir_fd=target.folder_fd))


def status_of(target: PinnedPath) -> os.stat_result:
    """Return the status of what is at a pinned name now: of a link itself."""
    return _while_listed(target, lambda: os.stat(target.name, dir_fd=target.folder_fd, follow_symlinks=False))


def _while_listed(target: PinnedPath, look: Callable[[], T]) -> T:
    """
    Look at a name, and again if it is "missing" although its folder lists it.

    On FUSE a replacing rename has a gap: filesystems that work by path move an open file out of the way, and
    the kernel asks for the one that it knew. Of all opens during saves by rename through `bindfs`, up to one
    in ten found nothing. Taken at its word that is a deleted file, and who writes next begins from nothing.

    Not asked on a disk of its own number, where a name never vanishes: there a missing file is missing. (Not
    by the kind of filesystem, which takes a hook a millisecond to find out.)

    On NFS a name can lead to a file that another machine has replaced since (ESTALE): then ask anew.
    """
    for _ in range(MOST_LOOKS):
        try:
            return look()
        except FileNotFoundError:
            has_own_disk = os.major(os.fstat(target.folder_fd).st_dev) != 0
            if has_own_disk or target.name not in os.listdir(target.folder_fd):
                raise
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            ask_again(target)
    return look()


def ask_again(target: PinnedPath) -> None:
    """After ESTALE: forget what this machine remembers of a folder, and give the other side a moment."""
    filesystems.ask_anew(target.folder_fd)
    SYSTEM_CLOCK.sleep(STALE_NAP_S)


def read_all(descriptor: int) -> bytes:
    """Return everything from a file's first byte to its end, also if it grows or shrinks meanwhile."""
    size = os.fstat(descriptor).st_size
    content = os.read(descriptor, size + 1)
    if len(content) == size:
        return content
    pieces = [content]
    while piece := os.read(descriptor, hashing.CHUNK_BYTES):
        pieces.append(piece)
    return b"".join(pieces)
