"""
The same names for asyncio: `aio.Workspace`, its turns, `aio.HookEngine`, `aio.AgentController`,
`aio.DeliverableLock`. For anything else that blocks there is `aio.in_thread`.

    async with ws.turn(agent_id="builder-1") as turn:
        seen = await turn.read_file("plan.md")

Blocking work runs in threads. Cancelling a call leaves nothing half done: what a thread has begun is
waited for, then the cancellation goes on. So a cancelled write either landed, is in the turn's
snapshot and on record, or it did not happen; `turn.get_initial_hash` and the ledger agree about which.

Turns are objects, not context: two tasks with two turns share nothing, whatever started them.

Not promised: that cancelling is quick. A commit that waits for a busy file is waited for, `wait_s` at most.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, Unpack

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.project import find_project
from noclobber.guard import hook_engine as engines
from noclobber.guard import (
    loaded_early,  # noqa: F401 - calls run in threads, and other threads may fork.
    workspace,
)
from noclobber.guard.controller import (
    FIRST_DELAY_S,
    LONGEST_DELAY_S,
    Attempt,
    CallStep,
    ReRead,
    RetryMachine,
    Transition,
)
from noclobber.lock.aio import DeliverableLock

if TYPE_CHECKING:
    import os
    import random
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from noclobber.core.clock import Clock
    from noclobber.core.options import OptionValues
    from noclobber.core.values import Decision, Edit, ReadResult, ToolCall, WriteResult
    from noclobber.guard.commands import CommandResult, CommandStop
    from noclobber.guard.git.commit import CommitMade
    from noclobber.guard.notices import ChangeNotice
    from noclobber.guard.tools.tool_list import ToolList as SyncToolList
    from noclobber.guard.turn import Format
    from noclobber.guard.turn import Turn as SyncTurn
    from noclobber.guard.undo import UndoPlan
    from noclobber.ledger.observer import Observer
    from noclobber.ledger.protocol import Ledger
    from noclobber.lock import lock as blocking

    P = ParamSpec("P")
    T = TypeVar("T")
    Path = str | os.PathLike[str]

__all__ = [
    "AgentController",
    "Attempt",
    "DeliverableLock",
    "HookEngine",
    "Transition",
    "Turn",
    "Workspace",
    "in_thread",
]


async def in_thread(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """
    Run blocking work in a thread, and never leave before it is over.

    A thread cannot be stopped. Were the cancellation passed on at once, the write would land after its
    caller had been told that it was cancelled, and after the turn had been closed.
    """
    return await _waited_for(asyncio.to_thread(work, *args, **kwargs))


async def stoppable(work: Callable[[CommandStop], T], stop: CommandStop | None = None) -> T:
    """
    Run a command in a thread. Cancelled, it is ended, and what it changed does not land.

    If its landing has begun by then, it lands whole, and is on record.
    """
    from noclobber.guard.commands import CommandStop  # Few programs run commands.

    asked = stop or CommandStop()
    return await _waited_for(asyncio.to_thread(work, asked), asked.ask)


async def _waited_for(thread: Coroutine[Any, Any, T], cancelled: Callable[[], None] | None = None) -> T:
    running = asyncio.ensure_future(thread)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if cancelled is not None:
            cancelled()
        while not running.done():
            try:
                await asyncio.wait([running])
            except asyncio.CancelledError:
                continue  # Asked again. The answer is the same, and it comes after the thread's.
        running.exception()  # Looked at, so that nobody is told of an exception that was never retrieved.
        raise


class Workspace:
    """`noclobber.Workspace` for asyncio; `.sync` is the one underneath."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        clock: Clock = SYSTEM_CLOCK,
        read_config: bool = True,
        observer: Observer | None = None,
        **given: Unpack[OptionValues],
    ) -> None:
        self.sync = workspace.Workspace(
            root, clock=clock, read_config=read_config, observer=observer, **given
        )
        self.root, self.options = self.sync.root, self.sync.options
        self.engine = HookEngine(self)

    @classmethod
    def find(
        cls,
        start: str | os.PathLike[str] = ".",
        *,
        host_folder: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
        observer: Observer | None = None,
        **given: Unpack[OptionValues],
    ) -> Workspace:
        """Return the workspace of the project that a folder belongs to."""
        return cls(find_project(start, host_folder=host_folder), clock=clock, observer=observer, **given)

    async def __aenter__(self) -> Workspace:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<aio.{repr(self.sync)[1:]}"

    @property
    def ledger(self) -> Ledger:
        """The ledger. Its methods block for as long as a disk takes; `in_thread` runs them elsewhere."""
        return self.sync.ledger

    def turn(
        self,
        *,
        agent_id: str = "agent",
        session_id: str | None = None,
        turn_id: str | None = None,
        host: str | None = None,
        intent_id: str | None = None,
        lock: DeliverableLock | blocking.DeliverableLock | None = None,
        **overrides: Unpack[OptionValues],
    ) -> Turn:
        """Begin a turn; use it with `async with`. A `lock` may be of either kind."""
        return Turn(
            self.sync.turn(
                agent_id=agent_id,
                session_id=session_id,
                turn_id=turn_id,
                host=host,
                intent_id=intent_id,
                lock=lock.sync if isinstance(lock, DeliverableLock) else lock,
                **overrides,
            )
        )

    def end_session(self, session_id: str | None = None, *, agent_id: str | None = None) -> None:
        """Forget what a session's agents, or one of them, saw in earlier turns (`scope = "session"`)."""
        self.sync.end_session(session_id, agent_id=agent_id)

    def remembers(self, session_id: str | None, agent_id: str) -> bool:
        """True if this process still knows what an agent saw in earlier turns of a session."""
        return self.sync.remembers(session_id, agent_id)

    async def undo(
        self,
        *,
        agent_id: str | None = None,
        session_id: str | None = None,
        turn_id: str | None = None,
        call_id: str | None = None,
        path: str | os.PathLike[str] | None = None,
        dry_run: bool = False,
    ) -> UndoPlan:
        """Take back what one agent, session, turn or call wrote, and leave everybody else's changes alone."""
        return await in_thread(
            lambda: self.sync.undo(
                agent_id=agent_id,
                session_id=session_id,
                turn_id=turn_id,
                call_id=call_id,
                path=path,
                dry_run=dry_run,
            )
        )

    async def commit_mine(
        self,
        message: str,
        *,
        agent_id: str | None = None,
        session_id: str | None = None,
        paths: Iterable[str | os.PathLike[str]] | None = None,
        dry_run: bool = False,
        verify: bool = True,
    ) -> CommitMade:
        """Make a git commit of exactly what one agent or session wrote, and nothing of anybody else."""
        return await in_thread(
            lambda: self.sync.commit_mine(
                message,
                agent_id=agent_id,
                session_id=session_id,
                paths=paths,
                dry_run=dry_run,
                verify=verify,
            )
        )

    async def close(self) -> None:
        """End every open turn and let go of the ledger."""
        await in_thread(self.sync.close)


class ToolList(list[dict[str, Any]]):
    """The guarded tools in one format, for asyncio; `.sync` is the one underneath."""

    def __init__(self, tools: SyncToolList) -> None:
        super().__init__(tools)
        self.sync = tools

    async def call(self, tool_call: object) -> dict[str, Any]:
        """Carry out a model's tool call, and return the tool's result for the model."""
        return await in_thread(self.sync.call, tool_call)


class Turn:
    """`noclobber.Turn` for asyncio; `.sync` is the one underneath."""

    def __init__(self, turn: SyncTurn) -> None:
        self.sync = turn
        self.context = turn.context
        self.turn_id, self.agent_id, self.session_id = turn.turn_id, turn.agent_id, turn.session_id

    def __repr__(self) -> str:
        return f"<aio.{repr(self.sync)[1:]}"

    async def __aenter__(self) -> Turn:
        self.sync.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await in_thread(self.sync.__exit__, kind, error, trace)

    @property
    def kept(self) -> list[str]:
        """After the end: files kept aside because somebody wrote to a version that had been replaced."""
        return self.sync.kept

    def called(self, call_id: str | None, *, step: str | None = None) -> AbstractContextManager[None]:
        """Within: the ledger has this id for what this task does. `step`: the model's message that asked."""
        return self.sync.called(call_id, step=step)

    def tools(
        self,
        format: Format = "openai",  # noqa: A002 - the name that says it
        *,
        only: Iterable[str] | None = None,
        prefix: str = "",
        beside: Iterable[Any] = (),
    ) -> ToolList:
        """Return the guarded tools in the format of a model's API; `await tools.call(tool_call)`."""
        return ToolList(self.sync.tools(format, only=only, prefix=prefix, beside=beside))

    async def end(self) -> None:
        """Forget what was seen and clear away what commits left."""
        await in_thread(self.sync.end)

    async def read_file(
        self, path: Path, *, start_line: int | None = None, end_line: int | None = None
    ) -> ReadResult:
        """Read a file, or some lines of it."""
        return await in_thread(self.sync.read_file, path, start_line=start_line, end_line=end_line)

    async def write_file(
        self,
        path: Path,
        content: str | bytes,
        *,
        expected_hash: str | None = None,
        observation_id: str | None = None,
    ) -> WriteResult:
        """Replace a whole file, or create it."""
        return await in_thread(
            self.sync.write_file, path, content, expected_hash=expected_hash, observation_id=observation_id
        )

    async def edit_file(
        self,
        path: Path,
        edits: Sequence[Edit],
        *,
        expected_hash: str | None = None,
        observation_id: str | None = None,
    ) -> WriteResult:
        """Make all edits or none."""
        return await in_thread(
            self.sync.edit_file, path, edits, expected_hash=expected_hash, observation_id=observation_id
        )

    async def write_files(
        self, files: Mapping[str, str | bytes], *, expected_hashes: Mapping[str, str] | None = None
    ) -> dict[str, WriteResult]:
        """Replace or create several files: all of them or none."""
        return await in_thread(self.sync.write_files, files, expected_hashes=expected_hashes)

    async def run(
        self,
        command: str | Sequence[str],
        *,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        expected_hashes: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        stop: CommandStop | None = None,
        require: bool = False,
    ) -> CommandResult:
        """Run a command as one transaction. Cancelled, it is ended, and nothing of it lands."""
        return await stoppable(
            lambda asked: self.sync.run(
                command,
                cwd=cwd,
                environment=environment,
                stdin=stdin,
                expected_hashes=expected_hashes,
                timeout_s=timeout_s,
                stop=asked,
                require=require,
            ),
            stop,
        )

    async def delete_file(
        self, path: Path, *, expected_hash: str | None = None, observation_id: str | None = None
    ) -> WriteResult:
        """Delete a file."""
        return await in_thread(
            self.sync.delete_file, path, expected_hash=expected_hash, observation_id=observation_id
        )

    async def move_file(
        self,
        source: Path,
        destination: Path,
        *,
        expected_hash: str | None = None,
        observation_id: str | None = None,
    ) -> WriteResult:
        """Move a file to a free name."""
        return await in_thread(
            self.sync.move_file,
            source,
            destination,
            expected_hash=expected_hash,
            observation_id=observation_id,
        )

    async def call(self, tool: str, params: dict[str, Any], *, call_id: str | None = None) -> Any:
        """Call any registered tool by name."""
        return await in_thread(self.sync.call, tool, params, call_id=call_id)

    def tool_call(
        self, tool: str, params: dict[str, Any] | None = None, *, call_id: str | None = None
    ) -> ToolCall:
        """Return a call in this turn's name, for the engine."""
        return self.sync.tool_call(tool, params, call_id=call_id)

    def get_initial_hash(self, path: Path) -> str | None:
        """Return the hash of the file at this turn's first read. No disk, so nothing to wait for."""
        return self.sync.get_initial_hash(path)

    async def changes_since_read(self, path: Path) -> str:
        """Return a unified diff from what the turn last saw to what is on the disk."""
        return await in_thread(self.sync.changes_since_read, path)

    async def changes(self) -> list[ChangeNotice]:
        """Return which files that this turn has seen have changed since, by whom and how."""
        return await in_thread(self.sync.changes)


class HookEngine:
    """`noclobber.HookEngine` for asyncio. An executor may be a coroutine function or a plain one."""

    def __init__(self, workspace: Workspace) -> None:
        self.sync: engines.HookEngine = workspace.sync.engine

    async def pre_tool_use(self, call: ToolCall) -> Decision:
        """Judge a call that somebody else will carry out."""
        return await in_thread(self.sync.pre_tool_use, call)

    async def post_tool_use(self, call: ToolCall, result: Any) -> None:
        """Take note of what somebody else's executor read or wrote."""
        await in_thread(self.sync.post_tool_use, call, result)

    async def execute(self, call: ToolCall, executor: Callable[[ToolCall], Any] | None = None) -> Any:
        """Carry out one call, or raise the refusal."""
        if executor is None or not inspect.iscoroutinefunction(executor):
            return await in_thread(self.sync.execute, call, executor)
        decision = await self.pre_tool_use(call)
        if not decision.allowed:
            raise decision.error
        try:
            result = await executor(call)
        except BaseException as error:
            await self.post_tool_use(call, error)
            raise
        await self.post_tool_use(call, result)
        return result


class AgentController(RetryMachine):
    """`noclobber.AgentController` for asyncio: the same machine, and a step that is awaited."""

    def __init__(
        self,
        turn: Turn,
        *,
        max_attempts: int = 5,
        max_busy: int = 10,
        first_delay_s: float = FIRST_DELAY_S,
        longest_delay_s: float = LONGEST_DELAY_S,
        resubmitted: Literal["allow", "deny"] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        rng: random.Random | None = None,
        on_transition: Callable[[Transition], None] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(
            turn.sync,
            max_attempts=max_attempts,
            max_busy=max_busy,
            first_delay_s=first_delay_s,
            longest_delay_s=longest_delay_s,
            resubmitted=resubmitted,
            clock=clock,
            rng=rng,
            on_transition=on_transition,
        )
        self._sleep = sleep

    async def run(self, step: Callable[[Attempt], Awaitable[T]]) -> T:
        """Call the step until it ends in something else than a conflict, and return or raise that."""
        machine = self.machine()
        answer: Any = None
        try:
            while True:
                command = machine.send(answer)
                if isinstance(command, CallStep):
                    answer = await _outcome(step(command.attempt))
                elif isinstance(command, ReRead):
                    answer = await _outcome(in_thread(self.re_read, command.path))
                else:
                    await self._sleep(command.seconds)
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            machine.close()


async def _outcome(work: Awaitable[Any]) -> tuple[Any, Exception | None]:
    try:
        return await work, None
    except Exception as error:
        return None, error
