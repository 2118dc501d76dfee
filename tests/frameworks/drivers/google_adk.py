"""Google ADK: its `EnvironmentToolset`, over `LocalEnvironment` or over ours. Its model is a `BaseLlm` of ours."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, Sequence
from typing import Any, ClassVar

from google.adk.agents import LlmAgent, ParallelAgent
from google.adk.apps import App
from google.adk.environment import LocalEnvironment
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools.environment import EnvironmentToolset
from google.genai import types

from noclobber.adapters.google_adk import GuardedFilesPlugin
from noclobber.core.json_text import spell_for_any_reader
from tests.frameworks.driver import Call, FrameworkDriver, Received, Script


class ScriptedLlm(BaseLlm):
    """A model that answers from a script."""

    driver: Any
    script: Any

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        results = {
            part.function_response.id: self.driver.told(part.function_response.response)
            for content in llm_request.contents
            for part in content.parts or ()
            if part.function_response
        }
        calls = await asyncio.to_thread(self.script.ask, results)
        parts = [
            types.Part(function_call=self.driver.function_call(call_id, call)) for call_id, call in calls
        ]
        yield LlmResponse(content=types.Content(role="model", parts=parts or [types.Part(text="done")]))


class Driver(FrameworkDriver):
    """ADK's file tools."""

    name = "google-adk"
    packages = ("google-adk", "google-genai")
    lacks: ClassVar = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sessions = InMemorySessionService()
        self._plugin = self._new_plugin()

    def _new_plugin(self) -> GuardedFilesPlugin | None:
        return GuardedFilesPlugin(self.root, **self.options) if self.guarded else None

    def tools(self) -> list[Any]:
        """What the agent is given: the one line that changes."""
        environment = self._plugin.environment if self._plugin else LocalEnvironment(working_dir=self.root)
        return [EnvironmentToolset(environment=environment)]

    def agent(self, script: Script, name: str) -> LlmAgent:
        """An agent with a scripted model."""
        model = ScriptedLlm(model="scripted", driver=self, script=script)
        return LlmAgent(name=name.replace("-", "_"), model=model, tools=self.tools())

    async def _play(self, agent: Any, thread: str | None) -> None:
        app = App(name="suite", root_agent=agent, plugins=[self._plugin] if self._plugin else [])
        runner = Runner(app=app, session_service=self._sessions)
        session_id = thread or f"session-{id(agent)}"
        if not await self._sessions.get_session(app_name="suite", user_id="user", session_id=session_id):
            await self._sessions.create_session(app_name="suite", user_id="user", session_id=session_id)
        message = types.Content(role="user", parts=[types.Part(text="Do your work.")])
        async for _ in runner.run_async(user_id="user", session_id=session_id, new_message=message):
            pass

    def run(self, script: Script, *, agent: str = "agent", thread: str | None = None) -> list[Received]:
        return asyncio.run(self.arun(script, agent=agent, thread=thread))

    async def arun(
        self, script: Script, *, agent: str = "agent", thread: str | None = None
    ) -> list[Received]:
        await self._play(self.agent(script, agent), thread)
        return script.received

    def run_together(self, scripts: Sequence[Script]) -> list[list[Received]]:
        """A `ParallelAgent`: its branches run at the same time, in one session."""
        branches = [self.agent(script, f"branch_{number}") for number, script in enumerate(scripts)]
        asyncio.run(self._play(ParallelAgent(name="both", sub_agents=branches), None))
        return [script.received for script in scripts]

    def restart(self) -> None:
        self._plugin = None
        gc.collect()  # The turns are shared for as long as somebody holds them.
        self._plugin = self._new_plugin()

    def told(self, response: dict[str, Any] | None) -> tuple[str, bool]:
        """What the model reads of a response, and whether it is an error."""
        said = response or {}
        error = said.get("error")
        if error is not None:
            return (error if isinstance(error, str) else spell_for_any_reader(error)), True
        shown = (said[key] for key in ("content", "result", "message", "stdout") if key in said)
        return str(next(shown, "")), False

    def function_call(self, call_id: str, call: Call) -> types.FunctionCall:
        """A call as the model sends it."""
        name, args = self.arguments(call)
        return types.FunctionCall(id=call_id, name=name, args=args)

    def arguments(self, call: Call) -> tuple[str, dict[str, Any]]:
        given = call.given()
        if call.kind == "edit":
            given = {f"{key}_string" if key in ("old", "new") else key: value for key, value in given.items()}
        return "Execute" if call.kind == "run" else f"{call.kind.capitalize()}File", given

    def shown(self, text: str) -> str:
        """Without the line numbers."""
        return "".join(line.split("\t", 1)[1] for line in text.splitlines(keepends=True) if "\t" in line)


COMMANDS = (Driver,)
