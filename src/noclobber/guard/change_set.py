"""
What an agent wants to change, and what was decided about it: the values that the engine passes on.

    ChangeSet → judge → Verdict → commit, or foresee and compare (`outcome.Outcome`) → record

Every way in makes a `ChangeSet`. A tool call on one file is a set of one change; several files, a patch, an
undo and a command are larger sets. A set lands together or not at all, and is one call on record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from noclobber.errors import StaleFileError

if TYPE_CHECKING:
    from noclobber.core.actions import Action
    from noclobber.core.values import MergedWrite, ToolCall
    from noclobber.errors import NoclobberError
    from noclobber.guard.facts import Facts

MAX_NAMED = 100  # Stale files beside a refusal.


class FileChange:
    """One file, what becomes of it, and what was found out about it so far."""

    __slots__ = ("action", "base", "data", "facts", "goal", "is_planned", "merged", "sent")

    def __init__(self, action: Action, facts: Facts, data: bytes | None) -> None:
        self.action, self.facts = action, facts
        self.sent = data
        """The whole new content as the agent sent it; None if the call does not say it."""
        self.data = data
        """What is written: what was sent, or what a stale write became (`merging`)."""
        self.base = facts.expected
        """What the commit compares with: what the agent saw, or what an edit was made from."""
        self.is_planned = False
        """True if `data` and `base` are what a person has agreed to: an edit is not made anew."""
        self.goal = ""
        """Of a move: the new name, as the agent called it."""
        self.merged: MergedWrite | None = None
        """What a stale write was made of, if it is not written as it was sent."""


class ChangeSet(NamedTuple):
    """The changes of one call, which land together or not at all."""

    call: ToolCall
    """Who wants them."""
    changes: Sequence[FileChange]
    moved: Mapping[str, str] = {}
    """Which new file is which old one under another name, where both are in the set, as undo has them."""
    delivery: str = ""
    """Names the event in which a host told of the call, if the host may tell of it twice."""


class Verdict:
    """What the judge says of a change set: nothing refuses it, or these refusals do."""

    __slots__ = ("refusals",)

    def __init__(self) -> None:
        self.refusals: list[NoclobberError] = []

    def refuse(self, refusal: NoclobberError) -> None:
        """Add a refusal."""
        self.refusals.append(refusal)

    def enforce(self) -> None:
        """Raise the refusal to give, with all other stale files beside it."""
        if not self.refusals:
            return
        stale = [refusal for refusal in self.refusals if isinstance(refusal, StaleFileError)]
        # What may never be done comes first: reading the stale files again would not help.
        first = next((each for each in self.refusals if not isinstance(each, StaleFileError)), None)
        if first is None:
            first = stale.pop(0)
            first.others = tuple(stale[:MAX_NAMED])
        raise first
