"""
One blocking call on another thread, while this one goes on.

Hashing leaves a core idle. One thread for all such calls, which ends soon after the last of them: starting
one costs as much as hashing 100 KiB does, and a program that keeps one for good is told off by Python
whenever it forks (before a fork it ends at once). So it is started for a long call, or if calls come one
after another; a short one that comes alone is made by whoever wants its result.

A call belongs to whoever takes it off the queue: the thread, or `result()` if the thread has not begun. So
nobody waits for a thread that is late, has just ended, or was left behind by a fork. (Not for flushing:
tidying up meanwhile was tried, and each waited for the other in the filesystem's journal.)
"""

from __future__ import annotations

import _thread
import os
import signal
import time
from collections import deque
from functools import cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

DISMISSAL_S, NAP_S = 0.02, 0.00005
IDLE_S = 0.1  # After so long without a call the thread ends; calls no further apart are worth one.

_queue: deque[Meanwhile | None] = deque()  # Its single steps are atomic between threads. None: end.
_bell = _thread.allocate_lock()  # Released when there is something in the queue.
_bell.acquire()
_is_there = False
_last_call_s = -IDLE_S


class Meanwhile:
    """Begins a call, if that pays; `result()` waits for it, or makes it, and returns what it did."""

    __slots__ = ("_arguments", "_done", "_error", "_function", "_is_over", "_queue", "_value")

    def __init__(self, function: Callable[..., Any], *arguments: Any, is_long: bool) -> None:
        self._function, self._arguments = function, arguments
        self._value: Any = None
        self._error: BaseException | None = None
        self._is_over = False
        self._done = _thread.allocate_lock()
        self._queue: deque[Meanwhile | None] | None = None
        if _is_worth_it(is_long) or _is_there:
            self._done.acquire()
            self._queue = _queue
            # Queued first and the thread looked for then; it says that it ends first and looks into the
            # queue then. So one of the two sees the other, and nothing is left in the queue.
            _queue.append(self)
            if _is_there or _start():
                _ring()
            else:
                self._is_ours()

    def result(self) -> Any:
        """Return what the call returned, whoever made it. May be asked again."""
        if not self._is_over:
            if self._is_ours():
                self._work()
            else:
                with self._done:
                    pass
        if self._error is not None:
            raise self._error
        return self._value

    def _is_ours(self) -> bool:
        if self._queue is None:
            return True
        if self._queue is not _queue:
            return True  # We are a forked child. Whether the thread had begun it or not, it is not here.
        try:
            self._queue.remove(self)
        except ValueError:
            return False  # The thread has begun it.
        self._queue = None
        return True

    def _work(self) -> None:
        try:
            self._value = self._function(*self._arguments)
        except BaseException as error:
            self._error = error
        finally:
            self._is_over = True
            if self._queue is not None:
                self._done.release()


def _is_worth_it(is_long: bool) -> bool:
    global _last_call_s
    now_s = time.monotonic()
    is_in_a_row = now_s - _last_call_s < IDLE_S
    _last_call_s = now_s
    return is_long or is_in_a_row


def _start() -> bool:
    """Start the thread. Two at once, because two callers started one, do no harm."""
    global _is_there
    if not _is_main_interpreter():
        return False  # Another one cannot be ended while it has a thread.
    # Before it is true: said afterwards it might have ended by then, and nobody would start another.
    _is_there = True
    try:
        _thread.start_new_thread(_serve, (_queue, _bell))
    except RuntimeError:
        _is_there = False  # No more threads to be had.
    return _is_there


@cache
def _is_main_interpreter() -> bool:
    for name in ("_interpreters", "_xxsubinterpreters"):  # The former from Python 3.13 on.
        try:
            interpreters = __import__(name)
        except ImportError:
            continue
        return bool(interpreters.get_current() == interpreters.get_main())
    return True


def _ring() -> None:
    try:
        _bell.release()
    except RuntimeError:
        pass  # It has been rung already.


def _serve(queue: deque[Meanwhile | None], bell: _thread.LockType) -> None:
    global _is_there
    try:
        # Else the kernel would give us a Ctrl-C that the thread of a commit holds back.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while bell.acquire(timeout=IDLE_S) or _has_more_to_do(queue):
            if not _work_off(queue):
                return
    finally:
        _is_there = False


def _work_off(queue: deque[Meanwhile | None]) -> bool:
    """Make every call in the queue. False: it was asked to end."""
    goes_on = True
    while True:
        try:
            call = queue.popleft()
        except IndexError:
            return goes_on
        if call is None:
            goes_on = False
        else:
            call._work()
        del call  # Or its bytes would stay with us until the next one comes.


def _has_more_to_do(queue: deque[Meanwhile | None]) -> bool:
    global _is_there
    _is_there = False
    if queue:
        _is_there = True
        return True
    return False


def _dismiss() -> None:
    """Before a fork: have the thread end, and wait a moment for it, so that nobody is warned of it."""
    deadline_s = time.monotonic() + DISMISSAL_S
    if _is_there:
        _queue.append(None)
        _ring()
    while _is_there and time.monotonic() < deadline_s:
        time.sleep(NAP_S)


def _in_child() -> None:
    global _queue, _bell, _is_there
    _queue, _bell, _is_there = deque(), _thread.allocate_lock(), False
    _bell.acquire()


os.register_at_fork(before=_dismiss, after_in_child=_in_child)
