"""
Signals wait until a commit, a change of a lock or an entry in a ledger is complete.

Python runs a signal's handler in the main thread, between any two steps of whatever that thread does, and the
handler may raise: Ctrl-C, a timeout made of SIGALRM. In the middle of a commit that leaves descriptors open,
files in the swap folder, and a lock that nobody knows to be his. So the main thread blocks signals for the
few milliseconds; they arrive right afterwards. Where it has to wait for others, and has nothing half done,
they arrive at once: `let_in()`.

Not promised: a signal that the kernel gives to another thread of the program, because the main thread blocks
it, is handled in the main thread at once. Then the same happens as after a crash: the next call recovers.
Our own threads take no signals.
"""

from __future__ import annotations

# Not `signal`: it makes an enum of each signal, 4 % of a small commit, and is slow to import.
import os
import signal
import sys
from _signal import pthread_sigmask  # type: ignore[import-not-found]  # `signal` makes an enum of each signal in the mask.
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from noclobber.core.clock import Clock


P = ParamSpec("P")
Result = TypeVar("Result")

# Not those that a fault of the process itself raises, nor the one that leases send, which is ignored.
_NEVER = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS", "SIGABRT", "SIGKILL", "SIGSTOP")
HELD_BACK = frozenset(map(int, signal.valid_signals())) - {
    int(getattr(signal, name)) for name in (*_NEVER, "SIGCONT", "SIGURG", "SIGIO") if hasattr(signal, name)
}

WRAPPED = ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__")
_outer: set[int] | None = None  # What was blocked before the outermost block of the main thread.


class held_back:  # noqa: N801 - it reads as a word: `with signals.held_back():`
    """No handler runs in this block, if it is the main thread's."""

    __slots__ = ("_before", "_is_outermost")

    def __enter__(self) -> None:
        global _outer
        self._before: set[int] | None = None
        if not _is_main_thread():
            return
        before = pthread_sigmask(signal.SIG_BLOCK, ())
        try:
            # A signal that came before is handled in this call, and what its handler raises comes from here.
            pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)
        except BaseException:
            pthread_sigmask(signal.SIG_SETMASK, before)
            raise
        self._before, self._is_outermost = before, _outer is None
        if self._is_outermost:
            _outer = before

    def __exit__(self, *exc: object) -> None:
        global _outer
        if self._before is not None:
            before, self._before = self._before, None
            if self._is_outermost:
                _outer = None
            pthread_sigmask(signal.SIG_SETMASK, before)


class let_in:  # noqa: N801 - the same
    """Within a block that holds them back: signals arrive here, and what they raise comes from here."""

    __slots__ = ("_outer",)

    def __enter__(self) -> None:
        self._outer = _outer if _is_main_thread() else None
        if self._outer is not None:
            try:
                pthread_sigmask(signal.SIG_SETMASK, self._outer)
            except BaseException:
                pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)
                raise

    def __exit__(self, *exc: object) -> None:
        if self._outer is not None:
            pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)


def _is_main_thread() -> bool:
    threading = sys.modules.get("threading")  # Which is slow to import. Without it there is one thread.
    return threading is None or bool(threading.main_thread().ident == get_ident())


def whole(function: Callable[P, Result]) -> Callable[P, Result]:
    """Make a function one that no handler interrupts."""

    def uninterrupted(*args: P.args, **kwargs: P.kwargs) -> Result:
        with held_back():
            return function(*args, **kwargs)

    for name in WRAPPED:
        setattr(uninterrupted, name, getattr(function, name))
    uninterrupted.__wrapped__ = function  # type: ignore[attr-defined]
    return uninterrupted


class Interruptible:
    """A clock whose sleep can be interrupted, for waiting while nothing is half done."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.now_s, self.monotonic_s = clock.now_s, clock.monotonic_s

    def sleep(self, seconds: float) -> None:
        """Sleep; what a handler raises comes from here."""
        with let_in():
            self._clock.sleep(seconds)


def _in_child() -> None:
    global _outer
    _outer = None  # Of a thread that may not be the one that forked.


os.register_at_fork(after_in_child=_in_child)
