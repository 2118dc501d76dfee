"""
Where a workspace's record is: its file, or the server that `NOCLOBBER_COORDINATOR` names.

The one place that chooses, for whoever records and for whoever looks back. The server's code is above this
folder in the order of imports, and is found by its name when it is asked for and not before: its driver takes
longer to load than a hook may take.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.project import COORDINATOR, ledger_path

if TYPE_CHECKING:
    from noclobber.core.clock import Clock
    from noclobber.ledger.protocol import Ledger


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


def last_lines_of(root: str, most_bytes: int) -> list[bytes]:
    """Return the last lines of a workspace's ledger, in `most_bytes` or so; the first may be half a line."""
    if is_on_server():
        return ledger_of(root).last_lines(most_bytes // _LINE_BYTES)
    try:
        descriptor = os.open(ledger_path(root), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        size = os.fstat(descriptor).st_size
        return os.pread(descriptor, most_bytes, max(0, size - most_bytes)).split(b"\n")
    except OSError:
        return []
    finally:
        os.close(descriptor)


_LINE_BYTES = 512  # A landed write is about so long.
