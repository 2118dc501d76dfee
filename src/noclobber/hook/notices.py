"""
Told before it hurts, in hooks (N-notice): which files that the agent has read others have changed since.

A refusal comes when the agent has already thought and written. A notice comes before: at the start of its
turn, and after each of its calls, in a few lines beside what the host shows the model anyway. Every change is
told once. A notice is no read: the agent's next write is checked against what it really read.

What it costs: beside the session's memory there is one list of the files that the agent read or wrote last,
each with a stamp (`disk/reading.stamp_of`) and the version that was told. A call reads that list, asks the
disk for one stamp a file, and hashes only the files whose stamp is new. The list is bounded, so an agent that
has read ten thousand files hears about the last ones.

Not told: what a formatter made of the agent's own write (`guard/formatted`), a file that another call of
the agent's own is changing, and a file that the agent must read anyway, because nobody knows which version
it saw.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from noclobber.core.options import has_file
from noclobber.disk import small_file
from noclobber.disk.hashing import is_hash
from noclobber.disk.reading import look_at, stamp_of
from noclobber.errors import ABSENT, DELETED

if TYPE_CHECKING:
    from noclobber.disk.reading import FileState
    from noclobber.guard.looked import LookedAt
    from noclobber.hook.session_memory import SessionMemory
    from noclobber.hook.turn import HookTurn
    from noclobber.hosts.event import Event

LIST_NAME = "watched"
MOST_WATCHED = 64
MOST_BYTES = MOST_WATCHED * 5000


def after_call(turn: HookTurn, event: Event, looked: Sequence[LookedAt]) -> str:
    """Watch the files of a call from now on; return what others have changed, empty if nothing new."""
    with turn.reopen() as memory:
        watched = _read(memory.folder_fd)
        before = dict(watched)
        for one in looked:
            known = watched.pop(one.path, None)
            if one.action.is_certain or known is None:
                # The stamp is older than the look that judged, so a save after that look is not missed.
                known = [one.state.stamp, one.state.sha256]
            watched[one.path] = known
        return _news(turn, event, memory, watched, before)


def at_start(turn: HookTurn, event: Event) -> str:
    """Return what others have changed since the agent's last call, empty if nothing new."""
    with turn.reopen() as memory:
        watched = _read(memory.folder_fd)
        return _news(turn, event, memory, watched, dict(watched)) if watched else ""


def of_options(turn: HookTurn, event: Event) -> str:
    """Return that options of the project do not count, once a session; empty if there is nothing to tell."""
    if not has_file(turn.root):
        return ""
    from noclobber.core import trust  # Here: most projects have no options.
    from noclobber.hook import session_notes

    not_counted = trust.ignored(turn.root)
    if not not_counted or not session_notes.note_told(event.host, event.session_id, session_notes.TRUST):
        return ""
    return f"noclobber: {trust.told(not_counted)} Tell the user; do not change it yourself."


def _news(
    turn: HookTurn,
    event: Event,
    memory: SessionMemory,
    watched: dict[str, list[str]],
    before: dict[str, list[str]],
) -> str:
    changed = []
    for path, (stamp, told) in watched.items():
        now = _stamp(path)
        if now == stamp:
            continue
        state = look_at(path, keep=True, clock=turn.clock)
        snapshot, notes = memory.recall(path, path)
        if notes.get("pending"):
            # Another call of the agent's own message is under way here: what is there may be its work. The
            # event after that call looks again, because the stamp stays the old one.
            continue
        baseline = snapshot.last_for(path, path)
        watched[path] = [state.stamp, state.sha256]
        if state.sha256 in (baseline, told) or not _is_version(baseline):
            continue
        if baseline == ABSENT and state.sha256 == DELETED:
            continue  # The agent has removed it itself, or saw that there is none.
        wrote = notes.get("wrote")
        if wrote and wrote[0] == baseline and _is_formatted(turn, memory, state, wrote):
            continue
        changed.append((path, baseline, state))
    if watched != before:
        _write(memory.folder_fd, watched)
    if not changed:
        return ""
    from noclobber.hook.guidance import changes  # Here: most calls have nothing to tell.

    found = [(path, memory.held(baseline), state) for path, baseline, state in changed]
    return changes(turn, event, found, with_diff=turn.options.notices == "diff")


def _is_version(baseline: str | None) -> bool:
    return baseline == ABSENT or (baseline is not None and is_hash(baseline))


def _is_formatted(turn: HookTurn, memory: SessionMemory, state: FileState, wrote: list[Any]) -> bool:
    from noclobber.guard.formatted import is_formatters_work
    from noclobber.guard.stale_change import OwnWrite

    own = OwnWrite(turn.owner, wrote[1], wrote[1])
    return is_formatters_work(memory, turn.options, turn.root, state, wrote[0], own)


def _stamp(path: str) -> str:
    try:
        return stamp_of(os.stat(path))
    except OSError:
        return ""


# -- the list ------------------------------------------------------------------------------------------


def _read(folder_fd: int) -> dict[str, list[str]]:
    """Return the list: path, stamp and version, from the one that was touched longest ago."""
    try:
        fields = os.fsdecode(small_file.read(LIST_NAME, folder_fd, most_bytes=MOST_BYTES)).split("\0")
    except OSError:
        return {}
    # A list that was damaged by a kill ends where it makes no sense: a file less to tell of, and no more.
    rows = zip(*[iter(fields)] * 3, strict=False)
    return {path: [stamp, told] for path, stamp, told in rows if told and path.startswith("/")}


def _write(folder_fd: int, watched: dict[str, list[str]]) -> None:
    """Keep the list. Never raises: a notice less is no harm."""
    last = list(watched.items())[-MOST_WATCHED:]
    data = os.fsencode("".join(f"{path}\0{stamp}\0{told}\0" for path, (stamp, told) in last))
    try:
        small_file.write_over(LIST_NAME, data, folder_fd)
    except OSError:
        pass
