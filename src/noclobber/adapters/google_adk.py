"""
Google's Agent Development Kit.

Two parts that belong together, and one line each:

- `plugins=[GuardedFilesPlugin("project", tools=[Tool(…)])]` in the `Runner` or `App`: says who calls, and
  puts a check around tools of your own. The check is weaker than a guarded write: see `guard/hook_engine`.
- `EnvironmentToolset(environment=plugin.environment)`: ADK's `ReadFile`, `EditFile`, `WriteFile` and
  `Execute` over a guarded folder, in place of `LocalEnvironment`. The check and the write are one step; a
  command is one transaction.

`GuardedFileToolset(plugin)` has our own file tools, for agents that need more than ADK's three.

A refusal is the tool's response: `{"error": …}` with the exact object, whatever sentence the tool made of it.

What was seen is tied to the session's events. After a rewind, or in another process, an agent must read a
file again before it changes it.
"""

from __future__ import annotations

import functools
import os
from contextlib import suppress
from contextvars import ContextVar
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noclobber.adapters.extras import extra

with extra("google-adk"):
    from google.adk.environment import ExecutionResult, LocalEnvironment
    from google.adk.plugins.base_plugin import BasePlugin
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.base_toolset import BaseToolset
    from google.genai import types

from noclobber.adapters.call_queue import QUEUE
from noclobber.adapters.callers import Caller
from noclobber.adapters.commands import checked_choice
from noclobber.adapters.own_tools import OwnTools
from noclobber.adapters.runs import MOST_RUNS
from noclobber.adapters.shared import run_turns
from noclobber.adapters.tool_io import ToolIO
from noclobber.aio import in_thread
from noclobber.errors import BadRequestError, MissingFileError, NoclobberError
from noclobber.guard.tools import answers
from noclobber.guard.tools.arguments import checked
from noclobber.guard.tools.clashes import refuse_clashes
from noclobber.guard.tools.tool_list import carry_out, chosen

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from typing import Unpack

    from google.adk.tools.tool_context import ToolContext

    from noclobber.adapters.commands import Commands
    from noclobber.core.options import OptionValues
    from noclobber.guard.catalogue import Tool
    from noclobber.guard.tools.answers import ToolAnswer
    from noclobber.guard.tools.definitions import ModelTool

HOST = "google-adk"

_IO: ContextVar[_CallIO | None] = ContextVar("noclobber_google_adk_io", default=None)
"""The tool call in which the environment is used."""

_FILE_TOOLS = ("ReadFile", "EditFile", "WriteFile")


class GuardedFilesPlugin(BasePlugin):
    """The plugin. One for each folder, in the `Runner` or `App` of the agents that work there."""

    def __init__(
        self,
        workspace: Any,
        *,
        tools: Iterable[Tool] = (),
        name: str = "noclobber",
        commands: Commands = "guarded",
        **options: Unpack[OptionValues],
    ) -> None:
        """
        `tools` says what tools of your own do to files; the others go through unchecked.

        `commands="plain"`: what `Execute` runs is not guarded.
        """
        super().__init__(name=name)
        self.turns = run_turns(workspace, HOST, **options)
        self.environment = GuardedEnvironment(self, commands=commands)
        self._own = OwnTools(self.turns, tools)
        self._given: list[BaseTool] = []
        self._touched: dict[str, set[str]] = {}

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        """Refuse two tools with one name: ADK would silently use the one that comes last."""
        declared = [
            declaration.name
            for tool in llm_request.config.tools or ()
            for declaration in getattr(tool, "function_declarations", None) or ()
        ]
        names = [tool.name for tool in self._given]
        theirs = [name for name in declared if declared.count(name) > 1]
        refuse_clashes(names, theirs, "Give GuardedFileToolset a tool_name_prefix.")

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        """Refuse wrong arguments of ADK's file tools, and go around the tool's run."""
        if not isinstance(tool, _GuardedTool):
            self._go_around(tool)
        return None if tool.name in self._own else self._refused_arguments(tool, tool_args)

    def _go_around(self, tool: BaseTool) -> None:
        """
        Put the check around a tool's own `run_async`, once for each tool.

        The callbacks do not tell enough. Another plugin, or the agent's own callback, may answer in place of
        the tool, or for a tool that raised (`ReflectAndRetryToolPlugin`), and no further plugin is told. A
        read that failed or never ran would count as seen, and the next stale write would pass.
        """
        run = tool.run_async
        if getattr(run, "noclobber", None) is self:
            return

        @functools.wraps(run)
        async def run_async(*, args: dict[str, Any], tool_context: ToolContext) -> Any:
            try:
                return await self._around(tool, run, args, tool_context)
            except NoclobberError as error:
                return _response(answers.refused(error))

        run_async.noclobber = self  # type: ignore[attr-defined]
        tool.run_async = run_async

    async def _around(
        self, tool: BaseTool, run: Callable[..., Awaitable[Any]], args: dict[str, Any], context: ToolContext
    ) -> Any:
        """Run a tool: say who calls, judge a tool of the user's own, note what it showed or wrote."""
        io = _CallIO(self, tool, context)
        token = _IO.set(io)
        try:
            if tool.name in self._own:
                return await self._checked(tool, run, args, context)
            result = await run(args=args, tool_context=context)
        finally:
            io.leave()
            _IO.reset(token)
        if io.refusal is not None and not isinstance(io.refusal, MissingFileError):
            raise io.refusal  # Whatever sentence the tool made of it.
        await io.over_async(_content(result))
        return result

    async def _checked(
        self, tool: BaseTool, run: Callable[..., Awaitable[Any]], args: dict[str, Any], context: ToolContext
    ) -> Any:
        done: Any = None

        async def shown() -> Any:
            nonlocal done
            done = await run(args=args, tool_context=context)
            if isinstance(done, dict) and done.get("error"):
                raise _ReportedError(f"{done['error']}")
            return _content(done)

        with suppress(_ReportedError):  # For the check it is as if the tool had raised.
            await self._own.around_async(self.caller(context), tool.name, args, shown)
        return done

    def _refused_arguments(self, tool: BaseTool, args: dict[str, Any]) -> dict[str, Any] | None:
        """ADK's `EditFile` takes a missing text for an empty one, and so deletes what it should replace."""
        if not tool.name.endswith(_FILE_TOOLS):
            return None
        declared = tool._get_declaration()
        schema = getattr(declared, "parameters_json_schema", None)
        try:
            if schema:
                args.update(checked(tool.name, schema, args))
        except NoclobberError as error:
            return _response(answers.refused(error))
        return None

    async def after_run_callback(self, *, invocation_context: Any) -> None:
        """The invocation is over, and so are its agents' turns."""
        self._touched.pop(invocation_context.invocation_id, None)
        await in_thread(self.turns.end_run, invocation_context.invocation_id)

    def gives(self, tools: Iterable[BaseTool]) -> None:
        """Take note of our own tools that agents get."""
        self._given.extend(tools)

    def caller(self, context: ToolContext) -> Caller:
        """
        Who calls. A model's response is a memory: its calls are one step, and one turn's.

        Of earlier invocations each response counts that calls a tool for files; of this one, those that did
        touch a file, because the calls of one step run at the same time, and the first one has no past.
        """
        invocation_id = context.invocation_id
        touched = self._touched.setdefault(invocation_id, set())
        if len(self._touched) > MOST_RUNS:  # Of a cancelled invocation ADK does not tell the end.
            self._touched.pop(next(iter(self._touched)))
        mark, memory = f"{invocation_id}/", set()
        for event in _known_to_model(context.session.events):
            calls = event.get_function_calls()
            if not calls:
                continue
            name = f"{event.invocation_id}/{calls[0].id}"
            if any(call.id == context.function_call_id for call in calls):
                mark = name
            is_now = event.invocation_id == invocation_id
            if name in touched if is_now else any(self._is_for_files(call.name) for call in calls):
                memory.add(name)
        touched.add(mark)
        return Caller(
            agent_id=context.agent_name,
            session_id=context.session.id,
            run_id=invocation_id,
            call_id=context.function_call_id,
            branch=_short(context._invocation_context.branch),
            memory=memory | {mark},
            mark=mark,
        )

    def _is_for_files(self, name: str | None) -> bool:
        # A toolset may put a prefix before the names of its tools.
        return name is not None and (name in self._own or name.endswith((*_FILE_TOOLS, *chosen())))


class _ReportedError(Exception):
    """A tool told of an error in its response, as ADK's own function tools do for a missing argument."""


class _CallIO(ToolIO):
    """A call of a tool. ADK runs the calls of one step at the same time; its edits read and then write."""

    def __init__(self, plugin: GuardedFilesPlugin, tool: BaseTool, context: ToolContext) -> None:
        super().__init__(
            lambda: plugin.turns.turn(plugin.caller(context)), tool.name, context.function_call_id
        )
        self._only_reads = tool.name.endswith("ReadFile")
        self._entered: tuple[object, str] | None = None

    async def enter(self, path: object) -> None:
        """Before a read: wait for calls of the same agent that are about to write the file."""
        if not self._only_reads and self._entered is None and isinstance(path, (str, Path)):
            key = (self.turn, self.turn.context.name_of(path))
            await QUEUE.enter(*key)
            self._entered = key

    def leave(self) -> None:
        """Let the next one in."""
        if self._entered is not None:
            QUEUE.leave(*self._entered)
            self._entered = None


class GuardedEnvironment(LocalEnvironment):
    """`LocalEnvironment` whose files are guarded, and what commands make of them."""

    def __init__(
        self,
        plugin: GuardedFilesPlugin,
        *,
        env_vars: dict[str, str] | None = None,
        commands: Commands = "guarded",
    ) -> None:
        super().__init__(working_dir=Path(plugin.turns.workspace.root), env_vars=env_vars)
        self._are_commands_guarded = checked_choice(commands)

    async def execute(self, command: str, *, timeout: float | None = None) -> ExecutionResult:
        """Run a command. What it changed lands all together, or is refused."""
        if not self._are_commands_guarded:
            return await super().execute(command, timeout=timeout)
        io = self._io()
        environment = {**os.environ, **(self._env_vars or {})}
        done = await io.run(command, environment=environment, timeout_s=timeout)
        return ExecutionResult(
            exit_code=done.exit_code, stdout=done.stdout, stderr=done.stderr, timed_out=done.timed_out
        )

    async def read_file(self, path: str | Path) -> bytes:
        """Read a file. The agent has seen it only if the tool's response shows it."""
        io = self._io()
        await io.enter(path)
        return await in_thread(io.read, path)

    async def write_file(self, path: str | Path, content: str | bytes) -> None:
        """Replace or create a file, if it is what the agent saw and what the tool read."""
        await in_thread(self._io().write, path, content)

    def _io(self) -> _CallIO:
        io = _IO.get()
        if io is None:
            raise BadRequestError(
                "",
                "A guarded environment has to know who calls. Pass its GuardedFilesPlugin to the Runner: "
                "plugins=[plugin].",
            )
        return io


# -- our tools -------------------------------------------------------------------------------------------


class GuardedFileToolset(BaseToolset):
    """The guarded file tools. `only` names those that are wanted."""

    def __init__(
        self,
        plugin: GuardedFilesPlugin,
        *,
        only: Iterable[str] | None = None,
        tool_name_prefix: str | None = None,
    ) -> None:
        super().__init__(tool_name_prefix=tool_name_prefix)
        self._guarded = [_GuardedTool(plugin, tool) for tool in chosen(only).values()]
        plugin.gives(self._guarded)

    async def get_tools(self, readonly_context: Any = None) -> list[BaseTool]:
        """The tools."""
        return list(self._guarded)


class _GuardedTool(BaseTool):
    def __init__(self, plugin: GuardedFilesPlugin, tool: ModelTool) -> None:
        super().__init__(name=tool.name, description=tool.description)
        self._plugin, self._tool = plugin, tool

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._tool.parameters
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        turn = self._plugin.turns.turn(self._plugin.caller(tool_context))
        answer = await in_thread(
            carry_out, turn, self._tool.name, args, call_id=tool_context.function_call_id
        )
        return _response(answer) if answer.is_error else {"result": answer.text}

    def _detect_error_in_response(self, response: Any) -> str | None:
        return "TOOL_ERROR" if isinstance(response, dict) and "error" in response else None


# -- what an event says ----------------------------------------------------------------------------------


def _response(answer: ToolAnswer) -> dict[str, Any]:
    """Return a refusal as a tool's response: its exact object, under the key that the API has for errors."""
    response: dict[str, Any] = {"error": answer.for_agent}
    if answer.beside:
        response["beside"] = list(answer.beside)
    return response


def _content(result: Any) -> Any:
    """Return what a tool's response shows: ADK puts it under a key."""
    if isinstance(result, dict):
        for key in ("content", "result", "output"):
            if key in result:
                return result[key] if isinstance(result[key], (str, bytes)) else None
    return result if isinstance(result, (str, bytes)) else None


def _known_to_model(events: list[Any]) -> list[Any]:
    """Return the events that the model is still shown: none that was rewound or summarised."""
    kept: list[Any] = []
    at = len(events) - 1
    summarised: list[tuple[float, float]] = []
    while at >= 0:
        event = events[at]
        rewound = event.actions.rewind_before_invocation_id
        if rewound:
            at = next((i for i, other in enumerate(events) if other.invocation_id == rewound), at) - 1
            continue
        summary = event.actions.compaction
        if summary is not None:
            summarised.append((summary.start_timestamp, summary.end_timestamp))
        elif not any(start <= event.timestamp <= end for start, end in summarised):
            kept.append(event)
        at -= 1
    return kept[::-1]


def _short(branch: str | None) -> str:
    """Name a branch in a few letters. The beginnings of two branches may be the same."""
    return sha256(branch.encode()).hexdigest()[:12] if branch else ""
