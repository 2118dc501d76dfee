"""
Google's Agent Development Kit.

Two parts that belong together, and one line each:

- `plugins=[GuardedFilesPlugin("project")]` in the `Runner` or `App`: says who calls.
- `EnvironmentToolset(environment=plugin.environment)`: ADK's `ReadFile`, `EditFile`, `WriteFile` and
  `Execute` over a guarded folder, in place of `LocalEnvironment`. The check and the write are one step; a
  command is one transaction.

A refusal is the tool's response: `{"error": …}` with the exact object, whatever sentence the tool made of it.

What was seen is tied to the session's events. After a rewind, or in another process, an agent must read a
file again before it changes it.
"""

from __future__ import annotations

import asyncio
import functools
import os
from contextlib import suppress
from contextvars import ContextVar
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from noclobber.adapters import extra

with extra("google-adk"):
    from google.adk.environment import ExecutionResult, LocalEnvironment
    from google.adk.plugins.base_plugin import BasePlugin
    from google.adk.tools.base_tool import BaseTool

from noclobber.adapters import gone
from noclobber.adapters.commands import checked_choice
from noclobber.adapters.runs import MOST_RUNS, Caller
from noclobber.adapters.shared import run_turns
from noclobber.adapters.tool_io import ToolIO
from noclobber.aio import in_thread
from noclobber.errors import BadRequestError, MissingFileError, NoclobberError
from noclobber.guard.tools.answers import refused
from noclobber.guard.tools.arguments import checked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Unpack

    from google.adk.tools.tool_context import ToolContext

    from noclobber.adapters.commands import Commands
    from noclobber.core.options import OptionValues
    from noclobber.guard.tools.answers import ToolAnswer
    from noclobber.guard.turn import Turn

HOST = "google-adk"
if not TYPE_CHECKING:  # A type checker misses the names that are gone by itself.
    __getattr__ = gone(__name__)

_IO: ContextVar[_CallIO | None] = ContextVar("noclobber_google_adk_io", default=None)
"""The tool call in which the environment is used."""

WAIT_S = 10.0
_FILE_TOOLS = ("ReadFile", "EditFile", "WriteFile")


class GuardedFilesPlugin(BasePlugin):
    """The plugin. One for each folder, in the `Runner` or `App` of the agents that work there."""

    def __init__(
        self,
        workspace: Any,
        *,
        name: str = "noclobber",
        commands: Commands = "guarded",
        **options: Unpack[OptionValues],
    ) -> None:
        """`commands="plain"`: what `Execute` runs is not guarded."""
        super().__init__(name=name)
        self.turns = run_turns(workspace, HOST, **options)
        self.environment = GuardedEnvironment(self, commands=commands)
        self.locks: WeakKeyDictionary[Turn, dict[str, asyncio.Lock]] = WeakKeyDictionary()
        self._touched: dict[str, set[str]] = {}

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        """Refuse wrong arguments of ADK's file tools, and go around the tool's run."""
        self._go_around(tool)
        return self._refused_arguments(tool, tool_args)

    def _go_around(self, tool: BaseTool) -> None:
        """
        Go around a tool's own `run_async`, once for each tool.

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
                return _response(refused(error))

        run_async.noclobber = self  # type: ignore[attr-defined]
        tool.run_async = run_async

    async def _around(
        self, tool: BaseTool, run: Callable[..., Awaitable[Any]], args: dict[str, Any], context: ToolContext
    ) -> Any:
        """Run a tool: say who calls, and note what it showed or wrote."""
        io = _CallIO(self, tool, context)
        token = _IO.set(io)
        try:
            result = await run(args=args, tool_context=context)
        finally:
            io.leave()
            _IO.reset(token)
        if io.refusal is not None and not isinstance(io.refusal, MissingFileError):
            raise io.refusal  # Whatever sentence the tool made of it.
        await io.over_async(_content(result))
        return result

    def _refused_arguments(self, tool: BaseTool, args: dict[str, Any]) -> dict[str, Any] | None:
        """ADK's `EditFile` takes a missing text for an empty one, and so deletes what it should replace."""
        if not _is_for_files(tool.name):
            return None
        declared = tool._get_declaration()
        schema = getattr(declared, "parameters_json_schema", None)
        try:
            if schema:
                args.update(checked(tool.name, schema, args))
        except NoclobberError as error:
            return _response(refused(error))
        return None

    async def after_run_callback(self, *, invocation_context: Any) -> None:
        """The invocation is over, and so are its agents' turns."""
        self._touched.pop(invocation_context.invocation_id, None)
        await in_thread(self.turns.end_run, invocation_context.invocation_id)

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
            if name in touched if is_now else any(_is_for_files(call.name) for call in calls):
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


def _is_for_files(name: str | None) -> bool:
    """True for ADK's file tools. A toolset may put a prefix before their names."""
    return name is not None and name.endswith(_FILE_TOOLS)


class _CallIO(ToolIO):
    """
    A call of a tool. ADK runs the calls of one step at the same time; its edits read and then write.

    All but the first would be refused: the file is no longer what they read, by the agent's own hand. So the
    second waits with its read until the first has written. For a limited time: ADK may drop a call without
    telling us. Whoever waited too long goes on, and is refused if the file has changed.
    """

    def __init__(self, plugin: GuardedFilesPlugin, tool: BaseTool, context: ToolContext) -> None:
        super().__init__(
            lambda: plugin.turns.turn(plugin.caller(context)), tool.name, context.function_call_id
        )
        self._locks, self._only_reads = plugin.locks, tool.name.endswith("ReadFile")
        self._held_lock: asyncio.Lock | None = None

    async def enter(self, path: object) -> None:
        """Before a read: wait for calls of the same agent that are about to write the file."""
        if self._only_reads or self._held_lock is not None or not isinstance(path, (str, Path)):
            return
        locks = self._locks.setdefault(self.turn, {})
        lock = locks.setdefault(self.turn.context.name_of(path), asyncio.Lock())
        # Without a thread: those who wait would take up the threads in which the first has yet to write.
        # RuntimeError: the other call is in another event loop.
        with suppress(TimeoutError, RuntimeError):
            async with asyncio.timeout(WAIT_S):
                await lock.acquire()
                self._held_lock = lock

    def leave(self) -> None:
        """Let the next one in."""
        if self._held_lock is not None:
            self._held_lock.release()
            self._held_lock = None


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
