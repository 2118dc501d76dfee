"""
Write a file's next version over the version before the present one, instead of into a new file.

A durable commit waits for the disk for every inode and block that it allocates or frees. With two files
that change places, the one at the name and the one aside, it does neither: a durable write of 1 KiB takes
three quarters of the time.

What must be true of the one aside before a byte of it is written over:

- *It cannot come back.* The exchange that displaced it is on the disk. Otherwise a power cut could
  undo that exchange and leave our half-written bytes at the name. So only durable commits reuse.
- *Nobody has it open*, for reading or writing: a reader would see it change while it reads. The
  write lease is granted only then, and later openers wait in `open()` until the new bytes are verified.
- *Nobody uses its pages.* What a web server has passed to `sendfile` and closed is still in a queue, and is
  the file's own memory. So the pages are detached from the file first; their users keep them.
- *It is what was verified when it was displaced.* If not, somebody's bytes are in it, and it is kept.
- *It was this file's own*, with the same owner, mode, ACL and attributes, and a single name. Users who could
  read it then may read the new version, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from noclobber.disk import forks, leases, metadata
from noclobber.disk.commit.sweep import is_unchanged
from noclobber.disk.reading import LOOK

if TYPE_CHECKING:
    from noclobber.disk.commit.store import Displaced, Store
    from noclobber.disk.metadata import Metadata

WRITE = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MOST_ZEROED_BYTES = 1 << 22  # Beyond this, freeing the blocks costs no more.
KEEP_SIZE, ZERO_RANGE = 0x01, 0x10


def reuse(store: Store, path: str, name: str, like: Metadata) -> tuple[int, os.stat_result] | None:
    """
    Rename the last version of `path` to `name`; return a descriptor for writing, with a write lease.

    `like` is what the file at the path has now. None: there is none that may be written over.
    """
    displaced = _take(store, path)
    if displaced is None:
        return None
    try:
        descriptor = forks.open_tracked(displaced.name, WRITE, dir_fd=store.swap_fd)
    except OSError:
        store.waiting.append(displaced._replace(is_past=False))  # The sweep deals with it.
        return None
    forks.close(displaced.descriptor)  # Our own open descriptor would prevent the write lease.
    try:
        if leases.try_lease(descriptor, leases.WRITE):
            status = os.fstat(descriptor)
            if _may_go(displaced.name, descriptor, status, like):
                _keep_version(store, displaced, descriptor, status)
                os.rename(displaced.name, name, src_dir_fd=store.swap_fd, dst_dir_fd=store.swap_fd)
                return descriptor, status
    except OSError:
        pass
    except BaseException:
        leases.release(descriptor)
        forks.close(descriptor)
        raise
    leases.release(descriptor)
    forks.close(descriptor)
    _leave_to_the_sweep(store, displaced)
    return None


def _take(store: Store, path: str) -> Displaced | None:
    for displaced in tuple(store.waiting):
        if displaced.is_past and displaced.path == path:
            try:
                store.waiting.remove(displaced)
            except (ValueError, IndexError):
                return None  # Another thread took it, or any other, in this moment.
            return displaced
    return None


def _may_go(name: str, descriptor: int, status: os.stat_result, like: Metadata) -> bool:
    """True if nothing in it is lost, and only users who may read the new bytes can read them through it."""
    return (
        status.st_nlink == 1
        and metadata.of(descriptor, status) == like
        and is_unchanged(name, descriptor, status)
    )


def _keep_version(store: Store, displaced: Displaced, descriptor: int, status: os.stat_result) -> None:
    """What is about to be written over is a past version. Copied, because moving it would end the reuse."""
    if store.keeper is not None and displaced.sha256 and store.keeper.wants(displaced.path, status.st_size):
        store.keeper.keep(displaced.path, os.pread(descriptor, status.st_size, 0), displaced.sha256)


def _leave_to_the_sweep(store: Store, displaced: Displaced) -> None:
    try:
        descriptor = forks.open_tracked(displaced.name, LOOK, dir_fd=store.swap_fd)
    except OSError:
        return  # Gone, or to be found by `adopt_orphans()`.
    store.waiting.append(displaced._replace(descriptor=descriptor, is_past=False))


def detach_pages(descriptor: int, status: os.stat_result) -> None:
    """
    Take an old version's pages off it, so that what is written next goes to new ones.

    Zeroing whole blocks does that and keeps them; where that is not available, they are freed.
    """
    size = status.st_size
    is_dense = status.st_blocks * 512 >= size  # Zeroing a hole would fill it.
    if 0 < size <= MOST_ZEROED_BYTES and is_dense:
        # To the end of the last block: a part of a page would be zeroed where it is.
        unit = max(PAGE_BYTES, status.st_blksize)
        zero = _fallocate or _load()
        if zero(descriptor, ZERO_RANGE | KEEP_SIZE, 0, -(-size // unit) * unit) == 0:
            return
    os.ftruncate(descriptor, 0)


_fallocate: Callable[[int, int, int, int], int] | None = None


def _load() -> Callable[[int, int, int, int], int]:
    global _fallocate
    import ctypes

    libc = ctypes.CDLL(None)
    function = getattr(libc, "fallocate64", None) or getattr(libc, "fallocate", None)
    if function is None:
        _fallocate = _not_here
        return _not_here
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    function.restype = ctypes.c_int
    _fallocate = function
    return function  # type: ignore[no-any-return]


def _not_here(*_: int) -> int:
    return -1
