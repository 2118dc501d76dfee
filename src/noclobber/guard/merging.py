"""
Stale changes that land all the same, because nothing of either side is lost: `on_stale = "merge"`.

What the change was made from is the base, what the agent sent (or what its edit makes of the base) is one
side, the current file is the other. `text.merge` decides; it proves every result and gives up rather than
guess. An edit has to pass two tests: its old text occurs once, in the base and in the current file, and the
merge gives the same bytes as making the edit in the current file. The text alone may match in another place.

Not merged, and so refused as ever: a conflict, a binary file, a file that the agent saw only in part, one
whose bytes were not kept, one that was sent with another hash than the agent's own baseline, and names that
`never_merge` lists. Neither is what is there already (ruling 29): two agents that write the same may have
meant two changes, so the second is told whose it is, and decides.

`merge_stale()` is asked by all ways to write. They differ in where the base is (`as_stale_change` for what an
agent saw, `merging_commands` for what a command read), and in who writes the result. A host or an executor
writes by itself (`merge_for_host`):

| call | what is done |
|---|---|
| an edit | let through as it is: making it in the current file gives the merged bytes, which was tested |
| a whole file, and the caller can be given other content | let through with the merged content |
| a whole file otherwise | refused; the merged text goes beside the refusal, and may then be sent |

The merged text is noted with the version that it was made for: sent as it is, while that version is there, it
is let through. What must come out of a call is noted, too, and compared afterwards, as for every call that we
do not carry out ourselves. Of several files all merge, or none is let through.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from noclobber.core.actions import EDIT, WRITE
from noclobber.core.values import MergedWrite
from noclobber.disk import hashing
from noclobber.errors import RefusalError
from noclobber.guard.author import author
from noclobber.guard.stale_change import Resolution, StaleChange, Unresolved
from noclobber.text.diff import unified
from noclobber.text.merge import merge

if TYPE_CHECKING:
    from noclobber.disk.reading import FileState
    from noclobber.errors import StaleFileError
    from noclobber.guard.change_set import FileChange
    from noclobber.guard.judge import JudgedTurn
    from noclobber.guard.looked import LookedAt
    from noclobber.guard.overwritten import Overwritten
    from noclobber.text.merge import Conflict

MOST_RANGES_NAMED = 8
NOT_TEXT = "The merged file is not UTF-8 text."


def merge_stale(change: StaleChange) -> Resolution | Unresolved | None:
    """Merge a stale change with what others did to the file; or say why not; None: the project refuses."""
    base, current, theirs = change.base, change.current, change.current.content
    if change.options.on_stale != "merge" or theirs is None:
        return None
    if _is_never_merged(change):
        return Unresolved("Files with this name are never merged (never_merge).")
    if isinstance(base, str):
        return Unresolved(base)
    ours, on_disk = change.sent, None
    if ours is None:
        assert change.edit is not None
        try:
            ours, on_disk = (change.edit.apply(version, current.path) for version in (base, theirs))
        except RefusalError:
            return Unresolved("The text to replace is not in the current file exactly once.")
    if ours == theirs:
        return Unresolved(already_so(change.root, current.path, current.sha256, current.changed_at_s))
    merged = merge(base, ours, theirs)
    if merged.content is None:
        return Unresolved(_where_in_conflict(merged.conflicts))
    if on_disk is not None and merged.content != on_disk:
        return Unresolved("In the current file the edit would go to another place.")
    note = MergedWrite(
        hashing.of_bytes(base),
        current.sha256,
        hashing.of_bytes(ours),
        unified(base, theirs, current.path),
    )
    return Resolution(current.sha256, merged.content if on_disk is None else None, note)


def already_so(root: str, path: str, sha256: str, changed_at_s: float = 0.0) -> str:
    """Say whose a change is that was made before. The agent decides whether its own is to count, too."""
    who = author(root, path, sha256, changed_at_s)
    return (
        f"Already so, by {who}: the file is byte for byte what you wanted. "
        "If your change was to count beside theirs, read the file and make it again."
    )


def as_stale_change(change: FileChange, seen: bytes | None, current: FileState) -> StaleChange:
    """Return what an agent wants as a change of what it saw, for the two answers to a stale change."""
    facts = change.facts
    base: bytes | str = "What you read is not kept any more." if seen is None else seen
    if not facts.seen_whole:
        base = "You have read only part of the file."
    elif change.merged is None and facts.expected != facts.baseline:
        # After a first merge the expectation is the version that was merged with.
        base = "The write names another version than the one that you last read."
    return StaleChange(
        facts.root,
        facts.options,
        current,
        base,
        change.sent if facts.kind == WRITE else None,
        change.action.change,
    )


def _is_never_merged(change: StaleChange) -> bool:
    """True if an option says that files of this name are not merged. Patterns with a slash are of paths."""
    name = os.path.basename(change.current.path)
    path = os.path.relpath(change.current.path, change.root)
    return any(
        fnmatchcase(path if "/" in pattern else name, pattern) for pattern in change.options.never_merge
    )


def _where_in_conflict(conflicts: tuple[Conflict, ...]) -> str:
    """Say where in the current file the conflicts are; lines are counted from 1."""
    named = [_range(conflict) for conflict in conflicts[:MOST_RANGES_NAMED]]
    more = f" and {len(conflicts) - len(named)} more places" if len(conflicts) > len(named) else ""
    return f"Both changed the same lines: {', '.join(named)} of the current file{more}."


def _range(conflict: Conflict) -> str:
    start, end = conflict.theirs
    return f"{start + 1}" if end - start <= 1 else f"{start + 1}-{end}"


# -- where a host writes -----------------------------------------------------------------------------------


def merge_for_host(turn: JudgedTurn, looked: LookedAt, error: StaleFileError, *, can_rewrite: bool) -> bool:
    """True if a stale write may go ahead; `looked` then says what is written. If not, the error says why."""
    from noclobber.guard.judge import refusal_of

    change = looked.change
    assert change is not None
    facts, current = change.facts, looked.state
    is_asked = facts.kind in (WRITE, EDIT) and hashing.is_hash(facts.expected or "")
    is_said = change.sent is not None if facts.kind == WRITE else looked.action.change is not None
    if not is_asked or not is_said or looked.action.moved_from is not None:
        return False
    answer = _offered(looked) or merge_stale(as_stale_change(change, _seen(turn, looked), current))
    if not isinstance(answer, Resolution):
        error.not_merged = None if answer is None else answer.reason
        return False
    if (refusal := refusal_of(facts._replace(expected=answer.made_for))) is not None:
        raise refusal
    content = answer.content
    if content is not None and content != change.sent:
        if not _is_text(content):
            error.not_merged = NOT_TEXT
            return False
        assert answer.merged is not None
        looked.notes["offered"] = [hashing.of_bytes(content), *answer.merged[:3]]
        if not can_rewrite:
            error.merged = content
            looked.keep(turn)
            return False
        looked.content = content
        looked.action = looked.action._replace(content=content.decode())
    change.facts = facts._replace(expected=answer.made_for)
    change.merged = answer.merged
    # For the sentence afterwards: what others changed is from the base to theirs.
    turn.memory.hold(looked.path, current.sha256, current.content or b"")
    return True


def _offered(looked: LookedAt) -> Resolution | None:
    """Return the merge whose text the agent was given, if it sends that text and nothing changed since."""
    assert looked.change is not None
    offered, sent = looked.notes.get("offered"), looked.change.sent
    if not offered or sent is None or looked.change.facts.kind != WRITE:
        return None
    content, base, theirs, ours = offered
    if (hashing.of_bytes(sent), looked.state.sha256) != (content, theirs):
        return None
    return Resolution(theirs, sent, MergedWrite(base, theirs, ours, ""))


def keep_theirs(turn: JudgedTurn, path: str, merged: MergedWrite, key: str) -> Overwritten | None:
    """Keep what a host wrote over that did not take the merged content; None if the bytes are gone."""
    from noclobber.disk.commit.kept import keep_bytes
    from noclobber.guard.overwritten import Overwritten

    theirs = turn.memory.held(merged.theirs_sha256)
    if theirs is None:
        return None
    return Overwritten(merged.theirs_sha256, (keep_bytes(turn.root, path, theirs, key),), theirs)


def _seen(turn: JudgedTurn, looked: LookedAt) -> bytes | None:
    """Return what the agent saw, wherever its bytes still are."""
    from noclobber.guard.past_bytes import seen_bytes

    assert looked.change is not None
    baseline = looked.change.facts.baseline
    held = turn.memory.held(baseline)
    if held is None:
        held = seen_bytes(looked.snapshot, turn.root, looked.name, looked.path, baseline)
    return held


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
