"""
A write inside a locked folder: let through or refused, and the answer stays true until the write has landed.

The arbiter decides; here its answer reaches the lock object that the writer carries.

Deadlock is avoided by order, ancestors before descendants: enter `locked_write` first, then take the
parent's mutex; or take the folder's mutex among the others in sorted order, and pass the descriptors as
`already_held`.

A lock whose holder is gone (expired, dead) does not keep writers out for ever: it is recovered here
as acquire would, with the same record, and the write goes on. Its former holder, if it lives, finds its lock
lost.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from noclobber.errors import NoclobberError
from noclobber.lock import messages
from noclobber.lock.backend import arbiter_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from noclobber.core.clock import Clock
    from noclobber.errors import LockContention
    from noclobber.lock.lock import DeliverableLock


@contextmanager
def locked_write(
    folder: str, lock: DeliverableLock | None, already_held: Sequence[int], clock: Clock
) -> Iterator[None]:
    """Let a write inside a locked folder pass, or raise. `lock` is what the writer carries, or None."""
    if lock is not None and lock.folder == folder:
        with lock.writing(already_held):
            yield
        return
    intent = arbiter_for(clock).intend_write(folder, None, already_held)
    try:
        intent.begin()
        yield
    finally:
        intent.settle()


def contention_at(folder: str, clock: Clock) -> LockContention:
    """Say who is in a folder that was found locked a moment ago."""
    try:
        status = arbiter_for(clock).read(folder)
    except NoclobberError:
        return messages.contention(folder, None, None, 0, clock.now_s())
    return messages.contention(
        folder, status.holder, status.deliverable_id, status.lease_remaining_s or 0, clock.now_s()
    )
