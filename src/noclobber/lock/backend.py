"""
Who decides about locks: files, or the server that `NOCLOBBER_COORDINATOR` names. The one place that chooses.

What is asked here of whoever decides: the state of one folder, or of a whole tree, true at the moment of
reading; and whether a write inside a locked folder passes, an answer that stays true until the write has
landed. Deadlock is avoided by order, ancestors before descendants: enter `locked_write` first, then take the
parent's mutex; or take the folder's mutex among the others in sorted order, and pass the descriptors as
`already_held`. A lock whose holder is gone (expired, dead) does not keep writers out for ever: it is
recovered as `acquire` would, with the same record, and the write goes on. Its former holder, if alive, finds
its lock lost.

The server's code is above this folder in the order of imports and is found by its name, when it is asked for
and not before: its driver takes longer to load than a hook may take.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.project import COORDINATOR
from noclobber.errors import NoclobberError
from noclobber.lock import messages
from noclobber.lock.arbiter import LockStatus as LockStatus
from noclobber.lock.file_arbiter import FileArbiter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from noclobber.core.clock import Clock
    from noclobber.errors import LockContention
    from noclobber.ledger.observer import Observer
    from noclobber.lock.arbiter import Arbiter
    from noclobber.lock.events import EventLog
    from noclobber.lock.lock import DeliverableLock


def arbiter_for(
    clock: Clock = SYSTEM_CLOCK, ledger: EventLog | None = None, observer: Observer | None = None
) -> Arbiter[Any]:
    """Return who decides about locks."""
    if os.environ.get(COORDINATOR):
        from importlib import import_module

        arbiter: Arbiter[Any] = import_module("noclobber.postgres.coordinator").arbiter(
            clock, ledger, observer
        )
        return arbiter
    return FileArbiter(clock, ledger, observer)


def status_of(folder: str, clock: Clock = SYSTEM_CLOCK) -> LockStatus:
    """Return the state of a folder's lock. Errors as in acquire: what cannot be read is not free."""
    return arbiter_for(clock).read(folder)


def list_locks(
    root: str, clock: Clock = SYSTEM_CLOCK, *, ledgers: set[str] | None = None
) -> Iterator[LockStatus]:
    """
    Yield the status of every locked folder below a root, the root included, in no particular order.

    `ledgers` gets the path of every file below the root that events of locks are in.
    """
    return arbiter_for(clock).list(root, ledgers)


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
