"""
Large files that a guarded command changes in place, unguarded: which may, and the record of it.

`shell/large_files` says why and how. Nothing of such a file is compared, so one that the caller expects
something of does not pass, and neither does one that a rule, a claim or a lock speaks about.
"""

from __future__ import annotations

import os

from noclobber.core.actions import WRITE, Action
from noclobber.core.values import WriteResult
from noclobber.disk.commit.trees import expected_of
from noclobber.disk.hashing import is_hash
from noclobber.errors import UNKNOWN, NoclobberError
from noclobber.guard.command_turn import CommandTurn
from noclobber.guard.facts import gather
from noclobber.guard.policies import decide

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from noclobber.core.values import Level, ToolCall
    from noclobber.guard.turn import Turn

LEVEL: Level = "plain"


def may_pass(turn: CommandTurn, path: str, size: int, expected: Collection[str]) -> bool:
    """True if a file may be changed without a guard; the caller knows the content of those `expected`."""
    least = turn.options.shell_through_bytes
    if not least or size < least or path in expected:
        return False
    context = turn.context
    target = gather(
        Action(WRITE, path),
        context,
        context.name_of(path),
        path,
        options=turn.options,
        write_scope=turn.write_scope,
    )
    try:
        turn.fence.check(path)
    except NoclobberError:
        return False  # It is copied, then, and refused when it lands.
    return decide(target.facts).allowed


def record_passed(
    turn: Turn | CommandTurn, call: ToolCall, passed: Sequence[tuple[str, int, int]]
) -> tuple[WriteResult, ...]:
    """Put on record what a command changed of the files that passed through."""
    found = []
    for path, size, mtime_ns in passed:
        try:
            status = os.stat(path)
        except OSError:
            continue
        if (status.st_size, status.st_mtime_ns) == (size, mtime_ns):
            continue
        sha256 = expected_of(path)
        if is_hash(sha256):
            found.append(WriteResult(path, sha256, LEVEL, UNKNOWN))
            turn.recorder.landed(call, path, UNKNOWN, sha256, LEVEL)
    return tuple(found)
