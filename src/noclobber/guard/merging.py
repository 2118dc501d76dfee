"""
Stale writes that land all the same, because nothing of either side is lost: `on_stale = "merge"`.

What the agent saw is the base, what it sent (or what its edit makes of the base) is one side, the current
file is the other. `text.merge` decides; it proves every result and gives up rather than guess. An edit has to
pass two tests: its old text occurs once, in what the agent saw and in the current file, and the merge gives
the same bytes as making the edit in the current file. The text alone may match in another place.

Not merged, and so refused as ever: a conflict, a binary file, a file that the agent saw only in part, one
whose bytes were not kept, one that was sent with another hash than the agent's own baseline, and names that
`never_merge` lists. Deletes, moves and files that were created since are never asked about.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from noclobber.core.actions import WRITE
from noclobber.core.values import MergedWrite
from noclobber.disk import hashing
from noclobber.errors import RefusalError
from noclobber.guard.stale_writes import REFUSE_STALE, Resolution, Unresolved
from noclobber.text.diff import unified
from noclobber.text.merge import merge

if TYPE_CHECKING:
    from noclobber.core.options import Options
    from noclobber.disk.reading import FileState
    from noclobber.guard.facts import Facts, Target
    from noclobber.guard.stale_writes import StaleWrites
    from noclobber.text.merge import Conflict

MOST_RANGES_NAMED = 8


class MergeStale:
    """A stale write is merged with what others changed, if that loses nothing."""

    def resolve(self, target: Target, seen: bytes | None, current: FileState) -> Resolution | Unresolved:
        """Merge, or say why not."""
        facts, theirs = target.facts, current.content
        reason = _why_never(target, seen)
        if reason is not None or seen is None or theirs is None:
            return Unresolved(reason or "The file could not be read again.")
        ours, on_disk = target.sent, None
        if facts.kind != WRITE:
            try:
                ours, on_disk = _edited(target, seen), _edited(target, theirs)
            except RefusalError:
                return Unresolved("The text to replace is not in the current file exactly once.")
        assert ours is not None  # A whole-file write that does not say its content is not asked about.
        merged = merge(seen, ours, theirs)
        if merged.content is None:
            return Unresolved(where_in_conflict(merged.conflicts), merged.conflicts)
        if on_disk is not None and merged.content != on_disk:
            return Unresolved("In the current file the edit would go to another place.")
        note = MergedWrite(
            hashing.of_bytes(seen),
            current.sha256,
            hashing.of_bytes(ours),
            unified(seen, theirs, facts.path),
        )
        return Resolution(current.sha256, merged.content if facts.kind == WRITE else None, note)


MERGE_STALE = MergeStale()


def stale_writes_for(options: Options) -> StaleWrites:
    """Return what a turn with these options does about stale writes."""
    return MERGE_STALE if options.on_stale == "merge" else REFUSE_STALE


def _why_never(target: Target, seen: bytes | None) -> str | None:
    facts = target.facts
    if is_never_merged(facts):
        return "Files with this name are never merged (never_merge)."
    if not facts.seen_whole:
        return "You have read only part of the file."
    if target.merged is None and facts.expected != facts.baseline:
        # After a first merge the expectation is the version that was merged with.
        return "The write names another version than the one that you last read."
    if seen is None:
        return "What you read is not kept any more."
    return None


def is_never_merged(facts: Facts) -> bool:
    """True if an option says that files of this name are not merged. Patterns with a slash are of paths."""
    name = os.path.basename(facts.path)
    path = os.path.relpath(facts.path, facts.root)
    return any(
        fnmatchcase(path if "/" in pattern else name, pattern) for pattern in facts.options.never_merge
    )


def _edited(target: Target, content: bytes) -> bytes:
    change = target.action.change
    assert change is not None
    return change.apply(content, target.facts.path)


def where_in_conflict(conflicts: tuple[Conflict, ...]) -> str:
    """Say where in the current file the conflicts are; lines are counted from 1."""
    named = [_range(conflict) for conflict in conflicts[:MOST_RANGES_NAMED]]
    more = f" and {len(conflicts) - len(named)} more places" if len(conflicts) > len(named) else ""
    return f"Both changed the same lines: {', '.join(named)} of the current file{more}."


def _range(conflict: Conflict) -> str:
    start, end = conflict.theirs
    return f"{start + 1}" if end - start <= 1 else f"{start + 1}-{end}"
