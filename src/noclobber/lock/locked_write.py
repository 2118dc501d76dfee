"""
A write inside a locked folder: let through or refused, and the answer stays true until the write has landed.

How it holds against a holder that wakes up between check and write. Every change of a lock (take-over above
all) runs under the exclusive `flock` of the deliverable folder. `locked_write` takes that same `flock`
*before* it reads the lock, and keeps it until the block ends, that is, until the replacement has landed. So
there are two orders and no third. Either the holder's block comes first: then a recoverer waits for its
write, and the write was the holder's right. Or the take-over comes first: then the former holder reads the
new record inside its own block, and is refused with `LockLost` before it touches anything. A holder that is
stopped between the check and the replacement keeps the `flock`, so nobody takes over meanwhile; contenders
are told (`LockContention`, naming the process) and do not hang.

Deadlock is avoided by order, ancestors before descendants: enter `locked_write` first, then take the
parent's mutex; or take the folder's mutex among the others in sorted order, and pass the descriptors as
`already_held`.

A lock whose holder is gone (expired, dead, corrupt) does not keep writers out for ever: it is recovered here
as acquire would, with the same record, and the write goes on. Its former holder, if it lives, finds its
lock lost.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext

from noclobber.errors import MissingFileError
from noclobber.lock.lock import DeliverableLock
from noclobber.lock.lock_file import FolderStore
from noclobber.lock.messages import contention

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from noclobber.core.clock import Clock


@contextmanager
def locked_write(
    folder: str, lock: DeliverableLock | None, already_held: Sequence[int], clock: Clock
) -> Iterator[None]:
    """Let a write inside a locked folder pass, or raise. `lock` is what the writer carries, or None."""
    # The lock's own mutex first, then the folder's: the heartbeat takes them in that order, too.
    with lock.changing() if lock is not None else nullcontext():
        try:
            store = FolderStore(folder)
        except MissingFileError:
            if lock is None or folder != lock.folder:
                raise  # The parent is missing, and the committer says so.
            raise lock.lose_folder() from None
        try:
            if any(_is_same(held, store) for held in already_held):
                _judge_entry(store, lock, clock)
                yield
                return
            with store.section(clock=clock):
                _judge_entry(store, lock, clock)
                yield
        finally:
            store.close()


def _judge_entry(store: FolderStore, lock: DeliverableLock | None, clock: Clock) -> None:
    """With the folder's mutex held: raise unless this writer may write here now."""
    found = store.read()
    if lock is not None and store.is_same_folder(lock.folder):
        lock.assert_held_within(store, found)
        return
    if found is None:
        return  # Released since we looked.
    verdict = store.judge(found, clock.now_s())
    if verdict.reason is None:
        raise contention(store.location(), found, verdict, clock.now_s())
    DeliverableLock(store.location(), clock=clock).recover_within(store)


def _is_same(descriptor: int, store: FolderStore) -> bool:
    status = os.fstat(descriptor)
    return (status.st_dev, status.st_ino) == (store.place.device, store.place.inode)
