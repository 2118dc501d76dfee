"""
Undo an exchange: the displaced content is at the name again, and nobody has seen our version.

The usual way is to *copy* the displaced bytes into our own file, which is at the target's name and still
hidden by its lease. Renaming the displaced file back would be wrong twice: a process that waits inside
`open()` already holds *our* inode and would read, or append to, a version that was never committed; and a
save that came in meanwhile would be covered by an older version for a moment, long enough for an editor to
load it.

Only what cannot be copied goes back by rename: links, folders, files whose writer stays, and everything on a
full disk. There the first check is whether our file is still at the name. If it is not, somebody has saved
since, and that is newer than what we hold: there is nothing to put back.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from typing import TYPE_CHECKING

from noclobber.core.clock import Patience
from noclobber.disk import forks, hashing, leases, metadata, renames
from noclobber.disk.commit import journal
from noclobber.disk.commit.store import CREATE
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
BEFORE_RESTORING = (
    "="  # Appended to a swap file's name: a copy of our version, for as long as it is copied over.
)


def restore(swap: Swap, patience: Patience, note: Note) -> None:
    """
    Bring the displaced content back to its name, and leave the rest to the sweep.

    If we were stopped in the middle for so long that others have seen a half of it, it stays as it is, with
    its note, and recovery judges it by its bytes.
    """
    note.mark(journal.RESTORING)
    note.flush()  # Before the copy: a power cut in the middle of it leaves a mixture, which is then undone.
    reached("restoring")
    if swap.leases and swap.old_fd != NO_FD and swap.old_status.st_nlink <= 1:
        aside, is_half_done = swap.swap_name + BEFORE_RESTORING, False
        try:
            while leases.lease(swap.old_fd, leases.READ, patience):
                try:
                    _set_ours_aside(swap, aside)
                    reached("set-ours-aside")
                    if not _is_hidden(swap):
                        break
                    _copy_back(swap)
                except leases.LeaseEndedError:
                    is_half_done = True
                    return
                except OSError:
                    break  # For example, the disk is full. Renaming back needs no space.
                if leases.is_quiet(swap.old_fd, leases.READ):
                    swap.leave_aside(swap.old_fd)
                    # End our lease now: another commit may wait for that, while we wait for its lease.
                    swap.close_one(swap.new_fd)
                    swap.new_fd = NO_FD
                    return
                leases.release(swap.old_fd)  # Somebody got in while we copied: once more.
        finally:
            if not is_half_done:
                swap.store.remove_swap(aside)
    _rename_back(swap)


def _set_ours_aside(swap: Swap, name: str) -> None:
    """
    Copy our own version before it is copied over.

    If we are killed in the middle, our file holds a part of each. Only with this copy can recovery tell that
    from what somebody has saved there since.
    """
    swap.store.remove_swap(name)
    copy_fd = forks.open_tracked(name, CREATE, 0o600, dir_fd=swap.store.swap_fd)
    try:
        copy_all(swap.new_fd, copy_fd)
        mark_verified(copy_fd)  # Left behind, it is nothing that anyone wants to keep.
    finally:
        forks.close(copy_fd)


def _is_hidden(swap: Swap) -> bool:
    """True if nobody can have opened our file since the exchange."""
    return leases.stands(swap.new_fd, leases.WRITE, swap.hidden_since_s)


def _copy_back(swap: Swap) -> None:
    """Make our hidden file a copy of the displaced one: bytes, metadata, times."""
    copy_under_lease(swap.old_fd, swap.new_fd, swap.hidden_since_s)
    status = os.fstat(swap.old_fd)
    wanted = metadata.of(swap.old_fd, status)
    metadata.give(swap.new_fd, wanted, path=swap.target.path, source=swap.old_fd)
    os.utime(swap.new_fd, ns=(status.st_atime_ns, status.st_mtime_ns))
    os.fsync(swap.new_fd)  # In every mode: the displaced file will be deleted.
    reached("copied-back")


def _rename_back(swap: Swap) -> None:
    store, target = swap.store, swap.target
    is_hidden = swap.leases and _is_hidden(swap)
    # Seen by others, our file may hold what somebody has saved there: then it is theirs.
    is_ours = is_hidden or hashing.of_descriptor(swap.new_fd) == swap.new_hash
    is_back = is_ours and put_back(store, swap.swap_name, target, swap.new_inode)
    if is_hidden:
        # A process that waits for our file gets it now, wherever it is. So copy the present version into it.
        try:
            _copy_what_is_there(swap)
            mark_verified(swap.new_fd)
        except leases.LeaseEndedError:
            is_hidden = False  # It has it already, and what is in there may be its own.
    swap.close_one(swap.new_fd)
    swap.new_fd = NO_FD
    try:
        left_fd = forks.open_tracked(swap.swap_name, LOOK, dir_fd=store.swap_fd)
    except OSError:
        left_fd = NO_FD
    if is_back and left_fd != NO_FD and (is_hidden or hashing.of_descriptor(left_fd) == swap.new_hash):
        # Our own file. (Without leases others could see it, and may have written to it: then it is kept.)
        # Not deleted at once: somebody may have opened it, and what they write is kept.
        if not is_hidden:
            mark_if(left_fd, swap.new_hash)
        swap.leave_aside(left_fd)
        return
    if left_fd != NO_FD:
        forks.close(left_fd)
    if _is_link(store, swap.swap_name):
        store.remove_swap(swap.swap_name)  # A later save has replaced it, and a link holds no bytes.
    else:
        swap.kept.append(store.keep(swap.swap_name))
    swap.is_swapped, swap.swap_name = False, ""


def put_back(store: Store, swap_name: str, target: PinnedPath, ours: int) -> bool:
    """
    Exchange a displaced file with ours at the target; False if ours is there no more.

    Then somebody has saved or deleted since, and that is left as it is. Putting back would cover it with
    something older until the next exchange. So a process in the middle of saving gets a moment to finish
    first; one that has yet to read waits for our lease, and cannot save.
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

    `ours` is the inode that we left at the target. If something else comes back, somebody saved in between,
    and that is newer than what we have just put there: so it goes back in turn.
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


def _copy_what_is_there(swap: Swap) -> None:
    source_fd = swap.old_fd if swap.old_fd != NO_FD else _open_what_is_there(swap)
    if source_fd == NO_FD:
        source_fd = swap.first_fd  # For example, a folder that stays there: then the version before it.
    if source_fd == NO_FD:
        return
    try:
        copy_under_lease(source_fd, swap.new_fd, swap.hidden_since_s)
    except leases.LeaseEndedError:
        raise
    except OSError:
        pass
    finally:
        if source_fd not in (swap.old_fd, swap.first_fd):
            os.close(source_fd)


def _open_what_is_there(swap: Swap) -> int:
    """
    Open the file that the name leads to, by a link too, once there is one.

    A process that waits for ours asked for a file at that name. While there is a folder instead, or another
    commit hides the file, it waits a little longer with us.
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
            # The waiting process passed the permission check of our file, not of this one: a link to a secret
            # must not give it away.
            is_alike = (there.st_uid, there.st_gid, there.st_mode) == (ours.st_uid, ours.st_gid, ours.st_mode)
            if is_alike and stat.S_ISREG(there.st_mode):
                return there_fd
            os.close(there_fd)
        if leases.is_quiet(swap.new_fd, leases.WRITE) or not patience.nap():
            return NO_FD  # Nobody waits for it, or our time is up.


def _is_link(store: Store, name: str) -> bool:
    return stat.S_ISLNK(os.stat(name, dir_fd=store.swap_fd, follow_symlinks=False).st_mode)


def copy_under_lease(source: int, destination: int, since_s: float) -> None:
    """
    Make a file that a write lease of ours hides a copy of another.

    Asked before each write: stopped between two of them, and continued after the kernel has let somebody in,
    we would write over what they have saved. (finding R8) What is left is one call of the kernel.
    """
    size = copy_all(source, destination, hidden_since_s=since_s)
    refuse_if_seen(destination, since_s)
    os.ftruncate(destination, size)


def refuse_if_seen(descriptor: int, since_s: float) -> None:
    """LeaseEndedError if others may have had a file that our write lease was to keep them out of."""
    if not leases.stands(descriptor, leases.WRITE, since_s):
        raise leases.LeaseEndedError(errno.ESTALE, "the kernel has ended our lease")


def copy_all(source: int, destination: int, *, hidden_since_s: float | None = None) -> int:
    """Copy from first byte to last, at the same offsets; return how many."""
    offset = 0
    while chunk := os.pread(source, hashing.CHUNK_BYTES, offset):
        done = 0
        while done < len(chunk):
            if hidden_since_s is not None:
                reached("copying")
                refuse_if_seen(destination, hidden_since_s)
            done += os.pwrite(destination, chunk[done:], offset + done)
        offset += len(chunk)
    return offset
