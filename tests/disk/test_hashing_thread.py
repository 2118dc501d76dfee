"""A hash on another thread: who makes it, and that nobody waits for a thread that is not there."""

from __future__ import annotations

import _thread
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from noclobber.disk import hashing, hashing_thread
from noclobber.disk.commit import change_set
from noclobber.disk.commit.committer import Committer
from noclobber.disk.hashing_thread import LARGE_BYTES, HashOf
from tests.conftest import sha256

WAIT_S = 30
LARGE = b"x" * LARGE_BYTES


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread of an earlier test is there, and there are two cores."""
    monkeypatch.setattr(hashing_thread, "_is_taken", _thread.allocate_lock())
    monkeypatch.setattr(hashing_thread, "_can_help", True)


class Hashing:
    """Instead of `hashing.of_bytes`: tells who was asked, and can be held up in another thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, is_held_up: bool = False) -> None:
        self.threads: list[int] = []
        self.process = os.getpid()
        self.begun, self.may_go_on = threading.Event(), threading.Event()
        if not is_held_up:
            self.may_go_on.set()
        self._call = hashing.of_bytes
        monkeypatch.setattr(hashing, "of_bytes", self)

    def __call__(self, data: bytes) -> str:
        self.threads.append(threading.get_ident())
        if threading.current_thread() is not threading.main_thread() and os.getpid() == self.process:
            self.begun.set()
            assert self.may_go_on.wait(WAIT_S)
        return self._call(data)


def test_a_large_content_is_hashed_by_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """N-threads: and this one goes on meanwhile."""
    made = Hashing(monkeypatch, is_held_up=True)
    begun = HashOf(LARGE)
    assert made.begun.wait(WAIT_S)
    made.may_go_on.set()
    assert begun.result() == sha256(LARGE) == begun.result()
    assert len(made.threads) == 1
    assert made.threads != [threading.get_ident()]


@pytest.mark.parametrize("why", ["small", "one core", "no thread left", "one is under way", "it is late"])
def test_the_hash_is_made_here_where_a_thread_does_not_pay(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-threads: starting one for a small file takes longer than the hash; a limit on processes counts threads."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    made, data = Hashing(monkeypatch), LARGE
    if why == "small":
        data = LARGE[1:]
    elif why == "one core":
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
        monkeypatch.setattr(hashing_thread, "_can_help", hashing_thread._has_two_cores())
    elif why == "no thread left":
        monkeypatch.setattr(hashing_thread, "start_new_thread", refuse)
    elif why == "one is under way":
        assert hashing_thread._is_taken.acquire()
    else:
        monkeypatch.setattr(hashing_thread, "start_new_thread", lambda *_: None)
    assert HashOf(data).result() == sha256(data)
    assert made.threads == [threading.get_ident()]
    if why == "no thread left":
        assert not hashing_thread._is_taken.locked(), "no other would ever be started"


def test_a_hash_that_fails_in_the_thread_is_made_by_who_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """N-faults: an error must have a caller."""
    call, tries = hashing.of_bytes, []

    def fail_once(data: bytes) -> str:
        tries.append(threading.get_ident())
        if len(tries) == 1:
            raise MemoryError
        return call(data)

    monkeypatch.setattr(hashing, "of_bytes", fail_once)
    begun = HashOf(LARGE)
    while hashing_thread._is_taken.locked():
        os.sched_yield()
    assert begun.result() == sha256(LARGE)
    assert tries[1] == threading.get_ident()


def test_a_forked_child_makes_what_the_thread_had_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """N-fork: the thread stays with the parent, and the child must not wait for it."""
    monkeypatch.setattr(hashing_thread, "END_S", 0.0)
    made = Hashing(monkeypatch, is_held_up=True)
    begun = HashOf(LARGE)
    assert made.begun.wait(WAIT_S)
    child = os.fork()
    if child == 0:
        signal.alarm(WAIT_S)
        is_right = begun.result() == sha256(LARGE) == HashOf(LARGE).result()
        os._exit(0 if is_right else 1)
    made.may_go_on.set()
    assert begun.result() == sha256(LARGE)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_child_of_a_signal_handler_does_not_wait_for_its_parents_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """N-fork: the handler runs while this thread waits for the other, and its child goes on waiting."""
    monkeypatch.setattr(hashing_thread, "END_S", 0.0)
    made = Hashing(monkeypatch, is_held_up=True)
    children: list[int] = []

    def fork(*_: object) -> None:
        children.append(os.fork())
        if children[0]:
            made.may_go_on.set()

    previous = signal.signal(signal.SIGUSR1, fork)
    try:
        begun = HashOf(LARGE)
        assert made.begun.wait(WAIT_S)
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        result = begun.result()
        if children == [0]:
            os._exit(0 if result == sha256(LARGE) else 1)
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0


def test_the_thread_ends_before_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """N-fork: else Python 3.12 warns a program that has no other thread."""
    monkeypatch.setattr(hashing_thread, "END_S", WAIT_S)
    made = Hashing(monkeypatch, is_held_up=True)
    begun = HashOf(LARGE)
    assert made.begun.wait(WAIT_S)
    os.register_at_fork(before=made.may_go_on.set)
    child = os.fork()
    if child == 0:
        os._exit(0)
    assert not hashing_thread._is_taken.locked()
    os.waitpid(child, 0)
    assert begun.result() == sha256(LARGE)


def test_the_thread_takes_no_signal_that_a_commit_holds_back(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-signals: a Ctrl-C in the middle of a commit waits for its end, also if the thread could take it."""
    masks: list[set[Any]] = []
    make: Callable[..., None] = HashOf._make

    def look(self: HashOf, is_taken: _thread.LockType) -> None:
        masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, []))
        make(self, is_taken)

    monkeypatch.setattr(HashOf, "_make", look)
    (root / "a").write_bytes(b"old")
    Committer(str(root)).replace("a", sha256(b"old"), LARGE)
    while not masks:
        os.sched_yield()
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGHUP} <= masks[0]


def test_every_kind_of_large_commit_lands_with_its_hash(root: Path) -> None:
    """N-threads: replaced, created, and many at once, of which one at a time has the thread."""
    committer = Committer(str(root))
    contents = {f"{number}": os.urandom(LARGE_BYTES) for number in range(3)}
    created = committer.replace("new", "ABSENT", LARGE)
    replaced = committer.replace("new", created.sha256, LARGE + b"!")
    assert (created.sha256, replaced.sha256) == (sha256(LARGE), sha256(LARGE + b"!"))
    for _ in range(2):
        changes = [change_set.Change(name, data, None) for name, data in contents.items()]
        results = change_set.commit_changes(committer, changes)
        assert [result.sha256 for result in results] == [sha256(data) for data in contents.values()]


SHUTDOWN = """
import atexit, sys
from noclobber import replace_if_unchanged
path = sys.argv[1]
def write(number):
    replace_if_unchanged(path, None, bytes([number]) * (1 << 20))
class Late:
    def __del__(self, write=write):
        write(2)
atexit.register(write, 1)
sys.late = Late()  # Deleted when the interpreter is almost gone.
"""


def test_a_large_write_at_the_end_of_the_interpreter_lands(tmp_path: Path) -> None:
    """N-threads: no thread begins there any more, and who waited for one would wait for ever."""
    command = [sys.executable, "-c", SHUTDOWN, str(tmp_path / "f")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "f").read_bytes() in (bytes([2]) * (1 << 20), bytes([1]) * (1 << 20))


SUBINTERPRETER = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
try:
    other = interpreters.create(isolated=False)
except TypeError:
    other = interpreters.create("legacy")
run = getattr(interpreters, "run_string", None) or interpreters.exec
run(other, f'''
from noclobber import replace_if_unchanged
for number in range(3):
    replace_if_unchanged({sys.argv[1]!r} + "/f", None, bytes([number]) * (1 << 20))
''')
interpreters.destroy(other)
"""


def test_another_interpreter_can_be_ended_right_after_a_write(tmp_path: Path) -> None:
    """N-threads, finding C4: web servers run programs in several; one with a thread in it cannot be ended."""
    command = [sys.executable, "-c", SUBINTERPRETER, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "No module named '_xxsubinterpreters'" in done.stderr:
        pytest.skip("this Python has no interpreters to try it with")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "f").stat().st_size == 1 << 20
