"""
What happens when a write turns out to be stale: the one place where the answer may be something else than no.

The engine asks a turn's `StaleWrites` after a commit was refused because the file is not what the agent
saw. An answer is a way to write all the same without losing anything; the engine then commits it as a
compare-and-swap on the version that the answer was made for, and asks again if that has changed, too. None
means that the refusal stands.

`RefuseStale` is the rule of 009-FR-004 and the default. An implementation that merges needs what the agent
saw and what is there now, and gets both. Only whole-file writes and edits are asked about: a delete, a
move, and a file that was created or is gone since have nothing to merge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Protocol

    from noclobber.core.values import MergedWrite
    from noclobber.disk.reading import FileState
    from noclobber.guard.facts import Target
    from noclobber.text.merge import Conflict

    class StaleWrites(Protocol):
        """Decides about stale writes of one turn."""

        def resolve(
            self, target: Target, seen: bytes | None, current: FileState
        ) -> Resolution | Unresolved | None:
            """
            Return what to write instead; or why that cannot be told, which goes beside the refusal; or None.

            `seen` is what the agent saw (None: not kept any more), `current` what is there now, with its
            bytes. Pure: it is asked again if the file changes again.
            """


class Resolution(NamedTuple):
    """What to write instead of what the agent sent."""

    made_for: str
    """The hash of the version that it is made for; the commit checks it."""
    content: bytes | None = None
    """The whole new content. None, for an edit: make the same edit in that version."""
    merged: MergedWrite | None = None
    """What it was made of, for the caller and the ledger."""


class Unresolved(NamedTuple):
    """Why a stale write is refused although it was looked at: a sentence, and where the conflicts are."""

    reason: str
    conflicts: tuple[Conflict, ...] = ()


class RefuseStale:
    """A stale write is refused."""

    def resolve(self, target: Target, seen: bytes | None, current: FileState) -> Resolution | None:
        """Refuse."""
        return None


REFUSE_STALE = RefuseStale()
