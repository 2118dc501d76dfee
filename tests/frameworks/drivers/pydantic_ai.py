"""Pydantic AI: the harness's `FileSystem`, over `LocalWorkspace` or over ours. Its model is `FunctionModel`."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic_ai import Agent
from pydantic_ai.capabilities import LocalWorkspace
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_harness.filesystem import FileSystem
from pydantic_ai_harness.shell import Shell

from noclobber.adapters.pydantic_ai import GuardedWorkspace
from tests.frameworks.driver import Call, FrameworkDriver, Received, Script


class Driver(FrameworkDriver):
    """The harness's file tools."""

    name = "pydantic-ai"
    packages = ("pydantic-ai-slim", "pydantic-ai-harness")
    lacks: ClassVar = {
        "not_utf8": "Pydantic AI's harness edits UTF-8 text only, refuses the file and says so"
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._threads: dict[str, bytes] = {}
        self._given = self.given()

    def given(self) -> dict[str, Any]:
        """What the agent is given: the one line that changes."""
        workspace = (
            GuardedWorkspace(self.root, options=self.options) if self.guarded else LocalWorkspace(self.root)
        )
        return {"capabilities": [workspace, FileSystem()]}

    def agent(self, script: Script, name: str) -> Agent[object, str]:
        """An agent with a scripted model."""

        async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
            results = {
                part.tool_call_id: (part.model_response_str(wrap_if_error=False), part.outcome != "success")
                for message in messages
                for part in message.parts
                if isinstance(part, ToolReturnPart)
            }
            calls = await asyncio.to_thread(script.ask, results)
            if not calls:
                return ModelResponse(parts=[TextPart("done")])
            return ModelResponse(
                parts=[ToolCallPart(*self.arguments(call), call_id) for call_id, call in calls]
            )

        return Agent(FunctionModel(answer), name=name, retries=3, **self._given)

    def run(self, script: Script, *, agent: str = "agent", thread: str | None = None) -> list[Received]:
        return asyncio.run(self.arun(script, agent=agent, thread=thread))

    async def arun(
        self, script: Script, *, agent: str = "agent", thread: str | None = None
    ) -> list[Received]:
        stored = self._threads.get(thread or "")
        done = await self.agent(script, agent).run(
            "Do your work.",
            message_history=ModelMessagesTypeAdapter.validate_json(stored) if stored else None,
            conversation_id=thread,
        )
        if thread is not None:
            self._threads[thread] = done.all_messages_json()
        return script.received

    def run_together(self, scripts: Sequence[Script]) -> list[list[Received]]:
        """Two subagents of one agent: its model calls both tools in one step."""

        def ask_both(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
            if len(messages) > 1:
                return ModelResponse(parts=[TextPart("done")])
            calls = [ToolCallPart("delegate", {"number": number}) for number in range(len(scripts))]
            return ModelResponse(parts=calls)

        parent = Agent(FunctionModel(ask_both), name="parent")

        @parent.tool_plain
        async def delegate(number: int) -> str:
            return (await self.agent(scripts[number], "worker").run("Do your part.")).output

        asyncio.run(parent.run("Delegate."))
        return [script.received for script in scripts]

    def restart(self) -> None:
        self._given = {}
        gc.collect()  # The turns are shared for as long as somebody holds them.
        self._given = self.given()

    def arguments(self, call: Call) -> tuple[str, dict[str, Any]]:
        given = call.given()
        if call.kind == "edit":
            given = {
                {"old": "old_text", "new": "new_text"}.get(key, key): value for key, value in given.items()
            }
        return "run_command" if call.kind == "run" else f"{call.kind}_file", given

    def shown(self, text: str) -> str:
        """Without the header and the line numbers."""
        _, _, body = text.partition("]\n")
        return "".join(line.split("\t", 1)[1] for line in body.splitlines(keepends=True) if "\t" in line)

    def refuses_in_a_race(self, text: str) -> bool:
        # It compares the hash that it was shown right before it writes; of two writers that meet there, the
        # second one is refused by it, or by us a moment later.
        return text.startswith("Conflict: file ") and "has changed" in text


class CommandsDriver(Driver):
    """With the harness's `Shell`."""

    def given(self) -> dict[str, Any]:
        workspace = GuardedWorkspace(self.root, options=self.options)
        return {"capabilities": [workspace, FileSystem(), Shell()]}


COMMANDS = (CommandsDriver,)
