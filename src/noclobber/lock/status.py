"""
Look at locks without touching them: one folder, or a whole tree.

What is reported was true at the moment of reading, and may be history when it is printed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.lock.arbiter import LockStatus as LockStatus
from noclobber.lock.backend import arbiter_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noclobber.core.clock import Clock


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
