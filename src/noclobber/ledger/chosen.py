"""
Where a workspace's record is: its file, or the server that `NOCLOBBER_COORDINATOR` names.

The one place that chooses, for whoever records and for whoever looks back. The server's code is above this
folder in the order of imports, and is found by its name when it is asked for and not before: its driver takes
longer to load than a hook may take.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.project import COORDINATOR, ledger_path
from noclobber.ledger.reader import lines_backwards

if TYPE_CHECKING:
    from noclobber.core.clock import Clock
    from noclobber.ledger.protocol import Ledger

SERVER_LINES = 20_000


def is_on_server() -> bool:
    """True if a server keeps the record."""
    return bool(os.environ.get(COORDINATOR))


def ledger_of(root: str, *, clock: Clock = SYSTEM_CLOCK, durable: bool = False) -> Ledger:
    """Return a workspace's ledger. A server has its own clock, and what it has recorded is on its disk."""
    if is_on_server():
        from importlib import import_module

        found: Ledger = import_module("noclobber.postgres.coordinator").ledger(root)
        return found
    from noclobber.ledger.ledger import AgentTraceLedger

    return AgentTraceLedger(ledger_path(root), clock=clock, durable=durable)


def end_sessions() -> None:
    """Let go of the server, if this process has asked it anything. The next question asks anew."""
    if is_on_server() and (coordinator := sys.modules.get("noclobber.postgres.coordinator")) is not None:
        coordinator.end_sessions()


def lines_of(root: str) -> Iterable[bytes]:
    """Return the complete lines of a workspace's ledger, good or bad, without newlines."""
    if not is_on_server() and not os.path.lexists(ledger_path(root)):
        return ()
    return ledger_of(root).follow()


def recent_lines(root: str, most_on_server: int = SERVER_LINES) -> Iterator[bytes | None]:
    """
    Yield the lines of a workspace's ledger, the last one first; of one on a server, the last ones only.

    After each block of the file comes None: a search can see whether it takes too long, and stop.
    """
    if is_on_server():
        yield from reversed(ledger_of(root).last_lines(most_on_server))
        yield None
    else:
        yield from lines_backwards(ledger_path(root))
