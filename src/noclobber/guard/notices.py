"""
Told before it hurts: which files that an agent has read have changed since, by whom, and how.

A refusal comes when the agent has already thought and written. A notice comes before: `turn.changes()` at
the start of a step, or a function that is called before each guarded tool call. Every change is told once.
Looking does not count as reading: the baseline stays, and a write is still checked against it.

What it costs: one `stat` for each file that the turn has read, and a read of those whose stamp is new.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from noclobber.disk.reading import look_at
from noclobber.errors import DELETED
from noclobber.guard.author import author
from noclobber.text.diff import abridged, unified

if TYPE_CHECKING:
    from noclobber.disk.reading import FileState
    from noclobber.guard.turn import Turn

    Stamp = tuple[int, int, int, int] | None


class ChangeNotice(NamedTuple):
    """One file that is not any more what the agent saw."""

    path: str
    sha256: str
    """What is there now: a hash, or a word such as `DELETED`."""
    by: str
    """Who wrote that, as far as the ledger knows; else "an outsider, at …"."""
    diff: str
    """The beginning of a diff from what the agent saw; empty if those bytes are not kept."""

    def __str__(self) -> str:
        if self.sha256 == DELETED:
            return f"{self.path} was deleted since you read it."
        told = f"{self.path} was changed since you read it, by {self.by}."
        return f"{told}\n{self.diff}" if self.diff else told


class NoticeBoard:
    """What a turn has been told, so that every change is told once."""

    def __init__(self) -> None:
        self._stamps: dict[str, Stamp] = {}
        self._told: dict[str, str] = {}

    def new(self, turn: Turn) -> list[ChangeNotice]:
        """Return what has changed and was not told yet."""
        found = []
        for path, baseline in turn.context.baselines():
            stamp = _stamp(path)
            if path in self._stamps and self._stamps[path] == stamp and path in self._told:
                continue
            self._stamps[path] = stamp
            state = look_at(path, turn.confined_to, keep=True, clock=turn.clock)
            if state.sha256 in (baseline, self._told.get(path, baseline)):
                self._told[path] = state.sha256
                continue
            self._told[path] = state.sha256
            found.append(_notice(turn, path, state))
        return found


def _notice(turn: Turn, path: str, state: FileState) -> ChangeNotice:
    seen = turn.context.baseline_bytes(path, path)
    diff = ""
    if seen is not None and state.content is not None:
        diff = abridged(unified(seen, state.content, path))
    return ChangeNotice(path, state.sha256, author(turn.root, path, state.sha256, state.changed_at_s), diff)


def _stamp(path: str) -> Stamp:
    """
    What changes with every change of a file's content; None if there is none.

    But for two changes within one tick of the filesystem's clock: then the second is told with the next
    one. A notice may come late; the check of a write does not depend on it.
    """
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
