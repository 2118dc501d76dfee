"""
What a command in the guarded shell left behind, as the agent's memory takes it.

A file that was what the agent had seen when the command began is the agent's own version now: nobody else
touched it in between, or the command was refused, or it was merged and the agent was told. So is a file that
the command created. A file that the agent had never seen and that its command changed must be read before the
agent writes it.
"""

from __future__ import annotations

from noclobber.core.values import Coverage
from noclobber.disk import hashing
from noclobber.disk.reading import look_at
from noclobber.errors import ABSENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from noclobber.hook.turn import HookTurn

MOST_FILES = 500  # Of more, the rest is as if never read.
WATCHED = "watched"  # No view could be made when the command came to run.
NOTHING_SEEN = Coverage((), 1)


def learn(turn: HookTurn, report: dict[str, Any]) -> None:
    """Take note of what landed, or of what was refused."""
    is_watched = report.get("level") == WATCHED
    landed = report.get("landed")
    rows = [row for row in landed if _is_row(row)] if isinstance(landed, list) else []
    merged = report.get("merged")
    bases = merged if isinstance(merged, dict) else {}
    with turn.memory as memory:
        for path, before, after in rows[:MOST_FILES]:
            snapshot, notes = memory.recall(path, path)
            known = snapshot.expected_for(path, path)
            if after == ABSENT:
                snapshot.removed(path, path)
                notes.pop("wrote", None)
            elif is_watched:
                continue  # Somebody else may have written in it meanwhile: it must be read again.
            elif before == ABSENT or (known is not None and known in (before, bases.get(path))):
                seen = None if before == ABSENT else snapshot.coverage_for(path, path)
                snapshot.wrote(path, path, after, None, seen or NOTHING_SEEN)
                notes["wrote"] = [after, turn.clock.now_s()]
                state = look_at(path, keep=True)
                if state.sha256 == after and state.content is not None:
                    memory.hold(path, after, state.content)
            else:
                snapshot.saw_unknown(path, path)
                notes.pop("wrote", None)
            memory.keep(snapshot, path, path, notes)
        refused = report.get("refused")
        details = refused.get("details") if isinstance(refused, dict) else None
        if isinstance(details, dict) and isinstance(details.get("baseline_hash"), str):
            path, known = str(details.get("path")), details["baseline_hash"]
            snapshot, notes = memory.recall(path, path)
            if snapshot.expected_for(path, path) == known:
                snapshot.refused(path, path, None, known)
                memory.keep(snapshot, path, path, notes)
    turn.forget_memory()


def _is_row(row: Any) -> bool:
    return (
        isinstance(row, list)
        and len(row) == 3
        and isinstance(row[0], str)
        and row[0].startswith("/")
        and all(value == ABSENT or (isinstance(value, str) and hashing.is_hash(value)) for value in row[1:])
    )
