"""The ledger with everybody at once: real processes, threads, forks, and kill -9."""

from __future__ import annotations

import fcntl
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, SupportsIndex

import pytest

from noclobber.core.clock import SystemClock
from noclobber.errors import LedgerError
from noclobber.ledger import AgentTraceLedger

# Appends as fast as it can, saying after each what it was told; ends by itself or by SIGKILL.
APPENDER = """
import sys
from noclobber.ledger import AgentTraceLedger
ledger = AgentTraceLedger(sys.argv[1])
name, count = sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    payload = {"by": name, "number": number, "pad": "x" * (number % 7 * 300)}
    entry = ledger.append({"action_type": "X", "payload": payload})
    print(number, entry.seq, entry.hash, flush=True)
"""


def start(path: str, name: object, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", APPENDER, path, str(name), str(count)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def let_go(processes: Iterable[subprocess.Popen[str]]) -> None:
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()


def confirmed(process: subprocess.Popen[str]) -> list[list[str]]:
    """What the appender was told, without a line that the kill cut short."""
    output = process.stdout.read()  # Not communicate(): it forgets what readline() has buffered.
    process.stdin.close()
    process.stdout.close()
    process.wait(timeout=60)
    return [line.split() for line in output.split("\n")[:-1]]


def by_appender(ledger: AgentTraceLedger) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    for event in ledger.events():
        if event["action_type"] == "X":
            numbers.setdefault(event["payload"]["by"], []).append(event["payload"]["number"])
    return numbers


def test_eight_processes_never_interleave_and_every_event_is_there_once(tmp_path: Path) -> None:
    """R-ledger, 011-SC-004: 8 appenders, 300 events each, one chain; and they did take turns."""
    ledger = AgentTraceLedger(tmp_path / "trace.jsonl")
    processes = [start(ledger.path, name, 300) for name in range(8)]
    let_go(processes)
    told = {str(name): confirmed(process) for name, process in enumerate(processes)}

    assert ledger.verify().event_count == 2400
    assert by_appender(ledger) == {name: list(range(300)) for name in told}
    stands = {str(event["seq"]): event["hash"] for event in ledger.events()}
    assert stands == {seq: digest for lines in told.values() for _, seq, digest in lines}
    order = [event["payload"]["by"] for event in ledger.events()]
    assert sum(one != other for one, other in itertools.pairwise(order)) > 20


def test_appenders_killed_at_random_moments_leave_a_chain_that_verifies(tmp_path: Path) -> None:
    """R-ledger: what was confirmed is there, what is there is there once, and nobody waits for the dead."""
    ledger = AgentTraceLedger(tmp_path / "trace.jsonl", patience_s=5)
    chance = random.Random(20260220)
    told: dict[str, list[list[str]]] = {}
    for round_number in range(6):
        processes = {
            f"{round_number}-{name}": start(ledger.path, f"{round_number}-{name}", 100_000)
            for name in range(4)
        }
        let_go(processes.values())
        for process in processes.values():
            for _ in range(chance.randrange(5, 60)):  # At a random event, then at a random moment within one.
                process.stdout.readline()
            process.send_signal(signal.SIGKILL)
        for name, process in processes.items():
            told[name] = confirmed(process)
        ledger.append({"action_type": "X", "payload": {"by": "survivor", "number": round_number}})

    report = ledger.verify()
    there = by_appender(ledger)
    assert report.torn_bytes == 0
    assert there.pop("survivor") == list(range(6))
    assert len(there) == 24
    for name, numbers in there.items():
        assert numbers == list(range(len(numbers))), f"{name} stands twice or has gaps"
    stands = {str(event["seq"]): event["hash"] for event in ledger.events()}
    for lines in told.values():
        assert all(stands[seq] == digest for _, seq, digest in lines)


def test_threads_share_a_ledger_and_ledgers_share_a_file(tmp_path: Path) -> None:
    """R-ledger: flock does not keep threads apart that share a descriptor; the ledger does."""
    shared = AgentTraceLedger(tmp_path / "trace.jsonl")
    failures = []

    def work(name: str, ledger: AgentTraceLedger) -> None:
        try:
            for number in range(200):
                ledger.append({"action_type": "X", "payload": {"by": name, "number": number}})
        except BaseException as error:
            failures.append(error)

    old_interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [
            threading.Thread(
                target=work, args=(str(name), shared if name % 2 else AgentTraceLedger(shared.path))
            )
            for name in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(old_interval_s)

    assert failures == []
    assert shared.verify().event_count == 1600
    assert by_appender(shared) == {str(name): list(range(200)) for name in range(8)}


def in_child(work: Callable[[], object]) -> int:
    """Run `work` in a forked child; return its exit code, or the signal that ended it, negative."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_forked_child_and_its_parent_append_in_turn(tmp_path: Path) -> None:
    """R-ledger: a child does not go on from a head that its parent has since left behind."""
    ledger = AgentTraceLedger(tmp_path / "trace.jsonl")
    ledger.append({"action_type": "X", "payload": {"by": "parent", "number": 0}})
    inherited = ledger._handle.descriptor

    def child() -> None:
        assert ledger._handle.descriptor == -1, "still has its parent's descriptor"
        for number in range(50):
            ledger.append({"action_type": "X", "payload": {"by": "child", "number": number}})
        assert ledger._handle.descriptor >= 0

    pids = []
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                child()
                code = 0
            finally:
                os._exit(code)
        pids.append(pid)
    for number in range(1, 50):
        ledger.append({"action_type": "X", "payload": {"by": "parent", "number": number}})

    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0, 0, 0]
    assert ledger._handle.descriptor == inherited
    assert ledger.verify().event_count == 200


def test_a_child_forked_while_another_thread_appends_is_not_locked_out(tmp_path: Path) -> None:
    """R-ledger: the parent's thread lock and kernel mutex are held at the fork; the child has its own."""
    ledger = AgentTraceLedger(tmp_path / "trace.jsonl", patience_s=5)
    ledger.append({"action_type": "X"})
    with ledger._handle.lock:  # As a thread in the middle of an append has it.
        code = in_child(lambda: ledger.append({"action_type": "X"}))

    assert code == 0
    assert ledger.verify().event_count == 2


def test_a_parent_killed_in_the_middle_of_an_append_leaves_no_mutex_with_its_children(tmp_path: Path) -> None:
    """R-ledger: a forked child that never uses the ledger must not keep everybody out of it."""
    ledger = AgentTraceLedger(tmp_path / "trace.jsonl", patience_s=5)
    receiver, sender = os.pipe()

    def parent() -> None:
        ledger.append({"action_type": "X"})
        pid = os.fork()
        if pid == 0:
            os.write(sender, b"%d\n" % os.getpid())
            signal.pause()
        fcntl.flock(ledger._handle.descriptor, fcntl.LOCK_EX)
        with os.fdopen(os.dup(receiver), "rb") as lines:
            lines.readline()  # The idle child is up.
            os.write(sender, b"%d\n" % pid)
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(parent) == -signal.SIGKILL
    with os.fdopen(receiver, "rb") as lines:
        idle_pid = int(lines.readline())
    os.close(sender)
    try:
        assert ledger.append({"action_type": "X"}).seq == 2
    finally:
        os.kill(idle_pid, signal.SIGKILL)


def test_a_stopped_process_that_holds_the_ledger_gives_an_error_not_a_hang(tmp_path: Path) -> None:
    """R-ledger: after the patience, and with the remedy; verifying needs no mutex."""

    class FastClock(SystemClock):
        now = 0.0

        def monotonic_s(self) -> float:
            return self.now

        def sleep(self, seconds: float | SupportsIndex) -> None:
            self.now += float(seconds)

    ledger = AgentTraceLedger(tmp_path / "trace.jsonl", clock=FastClock(), patience_s=10)
    ledger.append({"action_type": "X"})
    stopped = os.open(ledger.path, os.O_RDONLY)
    fcntl.flock(stopped, fcntl.LOCK_EX)
    try:
        with pytest.raises(LedgerError, match="10 s"):
            ledger.append({"action_type": "X"})
        assert ledger.verify().event_count == 1
    finally:
        os.close(stopped)
    assert ledger.append({"action_type": "X"}).seq == 2


def test_asking_whether_the_ledger_is_writable_writes_nothing_and_holds_nothing(tmp_path: Path) -> None:
    """Ruling 13: the engine asks before it lets a write through."""
    ledger = AgentTraceLedger(tmp_path / "trace.jsonl")
    ledger.append({"action_type": "X"})
    size = os.path.getsize(ledger.path)

    ledger.prepare()

    other = os.open(ledger.path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)
    assert os.path.getsize(ledger.path) == size


def test_real_interrupts_leave_no_mutex_behind(tmp_path: Path) -> None:
    """R-ledger: SIGALRM at hundreds of random moments; nobody else is kept out after any of them."""
    ledger = AgentTraceLedger(tmp_path / "trace.jsonl", patience_s=1)
    ledger.append({"action_type": "X"})
    other = os.open(ledger.path, os.O_RDONLY)
    chance = random.Random(7)
    confirmed_count = interrupted = 0

    class InterruptError(Exception):
        pass

    def interrupt(_signal: int, _frame: object) -> None:
        raise InterruptError

    old = signal.signal(signal.SIGALRM, interrupt)
    try:
        while interrupted < 1000:
            if interrupted % 3 == 0:
                ledger.close()
            longest_s = 0.00015
            if interrupted % 10 == 0:
                longest_s = 0.01  # Setting aside waits for the disk.
                with open(ledger.path, "ab") as file:
                    file.write(b"{torn")
            try:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.00001, longest_s))
                while True:
                    ledger.append({"action_type": "X"})
                    confirmed_count += 1
            except InterruptError:
                interrupted += 1
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(other, fcntl.LOCK_UN)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
        os.close(other)

    ledger.append({"action_type": "X"})
    assert ledger.verify().torn_bytes == 0
    kinds = [event["action_type"] for event in ledger.events()]
    assert confirmed_count + 2 <= kinds.count("X") <= confirmed_count + 2 + interrupted
    assert kinds.count("LEDGER_TORN_TAIL") > 5
    assert len(kinds) == kinds.count("X") + kinds.count("LEDGER_TORN_TAIL")


def test_a_signal_handler_that_appends_in_the_middle_of_an_append_is_told_not_to(tmp_path: Path) -> None:
    """R-ledger: it would wait for itself for ever."""
    ledger = AgentTraceLedger(tmp_path / "trace.jsonl")

    class Reentrant(SystemClock):
        def now_s(self) -> float:
            with pytest.raises(LedgerError, match="signal handler"):
                ledger.append({"action_type": "X"})
            return 0.0

    ledger._clock = Reentrant()
    assert ledger.append({"action_type": "X"}).seq == 1
    assert ledger.verify().event_count == 1


def test_a_ledger_replaced_under_busy_appenders_loses_no_event_to_the_void(tmp_path: Path) -> None:
    """R-ledger: every confirmed event is in one of the files that the path has named."""
    path = str(tmp_path / "trace.jsonl")
    processes = [start(path, name, 400) for name in range(3)]
    let_go(processes)
    rotated: list[Any] = []
    while len(rotated) < 15 and any(process.poll() is None for process in processes):
        if os.path.exists(path) and os.path.getsize(path):
            rotated.append(f"{path}.{len(rotated)}")
            os.rename(path, rotated[-1])
    told = {digest for process in processes for _, _, digest in confirmed(process)}

    assert len(told) == 1200
    assert len(rotated) > 2
    there = []
    for file in [*rotated, *([path] if os.path.exists(path) else [])]:
        AgentTraceLedger(file).verify()
        there += [event for event in AgentTraceLedger(file).events() if event["action_type"] == "X"]
    assert {event["hash"] for event in there} == told
    assert len(there) == 1200
