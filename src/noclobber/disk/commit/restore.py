"""
Undo an exchange: what was displaced stands at the name again, and nobody has seen our version.

The usual way is to *pour* the displaced bytes into our own file, which still hides behind its lease at
the target's name. Renaming the displaced file back would be wrong twice: whoever waits inside `open()`
already holds *our* inode and would read, or append to, a version that never was; and a save that came
in meanwhile would be covered by an older version for a moment, long enough for an editor to load it.

Only what cannot be poured goes back by rename: links, folders, files whose writer stays, and anything
at all on a full disk. There the first look is whether our file is still at the name. If it is not,
somebody has saved since, and theirs is newer than what we hold: nothing to put back.
"""

from __future__ import annotations

import os
import stat
import time
from typing import TYPE_CHECKING

from noclobber.core.clock import Patience
from noclobber.disk import forks, hashing, leases, metadata, renames
from noclobber.disk.commit import journal
from noclobber.disk.commit.sweep import mark_if, mark_verified
from noclobber.disk.reading import LOOK
from noclobber.disk.steps import reached

if TYPE_CHECKING:
    from noclobber.disk.commit.journal import Note
    from noclobber.disk.commit.store import Store
    from noclobber.disk.commit.swap import Swap
    from noclobber.disk.paths import PinnedPath
    from noclobber.disk.renames import Flip

MOST_PUT_BACKS = 1000
SHORT_WAIT_S = 0.2
LET_FINISH_NAPS, LET_FINISH_NAP_S = 8, 0.00025
NO_FD = -1


def restore(swap: Swap, patience: Patience, note: Note) -> None:
    """Bring the displaced file back to its name, and leave the rest to the sweep."""
    note.mark(journal.RESTORING)
    reached("restoring")
    if swap.leases and swap.old_fd != NO_FD and swap.old_status.st_nlink <= 1:
        while leases.lease(swap.old_fd, leases.READ, patience):
            try:
                _pour(swap)
            except OSError:
                break  # The disk is full, say. Renaming back needs no room.
            if leases.is_quiet(swap.old_fd, leases.READ):
                swap.leave_aside(swap.old_fd)
                # Let everybody in now: another commit may be waiting for this before it lets us in.
                swap.close_one(swap.new_fd)
                swap.new_fd = NO_FD
                return
            leases.release(swap.old_fd)  # Somebody got in while we copied: once more.
    _rename_back(swap)


def _pour(swap: Swap) -> None:
    """Make our hidden file a copy of the displaced one: bytes, metadata, times."""
    os.ftruncate(swap.new_fd, copy_all(swap.old_fd, swap.new_fd))
    status = os.fstat(swap.old_fd)
    wanted = metadata.of(swap.old_fd, status)
    metadata.give(swap.new_fd, wanted, path=swap.target.path, source=swap.old_fd)
    os.utime(swap.new_fd, ns=(status.st_atime_ns, status.st_mtime_ns))
    if swap.durable:
        os.fsync(swap.new_fd)
    reached("poured")


def _rename_back(swap: Swap) -> None:
    store, target = swap.store, swap.target
    is_back = put_back(store, swap.swap_name, target, swap.new_inode)
    if swap.leases:
        # Whoever waits for our file gets it now, wherever it is: as good a copy as can be had.
        _pour_what_can_be_had(swap)
        mark_verified(swap.new_fd)
    swap.close_one(swap.new_fd)
    swap.new_fd = NO_FD
    try:
        left_fd = forks.open_tracked(swap.swap_name, LOOK, dir_fd=store.swap_fd)
    except OSError:
        left_fd = NO_FD
    if is_back and left_fd != NO_FD and (swap.leases or hashing.of_descriptor(left_fd) == swap.new_hash):
        # Ours. (Without leases it was in view, and may be somebody's work by now: then it is kept.) Not
        # deleted at once: somebody may have opened it, and what they write is kept.
        if not swap.leases:
            mark_if(left_fd, swap.new_hash)
        swap.leave_aside(left_fd)
        return
    if left_fd != NO_FD:
        forks.close(left_fd)
    if _is_link(store, swap.swap_name):
        store.remove_swap(swap.swap_name)  # Replaced by somebody's later save, and no bytes in it.
    else:
        swap.kept.append(store.keep(swap.swap_name))
    swap.is_swapped, swap.swap_name = False, ""


def put_back(store: Store, swap_name: str, target: PinnedPath, ours: int) -> bool:
    """
    Exchange a displaced file with ours at the target; False if ours is there no more.

    Then somebody has saved or deleted since, and that stands. Putting back would cover theirs with
    something older until the next exchange. So whoever was in the middle of saving gets a moment to
    finish first; whoever has yet to read waits for us, and cannot save.
    """
    flip = renames.Flip(store.swap_fd, swap_name, target.folder_fd, target.name)
    for _ in range(LET_FINISH_NAPS):
        time.sleep(LET_FINISH_NAP_S)
        try:
            if os.stat(target.name, dir_fd=target.folder_fd, follow_symlinks=False).st_ino != ours:
                return False
        except FileNotFoundError:
            return False
    return _flip_back(flip, store, swap_name, ours)


def _flip_back(flip: Flip, store: Store, swap_name: str, ours: int) -> bool:
    """
    Exchange until what comes back is what was put; False if the target is gone.

    `ours` is the inode that we left at the target. If something else comes back, somebody saved in
    between, and it is newer than what we have just put: so it goes back in turn.
    """
    putting = os.stat(swap_name, dir_fd=store.swap_fd, follow_symlinks=False).st_ino
    wanted = ours
    for _ in range(MOST_PUT_BACKS):
        if not flip():
            return False
        came_back = os.stat(swap_name, dir_fd=store.swap_fd, follow_symlinks=False).st_ino
        if came_back == wanted:
            reached("put-back")
            return True
        wanted, putting = putting, came_back
    return False


def _pour_what_can_be_had(swap: Swap) -> None:
    source_fd = swap.old_fd if swap.old_fd != NO_FD else _open_what_is_there(swap)
    if source_fd == NO_FD:
        source_fd = swap.first_fd  # A folder, say, that stays: then the version before it.
    if source_fd == NO_FD:
        return
    try:
        os.ftruncate(swap.new_fd, copy_all(source_fd, swap.new_fd))
    except OSError:
        pass
    finally:
        if source_fd not in (swap.old_fd, swap.first_fd):
            os.close(source_fd)


def _open_what_is_there(swap: Swap) -> int:
    """
    Open the file that the name leads to, by a link too, once there is one.

    Whoever waits for ours asked for a file at that name. If it is a folder for the moment, or another
    commit hides it, they wait a little longer with us.
    """
    patience = Patience(SHORT_WAIT_S)
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    ours = os.fstat(swap.new_fd)
    while True:
        try:
            there_fd = os.open(swap.target.name, flags, dir_fd=swap.target.folder_fd)
        except OSError:
            pass
        else:
            there = os.fstat(there_fd)
            # They passed the permission check of our file. A link to a secret must not be a way around.
            is_alike = (there.st_uid, there.st_gid, there.st_mode) == (ours.st_uid, ours.st_gid, ours.st_mode)
            if is_alike and stat.S_ISREG(there.st_mode):
                return there_fd
            os.close(there_fd)
        if leases.is_quiet(swap.new_fd, leases.WRITE) or not patience.nap():
            return NO_FD  # Nobody waits for it, or for too long.


def _is_link(store: Store, name: str) -> bool:
    return stat.S_ISLNK(os.stat(name, dir_fd=store.swap_fd, follow_symlinks=False).st_mode)


def copy_all(source: int, destination: int) -> int:
    """Copy from first byte to last, at the same offsets; return how many."""
    offset = 0
    while chunk := os.pread(source, hashing.CHUNK_BYTES, offset):
        done = 0
        while done < len(chunk):
            done += os.pwrite(destination, chunk[done:], offset + done)
        offset += len(chunk)
    return offset
