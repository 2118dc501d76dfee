"""
Real processes that compete for one deliverable's lock, and what can be counted about it.

Processes are forked, do one thing, and end with `os._exit`. Two holders at once are found by a witness that
is no part of the lock: a `flock` on a file outside the folder, which the kernel frees
when its process is killed.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
import traceback
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING

from noclobber.core.clock import iso8601
from noclobber.disk import mutex
from noclobber.disk.processes import identify
from noclobber.errors import LockContention
from noclobber.lock import lock_file
from noclobber.lock.lock import DeliverableLock
from noclobber.lock.lock_file import LockFile
from noclobber.lock.record import LockRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FORK = get_context("fork")
CORRUPTIONS = ("empty", "cut", "not JSON", "wrong types", "huge", "symlink", "FIFO", "directory")
ORPHANS = ("killed", "expired", *CORRUPTIONS)


def fork(work: Callable[[], object]) -> int:
    """Run something in a child; a traceback there is exit code 70."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return pid


def join(pids: list[int]) -> bool:
    """Wait for children; True if all ended well."""
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    return not any(codes)


def two_inside(witness: int) -> bool:
    """Enter the witness; True if somebody else is in there."""
    try:
        fcntl.flock(witness, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


class _NoMutex:
    """`flock` as some filesystems have it: it succeeds and excludes nobody."""

    @staticmethod
    def hold(*_arguments: object, **_options: object) -> bool:
        return True

    @staticmethod
    def release(_descriptor: int) -> None:
        pass


@contextmanager
def without_mutex() -> Iterator[None]:
    """Let locks live on such a filesystem, in this process and its children. The ledger keeps its own."""
    setattr(lock_file, "mutex", _NoMutex)  # noqa: B010 - the module has it for itself only
    try:
        yield
    finally:
        setattr(lock_file, "mutex", mutex)  # noqa: B010


def put_orphan(folder: Path, kind: str) -> None:
    """Leave a lock in a folder whose holder is gone, in one of the ways that happen."""
    path = folder / ".lock"
    if kind in ("killed", "expired"):
        _put_record(folder, kind)
    elif kind == "symlink":
        path.symlink_to(folder / "elsewhere")
    elif kind == "FIFO":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
        (path / "somebody's notes").write_text("kept")
    else:
        path.write_bytes(
            {
                "empty": b"",
                "cut": b'{"holder": "a", "acquired": "2026-',
                "not JSON": b"\x80locked\n",
                "wrong types": b'{"holder": 1, "acquired": 2, "lease_duration_s": "x", "pid": true, '
                b'"deliverable_id": []}',
                "huge": b"x" * 3_000_000,
            }[kind]
        )
        os.utime(path, (0, 0))  # Long ago: nobody is still writing it.


def _put_record(folder: Path, kind: str) -> None:
    process = subprocess.Popen(["sleep", "1000"])
    try:
        who = identify(process.pid)
    finally:
        process.kill()
        process.wait()
    if kind == "expired":
        who = identify()
    store = LockFile(str(folder))
    try:
        assert store.create(
            LockRecord(
                "D",
                f"{kind} holder",
                iso8601(0 if kind == "expired" else time.time()),
                1800,
                who.pid,
                os.urandom(16).hex(),
                who.host,
                who.boot_id,
                who.pid_namespace,
                who.started,
                store.identity.device,
                store.identity.inode,
            )
        )
    finally:
        store.close()


def race(folder: Path, racers: int, rounds: int, prepare: Callable[[int], object]) -> list[int]:
    """
    Let processes go for one lock at the same moment, round after round; return how many won each round.

    `prepare(round)` runs before each round, in the calling process. Everybody has tried before the
    winner lets go, so that "one winner" is not "one after the other".
    """
    gate = FORK.Barrier(racers + 1)
    wins = FORK.Array("i", rounds)

    def racer(number: int) -> None:
        for index in range(rounds):
            lock = DeliverableLock(folder, holder=f"racer {number}")
            gate.wait(60)
            try:
                lock.acquire()
                with wins.get_lock():
                    wins[index] += 1
            except LockContention:
                pass
            gate.wait(60)
            lock.release()
            gate.wait(60)

    pids = []
    try:
        pids = [fork(partial(racer, number)) for number in range(racers)]
        for index in range(rounds):
            prepare(index)
            for _ in range(3):
                gate.wait(60)
    except BaseException:
        gate.abort()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        join(pids)
        raise
    assert join(pids), "a racer failed"
    return [wins[index] for index in range(rounds)]
