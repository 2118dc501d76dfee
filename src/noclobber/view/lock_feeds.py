"""
The events of locks, for the stream of the live page: each deliverable's folder has a ledger of its own.

Whoever looks for locks walks the tree and finds these ledgers on the way (`watch()`); from then on `look()`
reads what is appended to each. Bounded: of a ledger that is new here the last `FIRST_BYTES`, of all ledgers
the `MOST` that were written last, and one `lstat` each while nothing happens.

They are other people's files in other people's folders. One that cannot be read is passed over; `noclobber
lock` says what is wrong with it. An event is about the folder that its ledger is in, whatever it says.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from noclobber.errors import NoclobberError
from noclobber.ledger.browse import event_in
from noclobber.ledger.reader import Follower

if TYPE_CHECKING:
    from collections.abc import Iterable

FIRST_BYTES = 1 << 16
ROUND_BYTES = 1 << 16
MOST, MOST_KNOWN = 100, 10_000

Event = dict[str, Any]


class LockFeeds:
    """What is known of the ledgers of locks. Not for several threads at once: its owner has a lock."""

    def __init__(self) -> None:
        self._known: dict[str, Follower] = {}
        self._looked_at: list[Follower] = []

    def watch(self, ledgers: Iterable[str]) -> list[Event]:
        """Follow these ledgers from now on; return the last events of those that are new here, by time."""
        latest = sorted(((_changed_ns(path), path) for path in ledgers), reverse=True)[:MOST_KNOWN]
        # Also how far the others were read: one that is written again must not tell everything once more.
        before = self._known
        self._known = {
            path: before.get(path) or Follower(path, FIRST_BYTES, ROUND_BYTES) for _, path in latest
        }
        self._looked_at = list(self._known.values())[:MOST]
        for other in list(self._known.values())[MOST:]:
            other.skip()
        new = [self._known[path] for _, path in latest[:MOST] if path not in before]
        return _by_time(event for each in new for event in _new_events(each))

    def look(self) -> list[Event]:
        """Return what was appended since the last look, by time."""
        return _by_time(event for each in self._looked_at for event in _new_events(each))


def _by_time(events: Iterable[Event]) -> list[Event]:
    return sorted(events, key=lambda event: str(event.get("time", "")))


def last_events(ledgers: Iterable[str]) -> list[Event]:
    """Return the last events of these ledgers, by time."""
    return LockFeeds().watch(ledgers)


def _new_events(follower: Follower) -> list[Event]:
    try:
        found = follower.look()
    except (NoclobberError, OSError):
        return []
    lines = () if found is None else found.lines
    return [event for line in lines if (event := _lock_event(line, follower.path)) is not None]


def _lock_event(line: bytes, path: str) -> Event | None:
    event = event_in(line)
    if event is None or not str(event.get("action_type", "")).startswith("LOCK_"):
        return None
    payload = event.get("payload")
    payload = payload if isinstance(payload, dict) else {}
    return {**event, "payload": {**payload, "folder": os.path.dirname(path)}}


def _changed_ns(path: str) -> int:
    try:
        return os.lstat(path).st_mtime_ns
    except OSError:
        return 0
