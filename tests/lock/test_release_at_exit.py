"""How holders end: success, exceptions, signals, fork, exit, kill. Real processes."""

from __future__ import annotations

import os
import signal
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from noclobber.errors import LockContention
from noclobber.lock.backend import status_of
from noclobber.lock.lock import DeliverableLock
from tests.rigs.locks import ToldClock, events, finish, python

HOLD = """
import sys, os, signal, time
from noclobber.lock.lock import DeliverableLock
lock = DeliverableLock(sys.argv[1], holder="child", lease_duration_s=int(sys.argv[2]))
"""

WAYS = {
    "success": ("with lock: pass", 0),
    "exception": ("with lock: raise KeyError('x')", 1),
    "SystemExit": ("with lock: sys.exit(4)", 4),
    "SystemExit without with": ("lock.acquire(); sys.exit(4)", 4),
    "end of program without release": ("lock.acquire()", 0),
    "KeyboardInterrupt": ("with lock: os.kill(os.getpid(), signal.SIGINT); time.sleep(10)", -signal.SIGINT),
    "SIGTERM": ("with lock: os.kill(os.getpid(), signal.SIGTERM); time.sleep(10)", -signal.SIGTERM),
    "SIGTERM without with": (
        "lock.acquire(); os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)",
        -signal.SIGTERM,
    ),
    "SIGTERM with a handler of its own": (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "with lock: os.kill(os.getpid(), signal.SIGTERM); time.sleep(10)",
        9,
    ),
    "SIGTERM and the lock in a thread": (
        "import threading\nfrom noclobber.lock import release_at_exit as endings\nendings.release_on_sigterm()\n"
        "thread = threading.Thread(target=lambda: (lock.acquire(), time.sleep(20)), daemon=True)\nthread.start()\n"
        "while not lock.held: time.sleep(0.01)\n"
        "os.kill(os.getpid(), signal.SIGTERM); time.sleep(10)",
        -signal.SIGTERM,
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("lease_s", [1, 1800])  # A second: the careful way out. Half an hour: the quick one.
def test_the_lock_is_released_however_the_holder_ends(tmp_path: Path, way: str, lease_s: int) -> None:
    """REQ-LOCK-005: and the exit status is what it would have been."""
    code, expected = WAYS[way]
    returned, _, complaint = finish(python(HOLD + code, tmp_path, lease_s))
    assert returned == expected, complaint
    assert not (tmp_path / ".lock").exists()
    assert [event["action_type"] for event in events(tmp_path)] == ["LOCK_ACQUIRED", "LOCK_RELEASED"]


def test_sigterm_in_the_middle_of_a_change_waits_for_its_end(tmp_path: Path) -> None:
    """REQ-LOCK-005: the handler runs in the thread that holds the mutex, and must not wait for itself."""
    code = """
from noclobber.lock import release_at_exit as endings, lock_file as store
endings.release_on_sigterm()
original = store.LockFile.create
def create(self, record):
    published = original(self, record)
    os.kill(os.getpid(), signal.SIGTERM)  # Python runs its handler here: published, and nobody knows yet.
    return published
store.LockFile.create = create
lock.acquire()
time.sleep(10)
"""
    returned, _, complaint = finish(python(HOLD + code, tmp_path, 1800))
    assert returned == -signal.SIGTERM, complaint
    assert not (tmp_path / ".lock").exists(), "it waited for itself, and died without letting go"


def test_a_killed_holders_lock_is_taken_over_at_once(tmp_path: Path) -> None:
    """REQ-LOCK-006: kill -9 cannot be handled, and need not be."""
    code = "lock.acquire(); os.kill(os.getpid(), signal.SIGKILL)"
    assert finish(python(HOLD + code, tmp_path, 1800))[0] == -signal.SIGKILL
    with DeliverableLock(tmp_path, holder="next"):
        pass
    assert len(events(tmp_path, "LOCK_RECOVERED")) == 1


def test_a_zombie_counts_as_dead(tmp_path: Path) -> None:
    """REQ-LOCK-006: killed and not yet reaped, it still answers kill(pid, 0)."""
    process = python(HOLD + "lock.acquire(); print('held', flush=True); time.sleep(100)", tmp_path, 1800)
    assert process.stdout is not None
    process.stdout.readline()
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # It has ended, and stays a zombie.
    os.kill(process.pid, 0)
    assert status_of(str(tmp_path)).state == "dead"
    finish(process)


def test_a_forked_child_neither_releases_nor_renews_its_parents_lock(tmp_path: Path) -> None:
    """REQ-LOCK-005: fork while held; the child leaves the block, exits, and dies of SIGTERM."""
    code = """
with lock:
    pids = []
    for ending in ("block", "exit", "sigterm", "renew"):
        pid = os.fork()
        if pid == 0:
            if ending == "block":
                lock.assert_held()
                lock.__exit__(None, None, None)
                os._exit(int(lock.release()))
            if ending == "exit": sys.exit(0)
            if ending == "sigterm": os.kill(os.getpid(), signal.SIGTERM)
            from noclobber.errors import LockLost
            try: lock.renew()
            except LockLost: os._exit(5)
        pids.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    lock.assert_held()
    print(pids)
"""
    returned, said, complaint = finish(python(HOLD + code, tmp_path, 1800))
    assert (returned, said) == (0, "[0, 0, -15, 5]"), complaint
    assert [event["action_type"] for event in events(tmp_path)] == ["LOCK_ACQUIRED", "LOCK_RELEASED"]


def test_a_fork_inside_a_section_does_not_keep_the_folder(tmp_path: Path) -> None:
    """REQ-LOCK-006: the parent is killed in its section, the child lives on, and nobody is locked out."""
    code = """
from noclobber.lock.lock_file import LockFile
store = LockFile(sys.argv[1])
with store.section():
    pid = os.fork()
    if pid == 0:
        time.sleep(30)
        os._exit(0)
    print(pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    process = python(HOLD + code, tmp_path, 1800)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    process.wait()
    try:
        with DeliverableLock(tmp_path, holder="next"):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        finish(process)


def test_a_child_forked_in_a_section_does_not_unlock_its_parent(tmp_path: Path) -> None:
    """REQ-LOCK-003: the child leaves the section first; the parent is still alone in it."""
    code = """
from noclobber.lock.lock_file import LockFile
store = LockFile(sys.argv[1])
pid = None
with store.section():
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        print("inside", flush=True)
        sys.stdin.readline()
"""
    process = python(HOLD + code, tmp_path, 1800)
    assert process.stdout is not None
    assert process.stdout.readline() == "inside\n"
    try:
        with pytest.raises(LockContention, match=str(process.pid)):
            DeliverableLock(tmp_path, holder="other").acquire()
    finally:
        finish(process)


def test_the_heartbeat_renews_for_real_and_stops_with_the_lock(tmp_path: Path) -> None:
    """
    REQ-LOCK-013: a lease of a second outlives six renewals; after release the thread has nothing to do.
    """
    code = """
import threading
renew, renewed = lock._renew, threading.Semaphore(0)
def renew_and_tell(*given, **options):
    renew(*given, **options)
    renewed.release()
lock._renew = renew_and_tell
lock.acquire()
for _ in range(6):  # At a third of the lease each: two leases.
    assert renewed.acquire(timeout=30)
lock.assert_held()
lock.release()
from noclobber.lock import heartbeat
print(len(heartbeat._pulse.locks))
del lock
"""
    returned, said, complaint = finish(python(HOLD + code, tmp_path, 1))
    assert (returned, said) == (0, "0"), complaint
    acquired, *renewed, _ = [datetime.fromisoformat(event["time"]) for event in events(tmp_path)]
    assert len(renewed) >= 6
    assert renewed[-1] - acquired > timedelta(seconds=1), "a lease has to pass, or this proves nothing"


def test_a_forgotten_lock_is_not_renewed_for_ever(tmp_path: Path) -> None:
    """REQ-LOCK-013: the heartbeat keeps no object alive that its owner has dropped."""
    code = """
import gc, threading, warnings
from noclobber.lock import heartbeat
warnings.simplefilter("ignore")
looked, take_due = threading.Semaphore(0), heartbeat._pulse._take_due
def take_due_and_tell(now_s):
    due = take_due(now_s)
    looked.release()
    return due
lock.acquire()
del lock
gc.collect()
heartbeat._pulse._take_due = take_due_and_tell
while heartbeat._pulse.locks:  # It is let go of when its beat is due.
    assert looked.acquire(timeout=30)
from types import SimpleNamespace
from noclobber.lock.backend import status_of
print(status_of(sys.argv[1], SimpleNamespace(now_s=lambda: time.time() + 1.3)).state)
"""
    assert finish(python(HOLD + code, tmp_path, 1))[:2] == (0, "expired")
    assert events(tmp_path, "LOCK_RENEWED") == []


def test_a_holder_stopped_past_its_lease_is_refused_when_it_wakes(tmp_path: Path) -> None:
    """REQ-LOCK-013: SIGSTOP, take-over, SIGCONT; its check, its write and its release are refused."""
    code = """
from noclobber.errors import LockLost
from noclobber.guard.fence import WriteFence
lock.acquire()
print("held", flush=True)
sys.stdin.readline()
refused = 0
for attempt in ("write", "check", "release"):
    try:
        if attempt == "write":
            fence = WriteFence(sys.argv[1], lock)
            with fence.guarding(sys.argv[1] + "/plan.md"): open(sys.argv[1] + "/plan.md", "w")
        elif attempt == "check": lock.assert_held()
        else: lock.release()
    except LockLost: refused += 1
print(refused)
"""
    process = python(HOLD + code, tmp_path, 1)
    assert process.stdout is not None
    assert process.stdin is not None
    process.stdout.readline()
    os.kill(process.pid, signal.SIGSTOP)
    successor = DeliverableLock(tmp_path, holder="successor").acquire(timeout_s=10)
    os.kill(process.pid, signal.SIGCONT)
    process.stdin.write("go\n")
    process.stdin.flush()
    returned, said, complaint = finish(process)
    assert (returned, said) == (0, "3"), complaint
    assert not (tmp_path / "plan.md").exists()
    successor.release()


def test_a_process_stopped_inside_the_section_does_not_hang_the_others(tmp_path: Path) -> None:
    """REQ-LOCK-007: they are told within seconds, and get in when it has gone on or died."""
    code = """
from noclobber.lock.lock_file import LockFile
store = LockFile(sys.argv[1])
with store.section():
    print("inside", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""
    process = python(HOLD + code, tmp_path, 1800)
    assert process.stdout is not None
    process.stdout.readline()
    clock = ToldClock()
    try:
        with pytest.raises(LockContention, match=f"process {process.pid}"):
            DeliverableLock(tmp_path, holder="other", clock=clock).acquire()
        assert 0 < sum(clock.slept_s) < 10
    finally:
        process.kill()
        finish(process)
    with DeliverableLock(tmp_path, holder="other"):
        pass


def test_what_the_test_file_imports_is_what_is_tested() -> None:
    """A stale install beside the source would make every test here pass for nothing."""
    returned, said, _ = finish(python("import noclobber; print(noclobber.__file__)"))
    assert returned == 0
    assert Path(said).is_relative_to(Path(__file__).parents[2])
