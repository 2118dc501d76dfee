"""The asyncio twin: the same answers, and cancellation that leaves nothing half done."""

from __future__ import annotations

import asyncio
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from noclobber.errors import LockContention, LockLost
from noclobber.lock import lock as blocking
from noclobber.lock.aio import DeliverableLock
from noclobber.lock.backend import status_of
from tests.rigs.locks import events, finish, python


def test_acquire_contend_renew_release(tmp_path: Path) -> None:
    """REQ-LOCK-003, REQ-LOCK-013: as the blocking one."""

    async def story() -> None:
        async with DeliverableLock(tmp_path, holder="a") as lock:
            assert lock.held
            assert lock.folder == str(tmp_path)
            await lock.renew()
            await lock.assert_held()
            with pytest.raises(LockContention):
                await DeliverableLock(tmp_path, holder="b").acquire(timeout_s=0.05)
            assert (await lock.status()).holder == "a"
        assert (await lock.status()).state == "free"
        assert await lock.recover() is None
        assert await lock.retire() is None

    asyncio.run(story())
    assert len(events(tmp_path, "LOCK_CONTENTION")) == 1


def test_the_default_lease_is_the_same_as_without_asyncio(tmp_path: Path) -> None:
    """REQ-LOCK-004: `lease_duration_s` tells the one in force."""

    async def story() -> None:
        cases: list[dict[str, Any]] = [{}, {"heartbeat": False}, {"lease_duration_s": 90}]
        for options in cases:
            async with DeliverableLock(tmp_path, **options) as lock:
                expected = blocking.DeliverableLock(tmp_path, **options).lease_duration_s
                assert lock.lease_duration_s == expected
                assert (await lock.status()).lease_duration_s == expected

    asyncio.run(story())


def test_waiting_does_not_occupy_a_thread_and_gets_in_when_the_holder_leaves(tmp_path: Path) -> None:
    """REQ-LOCK-007: a hundred waiters are a hundred timers."""

    async def story() -> int:
        first = await DeliverableLock(tmp_path, holder="a").acquire()
        waiters = [asyncio.create_task(take(number)) for number in range(20)]
        await asyncio.sleep(0.1)
        threads = threading.active_count()
        await first.release()
        await asyncio.gather(*waiters)
        return threads

    async def take(number: int) -> None:
        lock = await DeliverableLock(tmp_path, holder=f"w{number}").acquire(timeout_s=60)
        await lock.release()

    assert asyncio.run(story()) < 20
    assert status_of(str(tmp_path)).state == "free"


def test_a_cancelled_acquire_leaves_no_lock(tmp_path: Path) -> None:
    """Cancelled while the thread was taking it: it is released before the cancellation goes on."""

    async def story() -> None:
        for delay_us in range(0, 1500, 100):
            lock = DeliverableLock(tmp_path, holder="a")
            task = asyncio.create_task(lock.acquire())
            await asyncio.sleep(delay_us / 1e6)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                assert status_of(str(tmp_path)).state == "free"
                assert not lock.held
            else:
                await lock.release()

    asyncio.run(story())


def test_a_loss_is_told_in_the_event_loop(tmp_path: Path) -> None:
    """REQ-LOCK-013: by the heartbeat."""

    async def story() -> LockLost:
        told: asyncio.Future[LockLost] = asyncio.get_running_loop().create_future()
        lock = DeliverableLock(tmp_path, holder="a", lease_duration_s=1, on_lost=told.set_result)
        await lock.acquire()
        (tmp_path / ".lock").unlink()
        error = await asyncio.wait_for(told, 10)
        with pytest.raises(LockLost):
            await lock.release()
        return error

    assert asyncio.run(story()).code == "LOCK_LOST"


def test_sigterm_releases_a_lock_that_was_taken_in_a_thread_of_the_loop(tmp_path: Path) -> None:
    """REQ-LOCK-005: the handler is set from the main thread before the step goes to another."""
    code = """
import asyncio, os, signal, sys
from noclobber.lock import lock as blocking
from noclobber.lock.aio import DeliverableLock
async def story():
    lock = await DeliverableLock(sys.argv[1], holder="a").acquire()
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(20)
asyncio.run(story())
"""
    assert finish(python(code, tmp_path))[0] == -signal.SIGTERM
    assert not (tmp_path / ".lock").exists()
