"""
Versions that the ledger has on record and the disk does not: what a power cut took away.

A write that does not wait for the disk may be undone by a cut while its event survives. Then the file has a
version that the ledger knows to be older than the last one it recorded for it. A version that the ledger has
never seen is no loss: somebody else has changed the file since.

Not told apart: a person who puts an old version back (`git checkout`) leaves the same picture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.disk.reading import look_at
from noclobber.errors import ABSENT, DELETED, NoclobberError
from noclobber.ledger.line import spell_hash
from noclobber.ledger.root import absolute

if TYPE_CHECKING:
    from collections.abc import Iterable

_NO_FILE = frozenset((ABSENT, DELETED))


class LostVersion(NamedTuple):
    """A file that has gone back to a version before the last one on record."""

    path: str
    seq: int
    """The event that recorded the version which is not there."""
    recorded_hash: str
    current_hash: str


class _Recorded(NamedTuple):
    seq: int
    after: str
    earlier: frozenset[str]


def find_lost_versions(events: Iterable[dict[str, Any]], root: str) -> list[LostVersion]:
    """Compare the last recorded version of every file with the file."""
    last: dict[str, _Recorded] = {}
    for event in events:
        payload = event.get("payload")
        if not isinstance(payload, dict):
            continue
        path = payload.get("target_file")
        if not isinstance(path, str):
            continue
        if event.get("action_type") == "COMMIT_RECOVERED":
            last.pop(path, None)  # What became of it is on record.
        elif event.get("action_type") == "MUTATION":
            seq, before, after = event.get("seq"), payload.get("before_hash"), payload.get("after_hash")
            if not (isinstance(seq, int) and isinstance(before, str) and isinstance(after, str)):
                continue
            goal = payload.get("destination")
            if isinstance(goal, str):
                _record(last, goal, seq, ABSENT, after)
                after = DELETED
            _record(last, path, seq, before, after)
    lost = []
    for path, recorded in last.items():
        current = _hash_now(absolute(root, path), root)
        if current != _plain(recorded.after) and current in recorded.earlier:
            lost.append(LostVersion(path, recorded.seq, recorded.after, current))
    return lost


def _record(last: dict[str, _Recorded], path: str, seq: int, before: str, after: str) -> None:
    known = last.get(path)
    earlier = known.earlier | {_plain(known.after)} if known else frozenset[str]()
    last[path] = _Recorded(seq, after, earlier | {_plain(before)})


def _plain(word: str) -> str:
    return DELETED if word in _NO_FILE else word


def _hash_now(path: str, root: str) -> str:
    """Return what is there, as events spell it; "" for what is not in the workspace."""
    try:
        return spell_hash(look_at(path, root).sha256)
    except NoclobberError:
        return ""
