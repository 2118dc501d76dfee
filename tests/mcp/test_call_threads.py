"""The threads that carry out tool calls."""

from __future__ import annotations

import asyncio
import threading

import anyio
import pytest

from noclobber.mcp import call_threads
from noclobber.mcp.call_threads import CallThreads, RunningCall


def test_a_call_that_is_cancelled_is_waited_for_and_can_see_it() -> None:
    """N-mcp: what a call does to a file is finished before the client hears anything else."""
    started, seen = threading.Event(), []

    def work(call: RunningCall) -> None:
        started.set()
        try:
            while True:
                call.check()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def main() -> None:
        threads = CallThreads()
        async with anyio.create_task_group() as group:
            group.start_soon(threads.run, work)
            while not started.is_set():
                await anyio.sleep(0)
            group.cancel_scope.cancel()
        assert seen == ["cancelled"]
        threads.close()

    anyio.run(main)


def test_calls_run_at_once_up_to_a_number_and_the_rest_gets_its_turn() -> None:
    """N-mcp: four calls, two threads: never three at work, and every call has its own answer."""
    at_work, most, lock = 0, 0, threading.Lock()
    together = threading.Barrier(2, timeout=30)

    def work(_: RunningCall) -> str:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        together.wait()
        with lock:
            at_work -= 1
        together.wait()
        return threading.current_thread().name

    async def main() -> list[str]:
        threads = CallThreads(most=2)
        names = list(await asyncio.gather(*(threads.run(work) for _ in range(4))))
        threads.close()
        return names

    assert sorted(set(anyio.run(main))) == ["call-1", "call-2"]
    assert most == 2


def test_an_error_of_a_call_is_the_callers_error_and_the_thread_goes_on() -> None:
    """N-mcp."""

    def fails(_: RunningCall) -> None:
        raise LookupError("no such thing")

    async def main() -> None:
        threads = CallThreads()
        with pytest.raises(LookupError, match="no such thing"):
            await threads.run(fails)
        assert await threads.run(lambda _: 7) == 7
        threads.close()

    anyio.run(main)


def test_a_call_that_does_not_end_soon_holds_up_nobody() -> None:
    """N-mcp: the loop waits for a call briefly. This one ends only when the loop has gone on to others."""
    others_had_their_turn = threading.Event()

    async def main() -> bool:
        threads = CallThreads()
        asyncio.get_running_loop().call_soon(others_had_their_turn.set)
        ended = await threads.run(lambda _: others_had_their_turn.wait(30))
        threads.close()
        return bool(ended)

    assert anyio.run(main)


def test_a_call_that_needs_the_loop_gets_it_though_the_loop_waits_for_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """N-mcp: progress reports are sent by the loop. Neither waits for the other, however long "briefly" is."""
    monkeypatch.setattr(call_threads, "BRIEF_S", 1e6)
    reported = []

    async def report() -> None:
        reported.append(threading.current_thread())

    async def main() -> None:
        threads = CallThreads()
        await threads.run(lambda call: call.run(report()))
        threads.close()

    anyio.run(main)
    assert reported == [threading.main_thread()]


def test_the_loop_waits_for_one_call_at_a_time_and_the_others_run_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """N-mcp: of calls that came together each goes on only when the other is under way as well."""
    together = threading.Barrier(2, timeout=30)

    async def main() -> None:
        threads = CallThreads()
        first = asyncio.ensure_future(threads.run(lambda _: together.wait()))
        await asyncio.sleep(0)  # From here on the loop waits for the second as it likes: the first is busy.
        monkeypatch.setattr(call_threads, "BRIEF_S", 1e6)
        await asyncio.gather(first, *(threads.run(lambda _: together.wait()) for _ in range(3)))
        threads.close()

    anyio.run(main)
