"""Pydantic AI alone: message histories, approvals, tools of the user's own, and its suite for workspaces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="not installed here; `make frameworks` runs this")
pytest.importorskip("pydantic_ai_harness", reason="not installed here; `make frameworks` runs this")

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, RunContext, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability, LocalWorkspace
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.workspaces import WorkspaceBackend
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite
from pydantic_ai_harness.filesystem import FileSystem

from noclobber import parse_stale
from noclobber.adapters.pydantic_ai import (
    GuardedWorkspace,
    GuardedWorkspaceBackend,
)
from noclobber.adapters.shared import run_turns
from noclobber.core.wire import parse_refusal
from tests.shell.test_process import is_available

pytestmark = pytest.mark.wrong_errors

Step = list[tuple[str, str, dict[str, Any]]]


def scripted(*steps: Step | Callable[[], Step]) -> FunctionModel:
    """A model that asks for these calls, step by step, and then says that it is done."""
    left = list(steps)

    def answer(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        if not left:
            return ModelResponse(parts=[TextPart("done")])
        step = left.pop(0)
        calls = step() if callable(step) else step
        return ModelResponse(parts=[ToolCallPart(name, args, call_id) for call_id, name, args in calls])

    return FunctionModel(answer)


def answers(messages: list[ModelMessage]) -> dict[str, tuple[str, Any]]:
    """What each call was answered."""
    return {
        part.tool_call_id: (part.outcome, part.content)
        for message in messages
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    }


READ = ("read_file", {"path": "plan.md"})


def writes(content: str) -> tuple[str, dict[str, Any]]:
    """A call that writes the plan."""
    return "write_file", {"path": "plan.md", "content": content}


def test_a_conversation_keeps_what_its_messages_show(root: Path) -> None:
    """N-frameworks: the next run of a conversation need not read again, and is refused if the file changed."""
    plan = root / "plan.md"
    plan.write_bytes(b"one\n")
    tools = [GuardedWorkspace(root), FileSystem()]
    first = Agent(scripted([("a", *READ)]), capabilities=tools).run_sync("Read it.")

    agent = Agent(scripted([("b", *writes("two\n"))]), capabilities=tools)
    second = agent.run_sync("Write it.", message_history=first.all_messages())
    assert plan.read_bytes() == b"two\n"

    plan.write_bytes(b"theirs\n")
    agent = Agent(scripted([("c", *writes("three\n"))]), capabilities=tools)
    third = agent.run_sync("Write it.", message_history=second.all_messages())
    assert parse_stale(answers(third.all_messages())["c"][1]) is not None
    assert plan.read_bytes() == b"theirs\n"


def test_a_fork_of_a_conversation_knows_nothing_of_the_other_one(root: Path) -> None:
    """N-frameworks: another run of the conversation has read the new version; this one's model has not."""
    plan = root / "plan.md"
    plan.write_bytes(b"one\n")
    tools = [GuardedWorkspace(root), FileSystem()]
    first = Agent(scripted([("a", *READ)]), capabilities=tools).run_sync("Read it.")
    plan.write_bytes(b"theirs\n")
    history = first.all_messages()
    Agent(scripted([("b", *READ)]), capabilities=tools).run_sync("Look again.", message_history=history)

    fork = Agent(scripted([("c", *writes("mine\n"))]), capabilities=tools)
    done = fork.run_sync("Write it.", message_history=history)

    code = parse_refusal(answers(done.all_messages())["c"][1])
    assert code is not None
    assert code[0] == "UNREAD_FILE"
    assert plan.read_bytes() == b"theirs\n"


class _Approved(AbstractCapability[Any]):
    """A person is asked about every write."""

    async def prepare_tools(
        self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]
    ) -> list[ToolDefinition]:
        return [replace(each, kind="unapproved") if each.name == "write_file" else each for each in tool_defs]


@pytest.mark.parametrize("is_changed", [False, True])
def test_an_approved_write_is_checked_when_it_is_carried_out(root: Path, is_changed: bool) -> None:
    """N-frameworks: a person took their time; what was seen before they were asked still counts."""
    plan = root / "plan.md"
    plan.write_bytes(b"one\n")
    agent = Agent(
        scripted([("a", *READ)], [("b", *writes("two\n"))]),
        capabilities=[GuardedWorkspace(root), FileSystem(), _Approved()],
        output_type=[str, DeferredToolRequests],
    )
    asked = agent.run_sync("Change it.")
    assert isinstance(asked.output, DeferredToolRequests)
    assert plan.read_bytes() == b"one\n"
    if is_changed:
        plan.write_bytes(b"theirs\n")

    done = agent.run_sync(
        message_history=asked.all_messages(), deferred_tool_results=DeferredToolResults(approvals={"b": True})
    )

    outcome, said = answers(done.all_messages())["b"]
    if is_changed:
        assert parse_stale(said) is not None
        assert plan.read_bytes() == b"theirs\n"
    else:
        assert (outcome, plan.read_bytes()) == ("success", b"two\n")


def test_parallel_calls_of_the_first_step_have_no_past(root: Path) -> None:
    """N-frameworks: files that were not read are not checked, however many calls the first step has."""
    for name in "abc":
        (root / name).write_bytes(b"old\n")
    calls: Step = [(name, "write_file", {"path": name, "content": "new\n"}) for name in "abc"]
    Agent(scripted(calls), capabilities=[GuardedWorkspace(root), FileSystem()]).run_sync("Write.")
    assert [(root / name).read_bytes() for name in "abc"] == [b"new\n"] * 3


def test_a_cancelled_tool_call_has_shown_nothing(root: Path) -> None:
    """N-frameworks: the model never got the answer, so the next write is not measured by it."""
    plan = root / "plan.md"
    plan.write_bytes(b"one\n")
    turns = run_turns(root, "pydantic-ai")
    agent = Agent(scripted([("a", "slow", {})]), capabilities=[GuardedWorkspace(root)])
    reading = asyncio.Event()

    @agent.tool
    async def slow(ctx: RunContext[object]) -> str:
        shown: str = await ctx.workspace.read_text("plan.md")
        reading.set()
        await asyncio.Event().wait()
        return shown

    async def play() -> None:
        run = asyncio.ensure_future(agent.run("Go."))
        await reading.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    asyncio.run(play())
    baselines = [run.turn.context.is_open and run.turn.context.baselines() for run in turns._runs.values()]
    assert not any(baselines)


def test_own_local_workspace_of_the_harness_is_what_ours_stands_in_for(root: Path) -> None:
    """N-frameworks: the same reference, so that a conversation goes on in either."""
    ctx: Any = None
    theirs = LocalWorkspace(root).get_workspace(ctx, ref=None)
    ours = GuardedWorkspace(root).get_workspace(ctx, ref=None)
    assert theirs is not None
    assert ours is not None
    assert theirs.ref == ours.ref


class TestPlainWorkspaceContract(WorkspaceBackendSuite):
    """Pydantic AI's own suite for workspaces, on ours, with commands as they are."""

    @pytest.fixture
    def anyio_backend(self) -> str:
        """On asyncio."""
        return "asyncio"

    @pytest.fixture
    def backend(self, root: Path) -> WorkspaceBackend:
        """A guarded folder."""
        return GuardedWorkspaceBackend(run_turns(root, "pydantic-ai"), commands="plain")


@pytest.mark.skipif(not is_available(), reason="no namespaces here")
class TestWorkspaceContract(TestPlainWorkspaceContract):
    """The same suite, with commands that are guarded. Two of its tests look at a command while it runs."""

    @pytest.fixture
    def backend(self, root: Path) -> WorkspaceBackend:
        """A guarded folder."""
        return GuardedWorkspaceBackend(run_turns(root, "pydantic-ai"))

    async def test_cancellation_stops_foreground_work(
        self, backend: WorkspaceBackend, has_real_posix_shell: bool
    ) -> None:
        """Played in test_commands.py: nobody sees what a command writes before it lands."""

    async def test_background_child_does_not_hold_up_completed_command(
        self,
        backend: WorkspaceBackend,
        has_real_posix_shell: bool,
        can_detect_exit_with_inherited_output_pipes: bool,
    ) -> None:
        """A command that leaves a process behind ends, and so does the process: it could not land later."""
        assert isinstance(backend, GuardedWorkspaceBackend)
        done = await backend.run("(sleep 600; echo late > late.md) & echo done", shell=True)
        assert (done.exit_code, done.stdout) == (0, "done\n")
