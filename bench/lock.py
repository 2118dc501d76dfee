"""
The deliverable lock against what the field uses: filelock's soft locks and flufl.lock.

Every comparison takes turns between ours and theirs in one process and one run, and reports the median of the
ratios: machines differ, and this one may be busy. Ours runs as it comes, with its audit record
and its heartbeat; theirs run as they come, too.

Contention is measured as work that has to be done: each of four processes needs the lock so many times,
and the clock runs until the last one is through. Counting acquisitions in a fixed time would reward a
lock that lets one process take it again and again while the others sleep.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from multiprocessing import get_context
from typing import TYPE_CHECKING

from bench import Row, in_turns, spelled
from noclobber.lock.backend import list_locks, status_of
from noclobber.lock.lock import DeliverableLock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROUNDS, CYCLES = 45, 40
CONTENDERS, CONTENDED_CYCLES = 4, 100
DELIVERABLES, LOCKED = 10_000, 500


def rows() -> Iterator[Row]:
    """Measure, and compare with the bars."""
    # Where deliverables are: on a disk. In memory (BENCH_FOLDER=/dev/shm) our ratios are better.
    folder = tempfile.mkdtemp(prefix="noclobber-bench-", dir=os.environ.get("BENCH_FOLDER", "."))
    try:
        yield from _uncontended(folder)
        yield from _contended(folder)
        yield from _status(folder)
        yield _listing(folder)
    finally:
        shutil.rmtree(folder)


def _ours(folder: str) -> Callable[[], object]:
    deliverable = f"{folder}/ours"
    os.makedirs(deliverable, exist_ok=True)
    lock = DeliverableLock(deliverable, holder="bench")

    def cycle() -> None:
        lock.acquire(timeout_s=60)
        lock.release()

    return cycle


def _soft_lease(folder: str) -> Callable[[], object]:
    from filelock import SoftFileLease

    lock = SoftFileLease(f"{folder}/lease.lock")

    def cycle() -> None:
        lock.acquire()
        lock.release()

    return cycle


def _soft_lock(folder: str) -> Callable[[], object]:
    from filelock import SoftFileLock

    lock = SoftFileLock(f"{folder}/soft.lock")

    def cycle() -> None:
        lock.acquire()
        lock.release()

    return cycle


def _flufl(folder: str) -> Callable[[], object]:
    from flufl.lock import Lock

    lock = Lock(f"{folder}/flufl.lock")

    def cycle() -> None:
        lock.lock()
        lock.unlock()

    return cycle


PEERS = (
    # peer, how to make one, how many times its rate ours has to be
    ("filelock SoftFileLease", _soft_lease, 4.0),
    ("filelock SoftFileLock", _soft_lock, 1.0),
    ("flufl.lock", _flufl, 0.5),
)


def _uncontended(folder: str) -> Iterator[Row]:
    ours = _ours(folder)
    for name, make, bar in PEERS:
        our_s, their_s, ratio = in_turns(ours, make(folder), rounds=ROUNDS, batch=CYCLES)
        yield Row(
            "lock: acquire + release, audit record on",
            name,
            1 / ratio,
            f"≥ {bar:g} × the rate",
            1 / ratio >= bar,
            f"{spelled(our_s)} against {spelled(their_s)}",
        )


def _contended(folder: str) -> Iterator[Row]:
    for name, make, _ in PEERS:
        our_s, their_s, ratio = in_turns(
            lambda: _contend(folder, _ours),
            lambda make=make: _contend(folder, make),  # type: ignore[misc]
            rounds=3,
        )
        yield Row(
            f"lock: {CONTENDERS} processes, {CONTENDED_CYCLES} times each",
            name,
            1 / ratio,
            "> 1 × the rate",
            ratio < 1,
            f"all through in {spelled(our_s)} against {spelled(their_s)}",
        )


def _contend(folder: str, make: Callable[[str], Callable[[], object]]) -> None:
    """Let processes compete for one lock until each of them has had it often enough."""
    context = get_context("fork")
    gate = context.Barrier(CONTENDERS)

    def work() -> None:
        cycle = make(folder)
        gate.wait()
        for _ in range(CONTENDED_CYCLES):
            cycle()

    workers = [context.Process(target=work) for _ in range(CONTENDERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not any(worker.exitcode for worker in workers)


def _status(folder: str) -> Iterator[Row]:
    deliverable = f"{folder}/status"
    os.mkdir(deliverable)

    def load() -> object:
        with open(f"{deliverable}/.lock", encoding="utf-8") as file:
            return json.load(file)

    def measure(pid: int | None) -> tuple[float, float, float]:
        lock = DeliverableLock(deliverable, holder="bench", pid=pid).acquire()
        try:
            return in_turns(lambda: status_of(deliverable), load, rounds=ROUNDS, batch=500)
        finally:
            lock.release()

    # Another's process is looked up in /proc each time, about 10 µs. A watch on it (a pidfd) met the lower
    # bar, and nobody noticed: a waiter looks once a millisecond or less.
    for what, pid, bar in (
        ("lock: status, an own lock", None, 1.5),
        ("lock: status, another's lock", os.getppid(), 2.5),
    ):
        our_s, their_s, ratio = measure(pid)
        detail = f"{spelled(our_s)} against {spelled(their_s)}"
        yield Row(what, "json.load of the file", ratio, f"≤ {bar:g} × the time", ratio <= bar, detail)


def _listing(folder: str) -> Row:
    root = f"{folder}/tree"
    for number in range(DELIVERABLES):
        os.makedirs(f"{root}/{number // 100}/{number}")
        with open(f"{root}/{number // 100}/{number}/plan.md", "w") as file:
            file.write("x")
    for number in range(0, DELIVERABLES, DELIVERABLES // LOCKED):
        DeliverableLock(f"{root}/{number // 100}/{number}", lease_only=True).acquire().detach()

    def walk() -> None:
        for _ in os.walk(root):
            pass

    locks = sum(1 for _ in list_locks(root))
    assert locks == LOCKED, locks
    our_s, their_s, ratio = in_turns(lambda: sum(1 for _ in list_locks(root)), walk, rounds=7)
    detail = f"{spelled(our_s)} against {spelled(their_s)}"
    what = f"lock: list, {DELIVERABLES} deliverables, {LOCKED} locked"
    return Row(what, "os.walk of the same tree", ratio, "≤ 2 × the time", ratio <= 2, detail)
