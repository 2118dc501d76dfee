"""The same for asyncio: nothing half done, nothing shared between tasks."""

from __future__ import annotations

import asyncio
import inspect
import random
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from noclobber import Attempt, aio
from noclobber.core.values import Edit, ToolCall
from noclobber.errors import GaveUpError, LedgerError, LockContention, StaleFileError, TurnClosedError
from noclobber.guard import controller, hook_engine, workspace
from noclobber.guard import turn as sync_turn
from noclobber.guard.tools import tool_list
from tests.conftest import AtStep, sha256


@pytest.fixture
def ws(root: Path) -> Iterator[aio.Workspace]:
    (root / "a.md").write_bytes(b"v1\n")
    workspace = aio.Workspace(root)
    yield workspace
    workspace.sync.close()


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, 60))


def test_the_tools_do_what_their_twins_do(root: Path, ws: aio.Workspace) -> None:
    """N-async: the same names, awaited."""

    async def story() -> None:
        async with ws.turn(agent_id="builder") as turn:
            seen = await turn.read_file("a.md")
            assert seen.sha256 == turn.get_initial_hash("a.md") == sha256(b"v1\n")
            (root / "a.md").write_bytes(b"theirs\n")
            assert "+theirs" in await turn.changes_since_read("a.md")
            with pytest.raises(StaleFileError):
                await turn.write_file("a.md", b"x")
            await turn.read_file("a.md", start_line=1)
            await turn.write_file("a.md", b"one\n")
            await turn.edit_file("a.md", [Edit("one", "two")])
            await turn.write_files({"b.md": b"b", "c.md": b"c"})
            await turn.move_file("b.md", "d.md")
            await turn.delete_file("c.md")
            await turn.call("insert_content", {"path": "a.md", "line": 0, "content": "end"})
        with pytest.raises(TurnClosedError):
            await turn.read_file("a.md")

    run(story())
    assert (root / "a.md").read_bytes() == b"two\nend\n"
    assert sorted(path.name for path in root.iterdir()) == [".noclobber", "a.md", "d.md"]
    assert ws.ledger.verify().event_count == 8


@pytest.mark.parametrize(
    ("twin", "original"),
    [
        (aio.Workspace, workspace.Workspace),
        (aio.Turn, sync_turn.Turn),
        (aio.HookEngine, hook_engine.HookEngine),
        (aio.AgentController, controller.AgentController),
        (aio.ToolList, tool_list.ToolList),
    ],
)
def test_no_public_method_is_missing(twin: type[Any], original: type[Any]) -> None:
    """N-async: whoever knows one side knows the other."""
    inside = {
        "around",
        "open_turn",
        "ledger_trouble",
        "baseline_bytes",
        "change_file",
        "begin_watch",
        "end_watch",
        "watched",
        "as_seen",
    }  # Not for callers.
    for name, member in inspect.getmembers(original, inspect.isroutine):
        if (name.startswith("_") and name != "__init__") or name in inside:
            continue
        assert hasattr(twin, name), name
        theirs, ours = inspect.signature(member).parameters, inspect.signature(getattr(twin, name)).parameters
        if name == "__init__" and original is not workspace.Workspace:
            continue  # Made by a workspace, or from the twin of what the original is made from.
        assert list(theirs) == list(ours), name
        assert [each.default for each in theirs.values()] == [each.default for each in ours.values()], name
        assert [each.kind for each in theirs.values()] == [each.kind for each in ours.values()], name


def test_a_cancelled_write_has_landed_wholly_or_not_at_all(
    root: Path, ws: aio.Workspace, at_step: AtStep
) -> None:
    """N-async: the cancellation waits for the commit, and the turn knows what came of it."""
    entered, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        assert go_on.wait(30)

    async def story() -> None:
        async with ws.turn() as turn:
            await turn.read_file("a.md")
            at_step("entered", hold)
            writing = asyncio.create_task(turn.write_file("a.md", b"mine\n"))
            await asyncio.to_thread(entered.wait)
            for _ in range(3):
                writing.cancel()
                await asyncio.sleep(0)
                assert not writing.done(), "it left its thread behind"
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await writing
            assert (root / "a.md").read_bytes() == b"mine\n"
            await turn.write_file("a.md", b"next\n")

    run(story())
    assert [event["action_type"] for event in ws.ledger.events()] == ["MUTATION", "MUTATION"]
    assert (root / "a.md").read_bytes() == b"next\n"


def test_a_cancelled_turn_is_over_and_nothing_runs_on(root: Path, ws: aio.Workspace, at_step: AtStep) -> None:
    """N-async: the turn does not end under a running commit."""
    entered, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        assert go_on.wait(30)

    async def agent() -> None:
        async with ws.turn() as turn:
            await turn.read_file("a.md")
            at_step("entered", hold)
            await turn.write_file("a.md", b"mine\n")
            raise AssertionError("not reached")

    async def story() -> None:
        task = asyncio.create_task(agent())
        await asyncio.to_thread(entered.wait)
        task.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(story())
    assert [event["action_type"] for event in ws.ledger.events()] == ["MUTATION"]


def test_a_refusal_that_nobody_waits_for_any_more_is_no_warning(
    root: Path, ws: aio.Workspace, at_step: AtStep
) -> None:
    """N-async: cancelled, and the commit is refused meanwhile."""
    entered, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        (root / "a.md").write_bytes(b"theirs\n")
        entered.set()
        assert go_on.wait(30)

    async def story() -> None:
        async with ws.turn() as turn:
            await turn.read_file("a.md")
            at_step("entered", hold)
            writing = asyncio.create_task(turn.write_file("a.md", b"mine\n"))
            await asyncio.to_thread(entered.wait)
            writing.cancel()
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await writing

    run(story())
    assert (root / "a.md").read_bytes() == b"theirs\n"


def test_tasks_with_turns_of_their_own_share_nothing(root: Path, ws: aio.Workspace) -> None:
    """DESIGN: turns in one process are isolated, tasks included; and nobody loses an update."""
    (root / "counter").write_bytes(b"0")

    async def agent(number: int) -> None:
        for _ in range(5):
            async with ws.turn(agent_id=f"agent-{number}") as turn:
                assert turn.get_initial_hash("counter") is None

                async def step(attempt: Attempt, turn: aio.Turn = turn) -> object:
                    seen = attempt.fresh or await turn.read_file("counter")
                    return await turn.write_file("counter", str(int(seen.text) + 1))

                await aio.AgentController(turn, max_attempts=1_000, max_busy=1_000).run(step)

    async def story() -> None:
        await asyncio.gather(*(agent(number) for number in range(6)))

    run(story())
    assert (root / "counter").read_bytes() == b"30"


def test_the_controller_is_the_same_machine(root: Path, ws: aio.Workspace) -> None:
    """N-async, 011-SC-003: with a sleep that does not sleep."""
    naps = []

    async def sleep(seconds: float) -> None:
        naps.append(seconds)

    async def story() -> None:
        async with ws.turn() as turn:

            async def step(attempt: Attempt) -> object:
                if not attempt.fresh:
                    await turn.read_file("a.md")
                (root / "a.md").write_bytes(b"%d" % attempt.number)
                return await turn.write_file("a.md", b"mine %d" % attempt.number)

            agent = aio.AgentController(turn, max_attempts=3, sleep=sleep, rng=random.Random(1))
            with pytest.raises(GaveUpError):
                await agent.run(step)
            assert [seen.after for seen in agent.history] == [
                *["RE_READ_REQUIRED", "RUNNING"] * 2,
                "RE_READ_REQUIRED",
                "GAVE_UP",
            ]
            assert turn.sync.options.resubmitted == "allow"

    run(story())
    assert len(naps) == 2


def test_the_engine_takes_coroutines_for_executors(root: Path, ws: aio.Workspace) -> None:
    """N-async, R-hook."""

    async def story() -> None:
        async with ws.turn() as turn:

            async def read(call: ToolCall) -> Any:
                return (root / call.params["path"]).read_bytes()

            async def fails(call: ToolCall) -> None:
                raise OSError("boom")

            engine = ws.engine
            assert await engine.execute(turn.tool_call("read_file", {"path": "a.md"}), read) == b"v1\n"
            assert turn.get_initial_hash("a.md") == sha256(b"v1\n")
            write = turn.tool_call("write_to_file", {"path": "a.md", "content": "x"})
            with pytest.raises(OSError, match="boom"):
                await engine.execute(write, fails)
            (root / "a.md").write_bytes(b"theirs\n")
            with pytest.raises(StaleFileError):
                await engine.execute(write, read)
            assert not (await engine.pre_tool_use(write)).allowed
            await engine.post_tool_use(turn.tool_call("read_file", {"path": "a.md"}), b"theirs\n")
            result = await engine.execute(write)
            assert result.sha256 == sha256(b"x")

    run(story())


def test_a_coroutine_is_told_of_what_somebody_saved_while_it_wrote(root: Path, ws: aio.Workspace) -> None:
    """finding C9: the result is raised or returned as by the blocking engine, and not swallowed."""

    async def story() -> None:
        async with ws.turn() as turn:
            await turn.read_file("a.md")
            write = turn.tool_call("write_to_file", {"path": "a.md", "content": "mine"})

            async def write_and_lose(call: ToolCall) -> None:
                (root / "a.md").write_bytes(b"mine")
                (root / "a.md").write_bytes(b"theirs")

            with pytest.raises(StaleFileError):
                await ws.engine.execute(write, write_and_lose)

            await turn.read_file("a.md")
            again = turn.tool_call("write_to_file", {"path": "a.md", "content": "mine"})
            assert (await ws.engine.pre_tool_use(again)).allowed
            await write_and_lose(again)
            assert isinstance(await ws.engine.post_tool_use(again, None), StaleFileError)

    run(story())


def test_an_executor_that_is_cancelled_has_failed_and_its_file_is_free(root: Path, ws: aio.Workspace) -> None:
    """N-async, R-hook: what it left behind is noted, in the moment of the check as well."""

    async def story() -> None:
        async with ws.turn() as turn:
            begun = asyncio.Event()

            async def endless(call: ToolCall) -> None:
                begun.set()
                await asyncio.Event().wait()

            for wait_for_it in (True, False):
                call = turn.tool_call("write_to_file", {"path": "a.md", "content": "mine"})
                begun.clear()
                task = asyncio.create_task(ws.engine.execute(call, endless))
                await (begun.wait() if wait_for_it else asyncio.sleep(0))
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert not turn.sync.memory.notes_of(str(root / "a.md")).get("pending")
            await turn.write_file("a.md", b"next")

    run(story())
    assert (root / "a.md").read_bytes() == b"next"


def test_errors_come_through_the_thread_as_they_are(ws: aio.Workspace) -> None:
    """Ruling 13: with what travels beside them."""
    import os

    async def story() -> None:
        async with ws.turn() as turn:
            os.makedirs(ws.ledger.path)
            with pytest.raises(LedgerError):
                await turn.write_file("a.md", b"x")

    run(story())


def test_a_turn_carries_a_lock_of_either_kind(tmp_path: Path) -> None:
    """K-WRITE-1: the holder writes in its deliverable, and others do not."""
    (tmp_path / "DEL-1").mkdir()

    async def story() -> None:
        ws = aio.Workspace(tmp_path)
        async with aio.DeliverableLock(tmp_path / "DEL-1", holder="builder-1") as lock:
            for carried in (lock, lock.sync):
                async with ws.turn(agent_id="builder-1", lock=carried) as turn:
                    await turn.write_file("DEL-1/a.md", "mine")
            async with ws.turn(agent_id="other") as turn:
                with pytest.raises(LockContention):
                    await turn.write_file("DEL-1/a.md", "theirs")
        await ws.close()

    asyncio.run(story())
    assert (tmp_path / "DEL-1" / "a.md").read_text() == "mine"


def test_a_models_calls_are_answered_in_its_format(root: Path, ws: aio.Workspace) -> None:
    """N-async, N-tools: the list is passed to the model, and each call is awaited; its id is on record."""
    (root / "b.md").write_bytes(b"one\n")

    async def story() -> dict[str, Any]:
        async with ws.turn(agent_id="a") as turn:
            tools = turn.tools(format="anthropic")
            assert "read_file" in [tool["name"] for tool in tools]
            with turn.called("call-7"):
                await turn.write_file("c.md", b"new\n")
            call = {"type": "tool_use", "id": "t1", "name": "read_file", "input": {"path": "b.md"}}
            return await tools.call(call)

    answer = run(story())
    assert (answer["tool_use_id"], "one" in str(answer["content"])) == ("t1", True)
    assert [event["identity"]["call_id"] for event in ws.ledger.events()][-1] == "call-7"
