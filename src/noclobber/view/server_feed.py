"""
The same as `ledger_feed` for a record that is on a server: the last events at once, then what is appended.

A server may be slow, or away. So it is asked apart from everything else (`fetch()`, `fetch_older()`), while
nobody waits for the feed; `look()` and `count_back()` then take what came. If the server does not answer, the
page keeps what it has, says so, and goes on where it was when the server is back.

The events of locks are in the same chain, whichever machine they are of.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from noclobber.errors import NoclobberError
from noclobber.ledger.line import link_of
from noclobber.view.ledger_feed import LedgerFeed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noclobber.core.clock import Clock
    from noclobber.postgres.ledger import PostgresLedger

EVERY_S = 0.4
FIRST_LINES = ROUND_LINES = 2000
OLDER_LINES = 1000


class _Answer(NamedTuple):
    lines: list[bytes]
    path: str
    trouble: str = ""


class ServerFeed(LedgerFeed):
    """What is known of one chain on a server."""

    def __init__(self, root: str, clock: Clock) -> None:
        super().__init__(root, clock)
        self._seq = 0
        self._asked_s: float | None = None
        self._answer: _Answer | None = None
        self._older: Iterator[bytes] | None = None
        self._page: list[bytes] = []

    def fetch(self) -> None:
        """Ask for what is new, a few times a second at most. One thread asks."""
        now_s = self._clock.monotonic_s()
        if self._answer is not None or (self._asked_s is not None and now_s - self._asked_s < EVERY_S):
            return
        try:
            ledger = self._ledger()
            new = islice(ledger.lines(self._seq), ROUND_LINES) if self.exists else None
            lines = ledger.last_lines(FIRST_LINES) if new is None else list(new)
            self._answer = _Answer(lines, ledger.path)
        except NoclobberError as error:
            self._answer = _Answer([], "", str(error))
        self._asked_s = self._clock.monotonic_s()

    def look(self) -> bool:
        """Take what the server said since the last look; True if something is new."""
        answer, self._answer = self._answer, None
        if answer is None:
            return False
        before = dict(self.troubles)
        if answer.trouble:
            self.troubles["server"] = f"{answer.trouble} What you see is the last that was known."
            return self.troubles != before
        self.troubles.pop("server", None)
        is_first = not self.exists
        if is_first:
            self.exists, self.path = True, answer.path
            link = link_of(answer.lines[0]) if answer.lines else None
            self._seq = self._first_offset = self._counted_from = link.seq - 1 if link is not None else 0
        for line in answer.lines:
            self._take(line)
        self._seq += len(answer.lines)
        return is_first or bool(answer.lines) or self.troubles != before

    def fetch_older(self) -> None:
        """Ask for a page of what was there before the first look, the oldest first. One thread asks."""
        try:
            if self._older is None and self._first_offset:
                self._older = islice(self._ledger().lines(), self._first_offset)
            self._page = list(islice(self._older or (), OLDER_LINES))
        except NoclobberError:
            self._page = []  # `look()` says why, and the page how much is not counted.

    def count_back(self) -> bool:
        """Count that page; False if there is no other."""
        page, self._page = self._page, []
        oldest = self._last_minutes()[0]
        for line in page:
            self.tallies.count(line, oldest)
        self._counted_from = max(0, self._counted_from - len(page))
        return bool(page) and self._counted_from > 0

    def _ledger(self) -> PostgresLedger:
        from noclobber.postgres.coordinator import ledger

        return ledger(self.root)
