"""
Calls of one turn that change one file are carried out one after the other.

A model asks for several changes in one step, and a framework carries them out in parallel. Each finds the
baseline that the turn has at that moment. If another call of the same turn lands in between, the file is no
longer that, and the second would be refused as stale for the agent's own write.

By name, as the agent spells it: a file under two names is refused instead of waited for. Nothing is lost.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from noclobber.disk import after_fork

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class CallOrder:
    """One lock for each file that a turn changes."""

    def __init__(self) -> None:
        self._locks: dict[str, threading.RLock] = {}
        self._gate = threading.RLock()
        # A child of a fork has one thread. A lock that another one held would never be free there.
        after_fork.renew(self, "_locks", dict)
        after_fork.renew(self, "_gate", threading.RLock)

    def one_at_a_time(self, names: Iterable[str]) -> _Holding:
        """Within: no other call of this turn changes these files."""
        with self._gate:
            # Sorted, so that two calls on the same files cannot wait for each other.
            return _Holding([self._lock_of(name) for name in sorted(set(names))])

    def _lock_of(self, name: str) -> threading.RLock:
        found = self._locks.get(name)
        if found is None:
            found = self._locks[name] = threading.RLock()
        return found

    @contextmanager
    def after_all(self) -> Iterator[None]:
        """
        Within: no call of this turn is under way, and none begins.

        For the turn's end. A framework that is cancelled ends its run while a thread is in the middle of a
        commit; if the snapshot were gone by then, the write would have landed and not be on record.
        """
        with self._gate, _Holding([self._locks[name] for name in sorted(self._locks)]):
            yield


class _Holding:
    """Within: these locks are held. A class: every write asks twice, and a generator takes 5 µs more."""

    __slots__ = ("_held", "_locks")

    def __init__(self, locks: list[threading.RLock]) -> None:
        self._locks: list[threading.RLock] = locks
        self._held: list[threading.RLock] = []

    def __enter__(self) -> None:
        try:
            for lock in self._locks:
                lock.acquire()
                self._held.append(lock)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        while self._held:
            self._held.pop().release()
