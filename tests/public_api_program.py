"""
A program that uses public names only, as a user would write it. Type checkers must have no complaint.

`test_public_api.py` runs mypy and pyright on it, and runs it.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import assert_type

import noclobber
from noclobber import (
    AgentController,
    Attempt,
    Decision,
    DeliverableLock,
    Edit,
    HookEngine,
    Ledger,
    LockContention,
    LockStatus,
    ReadResult,
    StaleFileError,
    ToolCall,
    Transition,
    Turn,
    Workspace,
    WriteResult,
    aio,
)


def tools(root: Path) -> None:
    """Every tool of a turn, and what comes back."""
    with Workspace(root, unread="deny", wait_s=0, write_scope=[root, "sub"]) as workspace:
        with workspace.turn(agent_id="builder-1", partial="deny", durable=False) as turn:
            assert_type(turn, Turn)
            written = turn.write_file("a.md", "one\n", expected_hash="ABSENT")
            assert_type(written, WriteResult)
            seen = turn.read_file(Path("a.md"), start_line=1, end_line=1)
            assert_type(seen, ReadResult)
            assert_type(seen.text, str)
            turn.edit_file("a.md", [Edit("one", "two")], observation_id=None)
            assert_type(turn.write_files({"b.md": b"b", "c.md": "c"}), dict[str, WriteResult])
            assert_type(turn.get_initial_hash("a.md"), str | None)
            assert_type(turn.changes_since_read("a.md"), str)
            turn.move_file("b.md", "d.md")
            turn.delete_file("d.md")
        assert_type(workspace.ledger, Ledger)
        print(workspace.ledger.verify().event_count)
    assert_type(Workspace.find(root, resubmitted="deny"), Workspace)


def retry(root: Path) -> None:
    """A controller returns what its step returns."""
    watched: list[Transition] = []
    with Workspace(root) as workspace, workspace.turn(resubmitted="deny") as turn:

        def step(attempt: Attempt) -> WriteResult:
            now = attempt.fresh or turn.read_file("a.md")
            return turn.write_file("a.md", now.text + "more\n")

        controller = AgentController(turn, max_attempts=3, on_transition=watched.append)
        assert_type(controller.run(step), WriteResult)
        assert_type(controller.run(lambda attempt: attempt.number), int)
    print([transition.after for transition in watched])


def refusals(root: Path) -> None:
    """Errors, and the objects that they become."""
    with Workspace(root) as workspace, workspace.turn() as turn:
        turn.read_file("a.md")
        (root / "a.md").write_text("theirs\n")
        try:
            turn.write_file("a.md", "mine\n")
        except StaleFileError as error:
            assert_type(error.path, str)
            assert_type(noclobber.to_json(error, "controller"), str)
            again = noclobber.parse_stale(noclobber.to_json(error))
            assert_type(again, StaleFileError | None)
            print(again is not None and again.actual == error.actual)
    try:
        noclobber.replace_if_unchanged(root / "a.md", "0" * 64, b"x")
    except noclobber.NoclobberError as error:
        print(error.code, error.resolution)


def engine(root: Path) -> None:
    """An integrator's own executor."""
    with Workspace(root) as workspace, workspace.turn() as turn:
        call: ToolCall = turn.tool_call("read_file", {"path": "a.md"})
        hooks: HookEngine = workspace.engine
        decision: Decision = hooks.pre_tool_use(call)
        if decision.allowed:
            hooks.post_tool_use(call, (root / "a.md").read_bytes())


def locks(root: Path) -> None:
    """A deliverable's lock, and a turn that carries it."""
    folder = root / "deliverable"
    folder.mkdir()
    with DeliverableLock(folder, holder="builder-1") as lock, Workspace(root) as workspace:
        status = lock.status()
        assert_type(status, LockStatus)
        with workspace.turn(lock=lock) as turn:
            turn.write_file("deliverable/a.md", "x")
        try:
            DeliverableLock(folder, holder="builder-2").acquire()
        except LockContention as contention:
            print(contention.to_report()["holder"])


async def asynchronous(root: Path) -> None:
    """The same for asyncio."""
    async with aio.Workspace(root, partial="deny") as workspace:
        async with workspace.turn(agent_id="builder-1", unread="deny") as turn:
            seen = await turn.read_file("a.md")
            assert_type(seen, ReadResult)

            async def step(attempt: Attempt) -> WriteResult:
                now = attempt.fresh or seen
                return await turn.write_file("a.md", now.text + "more\n")

            assert_type(await aio.AgentController(turn, max_attempts=3).run(step), WriteResult)
        print((await aio.in_thread(workspace.ledger.verify)).event_count)


if __name__ == "__main__":
    project = Path(sys.argv[1])
    for part in (tools, retry, refusals, engine, locks):
        part(project)
    asyncio.run(asynchronous(project))
