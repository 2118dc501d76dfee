"""
Processes that stop at every named step (`disk/steps.py`) and go on when they are told to.

A process also stops where it would wait for a mutex; it says which folder's, so that it is asked again only
when that is free. So nothing depends on time, and the same list of turns leads to the same end.
"""

from __future__ import annotations

import fcntl
import os
import signal
import traceback
from collections.abc import Callable
from typing import NamedTuple

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.disk import mutex, steps
from noclobber.errors import NoclobberError

STOPPED, WAITING, LANDED, REFUSED, FAILED = b".", b"w", b"l", b"r", b"!"
_SAID_BYTES = 64


class Stop(NamedTuple):
    """Where a process is."""

    kind: bytes
    step: str = ""
    folder_inode: int = 0


class Stepper:
    """One process, stopped until `go()`. `work` gets the function that stops, and does what is tried."""

    def __init__(self, name: str, work: Callable[[Callable[[str], None]], None]) -> None:
        self.name = name
        said, self._say = os.pipe()
        self._hear, go = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(said)
            os.close(go)
            self._work(work)
        os.close(self._say)
        os.close(self._hear)
        self._said, self._go = said, go
        self.stops, self.is_over, self.was_killed = 0, False, False
        self.at = Stop(STOPPED, "forked")
        self._hear_it()

    # In the process itself

    def _work(self, work: Callable[[Callable[[str], None]], None]) -> None:
        kind, text = FAILED, ""
        try:
            mutex.hold = self._hold
            try:
                work(self._stop)
                kind = LANDED
            except NoclobberError as error:
                kind, text = REFUSED, error.code
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"[:50]
            traceback.print_exc()
        finally:
            steps.observer = None
            self._tell(Stop(kind, text))
            os._exit(0)

    def _tell(self, stop: Stop) -> None:
        text = f"{stop.kind.decode()}{stop.folder_inode} {stop.step}".encode()[:_SAID_BYTES]
        os.write(self._say, text.ljust(_SAID_BYTES))

    def _stop(self, step: str) -> None:
        self._tell(Stop(STOPPED, step))
        os.read(self._hear, 1)

    def _hold(self, descriptor: int, *, patience_s: float = 1.0, clock: object = SYSTEM_CLOCK) -> bool:
        """In place of `mutex.hold`, which sleeps."""
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if patience_s == 0 or steps.observer is None:
                    return False
            self._tell(Stop(WAITING, "", os.fstat(descriptor).st_ino))
            os.read(self._hear, 1)

    # Outside

    def _hear_it(self) -> None:
        said = os.read(self._said, _SAID_BYTES)
        assert said, f"{self.name} is gone"
        head, _, step = said.decode().rstrip().partition(" ")
        self.at = Stop(head[:1].encode(), step, int(head[1:]))
        assert self.at.kind != FAILED, f"{self.name} failed: {self.at.step}"
        self.stops += 1
        if self.at.kind in (LANDED, REFUSED):
            self._end()

    @property
    def has_landed(self) -> bool:
        """It did what it was to do."""
        return self.at.kind == LANDED

    def go(self) -> None:
        """Let it run to its next stop, or to its end."""
        os.write(self._go, b".")
        self._hear_it()

    def kill(self) -> None:
        """As `kill -9` does."""
        os.kill(self.pid, signal.SIGKILL)
        self.was_killed = True
        self._end()

    def _end(self) -> None:
        self.is_over = True
        os.waitpid(self.pid, 0)
        os.close(self._said)
        os.close(self._go)

    def is_ready(self, folders: dict[int, str]) -> bool:
        """False if it would only wait; `folders` are paths by inode."""
        if self.is_over or self.at.kind != WAITING:
            return not self.is_over
        descriptor = os.open(folders[self.at.folder_inode], os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
