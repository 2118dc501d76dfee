"""
A change that the rule for stale has refused, and what may be answered instead of the refusal.

There are two answers, asked in this order. Each is one function from a `StaleChange` to a `Resolution`, to
`Unresolved` (why not, in words), or to None (it has nothing to say):

| answer | when the change goes ahead |
|---|---|
| `formatted.follow_formatter` | a formatter, and nobody else, changed the agent's own last write |
| `merging.merge_stale` | `on_stale = "merge"`, and nothing of either side is lost |

Whoever asks commits a `Resolution` as a compare-and-swap on the version that it was made for, and asks again
if that has changed, too. No answer means the refusal (009-FR-004). Only whole-file writes and edits are asked
about: a delete, a move, and a file that was created or is gone since have nothing to be merged with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from noclobber.core.actions import ContentChange
    from noclobber.core.options import Options
    from noclobber.core.values import MergedWrite
    from noclobber.disk.reading import FileState


class StaleChange(NamedTuple):
    """What an agent wants to make of a file, what it was made from, and what is there now."""

    root: str
    options: Options
    current: FileState
    """With its bytes. Its path is the canonical one."""
    base: bytes | str
    """What the change was made from; or why nobody knows it, as a sentence."""
    sent: bytes | None = None
    """The whole new content; None if the change is an edit."""
    edit: ContentChange | None = None
    own: OwnWrite | None = None
    """If the base is what the agent itself had written: when, and who the agent is."""


class OwnWrite(NamedTuple):
    """An agent's own last write of a file."""

    owner: str
    """The agent, as claims name it: host/session/agent."""
    at_s: float
    """About when it was made: when its host said so."""
    since_s: float
    """It was not made before this moment: when its host asked for it."""


class Resolution(NamedTuple):
    """What to write instead of what the agent sent."""

    made_for: str
    """The hash of the version that it is made for; the commit checks it."""
    content: bytes | None = None
    """The whole new content. None, for an edit: make the same edit in that version."""
    merged: MergedWrite | None = None
    """What it was made of, for the caller and the ledger."""


class Unresolved(NamedTuple):
    """Why a stale change is refused although it was looked at: a sentence."""

    reason: str
