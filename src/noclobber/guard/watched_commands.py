"""
Run a command where there can be no private view: the level `watched`, for `noclobber run`.

    certain targets and git commands → refused, nothing runs
    known and stale files → copied → command → what changed goes on record, with the level

It is weaker than a transaction (docs/shell-in-hooks.md, "watched"): the command writes to the real tree.
Hooks do the same around a host's command, with what the session remembers (`hook/commands`).
"""

from __future__ import annotations

import os
import shlex
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from noclobber.core.actions import Action
from noclobber.disk import paths
from noclobber.disk.hashing import is_hash
from noclobber.disk.reading import look_at
from noclobber.errors import DELETED, NoclobberError
from noclobber.guard.change_set import ChangeSet
from noclobber.guard.commands import as_shell, canonical, checked_hash
from noclobber.guard.facts import gather
from noclobber.guard.judge import judge
from noclobber.guard.watched_changes import keeper, record
from noclobber.shell import watched
from noclobber.shell.starting import NOT_EXECUTABLE, NOT_FOUND
from noclobber.shell.targets import targets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noclobber.core.values import ToolCall
    from noclobber.errors import OverwroteError
    from noclobber.guard.change_set import FileChange
    from noclobber.guard.command_turn import CommandTurn
    from noclobber.guard.commands import CommandStop
    from noclobber.guard.turn import Turn

SIGTERM = 15
MOST_KNOWN = 1000
SHELLS = ("sh", "bash", "dash", "zsh", "ksh")


class WatchedDone(NamedTuple):
    """What a watched command changed, as far as it was noticed."""

    files: tuple[watched.WatchedChange, ...]
    overwritten: tuple[OverwroteError, ...]
    """What the agent has to be told."""


def text_of(argv: Sequence[str]) -> str:
    """Return a command as a shell would be given it."""
    if len(argv) == 3 and os.path.basename(argv[0]) in SHELLS and argv[1] == "-c":
        return argv[2]
    return shlex.join(argv)


def begin(
    turn: Turn | CommandTurn, call: ToolCall, text: str, *, cwd: str, expect: Mapping[str, str]
) -> watched.WatchedStart:
    """Judge what a command is certain to write, and copy what is stale. Refusals are raised and recorded."""
    try:
        known = {canonical(cwd, path): checked_hash(path, sha256) for path, sha256 in expect.items()}
        named = _judged(turn, call, text, cwd, known)
        known = _seen(turn) | known
        if "git" in text:
            _refuse_taking_others_work(turn, text, cwd, known)
    except NoclobberError as error:
        turn.recorder.refusal(call, error)
        raise
    seen = [watched.FileSeen(path, sha256) for path, sha256 in (named | known).items()]
    return watched.begin(turn.root, seen, keeper(turn))


def _seen(turn: Turn | CommandTurn) -> dict[str, str]:
    """Return what the agent has seen last: files, and their hashes."""
    with turn.memory as memory:
        last = ((path, memory.recall(path, path)[0].last_for(path, path)) for path in memory.paths())
        return {path: sha256 for path, sha256 in islice(last, MOST_KNOWN) if sha256 and is_hash(sha256)}


def end(turn: Turn | CommandTurn, call: ToolCall, start: watched.WatchedStart) -> WatchedDone:
    """
    Put on record what a command changed, and tell the agent's memory what it removed.

    Of everything else the agent knows what it knew: others may have written in it meanwhile.
    """
    changes = watched.end(start).files
    with turn.memory as memory:
        for change in changes:
            if change.after == DELETED:
                snapshot, notes = memory.recall(change.path, change.path)
                snapshot.removed(change.path, change.path)
                memory.keep(snapshot, change.path, change.path, notes)
    if changes and (trouble := turn.ledger_trouble()) is not None:
        raise trouble
    key = call.call_id or f"run-{start.since_ns}"
    told = [record(turn, call, change, key) for change in changes]
    return WatchedDone(changes, tuple(error for error in told if error is not None))


def run_plainly(
    argv: Sequence[str],
    cwd: str,
    environment: Mapping[str, str],
    stdin: bytes,
    timeout_s: float | None,
    stop: CommandStop,
    max_output_bytes: int,
) -> tuple[int, bytes, bytes, bool]:
    """Run a command in the real tree: its exit code, what it printed, whether it was ended early."""
    import subprocess

    from noclobber.shell.output import communicate

    class CommandGroup(subprocess.Popen[bytes]):
        """A command and what it has started, which is ended with it: it holds the output open."""

        def terminate(self) -> None:
            if self.poll() is None:
                os.killpg(self.pid, SIGTERM)

    pipe = subprocess.PIPE
    try:
        process = CommandGroup(
            argv, cwd=cwd, env=dict(environment), stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )
    except OSError as error:
        missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
        return (
            (NOT_FOUND if missing else NOT_EXECUTABLE),
            b"",
            f"{argv[0]}: {error.strerror}\n".encode(),
            False,
        )
    stop.begun(process)
    out, err = communicate(
        process, stdin, timeout_s=timeout_s, when_late=stop.ask, max_bytes=max_output_bytes
    )
    return as_shell(process.returncode), out, err, stop.is_asked


def _judged(
    turn: Turn | CommandTurn, call: ToolCall, text: str, cwd: str, known: Mapping[str, str]
) -> dict[str, str]:
    """Ask the policies, claims and locks about every certain target; return what is there now."""
    found: dict[str, str] = {}
    wanted: list[FileChange] = []
    for action in targets(text):
        path = canonical(cwd, paths.lexical(cwd, action.path))
        if not path.startswith(f"{turn.root}/") or os.path.isdir(path):
            continue
        now = look_at(path).sha256
        found[path] = now
        asked = Action(action.kind, path, expected_hash=known.get(path), is_certain=False)
        with turn.memory as memory:
            snapshot, is_lost = memory.recall(path, path)[0], memory.is_lost
        change = gather(
            asked,
            snapshot,
            path,
            path,
            options=turn.options,
            actual=now,
            write_scope=turn.write_scope,
            is_memory_lost=is_lost,
        )
        wanted.append(change)
    judge(turn, ChangeSet(call, wanted), turn.fence).enforce()
    return found


def _refuse_taking_others_work(
    turn: Turn | CommandTurn, text: str, cwd: str, known: Mapping[str, str]
) -> None:
    from noclobber.guard.git.lineage import WrittenBy
    from noclobber.guard.git.literal import others_work_before

    me = WrittenBy(turn.context.agent_id, turn.context.session_id)
    error = others_work_before(text, root=turn.root, cwd=cwd, me=me, known=known)
    if error is not None:
        raise error
