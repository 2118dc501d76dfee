"""
Threads that carry out tool calls, because disks block and the event loop must not.

The same as anyio's worker threads, with less in between: anyio goes round the event loop twice before a call
starts, and a call of ours is often shorter than that.

A call that is cancelled is waited for: what it does to a file must be finished before the client hears
anything else. It can ask whether it was cancelled (`RunningCall.check`), and long calls do.
"""

from __future__ import annotations

import asyncio
import threading
from contextvars import copy_context
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

MOST = 40
"""Calls at once; more wait for their turn."""


class RunningCall:
    """One call, as its thread sees it."""

    __slots__ = ("_loop", "ended", "is_cancelled", "result", "work")

    def __init__(self, work: Callable[[RunningCall], Any]) -> None:
        self._loop = asyncio.get_running_loop()
        self.ended = asyncio.Event()
        self.work: Callable[[], Any] = lambda: work(self)
        self.is_cancelled = False
        self.result: tuple[Any, BaseException | None] = (None, None)

    def check(self) -> None:
        """Raise if the call was cancelled. Called in the thread."""
        if self.is_cancelled:
            raise asyncio.CancelledError

    def run(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine in the event loop and wait for it. Called in the thread."""
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def carry_out(self) -> None:
        """Do the work. Called in the thread."""
        try:
            self.result = (self.work(), None)
        except BaseException as error:
            self.result = (None, error)
        try:
            self._loop.call_soon_threadsafe(self.ended.set)
        except RuntimeError:
            pass  # The loop is closed: the process ends.


class CallThreads:
    """Threads that are made when they are needed and kept for the next call."""

    def __init__(self, most: int = MOST) -> None:
        self._waiting: SimpleQueue[tuple[Any, RunningCall] | None] = SimpleQueue()
        self._most, self._count, self._busy = most, 0, 0

    async def run(self, work: Callable[[RunningCall], Any]) -> Any:
        """Return what `work(call)` returns, in a thread."""
        call = RunningCall(work)
        self._busy += 1
        try:
            if self._busy > self._count < self._most:
                self._count += 1
                # A thread that waits for a disk that has gone must not keep the process.
                threading.Thread(target=self._work, name=f"call-{self._count}", daemon=True).start()
            self._waiting.put((copy_context(), call))
            try:
                await call.ended.wait()
            except asyncio.CancelledError:
                call.is_cancelled = True
                with anyio.CancelScope(shield=True):
                    await call.ended.wait()
                raise
        finally:
            self._busy -= 1
        result, error = call.result
        if error is not None:
            raise error
        return result

    def close(self) -> None:
        """Let the threads end when they have nothing to do."""
        for _ in range(self._count):
            self._waiting.put(None)

    def _work(self) -> None:
        while (job := self._waiting.get()) is not None:
            context, call = job
            context.run(call.carry_out)
            del job, context, call  # Nothing of a call is kept until the next one.
