"""
What a watched command changed, as it goes on record; and what is kept of what it wrote over.

Shared by the hooks and by `noclobber run` where it cannot make a private view. Light to import: a hook is a
process for each event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from noclobber.disk import hashing
from noclobber.errors import ABSENT, DELETED, NOT_A_FILE, UNKNOWN, OverwroteError
from noclobber.shell import watched

if TYPE_CHECKING:
    from noclobber.core.clock import Clock
    from noclobber.core.options import Options
    from noclobber.core.values import ToolCall
    from noclobber.errors import LedgerError
    from noclobber.guard.recording import Recorder


class WatchingTurn(Protocol):
    """What has to be known of the turn that a command belongs to."""

    @property
    def root(self) -> str:
        """The project's folder."""

    @property
    def options(self) -> Options:
        """The project's rules."""

    @property
    def recorder(self) -> Recorder:
        """What puts events on record."""

    @property
    def clock(self) -> Clock:
        """What the time is."""

    def ledger_trouble(self) -> LedgerError | None:
        """Return why events cannot be recorded now, None if they can."""


def record(
    turn: WatchingTurn, call: ToolCall, change: watched.WatchedChange, key: str
) -> OverwroteError | None:
    """Put a change on record; return what the agent has to be told if it wrote over what it had not seen."""
    from noclobber.ledger.last_writer import last_writer

    if change.after in (UNKNOWN, NOT_A_FILE):
        return None
    after = ABSENT if change.after == DELETED else change.after
    if hashing.is_hash(after) and last_writer(turn.root, change.path, after) is not None:
        return None  # Somebody else's write, and on record as theirs.
    before_hash = ABSENT if change.before == DELETED else change.before
    if not change.is_overwritten:
        turn.recorder.landed(call, change.path, before_hash, after, watched.LEVEL)
        return None
    kept = _keep(turn, change, key)
    turn.recorder.race(
        call,
        change.path,
        before_hash,
        str(change.expected),
        after,
        watched.LEVEL,
        kept=() if kept is None else (kept,),
        overwritten=before_hash,
    )
    where = "No copy of it was kept" if kept is None else f"Their version is kept in {kept}"
    error = OverwroteError(
        change.path,
        "Your command changed this file. But somebody else had changed it since you read it, so your command "
        f"wrote over what you had not seen. {where}. Read the file, and tell the user. If you can, put their "
        "changes back.",
        **({} if kept is None else {"kept": kept}),
    )
    error.overwritten = _past(turn, change.before)
    return error


def keeper(turn: WatchingTurn) -> Callable[[str, bytes], object]:
    """Return the function that copies a stale file: to the versions, by their rules."""

    def copy(path: str, data: bytes) -> None:
        from noclobber.disk.version_keeper import VersionKeeper

        if turn.options.versions == "off" or turn.ledger_trouble() is not None:
            return
        keeper = VersionKeeper(turn.root, turn.options, turn.clock)
        try:
            keeper.keep(path, data)
        finally:
            keeper.close()

    return copy


def _past(turn: WatchingTurn, sha256: str) -> bytes | None:
    from noclobber.disk.versions import Versions

    try:
        with Versions(turn.root, make=False) as versions:
            return versions.read(sha256)
    except OSError:
        return None


def _keep(turn: WatchingTurn, change: watched.WatchedChange, key: str) -> str | None:
    from noclobber.disk.commit.kept import keep_bytes

    data = _past(turn, change.before)
    try:
        return None if data is None else keep_bytes(turn.root, change.path, data, key)
    except OSError:
        return None
