"""Handlers that raise: they run before or after a call, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from noclobber import DeliverableLock, Workspace
from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.disk import signals, steps
from noclobber.disk.commit.committer import Committer
from tests.conftest import sha256


class AlarmError(Exception):
    """What the handler raises."""


@pytest.fixture(autouse=True)
def _raising() -> Iterator[None]:
    def handler(*_: object) -> None:
        raise AlarmError

    previous = signal.signal(signal.SIGALRM, handler)
    yield
    steps.observer = None
    signal.signal(signal.SIGALRM, previous)


def alarm(*_: object) -> None:
    signal.pthread_kill(threading.get_ident(), signal.SIGALRM)


def blocked() -> set[int | signal.Signals]:
    return signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_handler_runs_right_after_a_commit(root: Path) -> None:
    """finding R10: not in the middle of it, where it left descriptors, swap files and a signal mask behind."""
    (root / "a").write_bytes(b"1")
    committer, seen = Committer(str(root)), []

    def observe(step: str) -> None:
        seen.append(step)
        if step == "entered":
            alarm()

    steps.observer = observe
    with pytest.raises(AlarmError):
        committer.replace("a", sha256(b"1"), b"2")
    assert "released" in seen
    assert (root / "a").read_bytes() == b"2"
    assert blocked() == set()


def test_a_write_is_on_record_before_the_handler_runs(root: Path) -> None:
    """finding R10: landed, and known to the turn and the ledger."""
    workspace = Workspace(root)
    with workspace.turn() as turn:
        steps.observer = lambda step: alarm() if step == "created" else None
        with pytest.raises(AlarmError):
            turn.write_file("a", b"1")
        steps.observer = None
        turn.write_file("a", b"2")  # It knows what it has written.
    landed = [event for event in workspace.ledger.events() if event["result"]["status"] == "APPLIED"]
    assert len(landed) == 2


def test_a_lock_that_its_caller_does_not_get_is_not_held(tmp_path: Path) -> None:
    """finding R10: the handler raises when acquire has taken the lock; three locks of 600 stayed."""
    lock = DeliverableLock(tmp_path, holder="a")
    begin = lock._begin

    def began(holding: object) -> None:
        begin(holding)  # type: ignore[arg-type]
        alarm()

    lock._begin = began  # type: ignore[method-assign]
    for take in (lock.acquire, lock.__enter__):
        with pytest.raises(AlarmError):
            take()
        assert not lock.held
        assert not (tmp_path / ".lock").exists()
    assert blocked() == set()


def test_a_handler_runs_while_a_commit_waits_for_others(root: Path) -> None:
    """finding R10, N-signals: Ctrl-C must not wait ten seconds for a folder that somebody keeps."""
    import fcntl

    folder = os.open(root, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    committer = Committer(str(root), mutex_wait_s=60)
    timer = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGALRM))
    timer.start()
    with pytest.raises(AlarmError):
        committer.replace("a", "ABSENT", b"1")
    timer.join()
    os.close(folder)
    assert blocked() == set()
    assert not (root / "a").exists()
    committer.replace("a", "ABSENT", b"1")


def test_blocks_in_blocks_and_errors_leave_the_mask_as_it_was() -> None:
    """finding R10: a mask that stays makes a process deaf to Ctrl-C."""
    with signals.held_back():
        with signals.held_back():
            assert signal.SIGALRM in blocked()
            with signals.let_in():
                assert blocked() == set()
            assert signal.SIGALRM in blocked()
        assert signal.SIGALRM in blocked()
        alarm()
        with pytest.raises(AlarmError), signals.let_in():
            pytest.fail("the handler ran too late")
        assert signal.SIGALRM in blocked()
        alarm()
        with pytest.raises(AlarmError):
            signals.Interruptible(SYSTEM_CLOCK).sleep(60)
    assert blocked() == set()
    alarms = signals.held_back()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    with alarms:
        pass
    assert blocked() == {signal.SIGALRM}
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def test_only_the_main_thread_holds_signals_back() -> None:
    """finding R10: handlers run there, and nowhere else."""
    found: list[object] = []

    def look() -> None:
        with signals.held_back(), signals.let_in():
            found.append(blocked())

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [set()]


def test_a_closed_workspace_has_nothing_open(root: Path) -> None:
    """finding R10: it kept its store open."""

    def opened() -> list[str]:
        links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        names = [os.readlink(link) for link in links if os.path.lexists(link)]
        return [name for name in names if name.startswith(str(root))]

    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc to see what is open")
    workspace = Workspace(root)
    for number in range(3):
        with workspace.turn() as turn:
            turn.write_file(f"{number}/a", b"1")
            turn.write_file(f"{number}/a", b"2")
    assert opened()
    workspace.close()
    assert opened() == []
    assert os.listdir(root / ".noclobber/swap") == []


STORM = """
import gc, os, random, signal, sys
from noclobber import DeliverableLock, Workspace
root, seed, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
class Alarm(Exception): pass
def handler(*_): raise Alarm
signal.signal(signal.SIGALRM, handler)
sys.unraisablehook = lambda _: None  # One that came in a destructor.
chance, ws = random.Random(seed), Workspace(root)
os.mkdir(root + "/d")
def lock(number):
    with DeliverableLock(root + "/d", holder="h"):
        pass
def write(number):
    with ws.turn() as turn:
        if number:
            turn.read_file("a")
        turn.write_file("a", b"%d" % number)
counts = {"alarms": 0, "locks": 0}
def opened():  # Not what waits for the sweep: there are bounds on that.
    links = [os.path.realpath(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd")]
    return len([link for link in links if "/swap/" not in link])
for call in (write, lock):
    for number in range(4):
        call(number)
    gc.collect()
    before = opened()
    for number in range(times):
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-6 + chance.random() * 0.002)
                call(number + 1)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except Alarm:
            counts["alarms"] += 1
        counts["locks"] += os.path.exists(root + "/d/.lock")
    gc.collect()
    call(1)
    print(call.__name__, max(0, opened() - before - 4))
print(counts["alarms"] > times // 10, counts["locks"], signal.pthread_sigmask(signal.SIG_BLOCK, []))
ws.close()
print(os.listdir(root + "/.noclobber/swap"))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
def test_a_storm_of_alarms_leaves_nothing_behind(root: Path) -> None:
    """finding R10: descriptors, swap files, locks and the signal mask."""
    command = [sys.executable, "-c", STORM, str(root), "1", "300"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines() == ["write 0", "lock 0", "True 0 set()", "[]"], done.stderr
