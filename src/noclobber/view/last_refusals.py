"""
The last refusals on record, each with who was in the way: who wrote the version that the refused writer met.

That is the version in the event, not the one in the file now: meanwhile somebody else may have written there,
or the refused agent itself. Who wrote it is known from the writes before; a version that nobody guarded wrote
is an outsider's. If the writes that were looked at do not go back to the ledger's beginning, that is not
certain, and nobody is named.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from noclobber.core.clock import SYSTEM_CLOCK, iso8601
from noclobber.disk.hashing import is_hash
from noclobber.disk.reading import look_at
from noclobber.errors import NoclobberError
from noclobber.ledger.browse import summary_of
from noclobber.ledger.last_writer import LastWriter, plain_name, spelled
from noclobber.ledger.root import absolute

if TYPE_CHECKING:
    from collections.abc import Iterable

KINDS = ("MUTATION_CONFLICT", "MUTATION_REFUSED", "MUTATION_RACE", "LOCK_CONTENTION")
_LEFT_BY = {"MUTATION": "after_hash", "MUTATION_RACE": "expected_hash"}
_MET_BY = {"MUTATION_CONFLICT": "current_hash", "MUTATION_RACE": "overwritten_hash"}

Event = dict[str, Any]


def last_refusals(
    root: str, events: Iterable[Event], of_locks: Iterable[Event], most: int, *, is_all: bool
) -> list[Event]:
    """
    Return the last refusals, by time.

    `events` are the last ones of the project's ledger, `is_all` if there are no others; `of_locks` are those
    of the folders below.
    """
    if not most:
        return []
    events = list(events)
    refused = [event for event in (*events, *of_locks) if event.get("action_type") in KINDS]
    refused.sort(key=lambda event: str(event.get("time", "")))
    writers = _writers(events) if refused else {}
    return [_refusal(event, root, writers.get(id(event)), is_all=is_all) for event in refused[-most:]]


def _refusal(event: Event, root: str, writer: LastWriter | None, *, is_all: bool) -> Event:
    about = summary_of(event, root)
    return {
        "seq": seq if isinstance(seq := event.get("seq"), int) else None,
        "time": time if isinstance(time := event.get("time"), str) else None,
        "kind": about.kind,
        "error_type": about.outcome or about.kind,
        "agent_id": about.agent,
        "session_id": about.session or None,
        "path": about.subject,
        "written_by": _in_the_way(event, root, writer, is_all=is_all),
    }


def _in_the_way(event: Event, root: str, writer: LastWriter | None, *, is_all: bool) -> str | None:
    kind = event.get("action_type")
    if kind == "LOCK_CONTENTION":
        return plain_name(_member(event, "result").get("holder")) or None
    name, met = _version(event, _MET_BY) or ("", "")
    if not name:
        return None
    if writer is not None:
        return f"{spelled(writer)} at {writer.time}"
    if not is_hash(met.removeprefix("sha256:")) or not is_all:
        return None
    when = _when_if_still_there(root, name, met.removeprefix("sha256:"))
    return f"an outsider{f', at {when}' if when else ''}"


def _when_if_still_there(root: str, name: str, sha256: str) -> str:
    """Of an outsider's save only the disk knows when it was, and only until the next one."""
    try:
        state = look_at(os.path.normpath(absolute(root, name)), root, clock=SYSTEM_CLOCK)
    except (NoclobberError, OSError, ValueError):
        return ""  # A path in a ledger may lead anywhere.
    return f"{iso8601(state.changed_at_s)[:19]}Z" if state.sha256 == sha256 and state.changed_at_s else ""


def _writers(events: Iterable[Event]) -> dict[int, LastWriter]:
    """
    Return for each refusal, by its `id`, who had left the version that it met.

    Only writes before it count: the refused agent may have written the same bytes since.
    """
    left: dict[tuple[str, str], LastWriter] = {}
    found: dict[int, LastWriter] = {}
    for event in events:
        if (met := _version(event, _MET_BY)) in left:
            found[id(event)] = left[met]
        if (written := _version(event, _LEFT_BY)) is not None:
            left[written] = LastWriter(_member(event, "identity"), f"{str(event.get('time'))[:19]}Z")
    return found


def _version(event: Event, members: dict[str, str]) -> tuple[str, str] | None:
    """Return a file and the hash that an event of a certain kind has of it; None for other kinds."""
    payload = _member(event, "payload")
    name, sha256 = payload.get("target_file"), payload.get(members.get(str(event.get("action_type")), ""))
    return (name, sha256) if isinstance(name, str) and isinstance(sha256, str) else None


def _member(event: Event, name: str) -> dict[str, Any]:
    value = event.get(name)
    return value if isinstance(value, dict) else {}
