"""Calls of one agent that read a file in order to write it."""

from __future__ import annotations

import asyncio

import pytest

from noclobber.adapters import call_queue
from noclobber.adapters.call_queue import CallQueue


class Agent:
    """Stands for a turn."""


def test_the_second_waits_until_the_first_has_written() -> None:
    """N-frameworks: parallel edits of one step are carried out one after the other, in their order."""
    events: list[str] = []

    async def play() -> None:
        queue, turn = CallQueue(), Agent()

        async def edit(name: str) -> None:
            await queue.enter(turn, "plan.md")
            events.append(f"{name} reads")
            await asyncio.sleep(0)
            events.append(f"{name} writes")
            queue.leave(turn, "plan.md")

        await asyncio.gather(*(edit(name) for name in "abc"))

    asyncio.run(play())
    assert events == ["a reads", "a writes", "b reads", "b writes", "c reads", "c writes"]


def test_other_files_and_other_agents_do_not_wait() -> None:
    """N-frameworks: a queue for each agent and file."""

    async def play() -> None:
        queue, one, other = CallQueue(), Agent(), Agent()
        await queue.enter(one, "a")
        await queue.enter(one, "b")
        await queue.enter(other, "a")

    asyncio.run(asyncio.wait_for(play(), 5))


def test_one_that_is_cancelled_while_it_waits_passes_its_turn_on() -> None:
    """N-frameworks: a cancelled call holds nobody up."""

    async def play() -> None:
        queue, turn = CallQueue(), Agent()
        await queue.enter(turn, "a")
        second = asyncio.ensure_future(queue.enter(turn, "a"))
        third = asyncio.ensure_future(queue.enter(turn, "a"))
        await asyncio.sleep(0)
        queue.leave(turn, "a")  # The second one's turn has come, and it does not know yet.
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        await asyncio.wait_for(third, 5)

    asyncio.run(play())


def test_a_call_that_never_leaves_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """N-frameworks: a framework may drop a call without telling."""
    monkeypatch.setattr(call_queue, "WAIT_S", 0.0)

    async def play() -> None:
        queue, turn = CallQueue(), Agent()
        await queue.enter(turn, "a")
        await queue.enter(turn, "a")

    asyncio.run(asyncio.wait_for(play(), 5))
