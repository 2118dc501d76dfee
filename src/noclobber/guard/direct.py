"""
Guarded writes without a workspace or a turn, for programs that keep track of hashes themselves.

The same commit as a turn's, by `disk/`. What a turn adds is left out: nothing remembers what was read, no
policy is asked, no lock and no claim is looked at. And nothing is recorded, unless a `ledger` is given; then
each call leaves the event that a turn's write leaves, under the rules of `recording`: what a broken ledger
could not record is refused before the commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.values import ToolCall
from noclobber.disk import file_guard
from noclobber.disk.commit import committer
from noclobber.disk.commit.flushing import UnflushedError
from noclobber.errors import NoclobberError
from noclobber.guard.recording import Recorder

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from noclobber.core.clock import Clock
    from noclobber.core.values import Level, WriteResult
    from noclobber.disk.commit.section import Fence
    from noclobber.ledger.protocol import LedgerWriter


def replace_if_unchanged(
    path: str | os.PathLike[str],
    expected_hash: str | None,
    new_bytes: bytes,
    *,
    durable: bool = False,
    wait_s: float = committer.DEFAULT_WAIT_S,
    ceiling: Level = "lease+exchange",
    clock: Clock = SYSTEM_CLOCK,
    ledger: LedgerWriter | None = None,
    call: ToolCall | None = None,
) -> WriteResult:
    """
    Compare and swap a file's content, without a workspace.

    `expected_hash` is the hash the caller saw, `ABSENT` to create exclusively, or None to replace
    whatever is there. Raises StaleFileError, FileBusyError and the other refusals; then nothing has
    changed. With a `ledger`, what happened is recorded there, under the names in `call`; without one,
    nowhere.
    """

    def commit() -> WriteResult:
        return committer.replace_if_unchanged(
            path, expected_hash, new_bytes, durable=durable, wait_s=wait_s, ceiling=ceiling, clock=clock
        )

    if ledger is None:
        return commit()
    return _recorded(Recorder(None, ledger), call or ToolCall("replace_if_unchanged", {}), commit)


class OptimisticGuard(file_guard.FileGuard):
    """Guarded access to the files below one root. Records nothing, unless a write is given a ledger."""

    def write(
        self,
        path: str | os.PathLike[str],
        data: bytes,
        *,
        expected: str | None,
        at: str | None = None,
        fence: Fence | None = None,
        mode: int | None = None,
        ledger: LedgerWriter | None = None,
        call: ToolCall | None = None,
    ) -> WriteResult:
        """
        Replace or create, if the file is still `expected` (a hash, `ABSENT`, or None: unchecked).

        With a `ledger`, what happened is recorded there, under the names in `call`; without one, nowhere.
        `at`, `fence` and `mode` are as in the guard of a turn.
        """

        def commit() -> WriteResult:
            return super(OptimisticGuard, self).write(
                path, data, expected=expected, at=at, fence=fence, mode=mode
            )

        if ledger is None:
            return commit()
        return _recorded(Recorder(self.root, ledger), call or ToolCall("write_file", {}), commit)


def _recorded(recorder: Recorder, call: ToolCall, commit: Callable[[], WriteResult]) -> WriteResult:
    try:
        recorder.prepare()
        done = commit()
    except UnflushedError as error:  # It landed; the caller is told that it may not survive a power cut.
        for landed in error.commits:
            _record_landed(recorder, call, landed, flushed=False)
        raise
    except NoclobberError as error:
        recorder.refusal(call, error)
        raise
    _record_landed(recorder, call, done, flushed=True)
    return done


def _record_landed(recorder: Recorder, call: ToolCall, done: WriteResult, *, flushed: bool) -> None:
    recorder.landed(
        call,
        done.path,
        done.previous_sha256,
        done.sha256,
        done.level,
        kept=done.kept,
        not_kept=done.not_kept,
        flushed=flushed,
    )
    recorder.recovered(call, done.recovered)
