"""
What a ledger is to the rest of the program. `AgentTraceLedger` is a file, `PostgresLedger` is on a server.

A ledger is a chain of sealed lines (`line` has their form), wherever they are kept. Every implementation
must pass `tests/ledger/ledger_suite.py`; that suite is the contract, in detail. In short:

- An event is recorded once and whole, after everything recorded before, or `append` raises `LedgerError`
  and nothing is recorded. Any number of threads and processes may append at the same time.
- What cannot be recorded is refused before anything else happens: `BadEventError`.
- `prepare` before a change and `append` after it: a failure that `prepare` can find does not wait for
  `append`. Nothing stays locked in between.
- The lines of a ledger, written to a file, are a file ledger with the same head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from noclobber.ledger.ledger import LedgerEntry, VerifyReport


class LedgerWriter(Protocol):
    """What recording asks of a ledger."""

    @property
    def path(self) -> str:
        """Where the ledger is, for messages to people."""

    def prepare(self, events: int = 1) -> None:
        """Raise the `LedgerError` that so many appends would meet now, as far as can be told without one."""

    def append(self, event: Mapping[str, Any]) -> LedgerEntry:
        """Record one event: all of it, once, after everything recorded before."""


class FollowedLines(Protocol):
    """The complete lines of a ledger, once; then what was appended since, as often as it is asked for."""

    def __iter__(self) -> Iterator[bytes]:
        """Yield every line without its newline."""

    def appended(self) -> Iterator[bytes]:
        """Yield what has been appended since."""


class Ledger(LedgerWriter, Protocol):
    """A ledger that can be read and checked as well."""

    @property
    def head(self) -> str:
        """The hash of the last entry, or `GENESIS` if there is none."""

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield every event in order. A line that is not an entry raises `BrokenChainError`."""

    def append_all(self, events: Iterable[Mapping[str, Any]]) -> list[LedgerEntry]:
        """Record several events, one after the other in the chain: all of them, or none."""

    def follow(self) -> FollowedLines:
        """Return the lines as they are, good or bad, for somebody who looks; then what is appended."""

    def last_lines(self, count: int) -> list[bytes]:
        """Return up to `count` lines from the end, without their newlines, without reading the rest."""

    def verify(
        self, *, head: str | None = None, progress: Callable[[int, int, int], None] | None = None
    ) -> VerifyReport:
        """Check the whole chain, and that a saved `head` is in it; raise `BrokenChainError` if not."""

    def close(self) -> None:
        """Give back what is open. The next use opens it again."""
