"""
Renew while the holder works.

One daemon thread per process looks after every lock that the process holds. A thread per lock would cost
more to start than the lock itself, and a hundred locks would cost a hundred threads.

Each lock is looked at several times within a third of its lease, and at least every `LONGEST_PAUSE_S`: a
machine that was suspended does not count the time it slept in the clock that threads wait by, so a thread
that waited for ten minutes would wake up ten minutes after the lid was opened, with a lease long gone.
`beat()` decides by the lock's own clock what is due. A lock that was lost meanwhile is reported, never
taken again.

It stops with its owner: after the last lock is released the thread ends; it holds no reference that keeps
a forgotten lock alive; a forked child starts without it; it never delays the end of the interpreter.

A second thread is there for locks that a server keeps. The first one may be waiting for that server when a
lease ends; the second asks nobody, and says so in time: before anybody else can have the lock.

Not promised: a process that is stopped, or whose threads never get to run, does not renew. That is
what a lease is for.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, Protocol

from noclobber.errors import StorageError

if TYPE_CHECKING:

    class Beating(Protocol):
        """What the heartbeat asks of a lock."""

        def beat(self) -> None:
            """Renew if that is due. Raises nothing."""

        def ends_in_s(self) -> float | None:
            """Seconds until the holder stops by its own clock; None if there is no such end."""

        def end_in_time(self) -> None:
            """Stop, if that end has come. Asks nobody, waits for nobody, raises nothing."""


LONGEST_PAUSE_S = 10.0
SHORTEST_PAUSE_S = 0.1
IDLE_S = 5.0  # Stay for a while after the last lock: the next one comes soon, and starting a thread costs.


class _Pulse:
    """The state of the one thread. Replaced as a whole in a forked child."""

    thread_name = "noclobber-heartbeat"

    def __init__(self) -> None:
        self.lock = threading.Lock()  # The condition's own: entering it by itself is half the price.
        self.changed = threading.Condition(self.lock)
        self.locks: dict[int, tuple[weakref.ref[Beating], float]] = {}
        self.due_s: dict[int, float] = {}
        self.wakes_s = float("inf")
        self.thread: threading.Thread | None = None

    def add(self, lock: Beating, pause_s: float) -> None:
        key = id(lock)
        with self.lock:
            if self.thread is None:
                self._start()  # First: what cannot be looked after is not added.
            self.locks[key] = weakref.ref(lock), pause_s
            self.due_s[key] = due_s = time.monotonic() + pause_s
            if due_s < self.wakes_s:  # Otherwise it wakes early enough by itself.
                self.changed.notify()

    def remove(self, lock: Beating) -> None:
        with self.lock:
            self.locks.pop(id(lock), None)
            self.due_s.pop(id(lock), None)

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name=self.thread_name, daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:
            raise StorageError(
                "",
                f"the heartbeat that renews this lock cannot start: {error}. End some threads or processes, "
                "or ask for a lock without one (heartbeat=False) and renew it yourself",
            ) from error
        self.thread = thread

    def _run(self) -> None:
        while True:
            with self.changed:
                now_s = time.monotonic()
                self.wakes_s = min(self.due_s.values(), default=now_s + IDLE_S)
                if self.wakes_s > now_s:
                    self.changed.wait(self.wakes_s - now_s)
                if not self.locks and time.monotonic() >= self.wakes_s:
                    self.thread = None  # Under the condition: whoever adds a lock from now on starts another.
                    return
                due = self._take_due(time.monotonic())
            for lock in due:
                self._look_after(lock)  # Outside the condition: it goes to the disk; acquire must not wait.
            del due

    def _take_due(self, now_s: float) -> list[Beating]:
        due = []
        for key, when_s in list(self.due_s.items()):
            if when_s > now_s:
                continue
            reference, pause_s = self.locks[key]
            lock = reference()
            if lock is None:  # Forgotten by its owner without release: its lease runs out.
                del self.locks[key], self.due_s[key]
            else:
                self.due_s[key] = now_s + self._pause_s(lock, pause_s)
                due.append(lock)
        return due

    def _look_after(self, lock: Beating) -> None:
        lock.beat()

    def _pause_s(self, lock: Beating, pause_s: float) -> float:
        return pause_s


class _LeaseEnds(_Pulse):
    """The same for the ends of leases, as their holders count them."""

    thread_name = "noclobber-lease-end"

    def _look_after(self, lock: Beating) -> None:
        lock.end_in_time()

    def _pause_s(self, lock: Beating, pause_s: float) -> float:
        # Not longer than the heartbeat's: the machine may sleep, and then this clock does not go on.
        return max(SHORTEST_PAUSE_S, min(lock.ends_in_s() or 0.0, LONGEST_PAUSE_S))


_pulse, _lease_ends = _Pulse(), _LeaseEnds()


def start(lock: Beating, lease_duration_s: int) -> None:
    """Look after a lock from now on; `StorageError` if no thread can be had."""
    # Three looks within the third of a lease: looking exactly as often as is due would come a moment too
    # early every other time, and renew at two thirds.
    _pulse.add(lock, min(lease_duration_s / 9, LONGEST_PAUSE_S))
    ends_in_s = lock.ends_in_s()
    if ends_in_s is not None:
        _lease_ends.add(lock, max(SHORTEST_PAUSE_S, min(ends_in_s, LONGEST_PAUSE_S)))


def stop(lock: Beating) -> None:
    """Look after it no longer. A beat that is under way ends by itself."""
    _pulse.remove(lock)
    if _lease_ends.locks:
        _lease_ends.remove(lock)


def _start_afresh() -> None:
    # The thread does not exist in the child, and the condition may be held by it for ever.
    global _pulse, _lease_ends
    _pulse, _lease_ends = _Pulse(), _LeaseEnds()


os.register_at_fork(after_in_child=_start_afresh)
