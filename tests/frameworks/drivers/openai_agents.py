"""OpenAI Agents SDK: its `WorkspaceEditor` on a local sandbox session, or noclobber's tools and editor."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from agents import (
    Agent,
    ApplyPatchTool,
    FunctionTool,
    LocalShellTool,
    RunConfig,
    Runner,
    ShellTool,
    SQLiteSession,
    function_tool,
)
from agents.sandbox.apply_patch import WorkspaceEditor
from agents.sandbox.manifest import Manifest
from agents.sandbox.sandboxes.unix_local import UnixLocalSandboxClient
from agents.testing import ModelStep, ScriptedModel, assistant_message
from openai.types.responses import (
    ResponseApplyPatchToolCall,
    ResponseFunctionShellToolCall,
    ResponseFunctionToolCall,
)
from openai.types.responses.response_output_item import LocalShellCall

from noclobber.adapters.openai_agents import GuardedEditor, GuardedShell, guarded_tools
from tests.frameworks.driver import Call, FrameworkDriver, Received, Script


class OwnEditor:
    """The SDK's `WorkspaceEditor` as an `ApplyPatchEditor`, on its own local session."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def create_file(self, operation: Any) -> Any:
        """As the SDK does it."""
        return await WorkspaceEditor(await self._driver.session()).apply_operation(operation)

    update_file = delete_file = create_file


def _told(output: Any) -> str:
    """What the model reads: a text; of commands, what each of them said."""
    if isinstance(output, list) and all("stdout" in each for each in output):
        return "\n".join(f"{each['stdout']}{each['stderr']}" for each in output)
    return output if isinstance(output, str) else json.dumps(output)


class Driver(FrameworkDriver):
    """The SDK on one folder."""

    name = "openai-agents"
    packages = ("openai-agents", "openai")
    own_lacks: ClassVar = {"created_meanwhile": "the model has no call that looks for a file and finds none"}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.restart()
        self._sessions: dict[str, SQLiteSession] = {}
        self._shown: dict[str, str] = {}

    def restart(self) -> None:
        self.tools: list[Any] = []
        gc.collect()  # The turns are shared for as long as somebody holds them.
        if self.guarded:
            self.tools = [
                *guarded_tools(self.root, **self.options),
                ApplyPatchTool(editor=GuardedEditor(self.root, **self.options)),
            ]
        else:
            self.tools = [self._own_read(), ApplyPatchTool(editor=OwnEditor(self))]

    async def session(self) -> Any:
        """The SDK's local session on the folder."""
        return await UnixLocalSandboxClient().create(manifest=Manifest(root=str(self.root)))

    def _own_read(self) -> FunctionTool:
        @function_tool(name_override="read_file")
        async def read_file(path: str) -> str:
            """Read a file of the sandbox."""
            session = await self.session()
            with await session.read(Path(path)) as found:
                data = found.read()
            return data.decode("utf-8", "replace") if isinstance(data, bytes) else str(data)

        return read_file

    def agent(self, script: Script, name: str = "agent", **more: Any) -> Agent[Any]:
        """Build an agent whose model follows a script."""

        def respond(call: Any) -> Any:
            results = {}
            for item in call.input if isinstance(call.input, list) else []:
                if "call_id" in item and "output" in item:
                    text = _told(item["output"])
                    results[item["call_id"]] = (text, item.get("status") == "failed")
            calls = script.ask(results)
            for each in script.received:
                if each.call.kind == "read":
                    self._shown[each.call.path] = each.text
            return [self.item(call_id, each) for call_id, each in calls] or [assistant_message("done")]

        steps = [ModelStep.respond(respond) for _ in range(40)]
        return Agent(name=name, model=ScriptedModel(steps), tools=self.tools, **more)

    def item(self, call_id: str, call: Call) -> Any:
        """A tool call as the model's API spells it."""
        name, arguments = self.arguments(call) if call.kind != "handoff" else ("transfer_to_builder", {})
        if name != "apply_patch":
            return ResponseFunctionToolCall(
                call_id=call_id,
                name=name,
                arguments=json.dumps(arguments),
                type="function_call",
                id=f"fc_{call_id}",
            )
        return ResponseApplyPatchToolCall.model_validate(
            {
                "id": f"apc_{call_id}",
                "call_id": call_id,
                "type": "apply_patch_call",
                "status": "completed",
                "operation": arguments,
            }
        )

    def run(self, script: Script, *, agent: str = "agent", thread: str | None = None) -> list[Received]:
        return asyncio.run(self.arun(script, agent=agent, thread=thread))

    async def arun(
        self, script: Script, *, agent: str = "agent", thread: str | None = None
    ) -> list[Received]:
        session = None
        if thread is not None:
            session = self._sessions.setdefault(thread, SQLiteSession(thread))
        await Runner.run(
            self.agent(script, agent),
            "go",
            session=session,
            max_turns=40,
            run_config=RunConfig(tracing_disabled=True, group_id=thread),
        )
        return script.received

    def run_together(self, scripts: Sequence[Script]) -> list[list[Received]]:
        """Two agents as tools of a third one, in threads: a scripted step may wait for the other's."""
        return super().run_together(scripts)

    def read_part(self, path: str) -> Call:
        if not self.guarded:
            return super().read_part(path)
        return Call("read", path, raw={"path": path, "start_line": 1, "end_line": 20})

    def arguments(self, call: Call) -> tuple[str, dict[str, Any]]:
        given = call.given()
        if call.kind == "read" or (self.guarded and call.kind in ("write", "delete")):
            return f"{call.kind}_file", given
        if call.raw is not None:
            if "old" in given or "new" in given:
                given["edits"] = [
                    {f"{name}_string": given.pop(name) for name in ("old", "new") if name in given}
                ]
            return f"{call.kind}_file", given
        if call.kind == "delete":
            return "apply_patch", {"type": "delete_file", "path": call.path}
        if call.kind == "edit":
            diff = "".join(f"-{line}\n" for line in call.old.splitlines())
            diff += "".join(f"+{line}\n" for line in call.new.splitlines())
            return "apply_patch", {"type": "update_file", "path": call.path, "diff": f"@@\n{diff}"}
        shown = self._shown.get(call.path)
        self._shown[call.path] = call.content
        added = "".join(f"+{line}\n" for line in call.content.splitlines())
        if shown is None:
            return "apply_patch", {"type": "create_file", "path": call.path, "diff": added}
        taken = "".join(f"-{line}\n" for line in shown.splitlines())
        return "apply_patch", {"type": "update_file", "path": call.path, "diff": f"@@\n{taken}{added}"}


class CommandsDriver(Driver):
    """With `ShellTool`."""

    def restart(self) -> None:
        super().restart()
        self.tools.append(self.shell())

    def shell(self) -> Any:
        """The tool that runs commands."""
        return ShellTool(executor=GuardedShell(self.root, **self.options))

    def item(self, call_id: str, call: Call) -> Any:
        if call.kind != "run":
            return super().item(call_id, call)
        return ResponseFunctionShellToolCall.model_validate(
            {
                "id": f"sc_{call_id}",
                "call_id": call_id,
                "type": "shell_call",
                "status": "completed",
                "action": {"commands": (call.raw or {}).get("commands", [call.content])},
            }
        )


class LocalCommandsDriver(CommandsDriver):
    """With the older `LocalShellTool`."""

    def shell(self) -> Any:
        return LocalShellTool(executor=GuardedShell(self.root, **self.options))

    def item(self, call_id: str, call: Call) -> Any:
        if call.kind != "run":
            return super().item(call_id, call)
        return LocalShellCall.model_validate(
            {
                "id": f"lc_{call_id}",
                "call_id": call_id,
                "type": "local_shell_call",
                "status": "completed",
                "action": {
                    "type": "exec",
                    "command": ["sh", "-c", call.content],
                    "env": {},
                    **(call.raw or {}),
                },
            }
        )


COMMANDS = (CommandsDriver, LocalCommandsDriver)
