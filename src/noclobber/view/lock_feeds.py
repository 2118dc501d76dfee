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
from noclobber.ledger.open_file import FOR_READING, open_ledger

if TYPE_CHECKING:
    from collections.abc import Iterable

FIRST_BYTES = 1 << 16
ROUND_BYTES = 1 << 16
MOST, MOST_KNOWN = 100, 10_000

Event = dict[str, Any]


class LockFeeds:
    """What is known of the ledgers of locks. Not for several threads at once: its owner has a lock."""

    def __init__(self) -> None:
        self._known: dict[str, _Followed] = {}
        self._looked_at: list[_Followed] = []

    def watch(self, ledgers: Iterable[str]) -> list[Event]:
        """Follow these ledgers from now on; return the last events of those that are new here, by time."""
        latest = sorted(((_changed_ns(path), path) for path in ledgers), reverse=True)[:MOST_KNOWN]
        # Also how far the others were read: one that is written again must not tell everything once more.
        before = self._known
        self._known = {path: before.get(path) or _Followed(path) for _, path in latest}
        self._looked_at = list(self._known.values())[:MOST]
        for other in list(self._known.values())[MOST:]:
            other.skip()
        new = [self._known[path] for _, path in latest[:MOST] if path not in before]
        return _by_time(event for each in new for event in each.look())

    def look(self) -> list[Event]:
        """Return what was appended since the last look, by time."""
        return _by_time(event for each in self._looked_at for event in each.look())


def _by_time(events: Iterable[Event]) -> list[Event]:
    return sorted(events, key=lambda event: str(event.get("time", "")))


def last_events(ledgers: Iterable[str]) -> list[Event]:
    """Return the last events of these ledgers, by time."""
    return LockFeeds().watch(ledgers)


class _Followed:
    """One ledger."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._identity: tuple[int, int] | None = None
        self._size = self._offset = 0

    def skip(self) -> None:
        """Begin where it ends now, if it was never looked at."""
        if self._identity is None:
            try:
                status = os.lstat(self._path)
            except OSError:
                return
            self._identity = (status.st_dev, status.st_ino)
            self._size = self._offset = status.st_size

    def look(self) -> list[Event]:
        try:
            status = os.lstat(self._path)
            if (status.st_dev, status.st_ino) == self._identity and status.st_size == self._size:
                return []
            descriptor, identity = open_ledger(self._path, FOR_READING)
        except (NoclobberError, OSError):
            return []
        try:
            return self._read(descriptor, identity)
        except OSError:
            return []
        finally:
            os.close(descriptor)

    def _read(self, descriptor: int, identity: tuple[int, int]) -> list[Event]:
        size, is_inside_a_line = os.fstat(descriptor).st_size, False
        if identity != self._identity or size < self._offset:
            self._identity, self._offset = identity, max(0, size - FIRST_BYTES)
            is_inside_a_line = self._offset > 0
        data = os.pread(descriptor, ROUND_BYTES, self._offset)
        end = data.rfind(b"\n") + 1
        if not end and len(data) == ROUND_BYTES:
            end = len(data)  # No event of a lock is so long: it is passed over in pieces.
        # What has no end yet is looked at again when the file has grown.
        self._size = size if self._offset + len(data) >= size else self._offset + end
        self._offset += end
        lines = data[:end].split(b"\n")[1 if is_inside_a_line else 0 :]
        return [event for line in lines if line and (event := self._event(line)) is not None]

    def _event(self, line: bytes) -> Event | None:
        event = event_in(line)
        if event is None or not str(event.get("action_type", "")).startswith("LOCK_"):
            return None
        payload = event.get("payload")
        payload = payload if isinstance(payload, dict) else {}
        return {**event, "payload": {**payload, "folder": os.path.dirname(self._path)}}


def _changed_ns(path: str) -> int:
    try:
        return os.lstat(path).st_mtime_ns
    except OSError:
        return 0
