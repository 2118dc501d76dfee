"""A check around tools of the user's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from noclobber import BadRequestError, StaleFileError, Tool, Workspace
from noclobber.adapters.call_queue import QUEUE
from noclobber.adapters.callers import Caller
from noclobber.adapters.own_tools import OwnTools
from noclobber.adapters.runs import RunTurns
from tests.rigs.ledgers import recorded

CALLER = Caller("agent", run_id="r1", call_id="c1")


@pytest.fixture
def own(root: Path) -> Iterator[OwnTools]:
    (root / "note.md").write_bytes(b"- one\n")
    with Workspace(root) as workspace:
        yield OwnTools(
            RunTurns(workspace, "x"),
            [
                Tool("load_note", "read", path=("note",)),
                Tool("save_note", "write", path=("note",), content="body"),
                Tool("change_note", "edit", form="replacement"),
            ],
        )


class InATask(OwnTools):
    """The same, as a framework with an event loop calls it; the tool is a coroutine function."""

    def around(self, caller: Caller, name: str, params: Mapping[str, Any], run: Callable[[], Any]) -> Any:
        async def tool() -> Any:
            return run()

        return asyncio.run(self.around_async(caller, name, params, tool))


@pytest.fixture(params=[OwnTools, InATask])
def either(own: OwnTools, request: pytest.FixtureRequest) -> OwnTools:
    """finding C9: what holds for a thread holds for a task."""
    own.__class__ = request.param
    return own


def test_a_stale_write_of_the_users_own_tool_is_refused_before_it_runs(either: OwnTools, root: Path) -> None:
    """N-frameworks, 009-FR-004: the tool is not called at all."""
    note = root / "note.md"
    either.around(CALLER, "load_note", {"note": "note.md"}, lambda: note.read_text())
    note.write_bytes(b"- theirs\n")
    called: list[str] = []
    with pytest.raises(StaleFileError):
        either.around(
            CALLER, "save_note", {"note": "note.md", "body": "- mine\n"}, lambda: called.append("!")
        )
    assert called == []
    [event] = recorded(root / ".noclobber" / "agent_trace.jsonl")
    assert event["action_type"] == "MUTATION_CONFLICT"
    assert event["identity"]["call_id"] == "c1"


def test_what_the_tool_wrote_is_the_new_baseline(either: OwnTools, root: Path) -> None:
    """ruling 10, 22: two writes in a row, and the second is not stale for the first."""
    note = root / "note.md"
    for body in ("- one\n- two\n", "- one\n- two\n- three\n"):
        either.around(
            CALLER._replace(call_id=body),
            "save_note",
            {"note": "note.md", "body": body},
            lambda body=body: note.write_text(body),  # type: ignore[misc]
        )
    assert note.read_bytes() == b"- one\n- two\n- three\n"


def test_a_coroutine_is_awaited_and_a_refusal_is_an_exception(own: OwnTools, root: Path) -> None:
    """N-frameworks: the same for asynchronous tools."""
    note = root / "note.md"

    async def load() -> str:
        return note.read_text()

    async def play() -> None:
        shown = await own.around_async(CALLER, "load_note", {"note": "note.md"}, load)
        assert shown == "- one\n"
        note.write_bytes(b"- theirs\n")
        with pytest.raises(StaleFileError):
            await own.around_async(CALLER, "save_note", {"note": "note.md", "body": "x"}, load)

    asyncio.run(play())


LINES = [f"line {number:02} -" for number in range(50)]


def _change(note: Path, line: str) -> Callable[[], int]:
    """A tool that reads the file and writes what it made of it."""
    return lambda: note.write_text(note.read_text().replace(line, line.replace("-", "done")))


def _params(line: str) -> dict[str, str]:
    return {"path": "note.md", "old_string": line, "new_string": line.replace("-", "done")}


def test_the_tasks_of_one_step_are_not_stale_for_each_other(own: OwnTools, root: Path) -> None:
    """N-frameworks: fifty calls at once change one file; each waits for the one before it."""
    note = root / "note.md"
    note.write_text("\n".join(LINES))

    async def play() -> None:
        await own.around_async(CALLER, "load_note", {"note": "note.md"}, note.read_text)
        calls = [
            own.around_async(CALLER._replace(call_id=line), "change_note", _params(line), _change(note, line))
            for line in LINES
        ]
        await asyncio.gather(*calls)

    asyncio.run(play())
    assert note.read_text().count("done") == 50


def test_the_threads_of_one_step_are_not_stale_for_each_other(own: OwnTools, root: Path) -> None:
    """N-frameworks: the same where a framework carries the calls out in threads."""
    note = root / "note.md"
    note.write_text("\n".join(LINES))
    own.around(CALLER, "load_note", {"note": "note.md"}, note.read_text)

    def call(line: str) -> None:
        own.around(CALLER._replace(call_id=line), "change_note", _params(line), _change(note, line))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(call, LINES))
    assert note.read_text().count("done") == 50


def test_a_call_that_is_refused_or_cancelled_keeps_nobody_waiting(own: OwnTools, root: Path) -> None:
    """N-frameworks: the next call of the agent finds nobody before it."""
    note = root / "note.md"
    params = {"note": "note.md", "body": "- mine\n"}

    async def play() -> None:
        await own.around_async(CALLER, "load_note", {"note": "note.md"}, note.read_text)
        note.write_bytes(b"- theirs\n")
        with pytest.raises(StaleFileError):
            await own.around_async(CALLER._replace(call_id="c2"), "save_note", params, note.read_text)
        await own.around_async(
            CALLER._replace(call_id="c3"), "load_note", {"note": "note.md"}, note.read_text
        )
        begun = asyncio.Event()

        async def endless() -> None:
            begun.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(
            own.around_async(CALLER._replace(call_id="c4"), "save_note", params, endless)
        )
        await begun.wait()
        behind = asyncio.create_task(
            own.around_async(CALLER._replace(call_id="c5"), "save_note", params, endless)
        )
        await asyncio.sleep(0)
        for each in (behind, task):
            each.cancel()
            with pytest.raises(asyncio.CancelledError):
                await each

    asyncio.run(play())
    assert not any(QUEUE._waiting.values())
    assert not own._entered


def test_a_tool_that_raises_is_not_taken_for_a_write(either: OwnTools, root: Path) -> None:
    """N-frameworks: its exception goes on as it is, and the file is still what was seen."""
    note = root / "note.md"
    either.around(CALLER, "load_note", {"note": "note.md"}, lambda: note.read_text())
    params = {"note": "note.md", "body": "- mine\n"}

    def fail() -> None:
        raise RuntimeError("the tool's own")

    with pytest.raises(RuntimeError, match="the tool's own"):
        either.around(CALLER._replace(call_id="c2"), "save_note", params, fail)
    either.around(CALLER._replace(call_id="c3"), "save_note", params, lambda: note.write_text("- mine\n"))


def test_what_somebody_saved_while_the_tool_wrote_is_told(either: OwnTools, root: Path) -> None:
    """finding C9, 009-FR-004: the tool's result does not hide that something else is on the disk."""
    note = root / "note.md"
    either.around(CALLER, "load_note", {"note": "note.md"}, note.read_text)

    def write_and_lose() -> None:
        note.write_bytes(b"- mine\n")
        note.write_bytes(b"- theirs\n")

    with pytest.raises(StaleFileError):
        either.around(
            CALLER._replace(call_id="c2"),
            "save_note",
            {"note": "note.md", "body": "- mine\n"},
            write_and_lose,
        )


def test_what_is_no_tool_is_named(own: OwnTools, root: Path) -> None:
    """N-frameworks: a name alone does not say what a tool writes."""
    with Workspace(root) as workspace, pytest.raises(BadRequestError, match=r"noclobber\.Tool"):
        OwnTools(RunTurns(workspace, "x"), ["save_note"])  # type: ignore[list-item]
    assert "save_note" in own
    assert "web_search" not in own
