"""
Undo a rewrite in place that was cut off.

No file was exchanged. What tells our unfinished write from somebody else's is that it consists of new bytes
and old ones, each at their place.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from noclobber.core.values import Recovered
from noclobber.disk import forks, hashing
from noclobber.disk.commit import journal
from noclobber.disk.commit.found_files import Opened, hash_if, inode_of
from noclobber.disk.commit.restore import copy_all

if TYPE_CHECKING:
    from noclobber.disk.commit.journal import Planned
    from noclobber.disk.commit.store import Store

SECTOR_BYTES = 512  # The least that a disk writes whole or not at all.


def recover_inplace(planned: Planned, folder_fd: int, store: Store, state: bytes) -> Recovered:
    """
    Undo a rewrite in place that was cut off, if the content can only be our own unfinished write.

    A file that it was cut off in has new bytes and old ones, each at their place, and no others. Anything
    else was written by somebody else.
    """
    path = f"{planned.folder}/{planned.name}"
    actual = hash_if(folder_fd, planned.name, planned.inode)
    # A rewrite that was refused and could not be undone is undone now, also if all of it is there.
    if actual == planned.expected or (actual == planned.new and state != journal.RESTORING):
        store.remove_swap(planned.swap)
        store.remove_swap(planned.undo)
        return Recovered(path, "landed" if actual == planned.new else "discarded")
    with Opened(store.swap_fd, planned.undo) as old_fd, Opened(store.swap_fd, planned.swap) as new_fd:
        if old_fd is not None and new_fd is not None and actual:
            flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
            current_fd = forks.open_tracked(planned.name, flags, dir_fd=folder_fd)
            try:
                if is_part_new_part_old(current_fd, new_fd, old_fd):
                    os.ftruncate(current_fd, copy_all(old_fd, current_fd))
                    os.fsync(current_fd)
                    store.remove_swap(planned.swap)
                    store.remove_swap(planned.undo)
                    return Recovered(path, "restored")
            finally:
                forks.close(current_fd)
    store.remove_swap(planned.swap)
    return Recovered(path, "kept", store.keep(planned.undo) if inode_of(store.swap_fd, planned.undo) else "")


def is_part_new_part_old(current_fd: int, new_fd: int, old_fd: int, *, has_zeros: bool = True) -> bool:
    """
    True if a file consists of nothing but new bytes and old ones, each at its place.

    A killed process leaves the new bytes up to some point. A power cut leaves each sector as it was, or as it
    became. `has_zeros`: space for a longer version was allocated first, so there may be zeros at the end.
    """
    size = os.fstat(current_fd).st_size
    for offset in range(0, size, hashing.CHUNK_BYTES):
        current = os.pread(current_fd, min(hashing.CHUNK_BYTES, size - offset), offset)
        new, old = (os.pread(each, len(current), offset) for each in (new_fd, old_fd))
        if has_zeros:
            new, old = (each.ljust(len(current), b"\0") for each in (new, old))
        for at in range(0, len(current), SECTOR_BYTES):
            sector = slice(at, at + SECTOR_BYTES)
            if current[sector] in (new[sector], old[sector]):
                continue
            same = len(os.path.commonprefix([current[sector], new[sector]]))
            if current[at + same : at + SECTOR_BYTES] != old[at + same : at + SECTOR_BYTES]:
                return False
    return True
