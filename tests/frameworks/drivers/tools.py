"""No framework at all: a loop around a model's API, with `turn.tools(format="openai")`."""

from __future__ import annotations

import asyncio
import json
from typing import Any, ClassVar

import noclobber
from noclobber.guard.turn import Turn
from tests.frameworks.driver import Call, FrameworkDriver, Received, Script


class Driver(FrameworkDriver):
    """The loop that every program without a framework has."""

    name = "tools"
    packages = ()
    own_lacks: ClassVar = {"*": "a loop without a framework has no tools of its own"}
    lacks: ClassVar = {"resumed": "a turn ends with its program"}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.workspace = noclobber.Workspace(self.root, **self.options)

    def run(self, script: Script, *, agent: str = "agent", thread: str | None = None) -> list[Received]:
        with self.workspace.turn(agent_id=agent, session_id=thread) as turn:
            results: dict[str, tuple[str, bool]] = {}
            while calls := script.ask(results):
                results |= dict(self._call(turn, call_id, call) for call_id, call in calls)
        return script.received

    async def arun(
        self, script: Script, *, agent: str = "agent", thread: str | None = None
    ) -> list[Received]:
        from noclobber.aio import in_thread

        with self.workspace.turn(agent_id=agent, session_id=thread) as turn:
            results: dict[str, tuple[str, bool]] = {}
            while calls := script.ask(results):
                done = await asyncio.gather(
                    *(in_thread(self._call, turn, call_id, call) for call_id, call in calls)
                )
                results |= dict(done)
        return script.received

    def _call(self, turn: Turn, call_id: str, call: Call) -> tuple[str, tuple[str, bool]]:
        name, arguments = self.arguments(call)
        function = {"name": name, "arguments": json.dumps(arguments)}
        result = turn.tools("openai").call({"id": call_id, "type": "function", "function": function})
        assert result["tool_call_id"] == call_id
        text: str = result["content"]
        return call_id, (text, text.startswith('{"error_type"'))

    def read_part(self, path: str) -> Call:
        return Call("read", path, raw={"path": path, "start_line": 1, "end_line": 20})

    def arguments(self, call: Call) -> tuple[str, dict[str, Any]]:
        given = call.given()
        if call.kind == "edit":
            edit = {f"{name}_string": given.pop(name) for name in ("old", "new") if name in given}
            given["edits"] = [edit]
        return f"{call.kind}_file", given

    def close(self) -> None:
        self.workspace.close()
