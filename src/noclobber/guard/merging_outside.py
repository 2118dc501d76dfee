"""
Stale writes that merge where somebody else carries the call out (a host, an executor): `on_stale = "merge"`.

`merging` decides, as everywhere. What is left is to have the merged bytes written by another program:

| call | what is done |
|---|---|
| an edit | let through as it is: making it in the current file gives the merged bytes, which was tested |
| a whole file, and what was sent is what the merge gives | let through as it is |
| a whole file, and the caller can be given other content | let through with the merged content |
| a whole file otherwise | refused; the merged text goes beside the refusal, and may then be sent |

The second row is why the fourth is a way out: the text from beside the refusal has everybody's changes in it,
so sent as it is it merges to itself. Of several files all merge, or none is let through.

What must come out is noted and compared afterwards, as for every call that we do not carry out ourselves.
Loaded only for a stale write in a project that merges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noclobber.core.actions import EDIT, WRITE
from noclobber.disk.commit.kept import keep_bytes
from noclobber.disk.hashing import is_hash
from noclobber.guard.merging import MERGE_STALE
from noclobber.guard.overwritten import Overwritten
from noclobber.guard.past_bytes import find_bytes
from noclobber.guard.policies import decide
from noclobber.guard.stale_writes import Resolution

if TYPE_CHECKING:
    from noclobber.core.values import MergedWrite
    from noclobber.errors import StaleFileError
    from noclobber.guard.judge import JudgedTurn
    from noclobber.guard.looked import LookedAt

NOT_TEXT = "The merged file is not UTF-8 text."


def merge_stale(turn: JudgedTurn, looked: LookedAt, error: StaleFileError, *, can_rewrite: bool) -> bool:
    """True if a stale write may go ahead; `looked` then says what is written. If not, the error says why."""
    target = looked.target
    assert target is not None
    facts, current = target.facts, looked.state
    is_asked = facts.kind in (WRITE, EDIT) and is_hash(facts.expected or "") and current.content is not None
    is_said = target.sent is not None if facts.kind == WRITE else looked.action.change is not None
    if not is_asked or not is_said or looked.action.moved_from is not None:
        return False
    answer = MERGE_STALE.resolve(target, _seen(turn, looked), current)
    if not isinstance(answer, Resolution):
        error.not_merged = answer.reason
        return False
    allowed = decide(facts._replace(expected=answer.made_for))
    if not allowed.allowed:
        raise allowed.error
    content = answer.content
    if content is not None and content != target.sent:
        if not _is_text(content):
            error.not_merged = NOT_TEXT
            return False
        if not can_rewrite:
            error.merged = content
            return False
        looked.content = content
        looked.action = looked.action._replace(content=content.decode())
    target.facts = facts._replace(expected=answer.made_for)
    target.merged = answer.merged
    # For the sentence afterwards: what others changed is from the base to theirs.
    turn.memory.hold(looked.path, current.sha256, current.content or b"")
    return True


def keep_theirs(turn: JudgedTurn, path: str, merged: MergedWrite, key: str) -> Overwritten | None:
    """Keep what a host wrote over that did not take the merged content; None if the bytes are gone."""
    theirs = turn.memory.held(merged.theirs_sha256)
    if theirs is None:
        return None
    return Overwritten(merged.theirs_sha256, (keep_bytes(turn.root, path, theirs, key),), theirs)


def _seen(turn: JudgedTurn, looked: LookedAt) -> bytes | None:
    """Return what the agent saw, wherever its bytes still are."""
    assert looked.target is not None
    baseline = looked.target.facts.baseline
    kept = looked.snapshot.baseline_bytes(looked.name, looked.path)
    if kept is None:
        kept = turn.memory.held(baseline)
    if kept is None and baseline is not None and is_hash(baseline):
        kept = find_bytes(turn.root, looked.path, baseline)[0]
    return kept


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
