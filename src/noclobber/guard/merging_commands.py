"""
What a command did to a file that others changed, with `on_stale = "merge"`: merged if nothing is lost.

The command computed its version, so the base is what the command read, not what a model remembers. That is
known in two cases, and only in these a file is merged:

| the file | base |
|---|---|
| was what the agent had seen when the command began, and changed since | what the command read (`steady`) |
| is one whose whole new text is in the command (`cat > file <<'EOF'`) | what the agent saw, all of it |

In the first case it does not matter how much of the file the agent saw: nothing in the merge is from its
memory. In the second case it is a whole-file write as any other, and merges by the same rules.

A file that had been changed before the command began, and that the command read, is refused. Its result has
the others' work in it, so nothing of theirs would be lost. But the agent wrote the command for the version
that it had seen: `sed -i 5d` would remove another line than the one that it meant. No merge can see that.

Deletes, new files, files that the agent does not know and anything that is no regular file are never merged.
The merged bytes go into a file of their own in the command's folder: what the command wrote stays as it is,
for `noclobber run diff`, if another file refuses.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from noclobber.core.actions import WRITE
from noclobber.core.values import MergedWrite
from noclobber.disk import hashing
from noclobber.disk.reading import look_at
from noclobber.guard.merging import is_never_merged, where_in_conflict
from noclobber.guard.past_bytes import seen_bytes
from noclobber.guard.policies import decide
from noclobber.shell import steady
from noclobber.shell.runs import folder_of
from noclobber.shell.targets import targets
from noclobber.text.diff import unified
from noclobber.text.merge import merge

if TYPE_CHECKING:
    from noclobber.errors import StaleFileError
    from noclobber.guard.command_turn import CommandTurn
    from noclobber.guard.facts import Facts
    from noclobber.guard.landing import CommandRun
    from noclobber.guard.turn import Turn
    from noclobber.shell.changes import TreeChange

MOST_BYTES = 64 << 20


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
) -> MergedFile | None:
    """Merge one file; None, with the reason beside the error, if it stays stale."""
    if not hashing.is_hash(facts.expected or "") or os.stat(change.upper).st_size > MOST_BYTES:
        return None
    with open(change.upper, "rb") as file:
        ours = file.read()
    current = look_at(facts.path, turn.confined_to, keep=True, clock=turn.clock)
    if current.content is None:
        return None
    base = _base(turn, command, change.path, facts, ours)
    if isinstance(base, str):
        _note(error, base)
        return None
    merged = merge(base, ours, current.content)
    if merged.content is None:
        _note(error, where_in_conflict(merged.conflicts))
        return None
    allowed = decide(facts._replace(kind=WRITE, expected=current.sha256, actual=current.sha256))
    if not allowed.allowed:
        raise allowed.error
    note = MergedWrite(
        hashing.of_bytes(base),
        current.sha256,
        hashing.of_bytes(ours),
        unified(base, current.content, facts.path),
    )
    source = f"{folder_of(turn.root)}/{command.run_id}/merged-{number}"
    _write_like(change.upper, source, merged.content)
    return MergedFile(current.sha256, source, merged.content, note)


def _base(
    turn: Turn | CommandTurn, command: CommandRun, below: str, facts: Facts, ours: bytes
) -> bytes | str:
    """Return what the command's version was made from; or a sentence that says why nobody knows."""
    assert facts.expected is not None
    if is_never_merged(facts):
        return "Files with this name are never merged (never_merge)."
    if _is_text_of(command, facts.path, ours):
        is_whole, seen = facts.seen_whole, None
        if turn.seen_of is not None:
            is_whole, seen = turn.seen_of(facts.path, facts.expected)
        if not is_whole:
            return "You have read only part of the file."
        seen = seen or seen_bytes(turn.context, turn.root, facts.name, facts.path, facts.expected)
        return "What you read is not kept any more." if seen is None else seen
    read = steady.held(f"{folder_of(turn.root)}/{command.run_id}", below)
    if read is None:
        return "It is not known which version the command has read."
    if hashing.of_bytes(read) != facts.expected:
        return "It had been changed before the command began, which may have done what you did not mean."
    return read


def _is_text_of(command: CommandRun, path: str, ours: bytes) -> bool:
    """True if a file's whole new content stands in the command."""
    for action in targets(command.text):
        if action.kind == WRITE and action.content is not None:
            content = action.content if isinstance(action.content, bytes) else action.content.encode()
            if content == ours and os.path.realpath(os.path.join(command.cwd, action.path)) == path:
                return True
    return False


def _note(error: StaleFileError, reason: str) -> None:
    error.not_merged = reason
    error.add_note(f"It was not merged: {reason}")


def _write_like(upper: str, source: str, content: bytes) -> None:
    """Write the merged bytes to a file with the owner and the permissions of the command's."""
    status = os.stat(upper)
    descriptor = os.open(source, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
        if (status.st_uid, status.st_gid) != (os.fstat(descriptor).st_uid, os.fstat(descriptor).st_gid):
            os.fchown(descriptor, status.st_uid, status.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
