"""
Pydantic AI's harness: `FileSystem` and `Shell` over a guarded workspace, in the place of `LocalWorkspace`.

    Agent(model, capabilities=[GuardedWorkspace("project"), FileSystem(), Shell()])

The tools are the harness's; they read, write and run commands through the workspace. `tool_io` says what of
that counts as seen.

A refusal is a `ToolFailed` whose message is the exact object; its `__cause__` is the error. Arguments that a
model got wrong are a `ModelRetry`, as Pydantic AI does it for its own.

What was seen is tied to the messages of the conversation. A run that goes on from a message history keeps
what the tool calls in that history saw, if this process made them; of any others, the files must be read
again.
"""

from __future__ import annotations

import os
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from noclobber.adapters import extra

with extra("pydantic-ai"):
    from pydantic_ai import ModelRetry, RunContext, ToolDefinition, ToolFailed
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.exceptions import ToolFailedError, ToolRetryError
    from pydantic_ai.messages import ModelResponse, ToolCallPart
    from pydantic_ai.workspaces import (
        CommandResult,
        FileEntry,
        LocalWorkspaceBackend,
        ReadOnlyWorkspace,
        Workspace,
        WorkspaceBackend,
        WorkspaceRef,
        WorkspaceTimeoutError,
    )

from noclobber.adapters import gone
from noclobber.adapters.commands import checked_choice
from noclobber.adapters.runs import MOST_RUNS, Caller
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
from noclobber.guard.tools.answers import refused
from noclobber.guard.workspace import is_inside

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from noclobber.adapters.commands import Commands
    from noclobber.adapters.runs import RunTurns

T = TypeVar("T")

HOST = "pydantic-ai"
if not TYPE_CHECKING:  # A type checker misses the names that are gone by itself.
    __getattr__ = gone(__name__)

_IO: ContextVar[ToolIO | None] = ContextVar("noclobber_pydantic_ai_io", default=None)
"""The tool call in which the workspace is used; None for a program that uses the workspace itself."""


class GuardedWorkspaceBackend(LocalWorkspaceBackend):
    """`LocalWorkspaceBackend` whose files are guarded, and what commands make of them."""

    def __init__(
        self, turns: RunTurns, *, env: Mapping[str, str] | None = None, commands: Commands = "guarded"
    ) -> None:
        super().__init__(turns.workspace.root, env=env)
        self._turns, self._are_commands_guarded = turns, checked_choice(commands)

    async def run(
        self,
        command: str | Sequence[str],
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        """Run a command. What it changed lands all together, or is refused."""
        if not self._are_commands_guarded or isinstance(command, str) != shell:
            return await super().run(
                command, shell=shell, env=env, timeout=timeout
            )  # Or it says what is wrong.
        io = _IO.get() or self._program()
        done = await io.run(command, environment={**self._env, **(env or {})}, timeout_s=timeout)
        if done.timed_out:
            raise WorkspaceTimeoutError(
                f"command timed out after {timeout:g}s, and nothing of it landed",
                stdout=done.stdout,
                stderr=done.stderr,
            )
        return CommandResult(exit_code=done.exit_code, stdout=done.stdout, stderr=done.stderr)

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
        io = self._program()
        result = work(io)
        io.over_shown_whole()
        return result

    def _program(self) -> ToolIO:
        return ToolIO(lambda: self._turns.turn(Caller(agent_id="program")), "workspace")


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
    use `ctx.workspace`. What the harness's `Shell` runs is guarded, too: each command is one transaction.
    """

    working_dir: Any
    """The project's folder, or a `noclobber.Workspace`."""
    _: KW_ONLY
    read_only: bool = False
    env: Mapping[str, str] | None = None
    """Environment variables for every command, as for `LocalWorkspace`."""
    commands: Commands = "guarded"
    """`plain`: what is run as a command is not guarded. Needed for jobs that go on in the background."""
    id: str | None = "local_workspace"
    options: Mapping[str, Any] = field(default_factory=dict)
    """noclobber's options for the agents' turns."""

    def __post_init__(self) -> None:
        self._turns = run_turns(self.working_dir, HOST, **self.options)
        self._callers = _CALLERS.setdefault(self._turns, _RunCallers())

    @classmethod
    def combine(cls, capabilities: Sequence[AbstractCapability[Any]]) -> AbstractCapability[Any]:
        """The later one replaces the earlier one whole, as with `LocalWorkspace`."""
        return capabilities[-1]

    def get_workspace(self, ctx: RunContext[Any], *, ref: WorkspaceRef | None) -> WorkspaceBackend | None:
        """Return the guarded folder; None for a ref to another one."""
        backend = GuardedWorkspaceBackend(self._turns, env=self.env, commands=self.commands)
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
        except (ModelRetry, ToolFailed, ToolRetryError, ToolFailedError) as failed:
            if io.refusal is None or isinstance(io.refusal, MissingFileError):
                raise
            raise _failure(io.refusal) from failed
        except NoclobberError as error:
            raise _failure(error) from error
        finally:
            _IO.reset(token)
        await io.over_async(result if isinstance(result, str) else None)
        return result


# -- who calls ---------------------------------------------------------------------------------------------


class _RunCallers:
    """Who calls, in the runs of one workspace's agents. Any tool may use the workspace."""

    def __init__(self) -> None:
        self._touched: dict[str, set[str]] = {}

    def caller(self, ctx: RunContext[Any]) -> Caller:
        """
        Return who calls. A response of the model is a memory: its tool calls are one step, and one turn's.

        Of earlier runs each response counts that calls a tool. Of this run, those that did touch a file: the
        calls of one step run at the same time, and the first one has no past.
        """
        touched = self._touched.setdefault(f"{ctx.run_id}", set())
        if len(self._touched) > MOST_RUNS:
            self._touched.pop(next(iter(self._touched)))
        mark, memory = f"{ctx.run_id}/", set()
        for message in ctx.messages:
            calls = message.tool_calls if isinstance(message, ModelResponse) else ()
            if not calls:
                continue
            name = f"{message.run_id}/{calls[0].tool_call_id}"
            if any(part.tool_call_id == ctx.tool_call_id for part in calls):
                mark = name  # Perhaps of an earlier run: a call that a person has approved since.
            if message.run_id != ctx.run_id or name in touched:
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


_CALLERS: WeakKeyDictionary[RunTurns, _RunCallers] = WeakKeyDictionary()


def _failure(error: NoclobberError) -> Exception:
    """Return a refusal in Pydantic AI's own form. What other arguments would put right is a retry."""
    failure = (ModelRetry if isinstance(error, BadRequestError) else ToolFailed)(refused(error).text)
    failure.__cause__ = error
    return failure
