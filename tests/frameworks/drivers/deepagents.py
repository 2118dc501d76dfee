"""deepagents: `create_deep_agent` with its own `FilesystemBackend`, or with `GuardedBackend`."""

from __future__ import annotations

import gc
import re
from collections.abc import Sequence
from typing import Any

from deepagents import create_deep_agent
from deepagents.backends import FilesystemBackend
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver

from noclobber.adapters.deepagents import GuardedBackend, GuardedShellBackend
from tests.frameworks.driver import Call, FrameworkDriver, Received, Script

_NAMES = {"path": "file_path", "content": "content", "old": "old_string", "new": "new_string"}


class ScriptedModel(BaseChatModel):
    """A chat model that asks its script what to call, given the tool results in its messages."""

    scripts: dict[str, Any]
    """By the text of the human's message: a subagent gets another one."""
    arguments: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **more: Any) -> ScriptedModel:
        """Take the tools as they are."""
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        script = self.script_for(messages)
        results = {
            message.tool_call_id: (str(message.text), message.status == "error")
            for message in messages
            if isinstance(message, ToolMessage)
        }
        if callable(script):
            answer = script(results)
        else:
            calls = [
                {"name": name, "args": args, "id": call_id, "type": "tool_call"}
                for call_id, (name, args) in (
                    (call_id, self.arguments(call)) for call_id, call in script.ask(results)
                )
            ]
            answer = AIMessage(content="" if calls else "done", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=answer)])

    def script_for(self, messages: list[BaseMessage]) -> Any:
        """Return the script that the human's last message names."""
        said = [str(message.text) for message in messages if isinstance(message, HumanMessage)]
        return next(script for text in reversed(said) for key, script in self.scripts.items() if key in text)


class Driver(FrameworkDriver):
    """deepagents on one folder."""

    name = "deepagents"
    host = "langgraph"
    packages = ("deepagents", "langchain", "langgraph")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.saver = InMemorySaver()
        self.restart()

    def restart(self) -> None:
        self.backend: Any = None
        gc.collect()  # The turns are shared for as long as somebody holds them.
        self.backend = (
            GuardedBackend(self.root, **self.options)
            if self.guarded
            else FilesystemBackend(self.root, virtual_mode=True)
        )

    def agent(self, scripts: dict[str, Any], agent: str = "agent", **more: Any) -> Any:
        """Build an agent whose model follows these scripts."""
        model = ScriptedModel(scripts=scripts, arguments=self.arguments)
        return create_deep_agent(
            model=model, backend=self.backend, checkpointer=self.saver, name=agent, **more
        )

    def run(self, script: Script, *, agent: str = "agent", thread: str | None = None) -> list[Received]:
        key = f"script-{id(script)}"
        self.agent({key: script}, agent).invoke(*_request(key, thread or key))
        return script.received

    async def arun(
        self, script: Script, *, agent: str = "agent", thread: str | None = None
    ) -> list[Received]:
        key = f"script-{id(script)}"
        await self.agent({key: script}, agent).ainvoke(*_request(key, thread or key))
        return script.received

    def run_together(self, scripts: Sequence[Script]) -> list[list[Received]]:
        """Two subagents that one step of the main agent starts."""
        keys = {f"script-{id(script)}": script for script in scripts}

        def main(results: dict[str, Any]) -> AIMessage:
            if results:
                return AIMessage(content="done")
            tasks = [
                {
                    "name": "task",
                    "args": {"description": key, "subagent_type": "general-purpose"},
                    "id": f"task-{number}",
                    "type": "tool_call",
                }
                for number, key in enumerate(keys)
            ]
            return AIMessage(content="", tool_calls=tasks)

        self.agent({**keys, "start": main}).invoke(*_request("start", "together"))
        return [script.received for script in scripts]

    def arguments(self, call: Call) -> tuple[str, dict[str, Any]]:
        given = {_NAMES.get(name, name): value for name, value in call.given().items()}
        path = given.get("file_path")
        if isinstance(path, str) and not path.startswith(("/", "..")):
            given["file_path"] = f"/{path}"
        return {"delete": "delete", "run": "execute"}.get(call.kind, f"{call.kind}_file"), given

    def shown(self, text: str) -> str:
        body = re.sub(r"\A@@ lines [^\n]*@@\n", "", text)
        return body if body.endswith("\n") or not body else f"{body}\n"

    def refusal(self, text: str) -> str:
        return text.removeprefix("Error: ")


class CommandsDriver(Driver):
    """With `execute`."""

    def restart(self) -> None:
        self.backend = None
        gc.collect()
        self.backend = GuardedShellBackend(self.root, inherit_env=True, **self.options)


COMMANDS = (CommandsDriver,)


def _request(key: str, thread: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"messages": [HumanMessage(key)]}, {"configurable": {"thread_id": thread}, "recursion_limit": 200}
