"""
`DeliverableLock` for asyncio. The same names and errors; `.sync` is the lock underneath.

    async with aio.DeliverableLock(folder, holder="builder-1") as lock:
        await work()
        await lock.assert_held()

Steps that touch the disk run in threads; waiting for a lock does not occupy one. Cancelling leaves
nothing half done: a step that has begun is waited for, and a lock that it took after its caller had been
cancelled is released before the cancellation goes on.
"""

from __future__ import annotations

import asyncio
import os
import random
from typing import TYPE_CHECKING, Any, TypeVar

from noclobber.errors import BadRequestError, LockLost
from noclobber.lock import lock as blocking
from noclobber.lock import release_at_exit

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from noclobber.lock.arbiter import LockStatus, Recovery

    T = TypeVar("T")


class DeliverableLock:
    """The lock of one folder, as one holder sees it. Options as for the blocking one."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        on_lost: Callable[[LockLost], None] | None = None,
        **options: Any,
    ) -> None:
        """Describe a lock. `on_lost` is called in the event loop that acquired."""
        self._tell, self._loop = on_lost, None  # type: Callable[[LockLost], None] | None, Any
        tell = None if on_lost is None else self._lost_elsewhere
        self.sync = blocking.DeliverableLock(folder, on_lost=tell, **options)

    def __repr__(self) -> str:
        return f"<aio.{repr(self.sync)[1:]}"

    @property
    def folder(self) -> str:
        """Where the folder is now."""
        return self.sync.folder

    @property
    def lock_id(self) -> str | None:
        """The id of the acquisition; None if not held."""
        return self.sync.lock_id

    @property
    def lease_duration_s(self) -> int:
        """For how long one renewal lasts."""
        return self.sync.lease_duration_s

    @property
    def fencing_token(self) -> int | None:
        """A number that rises with every holder on every machine; None if not held, or kept in a file."""
        return self.sync.fencing_token

    @property
    def held(self) -> bool:
        """True if this object acquired, and has not heard of a loss."""
        return self.sync.held

    @property
    def lost(self) -> LockLost | None:
        """The loss that was noticed, if one was."""
        return self.sync.lost

    async def acquire(self, timeout_s: float = 0.0) -> DeliverableLock:
        """Take the lock, or raise `LockContention`: at once, or after `timeout_s` of asking again."""
        if not timeout_s >= 0:
            raise BadRequestError("", f"timeout_s must not be negative, and is {timeout_s!r}")
        self._loop = asyncio.get_running_loop()
        release_at_exit.prepare()  # Here, because steps run in threads, where no signal handler can be set.
        deadline_s = self._loop.time() + timeout_s
        pause_s = blocking.FIRST_PAUSE_S
        while True:
            refusal = await finished(self.sync.attempt, undo=self.sync.let_go)
            if refusal is None:
                return self
            left_s = deadline_s - self._loop.time()
            if left_s <= 0:
                await finished(self.sync.report, refusal)
                raise refusal
            await asyncio.sleep(min(pause_s * (0.5 + random.random()), left_s))  # noqa: S311
            pause_s = min(pause_s * 1.6, self.sync.longest_pause_s)

    async def renew(self, lease_duration_s: int | None = None) -> None:
        """Extend the lease to a full one from now; `LockLost` if the lock is no longer this holder's."""
        await finished(self.sync.renew, lease_duration_s)

    async def release(self) -> bool:
        """Release; see the blocking one for what is returned and raised."""
        return await finished(self.sync.release)

    async def assert_held(self) -> None:
        """Return if this holder has the lock now; otherwise raise `LockLost`."""
        await finished(self.sync.assert_held)

    async def status(self) -> LockStatus:
        """Return what the folder's lock is like now, whoever holds it."""
        return await finished(self.sync.status)

    async def recover(self) -> Recovery | None:
        """Clear an orphan by hand."""
        return await finished(self.sync.recover)

    async def retire(self) -> Recovery | None:
        """Make a folder ready to be deleted or archived."""
        return await finished(self.sync.retire)

    async def __aenter__(self) -> DeliverableLock:
        return self if self.held else await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await finished(self.sync.__exit__, kind, error, trace)

    def _lost_elsewhere(self, error: LockLost) -> None:
        """Called in the heartbeat's thread: hand over to the event loop, if it still runs."""
        assert self._tell is not None
        try:
            self._loop.call_soon_threadsafe(self._tell, error)
        except (RuntimeError, AttributeError):
            self._tell(error)


async def finished(
    work: Callable[..., T],
    /,
    *args: Any,
    cancelled: Callable[[], object] | None = None,
    undo: Callable[[], object] | None = None,
) -> T:
    """
    Run a step in a thread, and never leave before it is over.

    If cancelled, call `cancelled`, wait for the step, and `undo` it in a thread if it succeeded.
    """
    running = asyncio.ensure_future(asyncio.to_thread(work, *args))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if cancelled is not None:
            cancelled()
        await _outlast(running)
        if undo is not None and not running.cancelled() and running.exception() is None:
            await _outlast(asyncio.ensure_future(asyncio.to_thread(undo)))
        raise


async def _outlast(running: asyncio.Future[Any]) -> None:
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            continue  # Asked again. The answer is the same, and it comes after the thread's.
    if not running.cancelled():
        running.exception()  # Looked at, so that nobody is told of an exception that was never retrieved.
