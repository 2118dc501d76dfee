"""
The ledger against what one would use instead.

Appending: sqlite3 in WAL mode, `synchronous=NORMAL`, one commit an event, the same event as one JSON text.
It neither hashes nor chains; the ledger does both and must still keep up.

Verifying: `json.loads` and SHA-256 of each line in one pass, which is less than verifying (nothing is
compared), so that 1.0 would already be good.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from statistics import median
from typing import Any

from bench import Row
from noclobber.core.clock import iso8601
from noclobber.ledger import AgentTraceLedger
from noclobber.ledger.line import START, encode, seal

APPENDS = 4_000
ROUNDS = 7
VERIFY_EVENTS = int(os.environ.get("BENCH_LEDGER_EVENTS", "1000000"))
VERIFY_ROUNDS = 3

EVENT: dict[str, Any] = {
    "action_type": "MUTATION_CONFLICT",
    "payload": {
        "tool_name": "write_to_file",
        "target_file": "src/app.ts",
        "baseline_hash": "sha256:" + "a1" * 32,
        "current_hash": "sha256:" + "b2" * 32,
    },
    "result": {"status": "DENIED", "error_type": "STALE_FILE"},
    "identity": {"agent_id": "builder-1", "session_id": "s-20", "turn_id": "t-3", "call_id": "c-41"},
}
FORK = multiprocessing.get_context("fork")
SPAWN = multiprocessing.get_context("spawn")  # Nothing inherited, so that growth is the work's own.


def rows() -> Iterator[Row]:
    """Every figure of the ledger."""
    for processes in (1, 4):
        yield _append_row(processes)
    yield from _verify_rows()


# Appending


def _append_row(processes: int) -> Row:
    ours_s, peer_s = [], []
    with tempfile.TemporaryDirectory(prefix="noclobber-bench-") as folder:
        for number in range(ROUNDS):
            _make_database(f"{folder}/{number}.db")
            ours_s.append(_timed(processes, _append_to_ledger, f"{folder}/{number}.jsonl"))
            peer_s.append(_timed(processes, _append_to_sqlite, f"{folder}/{number}.db"))
            report = AgentTraceLedger(f"{folder}/{number}.jsonl").verify()
            assert report.event_count == processes * (APPENDS // processes), "an append was lost"
    ratio = median(peer / ours for ours, peer in zip(ours_s, peer_s, strict=True))
    return Row(
        what=f"ledger append, {processes} process{'es' if processes > 1 else ''}",
        against="sqlite3 WAL, synchronous=NORMAL, one commit an event",
        ratio=ratio,
        bar=">= 1.0 x its rate",
        ok=ratio >= 1.0,
        detail=f"{APPENDS / median(ours_s):,.0f} against {APPENDS / median(peer_s):,.0f} events/s",
    )


def _timed(processes: int, append_many: Callable[[str, int, Any], None], path: str) -> float:
    """Seconds for APPENDS events by that many processes, from when all are ready."""
    if processes == 1:
        started_s: list[float] = []
        append_many(path, APPENDS, lambda: started_s.append(time.perf_counter()))
        return time.perf_counter() - started_s[0]
    barrier = FORK.Barrier(processes + 1, timeout=60)
    workers = [
        FORK.Process(target=append_many, args=(path, APPENDS // processes, barrier.wait))
        for _ in range(processes)
    ]
    for worker in workers:
        worker.start()
    barrier.wait()
    start_s = time.perf_counter()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    return time.perf_counter() - start_s


def _append_to_ledger(path: str, count: int, ready: Callable[[], object]) -> None:
    with AgentTraceLedger(path) as ledger:
        ready()
        for _ in range(count):
            ledger.append(EVENT)


def _make_database(path: str) -> None:
    """Switching to WAL mode does not wait for others, so it is done before there are any."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, event TEXT)")
    database.close()


def _append_to_sqlite(path: str, count: int, ready: Callable[[], object]) -> None:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA busy_timeout=60000")
    database.execute("PRAGMA synchronous=NORMAL")
    ready()
    for _ in range(count):
        event = {"time": iso8601(time.time()), **EVENT}
        database.execute("INSERT INTO events (event) VALUES (?)", (json.dumps(event),))
    database.close()


# Verifying


def _verify_rows() -> Iterator[Row]:
    ours_s, peer_s, grown_kib, calls = [], [], [], 0
    with tempfile.TemporaryDirectory(prefix="noclobber-bench-") as folder:
        path = f"{folder}/many.jsonl"
        _make_ledger(path, VERIFY_EVENTS)
        for _ in range(VERIFY_ROUNDS):
            seconds, kib, calls = _in_child(_verify_ours, path)
            ours_s.append(seconds)
            grown_kib.append(kib)
            peer_s.append(_in_child(_verify_peer, path)[0])
    ratio = median(ours / peer for ours, peer in zip(ours_s, peer_s, strict=True))
    yield Row(
        what=f"ledger verify, {VERIFY_EVENTS:,} events",
        against="json.loads + SHA-256 of each line",
        ratio=ratio,
        bar="<= 2.0 x",
        ok=ratio <= 2.0 and calls > 10,
        detail=f"{median(ours_s):.1f} s against {median(peer_s):.1f} s, progress shown {calls} times",
    )
    grown_mb = max(grown_kib) / 1000
    yield Row(
        what="ledger verify, memory",
        against="50 MB",
        ratio=grown_mb / 50,
        bar="<= 1.0 x",
        ok=grown_mb <= 50,
        detail=f"the process grew by {grown_mb:.1f} MB",
    )


def _make_ledger(path: str, count: int) -> None:
    """Write a chain with the ledger's own line maker; the file takes far longer through `append`."""
    body, link = encode(path, EVENT), START
    with open(path, "wb", buffering=1 << 20) as file:
        for number in range(count):
            line, link = seal(body, link, iso8601(1_700_000_000 + number / 10))
            file.write(line)


def _in_child(work: Callable[[str], int], path: str) -> tuple[float, int, int]:
    """Run in a fresh process; return seconds, by how many KiB its peak grew, and what it returned."""
    receiver, sender = SPAWN.Pipe(duplex=False)
    child = SPAWN.Process(target=_report, args=(work, path, sender))
    child.start()
    sender.close()  # Ours, so that a child that dies ends the wait below.
    figures: tuple[float, int, int] = receiver.recv()
    child.join()
    return figures


def _report(work: Callable[[str], int], path: str, sender: Any) -> None:
    before = _peak_kib()
    start_s = time.perf_counter()
    returned = work(path)
    sender.send((time.perf_counter() - start_s, _peak_kib() - before, returned))


def _peak_kib() -> int:
    platform: str = sys.platform  # As a str, so that type checkers read both branches.
    if platform == "linux":  # getrusage remembers the process that this one was started from.
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _verify_ours(path: str) -> int:
    calls = 0

    def progress(_done_bytes: int, _size_bytes: int, _count: int) -> None:
        nonlocal calls
        calls += 1

    assert AgentTraceLedger(path).verify(progress=progress).event_count == VERIFY_EVENTS
    return calls


def _verify_peer(path: str) -> int:
    with open(path, "rb") as file:
        for line in file:
            json.loads(line)
            sha256(line).hexdigest()
    return 0
