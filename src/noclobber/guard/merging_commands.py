"""
What a command wrote to a file that others changed, with `on_stale = "merge"`: merged if nothing is lost.

What the agent saw is the base, what the command left is one side, the current file is the other. Whether
the command itself read the old version or already the new one does not matter: what both sides have in
common is taken once. `merging` decides, and refuses what it refuses for a write; a file whose version the
agent does not know, a delete, a new file and anything that is no regular file are never merged.

The merged bytes go into a file of their own in the command's folder: what the command wrote stays as it is,
for `noclobber run diff`, if another file refuses.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from noclobber.core.actions import WRITE, Action
from noclobber.disk.reading import look_at
from noclobber.guard.facts import Target
from noclobber.guard.merging import MERGE_STALE
from noclobber.guard.stale_writes import Resolution
from noclobber.shell.runs import folder_of

if TYPE_CHECKING:
    from noclobber.core.values import MergedWrite
    from noclobber.errors import StaleFileError
    from noclobber.guard.command_turn import CommandTurn
    from noclobber.guard.facts import Facts
    from noclobber.guard.turn import Turn

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
    turn: Turn | CommandTurn, run_id: str, facts: Facts, upper: str, number: int, error: StaleFileError
) -> MergedFile | None:
    """Merge one file; None, with the reason beside the error, if it stays stale."""
    if os.stat(upper).st_size > MOST_BYTES:
        return None
    with open(upper, "rb") as file:
        ours = file.read()
    current = look_at(facts.path, turn.confined_to, keep=True, clock=turn.clock)
    seen = turn.context.baseline_bytes(facts.name, facts.path)
    answer = MERGE_STALE.resolve(
        Target(Action(WRITE, facts.path), facts._replace(kind=WRITE), ours), seen, current
    )
    if not isinstance(answer, Resolution) or answer.content is None or answer.merged is None:
        if not isinstance(answer, Resolution):
            error.not_merged = answer.reason
            error.add_note(f"It was not merged: {answer.reason}")
        return None
    source = f"{folder_of(turn.root)}/{run_id}/merged-{number}"
    status = os.stat(upper)
    descriptor = os.open(source, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(answer.content)
        if (status.st_uid, status.st_gid) != (os.fstat(descriptor).st_uid, os.fstat(descriptor).st_gid):
            os.fchown(descriptor, status.st_uid, status.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
    return MergedFile(answer.made_for, source, answer.content, answer.merged)
