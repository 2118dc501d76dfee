"""Google ADK alone: functions of the user's own, sessions that go on or are rewound, agents as tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.adk", reason="not installed here; `make frameworks` runs this")

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.environment import EnvironmentToolset
from google.genai import types

from noclobber import parse_stale
from noclobber.adapters.google_adk import GuardedFilesPlugin
from noclobber.core.wire import parse_refusal
from tests.rigs.ledgers import recorded

pytestmark = pytest.mark.wrong_errors

Step = list[tuple[str, str, dict[str, Any]]]
READ: tuple[str, dict[str, Any]] = ("ReadFile", {"path": "plan.md"})


def writes(content: str) -> tuple[str, dict[str, Any]]:
    """A call that writes the plan."""
    return "WriteFile", {"path": "plan.md", "content": content}


class StepModel(BaseLlm):
    """Asks for these calls, step by step, and then says that it is done."""

    steps: list[Any]

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        step = self.steps.pop(0) if self.steps else []
        calls: Step = step() if callable(step) else step
        parts = [
            types.Part(function_call=types.FunctionCall(id=call_id, name=name, args=args))
            for call_id, name, args in calls
        ]
        yield LlmResponse(content=types.Content(role="model", parts=parts or [types.Part(text="done")]))


class Stage:
    """An app with one session."""

    def __init__(self, plugin: GuardedFilesPlugin, tools: list[Any] | None = None) -> None:
        self.plugin = plugin
        self.sessions = InMemorySessionService()
        self.tools = tools

    def runner(self, *steps: Step | Callable[[], Step]) -> Runner:
        """A runner whose agent makes these calls."""
        tools = self.tools or [EnvironmentToolset(environment=self.plugin.environment)]
        agent = LlmAgent(name="writer", model=StepModel(model="steps", steps=list(steps)), tools=tools)
        app = App(name="app", root_agent=agent, plugins=[self.plugin])
        return Runner(app=app, session_service=self.sessions)

    def run(self, *steps: Step | Callable[[], Step]) -> tuple[str, dict[str, Any]]:
        """Run once; return the invocation's id and what each call was answered."""

        async def play() -> tuple[str, dict[str, Any]]:
            runner = self.runner(*steps)
            await self.ready()
            said: dict[str, Any] = {}
            invocation_id = ""
            message = types.Content(role="user", parts=[types.Part(text="Work.")])
            async for event in runner.run_async(user_id="user", session_id="s", new_message=message):
                invocation_id = event.invocation_id
                said |= {each.id: each.response for each in event.get_function_responses()}
            return invocation_id, said

        return asyncio.run(play())

    async def ready(self) -> None:
        """Make the session, if there is none."""
        if not await self.sessions.get_session(app_name="app", user_id="user", session_id="s"):
            await self.sessions.create_session(app_name="app", user_id="user", session_id="s")

    def rewind(self, invocation_id: str) -> None:
        """Take the session back to before an invocation."""
        asyncio.run(
            self.runner().rewind_async(
                user_id="user", session_id="s", rewind_before_invocation_id=invocation_id
            )
        )


def test_a_session_that_goes_on_keeps_what_was_seen(root: Path) -> None:
    """N-frameworks: the next invocation need not read again, and is refused if the file changed."""
    plan = root / "plan.md"
    plan.write_bytes(b"one\n")
    stage = Stage(GuardedFilesPlugin(root))
    stage.run([("a", *READ)])
    _, said = stage.run([("b", *writes("two\n"))])
    assert said["b"]["status"] == "ok"

    plan.write_bytes(b"theirs\n")
    _, said = stage.run([("c", *writes("three\n"))])
    assert parse_stale(said["c"]["error"]) is not None
    assert plan.read_bytes() == b"theirs\n"


def test_a_session_that_was_rewound_has_seen_nothing(root: Path) -> None:
    """N-frameworks: the model no longer knows the version that it read after the point of return."""
    plan = root / "plan.md"
    plan.write_bytes(b"one\n")
    stage = Stage(GuardedFilesPlugin(root))
    stage.run([("a", *READ)])
    plan.write_bytes(b"theirs\n")
    second, _ = stage.run([("b", *READ)])
    stage.rewind(second)

    _, said = stage.run([("c", *writes("mine\n"))])

    code = parse_refusal(said["c"]["error"])
    assert code is not None
    assert code[0] == "UNREAD_FILE"
    assert plan.read_bytes() == b"theirs\n"


def test_an_agent_used_as_a_tool_has_a_snapshot_of_its_own(root: Path) -> None:
    """N-frameworks: what the one has read, the other has not seen; both are in the ledger."""
    plan = root / "plan.md"
    plan.write_bytes(b"one\n")
    plugin = GuardedFilesPlugin(root)
    files = EnvironmentToolset(environment=plugin.environment)
    reader = LlmAgent(
        name="reader",
        model=StepModel(model="r", steps=[[("r", *READ)], [("w", *writes("two\n"))]]),
        tools=[files],
    )
    stage = Stage(plugin, [AgentTool(reader), EnvironmentToolset(environment=plugin.environment)])
    _, said = stage.run(
        [("a", *READ)], [("b", "reader", {"request": "Change it."})], [("c", *writes("mine\n"))]
    )
    assert parse_stale(said["c"]["error"]) is not None
    assert plan.read_bytes() == b"two\n"
    who = [event["identity"]["agent_id"] for event in recorded(root / ".noclobber" / "agent_trace.jsonl")]
    assert who == ["reader", "writer"]


def test_an_environment_without_its_plugin_says_what_is_missing(root: Path) -> None:
    """N-frameworks: who calls is not known, so nothing is read and nothing written."""
    (root / "plan.md").write_bytes(b"one\n")
    environment = GuardedFilesPlugin(root).environment

    async def play() -> list[Any]:
        tools = [EnvironmentToolset(environment=environment)]
        agent = LlmAgent(name="writer", model=StepModel(model="m", steps=[[("a", *READ)]]), tools=tools)
        sessions = InMemorySessionService()
        await sessions.create_session(app_name="app", user_id="user", session_id="s")
        runner = Runner(app=App(name="app", root_agent=agent), session_service=sessions)
        message = types.Content(role="user", parts=[types.Part(text="Work.")])
        events = runner.run_async(user_id="user", session_id="s", new_message=message)
        return [each.response async for event in events for each in event.get_function_responses()]

    [said] = asyncio.run(play())
    assert "plugins=[plugin]" in said["error"]


def test_a_refusal_that_the_tool_put_in_words_is_the_object(root: Path) -> None:
    """009-FR-006: `WriteFile` makes a sentence of every exception; the model gets the object."""
    _, said = Stage(GuardedFilesPlugin(root)).run([("a", "WriteFile", {"path": "../x", "content": "x"})])
    assert said["a"]["error"]["error_type"] == "OUTSIDE_WORKSPACE"


def test_an_edit_without_its_new_text_deletes_nothing(root: Path) -> None:
    """N-frameworks: ADK's tool takes the missing text for an empty one."""
    (root / "plan.md").write_bytes(b"one\n")
    step: Step = [("a", "EditFile", {"path": "plan.md", "old_string": "one"})]
    _, said = Stage(GuardedFilesPlugin(root)).run(step)
    assert "new_string" in said["a"]["error"]["message"]
    assert (root / "plan.md").read_bytes() == b"one\n"
