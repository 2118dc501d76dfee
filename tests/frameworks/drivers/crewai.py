"""CrewAI: `FileReadTool` and `FileWriterTool`, or ours in their place. Its model is a `BaseLLM` of ours."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

for _name in ("CREWAI_DISABLE_TELEMETRY", "CREWAI_DISABLE_TRACKING", "OTEL_SDK_DISABLED"):
    os.environ.setdefault(_name, "true")  # Before the import: nothing leaves this machine.
os.environ.setdefault("CREWAI_TRACING_ENABLED", "false")

# ruff: noqa: E402
from crewai import Agent, BaseLLM, Crew, Task
from crewai.agents.agent_builder.base_agent import _LLM_TYPE_REGISTRY
from crewai.events import crewai_event_bus
from crewai.state import CheckpointConfig
from crewai_tools import FileReadTool, FileWriterTool

from noclobber.adapters.crewai import file_tools
from tests.frameworks.driver import Call, FrameworkDriver, Received, Script

NO_EDIT = "CrewAI has no tool of its own that edits a file"

_SCRIPTS: dict[str, tuple[Driver, Script]] = {}
"""By the model's name: a checkpoint keeps that and nothing else of a model."""


class ScriptedLLM(BaseLLM):
    """A model that answers from a script."""

    llm_type: str = "scripted"

    def supports_function_calling(self) -> bool:
        return True

    def call(self, messages: Any, *_: Any, **__: Any) -> Any:
        driver, script = _SCRIPTS[self.model]
        results = {
            message["tool_call_id"]: driver.told(message["content"])
            for message in (messages if isinstance(messages, list) else [])
            if message["role"] == "tool"
        }
        calls = script.ask(results)
        driver.save_checkpoint(results)
        if not calls:
            return "Final Answer: done"
        asked = []
        for call_id, call in calls:
            name, arguments = driver.arguments(call)
            function = {"name": name, "arguments": json.dumps(arguments)}
            asked.append({"id": call_id, "type": "function", "function": function})
        return asked


# So that a checkpoint can be restored: CrewAI knows the models of a few vendors by name.
_LLM_TYPE_REGISTRY["scripted"] = f"{__name__}.ScriptedLLM"


class Driver(FrameworkDriver):
    """CrewAI's file tools."""

    name = "crewai"
    packages = ("crewai", "crewai-tools")
    lacks: ClassVar = dict.fromkeys(
        ("stale_edit", "fifty_parallel_calls", "crlf", "byte_order_mark", "not_utf8", "large_file"), NO_EDIT
    )

    untold: ClassVar = {"thread": "a crew has no thread; each task is a run"}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tools = self.tools()
        self._checkpoints: dict[Path, str] = {}
        self._saving: Path | None = None

    def tools(self) -> list[Any]:
        """What the agents are given: the one line that changes."""
        if not self.guarded:
            return [FileReadTool(base_dir=str(self.root)), FileWriterTool(base_dir=str(self.root))]
        return [*file_tools(self.root, **self.options)]

    def agent(self, script: Script, name: str) -> Agent:
        """An agent with a scripted model."""
        model = f"scripted-{id(script)}"
        _SCRIPTS[model] = (self, script)
        return Agent(
            role=name,
            goal="work",
            backstory="works",
            llm=ScriptedLLM(model=model),
            tools=self._tools,
            verbose=False,
        )

    def crew(self, scripts: Sequence[Script], names: Sequence[str]) -> Crew:
        """A crew with a task for each script."""
        agents = [self.agent(script, name) for script, name in zip(scripts, names, strict=True)]
        tasks = [Task(description="Do it.", expected_output="done", agent=agent) for agent in agents]
        return Crew(agents=agents, tasks=tasks, verbose=False)

    def run(self, script: Script, *, agent: str = "agent", thread: str | None = None) -> list[Received]:
        if thread is not None:
            return self._run_thread(script, agent, self.root.parent / f"checkpoints-{thread}")
        self.crew([script], [agent]).kickoff()
        return script.received

    def _run_thread(self, script: Script, agent: str, folder: Path) -> list[Received]:
        """The first run of a thread saves a checkpoint after its first tool call; the next one goes on from it."""
        crew = self.crew([script], [agent])
        saved = self._checkpoints.get(folder)
        if saved is None:
            self._saving = folder
            crew.kickoff(from_checkpoint=CheckpointConfig(location=str(folder), on_events=["task_completed"]))
            return script.received
        for model in [name for name, (driver, _) in _SCRIPTS.items() if driver is self]:
            _SCRIPTS[model] = (self, script)
        crew.kickoff(from_checkpoint=CheckpointConfig(location=str(folder), restore_from=saved))
        return script.received

    def save_checkpoint(self, results: Mapping[str, object]) -> None:
        """Save one if it is wanted and a tool has answered."""
        state = crewai_event_bus.runtime_state
        if self._saving is not None and results and state is not None:
            self._checkpoints[self._saving] = state.checkpoint(str(self._saving))
            self._saving = None

    async def arun(
        self, script: Script, *, agent: str = "agent", thread: str | None = None
    ) -> list[Received]:
        await self.crew([script], [agent]).akickoff()
        return script.received

    def run_together(self, scripts: Sequence[Script]) -> list[list[Received]]:
        """One crew with tasks that run at the same time, and one that waits for them."""
        crew = self.crew(scripts, [f"agent-{number}" for number in range(len(scripts))])
        last = self.crew([Script()], ["last"])
        for task in crew.tasks:
            task.async_execution = True
        tasks = [*crew.tasks, *last.tasks]
        Crew(agents=[*crew.agents, *last.agents], tasks=tasks, verbose=False).kickoff()
        return [script.received for script in scripts]

    def restart(self) -> None:
        self._tools = []
        gc.collect()  # The turns are shared for as long as somebody holds them.
        self._tools = self.tools()

    def read_part(self, path: str) -> Call:
        """A large result would make CrewAI sum up the messages, and what was read is forgotten with them."""
        return Call("read", path, raw={"path": path, "start_line": 1, "line_count": 20})

    def told(self, text: str) -> tuple[str, bool]:
        """What the model reads of a result, and whether it is an error: CrewAI's tools say so in words."""
        return text, text.startswith(("Error", "An error", '{"error_type"'))

    def arguments(self, call: Call) -> tuple[str, dict[str, Any]]:
        given = call.given()
        if call.kind == "read":
            return "read_a_files_content", {"file_path": given.pop("path", None), **given}
        if "path" in given:
            given["filename"] = given.pop("path")
        return "file_writer_tool", {**given, "overwrite": True}
