"""
Release when the holder ends, whichever way (REQ-LOCK-005).

Success, exceptions, `SystemExit` and `KeyboardInterrupt` end the `with` block, which releases. What is
left are a process that ends while a lock is held outside any `with` (an exit handler releases), and
SIGTERM, whose default action ends a process without running anything. So the first lock that a process
takes sets a handler, if the program has not chosen an action of its own. It releases what is held, if
anything, and then dies of the same signal, so that the parent sees what it would have seen. It stays set:
setting it anew for every lock would cost more than half of what publishing the lock costs. `kill -9`
cannot be handled; the next one to acquire finds the process gone.

Python runs signal handlers in the main thread between two steps of whatever that thread does. If it is just
changing a lock, the handler waits for the change to end: releasing in the middle would wait for itself.

Not promised: signal handlers can only be set in the main thread. A program that acquires in other threads
only calls `release_on_sigterm()` once, at its start, in the main thread; without it SIGTERM is like `kill
-9`.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from types import FrameType

    class Held(Protocol):
        """What is asked of a lock at the end."""

        def let_go(self) -> None:
            """Release, if held by this process. Raises nothing."""

        def begin_in_child(self) -> None:
            """Forget what another thread of the parent was doing."""


_held: dict[int, weakref.ref[Held]] = {}
_is_settled = False  # The handler was set, or need not or must not be.
_is_deferred = False
_changes = 0  # How many changes of locks the main thread is in the middle of.
_main = threading.main_thread().ident


def holding(lock: Held) -> None:
    """Remember a lock that is to be released at the end."""
    _held[id(lock)] = weakref.ref(lock)
    if not _is_settled:
        prepare()


def prepare() -> None:
    """Set the handler if this is the main thread; otherwise the next lock that is taken there sets it."""
    if not _is_settled and threading.current_thread() is threading.main_thread():
        release_on_sigterm()


def released(lock: Held) -> None:
    """Forget a lock."""
    _held.pop(id(lock), None)


def release_on_sigterm() -> None:
    """
    Set the handler, unless the program has plans of its own. Only in the main thread.

    Not for process 1, which ignores SIGTERM by default: it would release its locks and live on.
    """
    global _is_settled
    _is_settled = True
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and os.getpid() != 1:
        signal.signal(signal.SIGTERM, _on_sigterm)


def begin_change(thread: int) -> None:
    """Called by a lock before a change: SIGTERM is carried out after it."""
    global _changes
    if thread == _main:
        _changes += 1


def end_change(thread: int) -> None:
    """Called by a lock when a change has ended: carry out a SIGTERM that came in the middle of it."""
    global _changes
    if thread == _main:
        _changes -= 1
        if _is_deferred and _changes <= 0:
            _on_sigterm(signal.SIGTERM, None)


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    global _is_deferred
    # Once: if an interruption made us lose count, the second SIGTERM is obeyed all the same.
    if _changes > 0 and not _is_deferred:
        _is_deferred = True
        return
    _release_all()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _release_all() -> None:
    for reference in list(_held.values()):
        lock = reference()
        if lock is not None:
            with suppress(Exception):
                lock.let_go()


def _forget_in_child() -> None:
    # The locks are the parent's. Its handler would release nothing here, and dies of the signal as it should.
    global _changes, _is_deferred, _main
    for reference in _held.values():
        lock = reference()
        if lock is not None:
            lock.begin_in_child()
    _held.clear()
    _changes, _is_deferred, _main = 0, False, threading.main_thread().ident


atexit.register(_release_all)
os.register_at_fork(after_in_child=_forget_in_child)
