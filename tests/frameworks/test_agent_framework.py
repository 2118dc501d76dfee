"""Microsoft Agent Framework alone: sessions, approvals, functions of the user's own, line numbers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agent_framework", reason="not installed here; `make frameworks` runs this")

from agent_framework import (
    Agent,
    AgentResponse,
    AgentSession,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FileAccessProvider,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
)

from noclobber import parse_stale
from noclobber.adapters.agent_framework import GuardedFiles
from noclobber.core.wire import parse_refusal
from tests.rigs.ledgers import recorded

pytestmark = pytest.mark.wrong_errors

Step = list[tuple[str, str, dict[str, Any]]]
READ: tuple[str, dict[str, Any]] = ("file_access_read", {"file_name": "plan.md"})


def writes(content: str) -> tuple[str, dict[str, Any]]:
    """A call that writes the plan."""
    return "file_access_write", {"file_name": "plan.md", "content": content, "overwrite": True}


class StepClient(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """Asks for these calls, step by step, and then says that it is done."""

    def __init__(self, steps: Sequence[Step | Callable[[], Step]]) -> None:
        super().__init__()
        self._steps = list(steps)

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **_: Any
    ) -> Any:
        async def answer() -> ChatResponse:
            step = self._steps.pop(0) if self._steps else []
            calls = step() if callable(step) else step
            contents: list[Any] = [
                Content.from_function_call(call_id=call_id, name=name, arguments=args)
                for call_id, name, args in calls
            ]
            return ChatResponse(messages=[Message(role="assistant", contents=contents or ["done"])])

        return answer()


class StreamClient(StepClient):
    """The same as a stream."""

    def _inner_get_response(self, *, stream: bool, **more: Any) -> Any:
        whole = super()._inner_get_response(stream=False, **more)
        if not stream:
            return whole

        async def updates() -> Any:
            done = await whole
            for message in done.messages:
                yield ChatResponseUpdate(role="assistant", contents=message.contents)

        return ResponseStream(updates(), finalizer=ChatResponse.from_updates)


def agent(files: GuardedFiles, *steps: Step | Callable[[], Step], **more: Any) -> Agent:
    """An agent that makes these calls, with the framework's file tools if it is given no others."""
    if "tools" not in more:
        asks = more.pop("asks", False)
        more["context_providers"] = [
            FileAccessProvider(
                files.store, disable_readonly_tool_approval=True, disable_write_tool_approval=not asks
            )
        ]
    return Agent(client=StepClient(steps), name="writer", middleware=[files], **more)


def answers(response: AgentResponse) -> dict[str, str]:
    """What each call was answered."""
    return {
        content.call_id: str(content.result)
        for message in response.messages
        for content in message.contents
        if content.type == "function_result"
    }


def test_a_session_that_goes_on_keeps_what_was_seen(root: Path) -> None:
    """N-frameworks: the next run need not read again, and is refused if the file changed."""
    plan = root / "plan.md"
    plan.write_bytes(b"one\n")
    files, session = GuardedFiles(root), AgentSession(session_id="s")

    async def play() -> None:
        await agent(files, [("a", *READ)]).run("Read it.", session=session)
        await agent(files, [("b", *writes("two\n"))]).run("Write it.", session=session)
        assert plan.read_bytes() == b"two\n"
        plan.write_bytes(b"theirs\n")
        done = await agent(files, [("c", *writes("three\n"))]).run("Write it.", session=session)
        assert parse_stale(answers(done)["c"]) is not None

    asyncio.run(play())
    assert plan.read_bytes() == b"theirs\n"


def test_an_older_copy_of_a_session_has_not_seen_what_came_later(root: Path) -> None:
    """N-frameworks: a stored session is taken up again at an earlier point."""
    plan = root / "plan.md"
    plan.write_bytes(b"one\n")
    files, session = GuardedFiles(root), AgentSession(session_id="s")

    async def play() -> dict[str, str]:
        await agent(files, [("a", *READ)]).run("Read it.", session=session)
        stored = json.dumps(session.to_dict())
        plan.write_bytes(b"theirs\n")
        await agent(files, [("b", *READ)]).run("Look again.", session=session)
        older = AgentSession.from_dict(json.loads(stored))
        return answers(await agent(files, [("c", *writes("mine\n"))]).run("Write it.", session=older))

    code = parse_refusal(asyncio.run(play())["c"])
    assert code is not None
    assert code[0] == "UNREAD_FILE"
    assert plan.read_bytes() == b"theirs\n"


@pytest.mark.parametrize("is_changed", [False, True])
def test_an_approved_write_is_checked_when_it_is_carried_out(root: Path, is_changed: bool) -> None:
    """N-frameworks: a person took their time; what was seen before they were asked still counts."""
    plan = root / "plan.md"
    plan.write_bytes(b"one\n")
    files, session = GuardedFiles(root), AgentSession(session_id="s")

    async def play() -> dict[str, str]:
        writer = agent(files, [("a", *READ)], [("b", *writes("two\n"))], asks=True)
        asked = await writer.run("Change it.", session=session)
        [request] = asked.user_input_requests
        assert plan.read_bytes() == b"one\n"
        if is_changed:
            plan.write_bytes(b"theirs\n")
        approval = request.to_function_approval_response(approved=True)
        return answers(await writer.run(Message(role="user", contents=[approval]), session=session))

    said = asyncio.run(play())
    if is_changed:
        assert parse_stale(said["b"]) is not None
        assert plan.read_bytes() == b"theirs\n"
    else:
        assert plan.read_bytes() == b"two\n", said


def test_a_line_number_of_an_older_version_changes_nothing(root: Path) -> None:
    """N-frameworks: `grep` showed line 2; somebody put a line above it; line 2 is another one by now."""
    plan = root / "plan.md"
    plan.write_bytes(b"keep\nchange me\n")

    def then() -> Step:
        plan.write_bytes(b"theirs\nkeep\nchange me\n")
        edits = [{"line_number": 2, "new_line": "changed\n"}]
        return [("b", "file_access_replace_lines", {"file_name": "plan.md", "edits": edits})]

    search: Step = [("a", "file_access_grep", {"regex_pattern": "change"})]
    done = asyncio.run(agent(GuardedFiles(root), search, then).run("Work."))

    assert parse_stale(answers(done)["b"]) is not None
    assert plan.read_bytes() == b"theirs\nkeep\nchange me\n"


def test_a_file_that_exists_is_not_created(root: Path) -> None:
    """N-frameworks: without `overwrite` the framework's own words; nothing on record, for nothing collided."""
    (root / "plan.md").write_bytes(b"theirs\n")
    step: Step = [("a", "file_access_write", {"file_name": "plan.md", "content": "mine\n"})]
    said = answers(asyncio.run(agent(GuardedFiles(root), step).run("Work.")))
    assert "already exists" in said["a"]
    assert (root / "plan.md").read_bytes() == b"theirs\n"
    assert not (root / ".noclobber" / "agent_trace.jsonl").exists()


def test_own_records_are_neither_listed_nor_found(root: Path) -> None:
    """N-frameworks: an agent sees the project's files, and none of noclobber's."""
    (root / "plan.md").write_bytes(b"one\n")
    done = asyncio.run(
        agent(
            GuardedFiles(root),
            [("a", "file_access_write", {"file_name": "new.md", "content": "MUTATION\n"})],
            [("b", "file_access_ls", {}), ("c", "file_access_grep", {"regex_pattern": "MUTATION"})],
        ).run("Work.")
    )
    said = answers(done)
    assert ".noclobber" not in said["b"]
    assert [found["file_name"] for found in json.loads(said["c"])] == ["new.md"]


def test_a_store_without_its_middleware_says_what_is_missing(root: Path) -> None:
    """N-frameworks: who calls is not known, so nothing is read and nothing written."""
    with pytest.raises(RuntimeError, match=r"middleware=\[files\]"):
        asyncio.run(GuardedFiles(root).store.read("plan.md"))


def test_a_streamed_run_is_guarded_too(root: Path) -> None:
    """N-frameworks: the framework's other entry point."""
    plan = root / "plan.md"
    plan.write_bytes(b"one\n")

    def then() -> Step:
        plan.write_bytes(b"theirs\n")
        return [("b", *writes("mine\n"))]

    files = GuardedFiles(root)
    provider = FileAccessProvider(
        files.store, disable_readonly_tool_approval=True, disable_write_tool_approval=True
    )
    writer = Agent(
        client=StreamClient([[("a", *READ)], then]),
        name="writer",
        middleware=[files],
        context_providers=[provider],
    )

    async def play() -> dict[str, str]:
        stream = writer.run("Work.", stream=True)
        async for _ in stream:
            pass
        return answers(await stream.get_final_response())

    assert parse_stale(asyncio.run(play())["b"]) is not None
    assert plan.read_bytes() == b"theirs\n"
    [event] = recorded(root / ".noclobber" / "agent_trace.jsonl")
    assert (event["identity"]["agent_id"], event["identity"]["call_id"]) == ("writer", "b")


def test_two_streams_that_are_read_in_turn_are_two_agents(root: Path) -> None:
    """N-frameworks: one task reads both; what the one has seen, the other has not."""
    (root / "plan.md").write_bytes(b"one\n")
    files = GuardedFiles(root, unread="deny")

    def streamed(name: str, *steps: Step) -> Any:
        provider = FileAccessProvider(
            files.store, disable_readonly_tool_approval=True, disable_write_tool_approval=True
        )
        client = StreamClient(steps)
        agent = Agent(client=client, name=name, middleware=[files], context_providers=[provider])
        return agent.run("Work.", stream=True)

    async def play() -> dict[str, str]:
        reader = streamed("reader", [("a", *READ)], [("b", *READ)], [("c", *READ)])
        writer = streamed("writer", [("w", *writes("mine\n"))])
        reading, writing = reader.__aiter__(), writer.__aiter__()
        for _ in range(3):
            await anext(reading)
        async for _ in writing:
            pass
        async for _ in reading:
            pass
        return answers(await writer.get_final_response())

    assert "UNREAD_FILE" in asyncio.run(play())["w"]
    [event] = recorded(root / ".noclobber" / "agent_trace.jsonl")
    assert event["identity"]["agent_id"] == "writer"


def test_a_wrong_argument_of_the_frameworks_own_tool_is_named(root: Path) -> None:
    """N-frameworks: the framework alone says that parsing failed, and not of what."""
    step: Step = [("a", "file_access_write", {"content": "x"})]
    said = answers(asyncio.run(agent(GuardedFiles(root), step).run("Work.")))
    assert parse_refusal(said["a"]) == ("BAD_REQUEST", "")
    assert "file_name" in said["a"]
