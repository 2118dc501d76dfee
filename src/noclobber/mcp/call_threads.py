"""
Threads that carry out tool calls, because disks block and the event loop must not.

The same as anyio's worker threads, with less in between: anyio goes round the event loop twice before a call
starts, and a call of ours is often shorter than that.

So the event loop itself waits for a call, but briefly (`BRIEF_S`), and only if no other call is under way.
Most calls have ended by then, and to wake the loop through its own socket would take some 40 µs more. After
that the loop goes on: a disk that hangs, or a lease that does not end, holds up a ping by that time at most.

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
BRIEF_S = 0.002
"""How long the event loop waits for a call before it goes on to others."""


class RunningCall:
    """One call, as its thread sees it."""

    __slots__ = ("_ended", "_loop", "_under_way", "has_ended", "is_cancelled", "result", "work")

    def __init__(self, work: Callable[[RunningCall], Any]) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Event | None = None
        """What the loop waits for once it has gone on to others."""
        self._under_way = threading.Lock()
        """Released when the call has ended, or needs the loop."""
        self._under_way.acquire()
        self.work: Callable[[], Any] = lambda: work(self)
        self.has_ended = self.is_cancelled = False
        self.result: tuple[Any, BaseException | None] = (None, None)

    def check(self) -> None:
        """Raise if the call was cancelled. Called in the thread."""
        if self.is_cancelled:
            raise asyncio.CancelledError

    def run(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine in the event loop and wait for it. Called in the thread."""
        self._go_on()  # The loop may be waiting for us.
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def carry_out(self) -> None:
        """Do the work. Called in the thread."""
        try:
            self.result = (self.work(), None)
        except BaseException as error:
            self.result = (None, error)
        self.has_ended = True
        self._go_on()
        # Looked at after `has_ended` is set: whoever went on before that has put it there.
        if self._ended is not None:
            try:
                self._loop.call_soon_threadsafe(self._ended.set)
            except RuntimeError:
                pass  # The loop is closed: the process ends.

    def _go_on(self) -> None:
        if self._under_way.locked():
            self._under_way.release()

    def ends_within(self, seconds: float) -> bool:
        """Wait for the end, with the loop standing still; False if the call goes on."""
        self._under_way.acquire(timeout=seconds)
        return self.has_ended

    async def wait(self) -> None:
        """Wait for the end, with the loop free for others."""
        self._ended = asyncio.Event()
        if not self.has_ended:  # Looked at after that: a call that ends from now on tells it.
            await self._ended.wait()


class CallThreads:
    """Threads that are made when they are needed and kept for the next call."""

    def __init__(self, most: int = MOST) -> None:
        self._waiting: SimpleQueue[tuple[Any, RunningCall] | None] = SimpleQueue()
        self._most, self._count, self._busy = most, 0, 0
        self._has_waited = False
        """True if the loop has waited in this round: other calls may have come together with that one."""

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
            if not self._ends_soon(call):
                try:
                    await call.wait()
                except asyncio.CancelledError:
                    call.is_cancelled = True
                    with anyio.CancelScope(shield=True):
                        await call.wait()
                    raise
        finally:
            self._busy -= 1
        result, error = call.result
        if error is not None:
            raise error
        return result

    def _ends_soon(self, call: RunningCall) -> bool:
        """Wait briefly for the only call that is under way; True if it has ended."""
        if self._busy > 1 or self._has_waited:
            return False
        self._has_waited = True
        asyncio.get_running_loop().call_soon(self._next_round)
        return call.ends_within(BRIEF_S)

    def _next_round(self) -> None:
        self._has_waited = False

    def close(self) -> None:
        """Let the threads end when they have nothing to do."""
        for _ in range(self._count):
            self._waiting.put(None)

    def _work(self) -> None:
        while (job := self._waiting.get()) is not None:
            context, call = job
            context.run(call.carry_out)
            del job, context, call  # Nothing of a call is kept until the next one.
