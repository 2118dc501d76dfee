"""Microsoft Agent Framework: its `FileAccessProvider`, over `FileSystemAgentFileStore` or over ours."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FileAccessProvider,
    FileSystemAgentFileStore,
    FunctionInvocationLayer,
    Message,
    tool,
)

from noclobber.adapters.agent_framework import GuardedFiles
from tests.frameworks.driver import Call, FrameworkDriver, Received, Script


class ScriptedClient(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """A chat client that answers from a script, with the layers that every client of the framework has."""

    def __init__(self, driver: Driver, script: Script) -> None:
        super().__init__()
        self._driver, self._script = driver, script

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **_: Any
    ) -> Any:
        async def answer() -> ChatResponse:
            results = {
                content.call_id: _told(content)
                for message in messages
                for content in message.contents
                if content.type == "function_result"
            }
            calls = await asyncio.to_thread(self._script.ask, results)
            contents: list[Any] = []
            for call_id, call in calls:
                name, arguments = self._driver.arguments(call)
                contents.append(Content.from_function_call(call_id=call_id, name=name, arguments=arguments))
            return ChatResponse(messages=[Message(role="assistant", contents=contents or ["done"])])

        return answer()


def _told(content: Content) -> tuple[str, bool]:
    """What the model reads of a result, and whether it is an error: of its file tools, a sentence says so."""
    text = str(content.result)
    return text, content.exception is not None or text.startswith("Could not ")


class Driver(FrameworkDriver):
    """The framework's file tools."""

    name = "agent-framework"
    packages = ("agent-framework-core",)
    lacks: ClassVar = {"not_utf8": "Agent Framework's file tools refuse a file that is not UTF-8, and say so"}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._threads: dict[str, str] = {}
        self._files = self._new_files()

    def _new_files(self) -> GuardedFiles | None:
        return GuardedFiles(self.root, **self.options) if self.guarded else None

    def given(self) -> dict[str, Any]:
        """What the agent is given: the lines that change."""
        store = self._files.store if self._files else FileSystemAgentFileStore(self.root)
        provider = FileAccessProvider(
            store, disable_readonly_tool_approval=True, disable_write_tool_approval=True
        )
        return {"context_providers": [provider], "middleware": [self._files] if self._files else []}

    def agent(self, script: Script, name: str) -> Agent:
        """An agent with a scripted model."""
        return Agent(client=ScriptedClient(self, script), name=name, **self.given())

    def run(self, script: Script, *, agent: str = "agent", thread: str | None = None) -> list[Received]:
        return asyncio.run(self.arun(script, agent=agent, thread=thread))

    async def arun(
        self, script: Script, *, agent: str = "agent", thread: str | None = None
    ) -> list[Received]:
        session = None
        if thread is not None:
            stored = self._threads.get(thread)
            session = (
                AgentSession.from_dict(json.loads(stored)) if stored else AgentSession(session_id=thread)
            )
        await self.agent(script, agent).run("Do your work.", session=session)
        if thread is not None and session is not None:
            self._threads[thread] = json.dumps(session.to_dict())
        return script.received

    def run_together(self, scripts: Sequence[Script]) -> list[list[Received]]:
        """Two subagents of one agent, as tools that its model calls in one step."""

        @tool(approval_mode="never_require")
        async def delegate(number: int) -> str:
            """Delegate a part."""
            return (await self.agent(scripts[number], "worker").run("Do your part.")).text

        asked = []

        class Parent(ScriptedClient):
            def _inner_get_response(self, **_: Any) -> Any:
                async def answer() -> ChatResponse:
                    asked.append(1)
                    calls: list[Any] = [
                        Content.from_function_call(call_id=f"d{n}", name="delegate", arguments={"number": n})
                        for n in range(len(scripts))
                    ]
                    contents = calls if len(asked) == 1 else ["done"]
                    return ChatResponse(messages=[Message(role="assistant", contents=contents)])

                return answer()

        asyncio.run(Agent(client=Parent(self, scripts[0]), name="parent", tools=[delegate]).run("Delegate."))
        return [script.received for script in scripts]

    def restart(self) -> None:
        self._files = None
        gc.collect()  # The turns are shared for as long as somebody holds them.
        self._files = self._new_files()

    def arguments(self, call: Call) -> tuple[str, dict[str, Any]]:
        names = {"path": "file_name", "old": "old_string", "new": "new_string"}
        given = {names.get(key, key): value for key, value in call.given().items()}
        if call.kind == "write":
            given["overwrite"] = True
        return f"file_access_{'replace' if call.kind == 'edit' else call.kind}", given
