"""
How much of what happened: totals over the whole ledger, each of the last minutes, and the hottest files.

A line is counted from its first bytes, without parsing it as JSON: a ledger of a million lines is counted
in a few seconds, in the background, in any order. Only lines whose members are in another order are parsed.
"""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from typing import NamedTuple

from noclobber.view.shown_events import CONFLICT, MERGE, RACE, REFUSED, WRITE, ShownEvent, group_of, shortened

MINUTES_KEPT = 60
MOST_KINDS = 60
"""More kinds than this are counted as `other`: a hostile ledger may hold a new one in each line."""
RECENT_EVENTS = 4000
HOTTEST = 12

_HEAD = re.compile(
    rb'\{"seq":\d{1,19},"time":"(\d{4}-\d\d-\d\dT\d\d:\d\d)[^"\\]{0,20}","action_type":"([A-Z_]{1,60})"'
)
_MERGED = b'"merged":{"base_hash":"'
_ERROR_TYPE = re.compile(rb'"error_type":"([A-Z_]{1,60})"')
REFUSALS = (CONFLICT, REFUSED, RACE)
SERIES = (WRITE, MERGE, CONFLICT, REFUSED, RACE)


class LineFacts(NamedTuple):
    """What is counted of one line."""

    minute: str
    kind: str
    is_merge: bool
    error_type: str


def facts_of(line: bytes) -> LineFacts | None:
    """Return what is counted of a line; None if it is no event."""
    head = _HEAD.match(line)
    if head is None:
        return _parsed(line)
    kind = head[2].decode()
    is_merge = kind == "MUTATION" and _MERGED in line
    error = _ERROR_TYPE.search(line, head.end()) if kind != "MUTATION" else None
    return LineFacts(head[1].decode(), kind, is_merge, error[1].decode() if error else "")


def _parsed(line: bytes) -> LineFacts | None:
    try:
        event = json.loads(line.decode())
        result, payload = event.get("result"), event.get("payload")
        return LineFacts(
            str(event["time"])[:16],
            shortened(event["action_type"], 60),
            isinstance(payload, dict) and isinstance(payload.get("merged"), dict),
            shortened(result.get("error_type"), 60) if isinstance(result, dict) else "",
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


class Tallies:
    """The counts. One thread changes them at a time; readers take copies."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.groups: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.bad_lines = 0
        self._minutes: dict[str, Counter[str]] = {}
        self._recent: deque[tuple[str, str, str]] = deque()
        self._files: dict[str, Counter[str]] = {}
        self._last: dict[str, str] = {}

    def count(self, line: bytes, oldest_minute: str) -> None:
        """Count one line. Minutes before `oldest_minute` are not kept apart."""
        facts = facts_of(line)
        if facts is None:
            self.bad_lines += 1
            return
        group = group_of(facts.kind, is_merge=facts.is_merge)
        _bounded(self.kinds, facts.kind)
        self.groups[group] += 1
        if facts.error_type and group in REFUSALS:
            _bounded(self.refusals, facts.error_type)
        if facts.minute >= oldest_minute:
            self._minutes.setdefault(facts.minute, Counter())[group] += 1

    def saw(self, event: ShownEvent) -> None:
        """Note which file an event was about, for the hottest ones."""
        if not event.file or event.group not in SERIES:
            return
        self._recent.append((event.file, event.group, event.time))
        counts = self._files.setdefault(event.file, Counter())
        counts[event.group] += 1
        self._last[event.file] = event.time
        if len(self._recent) > RECENT_EVENTS:
            file, group, _ = self._recent.popleft()
            counts = self._files[file]
            counts[group] -= 1
            if not +counts:
                del self._files[file], self._last[file]

    def minutes(self, now_minutes: list[str]) -> list[dict[str, object]]:
        """Return the counts of the given minutes, and forget older ones."""
        for minute in [each for each in self._minutes if each < now_minutes[0]]:
            del self._minutes[minute]
        empty: Counter[str] = Counter()
        return [
            {"minute": minute, **{name: self._minutes.get(minute, empty)[name] for name in SERIES}}
            for minute in now_minutes
        ]

    def hottest(self) -> list[dict[str, object]]:
        """Return the files that most recent events are about."""
        ranked = sorted(self._files.items(), key=lambda each: (-each[1].total(), each[0]))
        return [
            {"file": file, "last": self._last[file], **{name: counts[name] for name in SERIES}}
            for file, counts in ranked[:HOTTEST]
        ]

    def totals(self) -> dict[str, object]:
        """Return the totals."""
        return {
            "groups": {name: self.groups[name] for name in SERIES},
            "kinds": dict(sorted(self.kinds.items())),
            "refusals": dict(sorted(self.refusals.items())),
            "events": self.kinds.total(),
            "bad_lines": self.bad_lines,
        }


def _bounded(counter: Counter[str], name: str) -> None:
    counter[name if name in counter or len(counter) < MOST_KINDS else "other"] += 1
