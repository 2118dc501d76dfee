"""
Hash large contents on another thread, while this one writes them.

A commit hashes twice: what it writes, and what it replaces. From half a mebibyte on that takes longer than to
start a thread, so the first of the two is made beside the write and the second.

The thread lives for one hash, and there is never more than one. Whoever begins a hash makes it: the thread,
or `result()` if it has not begun. So nobody waits for a thread that was never started, because
there are too many or the interpreter is shutting down; and a forked child, which has no such thread, makes
what its parent's had begun.
"""

from __future__ import annotations

import os
import sys
import time
from _thread import LockType, allocate_lock, start_new_thread

from noclobber.disk import hashing

LARGE_BYTES = 1 << 19
LOOK_S = 1.0  # How often who waits looks whether it has become another process meanwhile.
END_S, NAP_S = 0.02, 0.00005

_is_taken = allocate_lock()  # Held from the start of the thread to its end.


class HashOf:
    """The hash of some bytes, which is being made from now on; `result()` is the hash."""

    __slots__ = ("_begun", "_data", "_done", "_hash", "_process")

    def __init__(self, data: bytes) -> None:
        self._data, self._hash = data, ""
        self._process = 0  # None has a thread for it.
        if len(data) < LARGE_BYTES or not _pays() or not _is_taken.acquire(blocking=False):
            return
        self._begun, self._done = allocate_lock(), allocate_lock()
        self._done.acquire()
        try:
            # Signals that the commit has blocked are blocked in the new thread, too.
            start_new_thread(self._make, (_is_taken,))
        except RuntimeError:  # No more threads, or the end of the interpreter.
            _is_taken.release()
        else:
            self._process = os.getpid()

    def _make(self, is_taken: LockType) -> None:
        try:
            if self._begun.acquire(blocking=False):
                try:
                    self._hash = hashing.of_bytes(self._data)
                finally:
                    self._done.release()
        except MemoryError:
            pass  # Then `result()` tries, where the error has a caller.
        finally:
            is_taken.release()

    def result(self) -> str:
        """Return the hash. May be asked again."""
        while not self._hash:
            # A child has no such thread: forked by us, or by a signal handler while we wait below.
            is_ours = self._process != os.getpid() or self._begun.acquire(blocking=False)
            if is_ours or self._done.acquire(timeout=LOOK_S):
                self._hash = self._hash or hashing.of_bytes(self._data)
        return self._hash


def _pays() -> bool:
    """False where a second thread cannot help: one core, the end of the interpreter, a subinterpreter."""
    return _can_help and not sys.is_finalizing()


def _has_two_cores() -> bool:
    return (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1) > 1


def _is_main_interpreter() -> bool:
    # Not one after the other: Python looks for a module that is not there in every folder that it knows.
    name = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    try:
        interpreters = __import__(name)
    except ImportError:
        return True
    return bool(interpreters.get_current() == interpreters.get_main())


# Now: nothing is imported within a commit. Another interpreter than the main one cannot be ended while it has
# a thread.
_can_help = _has_two_cores() and _is_main_interpreter()


def _before_fork() -> None:
    """Let the thread end first: Python 3.12 warns a program that forks while it has threads."""
    deadline_s = time.monotonic() + END_S
    while _is_taken.locked() and time.monotonic() < deadline_s:
        time.sleep(NAP_S)


def _in_child() -> None:
    global _is_taken
    _is_taken = allocate_lock()


os.register_at_fork(before=_before_fork, after_in_child=_in_child)
