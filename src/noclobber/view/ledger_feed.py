"""
Follow a ledger for as long as somebody looks: its last events at once, what is appended, and the rest
counted.

Bounded work: the first look reads the last `FIRST_BYTES`, whatever the ledger's size. Each further look
reads what was appended since, at most `ROUND_BYTES`. `count_back()` counts everything before the first
look, a block at a time and the newest first, so that the last hour is right long before the total is.

The chain is followed as well: each appended line must name the one before, and have the hash that it carries.
The lines before the first look are for `doctor` to check.

A ledger that is missing, replaced or shortened is no error here: the feed says so (`troubles`), and begins
anew. Nothing is written, and no mutex is taken.
"""

from __future__ import annotations

import os
import time as system_time
from collections import deque
from typing import TYPE_CHECKING, Any

from noclobber.core.project import ledger_path
from noclobber.errors import LedgerError, NoclobberError
from noclobber.ledger.browse import event_in
from noclobber.ledger.line import MAX_LINE_BYTES, is_sealed, link_of
from noclobber.ledger.open_file import FOR_READING, open_ledger
from noclobber.ledger.reader import Follower
from noclobber.view.shown_events import Authors, ShownEvent, shown
from noclobber.view.tallies import MINUTES_KEPT, Tallies

if TYPE_CHECKING:
    from noclobber.core.clock import Clock

FIRST_BYTES = 1 << 20
ROUND_BYTES = 1 << 20
BLOCK_BYTES = 1 << 20
EVENTS_KEPT = 500
_PREV_AT = -(len(b"sha256:") + 64 + len(b'","hash":"sha256:') + 64 + len(b'"}'))


class LedgerFeed:
    """What is known of one ledger. Not for several threads at once: its owner has a lock."""

    def __init__(self, root: str, clock: Clock) -> None:
        self.root, self.path, self._clock = root, ledger_path(root), clock
        self._follower = Follower(self.path, FIRST_BYTES, ROUND_BYTES)
        self.troubles: dict[str, str] = {}
        self._begin()

    def _begin(self) -> None:
        self.events: deque[ShownEvent] = deque(maxlen=EVENTS_KEPT)
        self.seen_count = 0
        """How many events were shown so far: the place of the newest one."""
        self.tallies, self._authors = Tallies(), Authors()
        self.exists = False
        """True if there is a ledger."""
        self._counted_from = self._first_offset = 0
        self._carry = b""
        self.head: str | None = None

    # -- what to show ---------------------------------------------------------------------------------

    @property
    def size_bytes(self) -> int:
        """How far the ledger was read."""
        return self._follower.size_bytes

    @property
    def counted_share(self) -> float:
        """How much of the ledger is counted: 1.0 is all of it."""
        return 1.0 if not self._first_offset else 1.0 - self._counted_from / self._first_offset

    def minutes(self) -> list[dict[str, object]]:
        """Return what happened in each of the last minutes."""
        return self.tallies.minutes(self._last_minutes())

    def chain(self) -> dict[str, object]:
        """Return whether the chain is whole as far as it was followed, and where it ends."""
        trouble = self.troubles.get("chain")
        return {"ok": trouble is None, "detail": trouble or "", "head": self.head}

    def _last_minutes(self) -> list[str]:
        now_s = self._clock.now_s()
        return [
            system_time.strftime("%Y-%m-%dT%H:%M", system_time.gmtime(now_s - 60 * back))
            for back in range(MINUTES_KEPT - 1, -1, -1)
        ]

    # -- looking --------------------------------------------------------------------------------------

    def fetch(self) -> None:
        """Ask for what is new, while nobody waits for the feed: a file needs no asking (`server_feed`)."""

    def fetch_older(self) -> None:
        """The same for what was there before the first look."""

    def look(self) -> bool:
        """Read what was appended since the last look; True if something is new."""
        before = dict(self.troubles)
        try:
            found = self._follower.look(is_forced="ledger" in self.troubles)
        except (FileNotFoundError, NotADirectoryError):
            if not os.path.isdir(self.root):
                return False  # With everything else: what was known last stays on the screen.
            if self.exists:
                self._begin()
                self._follower = Follower(self.path, FIRST_BYTES, ROUND_BYTES)
                self.troubles.pop("chain", None)
                self.troubles["ledger"] = "The ledger is gone: it was deleted or moved away."
            return self.troubles != before
        except NoclobberError as error:
            self.troubles["ledger"] = str(error)
            return self.troubles != before
        except OSError as error:
            self.troubles["ledger"] = f"{self.path} cannot be read: {error.strerror}."
            return self.troubles != before
        if found is None:
            return False
        self.troubles.pop("ledger", None)  # It can be opened again.
        if found.is_new_file:
            if self.exists:
                self.troubles["cut"] = "The ledger was replaced or shortened while it was watched."
            self._begin()
            self.exists = True
            self.troubles.pop("chain", None)
            self._counted_from = self._first_offset = self._follower.begin
        if found.beginning:
            self._carry = found.beginning + b"\n"  # That line is counted with what is before it.
        for line in found.lines:
            self._take(line)
        return bool(found.lines) or self.troubles != before

    def _take(self, line: bytes) -> None:
        self.tallies.count(line, self._last_minutes()[0])
        self._follow_chain(line)
        if (event := event_in(line)) is not None:
            made = shown(event, self.root, self._authors)
            self.events.append(made)
            self.seen_count += 1
            self.tallies.saw(made)

    def append(self, events: list[dict[str, Any]]) -> None:
        """Show events of other ledgers after these. They are not counted: totals and chain are this one's."""
        self.events.extend(shown(event, self.root, self._authors) for event in events)
        self.seen_count += len(events)

    def insert(self, events: list[dict[str, Any]]) -> bool:
        """The same, each at its time; False if one came before what was shown already."""
        kept, is_last = list(self.events), True
        for event in events:
            made, at = shown(event, self.root, self._authors), len(kept)
            while at and kept[at - 1].time > made.time:
                at -= 1
            is_last = is_last and at == len(kept)
            kept.insert(at, made)
        self.events = deque(kept, maxlen=EVENTS_KEPT)
        self.seen_count += len(events)
        return is_last

    def _follow_chain(self, line: bytes) -> None:
        link = link_of(line)
        if link is None or not is_sealed(line):
            self.troubles.setdefault(
                "chain",
                "A line of the ledger is not an entry as it was written; run `noclobber ledger verify`.",
            )
            return
        prev = line[_PREV_AT : _PREV_AT + 71].decode("ascii", "replace")
        if self.head is not None and prev != self.head:
            self.troubles.setdefault(
                "chain",
                f"Entry {link.seq} does not follow the one before it; run `noclobber ledger verify`.",
            )
        self.head = f"sha256:{link.hex.decode()}"

    # -- counting what was there before ---------------------------------------------------------------

    def count_back(self) -> bool:
        """Count one block more of what was there before the first look; False if all of it is counted."""
        if not self._counted_from:
            return False
        try:
            descriptor, identity = open_ledger(self.path, FOR_READING)
        except LedgerError:
            return False  # `look()` says why.
        try:
            if identity != self._follower.identity:
                return False
            start = max(0, self._counted_from - BLOCK_BYTES)
            data = os.pread(descriptor, self._counted_from - start, start)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        lines = (data + self._carry).split(b"\n")
        # The first may have begun before this block. A line without an end is not kept in memory for ever.
        self._carry = (lines.pop(0) + b"\n")[:MAX_LINE_BYTES] if start else b""
        oldest = self._last_minutes()[0]
        for line in lines:
            if line:
                self.tallies.count(line, oldest)
        self._counted_from = start
        return start > 0
