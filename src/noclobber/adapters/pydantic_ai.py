"""
Pydantic AI, and its harness.

Four ways in, each a line of the agent's:

- `toolsets=[GuardedToolset("project")]`: our file tools.
- `toolsets=[GuardedTools(own_toolset, "project", tools=[Tool(…)])]`: tools of your own, checked before and
  after each call. Weaker than the others: see `guard/hook_engine`.
- `capabilities=[GuardedCalls("project", tools=[Tool(…)])]`: the same check around any tool of the agent,
  those of `@agent.tool` included.
- `capabilities=[GuardedWorkspace("project"), FileSystem()]`: the harness's file tools, with our workspace in
  place of `LocalWorkspace`.

A refusal is a `ToolFailed` whose message is the exact object; its `__cause__` is the error. Arguments that a
model got wrong are a `ModelRetry`, as Pydantic AI does it for its own.

What was seen is tied to the messages of the conversation. A run that goes on from a message history keeps
what the tool calls in that history saw, if this process made them; of any others, the files must be read
again.
"""

from __future__ import annotations

import os
from contextvars import ContextVar
from copy import copy
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from pydantic_ai import ModelRetry, RunContext, ToolDefinition, ToolFailed
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ToolFailedError, ToolRetryError
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset
from pydantic_ai.workspaces import (
    FileEntry,
    LocalWorkspaceBackend,
    ReadOnlyWorkspace,
    Workspace,
    WorkspaceBackend,
    WorkspaceRef,
)
from pydantic_core import SchemaValidator, core_schema

from noclobber.adapters.callers import Caller
from noclobber.adapters.own_tools import OwnTools
from noclobber.adapters.runs import MOST_RUNS
from noclobber.adapters.shared import run_turns
from noclobber.adapters.tool_io import ToolIO
from noclobber.aio import in_thread
from noclobber.core.project import state_folder
from noclobber.errors import (
    BadRequestError,
    MissingFileError,
    NoclobberError,
    NotAFileError,
    OutsideWorkspaceError,
)
from noclobber.guard.tools import answers
from noclobber.guard.tools.tool_list import carry_out, chosen
from noclobber.guard.workspace import is_inside

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from typing import Unpack

    from noclobber.adapters.runs import RunTurns
    from noclobber.core.options import OptionValues
    from noclobber.guard.catalogue import Tool
    from noclobber.guard.tools.answers import ToolAnswer

T = TypeVar("T")

HOST = "pydantic-ai"

_ANY_OBJECT = SchemaValidator(core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()))
"""The arguments as they are: our own check knows more ways of being right, and says what is wrong."""


class _Callers:
    """Who calls, in the runs of one workspace's agents. One for all ways in, which share it."""

    def __init__(self) -> None:
        self._touched: dict[str, set[str]] = {}
        self._kinds: list[Callable[[str], bool]] = []

    def add(self, is_ours: Callable[[str], bool]) -> None:
        """Tools whose names this function knows touch files."""
        self._kinds.append(is_ours)

    def caller(self, ctx: RunContext[Any]) -> Caller:
        """
        Return who calls. A response of the model is a memory: its tool calls are one step, and one turn's.

        Of earlier runs each response counts that calls one of our tools. Of this run, those that did touch a
        file: the calls of one step run at the same time, and the first one has no past.
        """
        touched = self._touched.setdefault(f"{ctx.run_id}", set())
        if len(self._touched) > MOST_RUNS:  # A toolset that only checks is not told when a run is over.
            self._touched.pop(next(iter(self._touched)))
        mark, memory = f"{ctx.run_id}/", set()
        for message in ctx.messages:
            calls = message.tool_calls if isinstance(message, ModelResponse) else ()
            if not calls:
                continue
            name = f"{message.run_id}/{calls[0].tool_call_id}"
            if any(part.tool_call_id == ctx.tool_call_id for part in calls):
                mark = name  # Perhaps of an earlier run: a call that a person has approved since.
            if name in touched if message.run_id == ctx.run_id else self._touch_files(calls):
                memory.add(name)
        touched.add(mark)
        return Caller(
            agent_id=(ctx.agent.name if ctx.agent is not None else None) or "agent",
            session_id=ctx.conversation_id,
            run_id=ctx.run_id,
            call_id=ctx.tool_call_id,
            memory=memory | {mark},
            mark=mark,
        )

    def forget(self, run_id: str | None) -> None:
        """The run is over."""
        self._touched.pop(f"{run_id}", None)

    def _touch_files(self, calls: Sequence[ToolCallPart]) -> bool:
        return any(is_ours(call.tool_name) for call in calls for is_ours in self._kinds)


_CALLERS: WeakKeyDictionary[RunTurns, _Callers] = WeakKeyDictionary()


def _failure(answer: ToolAnswer) -> Exception:
    """Return a refusal in Pydantic AI's own form. What other arguments would put right is a retry."""
    kind = ModelRetry if isinstance(answer.error, BadRequestError) else ToolFailed
    failure = kind(answer.text)
    failure.__cause__ = answer.error
    return failure


# -- our tools -------------------------------------------------------------------------------------------


class GuardedToolset(AbstractToolset[Any]):
    """The guarded file tools. `only` names those that are wanted; a `prefix` keeps their names apart."""

    def __init__(
        self,
        workspace: Any,
        *,
        only: Iterable[str] | None = None,
        prefix: str = "",
        id: str | None = "noclobber",  # noqa: A002 - as every toolset calls it
        **options: Unpack[OptionValues],
    ) -> None:
        self._turns = run_turns(workspace, HOST, **options)
        self._tools, self._prefix, self._id = chosen(only), prefix, id
        self._callers = _CALLERS.setdefault(self._turns, _Callers())
        self._callers.add(self._is_ours)
        self._run: RunContext[Any] | None = None

    @property
    def id(self) -> str | None:
        """What this toolset is called where an agent has several."""
        return self._id

    @property
    def tool_name_conflict_hint(self) -> str:
        """What to do if a tool of the user's own has the name of one of these."""
        return "Give GuardedToolset a prefix, or name the tools that you want with `only`."

    async def for_run(self, ctx: RunContext[Any]) -> GuardedToolset:
        """A copy for each run, so that the run's end is known."""
        copied = copy(self)
        copied._run = ctx
        return copied

    async def __aexit__(self, *args: Any) -> None:
        if self._run is not None:
            await in_thread(self._turns.end, self._callers.caller(self._run))
            self._callers.forget(self._run.run_id)

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The tools, by the names that the model sees."""
        return {
            self._prefix + tool.name: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=self._prefix + tool.name,
                    description=tool.description,
                    parameters_json_schema=tool.parameters,
                ),
                max_retries=ctx.max_retries,
                args_validator=_ANY_OBJECT,
            )
            for tool in self._tools.values()
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> str:
        """Carry out a call, in a thread."""
        turn = self._turns.turn(self._callers.caller(ctx))
        answer = await in_thread(
            carry_out,
            turn,
            name.removeprefix(self._prefix),
            tool_args,
            call_id=ctx.tool_call_id,
            tools=self._tools,
        )
        if answer.is_error:
            raise _failure(answer)
        return answer.text

    def _is_ours(self, name: str) -> bool:
        return name.startswith(self._prefix) and name.removeprefix(self._prefix) in self._tools


# -- tools of the user's own -----------------------------------------------------------------------------


class GuardedTools(WrapperToolset[Any]):
    """A check around a toolset of the user's own. `tools` says what each does; the others go through."""

    def __init__(
        self,
        wrapped: AbstractToolset[Any],
        workspace: Any,
        *,
        tools: Iterable[Tool],
        **options: Unpack[OptionValues],
    ) -> None:
        super().__init__(wrapped)
        self._turns = run_turns(workspace, HOST, **options)
        self._own = OwnTools(self._turns, tools)
        self._callers = _CALLERS.setdefault(self._turns, _Callers())
        self._callers.add(self._own.__contains__)

    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        """The same check around the wrapped toolset's own copy for the run."""
        return self._around(await self.wrapped.for_run(ctx))

    async def for_run_step(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        """The same check around the wrapped toolset's own copy for the step."""
        return self._around(await self.wrapped.for_run_step(ctx))

    def visit_and_replace(
        self, visitor: Callable[[AbstractToolset[Any]], AbstractToolset[Any]]
    ) -> AbstractToolset[Any]:
        """The same check around what the visitor makes of the wrapped toolset."""
        return self._around(self.wrapped.visit_and_replace(visitor))

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Carry out a call, with the check around it if it was said what the tool does."""
        if name not in self._own:
            return await self.wrapped.call_tool(name, tool_args, ctx, tool)
        caller = self._callers.caller(ctx)
        try:
            return await self._own.around_async(
                caller, name, tool_args, lambda: self.wrapped.call_tool(name, tool_args, ctx, tool)
            )
        except NoclobberError as error:
            raise _failure(answers.refused(error)) from error

    def _around(self, wrapped: AbstractToolset[Any]) -> GuardedTools:
        copied = copy(self)
        copied.wrapped = wrapped
        return copied


@dataclass
class GuardedCalls(AbstractCapability[Any]):
    """A check around the agent's own tools, wherever they come from. `tools` says what each does."""

    workspace: Any
    """The project's folder, or a `noclobber.Workspace`."""
    _: KW_ONLY
    tools: Iterable[Tool]
    id: str | None = "noclobber_calls"
    options: Mapping[str, Any] = field(default_factory=dict)
    """noclobber's options for the agents' turns."""

    def __post_init__(self) -> None:
        self._turns = run_turns(self.workspace, HOST, **self.options)
        self._own = OwnTools(self._turns, self.tools)
        self._callers = _CALLERS.setdefault(self._turns, _Callers())
        self._callers.add(self._own.__contains__)

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Callable[[], Awaitable[Any]]) -> Any:
        """At the end of a run, its turn ends."""
        try:
            return await handler()
        finally:
            await in_thread(self._turns.end, self._callers.caller(ctx))
            self._callers.forget(ctx.run_id)

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: Callable[[dict[str, Any]], Awaitable[Any]],
    ) -> Any:
        """Carry out a call, with the check around it if it was said what the tool does."""
        if call.tool_name not in self._own:
            return await handler(args)
        caller = self._callers.caller(ctx)
        try:
            return await self._own.around_async(caller, call.tool_name, args, lambda: handler(args))
        except NoclobberError as error:
            raise _failure(answers.refused(error)) from error


# -- the harness's file tools ----------------------------------------------------------------------------

_IO: ContextVar[ToolIO | None] = ContextVar("noclobber_pydantic_ai_io", default=None)
"""The tool call in which the workspace is used; None for a program that uses the workspace itself."""


class GuardedWorkspaceBackend(LocalWorkspaceBackend):
    """`LocalWorkspaceBackend` whose files are guarded. Commands are not: see `noclobber run`."""

    def __init__(self, turns: RunTurns, *, env: Mapping[str, str] | None = None) -> None:
        super().__init__(turns.workspace.root, env=env)
        self._turns = turns

    async def read_bytes(self, path: str) -> bytes:
        """Read a file. Within a tool call, the agent has seen it only if the call's result shows it."""
        self._path(path)
        return await in_thread(self._in_call, lambda io: _as_os_error(io.read, path))

    async def write_bytes(self, path: str, data: bytes) -> None:
        """Replace or create a file, if it is what the agent saw and what the tool read."""
        self._path(path)
        await in_thread(self._in_call, lambda io: _as_os_error(io.write, path, data))

    async def stat(self, path: str) -> FileEntry:
        """Return what is known of a file or folder without reading it. That there is none counts as seen."""
        try:
            return await super().stat(path)
        except FileNotFoundError:
            if (io := _IO.get()) is not None and os.path.dirname(path).startswith(self._turns.workspace.root):
                await in_thread(io.exists, path)
            raise

    async def remove(self, path: str) -> None:
        """Remove a file, if it is what the agent saw. A folder: each of its files. A link: itself."""
        self._path(path)
        root = self._turns.workspace.root
        if not os.path.islink(path) and is_inside(root, os.path.realpath(path)):
            raise ValueError("cannot remove the workspace root or its ancestor")
        await in_thread(self._in_call, partial(_remove, path=path))

    def _in_call(self, work: Callable[[ToolIO], T]) -> T:
        io = _IO.get()
        if io is not None:
            return work(io)
        # A program that uses the workspace itself: what it reads, it has seen.
        io = ToolIO(lambda: self._turns.turn(Caller(agent_id="program")), "workspace")
        result = work(io)
        io.over_shown_whole()
        return result


def _remove(io: ToolIO, path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        for folder, folders, files in os.walk(path, topdown=False):
            for name in (
                *files,
                *folders,
            ):  # Among the folders are links to folders; the others are gone by now.
                if os.path.lexists(os.path.join(folder, name)):
                    _remove(io, os.path.join(folder, name))
            os.rmdir(folder)  # Refuses if somebody has put something there since.
    elif (os.path.isfile(path) and not os.path.islink(path)) or not os.path.lexists(path):
        _as_os_error(io.delete, path)
    else:
        folder = os.path.realpath(os.path.dirname(path))
        if not is_inside(folder, io.turn.root) or is_inside(folder, state_folder(io.turn.root)):
            raise OutsideWorkspaceError(path, "This is outside of the workspace, or noclobber's own.")
        os.unlink(path)  # A link or a FIFO has no content that could be lost.


def _as_os_error(work: Callable[..., T], path: str, *args: Any) -> T:
    """Carry out one operation. What is no file is told in the words that every workspace uses."""
    try:
        return work(path, *args)
    except NotAFileError as error:
        if os.path.isdir(path):
            raise IsADirectoryError(path) from error
        if os.path.exists(os.path.dirname(path)) and not os.path.isdir(os.path.dirname(path)):
            raise NotADirectoryError(path) from error
        raise OSError(f"not a regular file: {path!r}") from error


@dataclass
class GuardedWorkspace(AbstractCapability[Any]):
    """
    `LocalWorkspace` whose files are guarded, for the harness's `FileSystem` and for tools of your own that
    use `ctx.workspace`.

    Commands that run in the workspace (`Shell`) are not guarded.
    """

    working_dir: Any
    """The project's folder, or a `noclobber.Workspace`."""
    _: KW_ONLY
    read_only: bool = False
    env: Mapping[str, str] | None = None
    """Environment variables for every command, as for `LocalWorkspace`."""
    id: str | None = "local_workspace"
    options: Mapping[str, Any] = field(default_factory=dict)
    """noclobber's options for the agents' turns."""

    def __post_init__(self) -> None:
        self._turns = run_turns(self.working_dir, HOST, **self.options)
        self._callers = _CALLERS.setdefault(self._turns, _Callers())
        self._callers.add(_any_tool)

    @classmethod
    def combine(cls, capabilities: Sequence[AbstractCapability[Any]]) -> AbstractCapability[Any]:
        """The later one replaces the earlier one whole, as with `LocalWorkspace`."""
        return capabilities[-1]

    def get_workspace(self, ctx: RunContext[Any], *, ref: WorkspaceRef | None) -> WorkspaceBackend | None:
        """Return the guarded folder; None for a ref to another one."""
        backend = GuardedWorkspaceBackend(self._turns, env=self.env)
        if ref is not None and ref != backend.ref:
            return None
        return ReadOnlyWorkspace(Workspace(backend)) if self.read_only else backend

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Callable[[], Awaitable[Any]]) -> Any:
        """At the end of a run, its turn ends."""
        try:
            return await handler()
        finally:
            await in_thread(self._turns.end, self._callers.caller(ctx))
            self._callers.forget(ctx.run_id)

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: Callable[[dict[str, Any]], Awaitable[Any]],
    ) -> Any:
        """Hold what the tool reads until its result is known; make the exact object of a refusal."""
        io = ToolIO(
            lambda: self._turns.turn(self._callers.caller(ctx)),
            call.tool_name,
            call.tool_call_id,
            writes_text=call.tool_name.endswith(("write_file", "edit_file")),
        )
        token = _IO.set(io)
        try:
            result = await handler(args)
        except (ModelRetry, ToolFailed, ToolRetryError, ToolFailedError) as told:
            if io.refusal is None or isinstance(io.refusal, MissingFileError):
                raise
            raise _failure(answers.refused(io.refusal)) from told
        except NoclobberError as error:
            raise _failure(answers.refused(error)) from error
        finally:
            _IO.reset(token)
        await io.over_async(result if isinstance(result, str) else None)
        return result


def _any_tool(_: str) -> bool:
    """Any tool may use the workspace."""
    return True
