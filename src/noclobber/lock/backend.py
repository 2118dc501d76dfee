"""
Who decides here: files, or the server that `NOCLOBBER_COORDINATOR` names. The one place that chooses.

The server's code is above this folder in the order of imports and is found by its name, when it is asked for
and not before: its driver takes longer to load than a hook may take.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.project import COORDINATOR
from noclobber.lock.file_arbiter import FileArbiter

if TYPE_CHECKING:
    from noclobber.core.clock import Clock
    from noclobber.ledger.observer import Observer
    from noclobber.lock.arbiter import Arbiter
    from noclobber.lock.events import EventLog


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
