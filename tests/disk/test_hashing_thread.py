"""A call on another thread: who makes it, and that nobody waits for a thread that is not there."""

from __future__ import annotations

import _thread
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from noclobber.disk import hashing_thread
from noclobber.disk.hashing_thread import Meanwhile

WAIT_S = 30


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No thread is there, and no call has come before."""
    bell = _thread.allocate_lock()
    bell.acquire()
    for name, value in (("_queue", deque()), ("_bell", bell), ("_is_there", False), ("_last_call_s", -9e9)):
        monkeypatch.setattr(hashing_thread, name, value)
    yield
    hashing_thread._dismiss()


class Call:
    """Something to do, which tells who did it, and can be held up."""

    def __init__(self, is_held_up: bool = False) -> None:
        self.begun, self.may_go_on = threading.Event(), threading.Event()
        if not is_held_up:
            self.may_go_on.set()

    def __call__(self) -> int:
        self.begun.set()
        assert self.may_go_on.wait(WAIT_S)
        return threading.get_ident()


def test_a_short_call_that_comes_alone_starts_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting one would take longer than the call."""
    monkeypatch.setattr(hashing_thread, "_start", lambda: pytest.fail("it started one"))
    assert Meanwhile(Call(), is_long=False).result() == threading.get_ident()


@pytest.mark.parametrize("is_long", [False, True])
def test_a_long_call_and_one_of_several_are_made_by_the_thread(
    is_long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And while it is made this one goes on."""
    monkeypatch.setattr(hashing_thread, "IDLE_S", WAIT_S)
    if not is_long:
        Meanwhile(Call(), is_long=False).result()
    call = Call(is_held_up=True)
    begun = Meanwhile(call, is_long=is_long)
    assert call.begun.wait(WAIT_S)
    call.may_go_on.set()
    other = begun.result()
    assert other == begun.result() != threading.get_ident()

    again = Call()
    second = Meanwhile(again, is_long=False)
    assert again.begun.wait(WAIT_S)
    assert second.result() == other, "it is the same thread"


def test_nobody_waits_for_a_thread_that_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with one core, or a busy one: whoever wants the result makes it."""
    monkeypatch.setattr(hashing_thread, "_start", lambda: True)
    assert Meanwhile(Call(), is_long=True).result() == threading.get_ident()
    assert not hashing_thread._queue


def test_where_no_thread_is_to_be_had_the_call_is_made_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on processes counts threads, too."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    unasked = Meanwhile(Call(), is_long=True)
    assert not hashing_thread._queue, "it would stay there, with its bytes"
    assert unasked.result() == threading.get_ident()


@pytest.mark.parametrize("is_long", [False, True])
def test_what_a_call_raises_is_raised_by_its_result(is_long: bool) -> None:
    """Each time that it is asked for."""

    def fail() -> None:
        raise OSError("no")

    call = Meanwhile(fail, is_long=is_long)
    for _ in range(2):
        with pytest.raises(OSError, match="no"):
            call.result()


def test_the_thread_ends_soon_and_leaves_nothing_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python tells a program off that forks while it has threads. What came as it ended is done first."""
    monkeypatch.setattr(hashing_thread, "IDLE_S", 0.001)
    count = _thread._count()
    call = Call()
    monkeypatch.setattr(
        hashing_thread, "_ring", lambda: None
    )  # As if it came while the thread decides to end.
    Meanwhile(call, is_long=True)
    assert call.begun.wait(WAIT_S)
    while _thread._count() > count:
        os.sched_yield()
    assert not hashing_thread._is_there
    assert not hashing_thread._queue


def test_a_forked_child_makes_what_the_thread_had_begun() -> None:
    """Fork during a commit: the thread stays with the parent, and the child must not wait for it."""
    parent = os.getpid()
    begun, may_go_on = threading.Event(), threading.Event()

    def work() -> int:
        if os.getpid() == parent:
            begun.set()
            may_go_on.wait(WAIT_S)
        return os.getpid()

    call = Meanwhile(work, is_long=True)
    assert begun.wait(WAIT_S)
    child = os.fork()
    if child == 0:
        signal.alarm(WAIT_S)
        is_right = call.result() == os.getpid() == call.result()
        os._exit(0 if is_right and Meanwhile(os.getpid, is_long=True).result() == os.getpid() else 1)
    may_go_on.set()
    assert call.result() == parent
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_thread_takes_no_signal_that_a_commit_holds_back() -> None:
    """A Ctrl-C in the middle of a commit waits for its end, also if the thread could take it."""
    asked = threading.Event()

    def mask() -> set[int | signal.Signals]:
        asked.set()
        return signal.pthread_sigmask(signal.SIG_BLOCK, [])

    call = Meanwhile(mask, is_long=True)
    assert asked.wait(WAIT_S)
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGHUP} <= call.result()


def test_a_thread_that_ended_before_its_starter_went_on_is_not_believed_to_be_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A busy machine: else no other would ever be started, and refused bytes would pile up in the queue."""
    monkeypatch.setattr(hashing_thread, "IDLE_S", 0.001)
    start = _thread.start_new_thread

    def start_and_fall_asleep(serve: Callable[..., object], given: tuple[Any, ...]) -> None:
        over = threading.Event()

        def serve_once() -> None:
            serve(*given)
            over.set()

        start(serve_once, ())
        assert over.wait(WAIT_S)

    monkeypatch.setattr(_thread, "start_new_thread", start_and_fall_asleep)
    Meanwhile(Call(), is_long=True)
    assert not hashing_thread._is_there
    assert not hashing_thread._queue


def test_the_thread_ends_before_a_fork_and_makes_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else Python 3.12 warns a program that has no other thread."""
    monkeypatch.setattr(hashing_thread, "IDLE_S", WAIT_S)
    monkeypatch.setattr(hashing_thread, "DISMISSAL_S", WAIT_S)
    count = _thread._count()
    call = Call(is_held_up=True)
    first = Meanwhile(call, is_long=True)
    assert call.begun.wait(WAIT_S)
    second = Meanwhile(threading.get_ident, is_long=False)
    call.may_go_on.set()
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert not hashing_thread._is_there
    while _thread._count() > count:
        os.sched_yield()
    assert first.result() == second.result() != threading.get_ident()


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
    """Web servers run programs in several. One with a thread in it cannot be ended: Python aborts."""
    command = [sys.executable, "-c", SUBINTERPRETER, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "No module named '_xxsubinterpreters'" in done.stderr:
        pytest.skip("this Python has no interpreters to try it with")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "f").stat().st_size == 1 << 20
