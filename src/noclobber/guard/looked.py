"""
One file of a call that somebody else carries out: what was asked, what is there, and what the agent knows.

`outside` makes one for each file and asks it; what a call must leave is noted here, and compared here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noclobber.core.values import WHOLE, Coverage, MergedWrite
from noclobber.guard.judge import pop_note
from noclobber.guard.outcome import UNKNOWN_OUTCOME, Outcome, plain_hash

if TYPE_CHECKING:
    from noclobber.core.actions import Action
    from noclobber.disk.reading import FileState
    from noclobber.guard.change_set import FileChange
    from noclobber.guard.judge import JudgedTurn
    from noclobber.guard.memory import Notes
    from noclobber.guard.snapshot import TurnContext


class LookedAt:
    """One file of a call: what was asked, what is there, and what the agent knows of it."""

    __slots__ = ("action", "change", "content", "name", "notes", "outcome", "snapshot", "state")

    def __init__(
        self, action: Action, name: str, state: FileState, snapshot: TurnContext, notes: Notes
    ) -> None:
        self.action, self.name, self.state, self.snapshot, self.notes = action, name, state, snapshot, notes
        self.outcome: Outcome = UNKNOWN_OUTCOME
        self.change: FileChange | None = None
        self.content: bytes | None = None
        """What is written instead of what was sent: a stale write that was merged (`merging`)."""

    @property
    def path(self) -> str:
        """Canonical."""
        return self.state.path

    def note_pending(self, turn: JudgedTurn, key: str) -> None:
        """Write down what the call must leave behind."""
        sha256, plain, others, data = self.outcome
        now_s = turn.clock.now_s()
        self.notes.setdefault("pending", {})[key] = [self.state.sha256, sha256, plain, now_s, *others]
        self.notes.pop("done", None)
        merged = None if self.change is None else self.change.merged
        if merged is not None:
            self.notes.setdefault("merged", {})[key] = list(merged[:3])
        if sha256 is not None and data is not None:
            turn.memory.hold(self.path, sha256, data)
        self.keep(turn)

    def keep(self, turn: JudgedTurn) -> None:
        """Keep what is known now."""
        turn.memory.keep(self.snapshot, self.name, self.path, self.notes)


def noted_outcome(pending: list[Any]) -> Outcome:
    """Return the outcome that was noted for a call, behind the hash of what was there before it."""
    _, sha256, plain, _, *others = pending
    return Outcome(sha256, plain, tuple(others))


def noted_merge(notes: Notes, key: str) -> MergedWrite | None:
    """Take what was noted of a call that was merged; None if it was not."""
    noted = pop_note(notes, "merged", key)
    if noted is None:
        return None
    base, theirs, ours = noted
    return MergedWrite(base, theirs, ours, "")


def is_as_foreseen(state: FileState, outcome: Outcome) -> bool:
    """True if a file holds what was foreseen, or that text with other line endings or a byte-order mark."""
    if state.sha256 == outcome.sha256 or state.sha256 in outcome.others:
        return True
    is_plain = outcome.plain is not None and state.content is not None
    return is_plain and plain_hash(state.content or b"") == outcome.plain


def forget_repeated(targets: list[LookedAt]) -> None:
    """Foresee nothing for a file that a call changes twice: each change was foreseen from the same bytes."""
    paths_of = [target.path for target in targets]
    for target in targets:
        if paths_of.count(target.path) > 1:
            target.outcome = UNKNOWN_OUTCOME


def seen_after(looked: LookedAt) -> Coverage:
    """An agent that edits a file of which it saw a part still knows only a part."""
    coverage = looked.snapshot.coverage_for(looked.name, looked.path)
    if coverage is not None and coverage.is_whole:
        return WHOLE
    return Coverage((), (looked.state.content or b"").count(b"\n") + 1)
