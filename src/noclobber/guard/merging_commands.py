"""
Whole files that a command wrote and others changed, with `on_stale = "merge"`: merged if nothing is lost.

Only a file whose whole new text is in the command (`cat > file <<'EOF'`) is merged: the text is the model's,
so it is a whole-file write as by any other tool, and what the model saw is its base. What a command computed
is refused, and the command can be run again: nobody knows which version it has read, and `sed -i 5d` on
another version removes another line than the one that was meant.

The merged bytes go into a file of their own in the command's folder: what the command wrote stays as it is,
for `noclobber run diff`, if another file refuses.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from noclobber.disk import hashing
from noclobber.disk.reading import look_at
from noclobber.guard.judge import refusal_of
from noclobber.guard.merging import merge_stale
from noclobber.guard.past_bytes import seen_bytes
from noclobber.guard.stale_change import Resolution, StaleChange
from noclobber.shell.runs import folder_of

if TYPE_CHECKING:
    from noclobber.core.values import MergedWrite
    from noclobber.errors import StaleFileError
    from noclobber.guard.command_turn import CommandTurn
    from noclobber.guard.facts import Facts
    from noclobber.guard.landing import CommandRun
    from noclobber.guard.memory import Memory
    from noclobber.guard.turn import Turn
    from noclobber.shell.changes import TreeChange

MOST_BYTES = 64 << 20
COMPUTED = "What a command computed is not merged. Run it again."


class MergedFile(NamedTuple):
    """A command's version of a file, merged with what is there."""

    made_for: str
    """The current version's hash: the commit expects it."""
    source: str
    """A file with the merged bytes, ready to be renamed into place."""
    content: bytes
    note: MergedWrite


def merged_file(
    turn: Turn | CommandTurn,
    command: CommandRun,
    change: TreeChange,
    facts: Facts,
    number: int,
    error: StaleFileError,
    memory: Memory,
    *,
    is_text: bool,
) -> MergedFile | None:
    """
    Merge one file; None, with the reason beside the error, if it stays stale.

    `is_text`: its whole new content is in the command.
    """
    if not hashing.is_hash(facts.expected or "") or os.stat(change.upper).st_size > MOST_BYTES:
        return None
    with open(change.upper, "rb") as file:
        ours = file.read()
    current = look_at(facts.path, turn.confined_to, keep=True, clock=turn.clock)
    if current.content is None:
        return None
    base = _of_text(turn, facts, memory) if is_text else COMPUTED
    answer = merge_stale(StaleChange(facts.root, turn.options, current, base, ours))
    if not isinstance(answer, Resolution):
        if answer is not None:
            error.not_merged = answer.reason
            error.add_note(f"It was not merged: {answer.reason}")
        return None
    assert answer.content is not None
    assert answer.merged is not None
    refusal = refusal_of(facts._replace(expected=current.sha256, actual=current.sha256, is_changed=False))
    if refusal is not None:
        raise refusal
    source = f"{folder_of(turn.root)}/{command.run_id}/merged-{number}"
    _write_like(change.upper, source, answer.content)
    return MergedFile(current.sha256, source, answer.content, answer.merged)


def _of_text(turn: Turn | CommandTurn, facts: Facts, memory: Memory) -> bytes | str:
    """Return what the agent had seen when it wrote the text; or a sentence that says why nobody knows."""
    if not facts.seen_whole:
        return "You have read only part of the file."
    snapshot, _ = memory.recall(facts.name, facts.path)
    seen = memory.held(facts.expected)
    seen = seen or seen_bytes(snapshot, turn.root, facts.name, facts.path, facts.expected)
    return "What you read is not kept any more." if seen is None else seen


def _write_like(upper: str, source: str, content: bytes) -> None:
    """Write the merged bytes to a file with the owner and the permissions of the command's."""
    status = os.stat(upper)
    descriptor = os.open(source, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
        if (status.st_uid, status.st_gid) != (os.fstat(descriptor).st_uid, os.fstat(descriptor).st_gid):
            os.fchown(descriptor, status.st_uid, status.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
