"""
The same names for asyncio: `aio.Workspace`, its turns, `aio.HookEngine`, `aio.AgentController`,
`aio.DeliverableLock`. For anything else that blocks there is `aio.in_thread`.

    async with ws.turn(agent_id="builder-1") as turn:
        seen = await turn.read_file("plan.md")

A twin has no behaviour of its own. `awaited(Turn.read_file)` is that method with its parameters and its
documentation, carried out on `.sync` in a thread; `at_once(…)` is one that waits for nothing.

Blocking work runs in threads. Cancelling a call leaves nothing half done: what a thread has begun is
waited for, then the cancellation goes on. So a cancelled write either landed, is in the turn's
snapshot and on record, or it did not happen; `turn.get_initial_hash` and the ledger agree about which.

Turns are objects, not context: two tasks with two turns share nothing, whatever started them.

Not promised: that cancelling is quick. A commit that waits for a busy file is waited for, `wait_s` at most.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, Unpack

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.project import find_project
from noclobber.guard import (
    controller,
    hook_engine,
    loaded_early,  # noqa: F401 - calls run in threads, and other threads may fork.
    turn,
    workspace,
)
from noclobber.guard.controller import Attempt, CallStep, ReRead, Transition
from noclobber.lock.aio import DeliverableLock, finished

if TYPE_CHECKING:
    import os
    import random
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
    from contextlib import AbstractContextManager
    from types import TracebackType

    from noclobber.core.clock import Clock
    from noclobber.core.options import OptionValues
    from noclobber.core.values import ToolCall
    from noclobber.guard.commands import CommandStop
    from noclobber.guard.tools.answers import ToolAnswer
    from noclobber.guard.tools.tool_list import ToolList as SyncToolList
    from noclobber.ledger.observer import Observer
    from noclobber.ledger.protocol import Ledger
    from noclobber.lock import lock as blocking

P = ParamSpec("P")
T = TypeVar("T")

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
    return await finished(functools.partial(work, *args, **kwargs))


async def stoppable(work: Callable[[CommandStop], T], stop: CommandStop | None = None) -> T:
    """
    Run a command in a thread. Cancelled, it is ended, and what it changed does not land.

    If its landing has begun by then, it lands whole, and is on record.
    """
    from noclobber.guard.commands import CommandStop  # Few programs run commands.

    asked = stop or CommandStop()
    return await finished(work, asked, cancelled=asked.ask)


@asynccontextmanager
async def around(blocking: AbstractContextManager[T]) -> AsyncIterator[T]:
    """Enter and leave a blocking context in threads. One that was entered is left, also if cancelled."""

    def left(error: BaseException | None) -> bool | None:
        return blocking.__exit__(None if error is None else type(error), error, None)

    entered = await finished(blocking.__enter__, undo=lambda: left(asyncio.CancelledError()))
    try:
        yield entered
    except BaseException as error:
        if not await in_thread(left, error):
            raise
    else:
        await in_thread(left, None)


def awaited(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return the twin of a method that blocks: the same one of `.sync`, in a thread."""

    @functools.wraps(method)
    async def twin(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await in_thread(getattr(self.sync, method.__name__), *args, **kwargs)
        return result

    return twin


def at_once(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Return the twin of a method that does not block: the same one of `.sync`."""

    @functools.wraps(method)
    def twin(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = getattr(self.sync, method.__name__)(*args, **kwargs)
        return result

    return twin


def ended_if_cancelled(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return the twin of a method that runs a command and takes a `stop`; cancelled, the command is ended."""

    @functools.wraps(method)
    async def twin(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        given: dict[str, Any] = dict(kwargs)
        run: Callable[..., T] = getattr(self.sync, method.__name__)
        return await stoppable(lambda stop: run(*args, **given | {"stop": stop}), given.get("stop"))

    return twin


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

    end_session = at_once(workspace.Workspace.end_session)
    remembers = at_once(workspace.Workspace.remembers)
    undo = awaited(workspace.Workspace.undo)
    commit_mine = awaited(workspace.Workspace.commit_mine)
    close = awaited(workspace.Workspace.close)


class ToolList(list[dict[str, Any]]):
    """The guarded tools in one format, for asyncio; `.sync` is the one underneath."""

    def __init__(self, tools: SyncToolList) -> None:
        super().__init__(tools)
        self.sync = tools

    async def call(self, tool_call: object) -> dict[str, Any]:
        """Carry out a model's tool call, and return the tool's result for the model."""
        return await in_thread(self.sync.call, tool_call)

    async def answer(self, name: str, given: object, *, call_id: str | None = None) -> ToolAnswer:
        """Carry out a call by its tool's name and arguments; the answer has no API's form."""
        return await in_thread(self.sync.answer, name, given, call_id=call_id)


class Turn:
    """`noclobber.Turn` for asyncio; `.sync` is the one underneath."""

    def __init__(self, turn: turn.Turn) -> None:
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

    def tools(
        self,
        format: turn.Format = "openai",  # noqa: A002 - the name that says it
        *,
        only: Iterable[str] | None = None,
        prefix: str = "",
        beside: Iterable[Any] = (),
    ) -> ToolList:
        """Return the guarded tools in the format of a model's API; `await tools.call(tool_call)`."""
        return ToolList(self.sync.tools(format, only=only, prefix=prefix, beside=beside))

    called = at_once(turn.Turn.called)
    tool_call = at_once(turn.Turn.tool_call)
    get_initial_hash = at_once(turn.Turn.get_initial_hash)
    read_file = awaited(turn.Turn.read_file)
    write_file = awaited(turn.Turn.write_file)
    edit_file = awaited(turn.Turn.edit_file)
    write_files = awaited(turn.Turn.write_files)
    delete_file = awaited(turn.Turn.delete_file)
    move_file = awaited(turn.Turn.move_file)
    call = awaited(turn.Turn.call)
    changes_since_read = awaited(turn.Turn.changes_since_read)
    changes = awaited(turn.Turn.changes)
    end = awaited(turn.Turn.end)
    run = ended_if_cancelled(turn.Turn.run)


class HookEngine:
    """`noclobber.HookEngine` for asyncio. An executor may be a coroutine function or a plain one."""

    def __init__(self, workspace: Workspace) -> None:
        self.sync: hook_engine.HookEngine = workspace.sync.engine

    pre_tool_use = awaited(hook_engine.HookEngine.pre_tool_use)
    post_tool_use = awaited(hook_engine.HookEngine.post_tool_use)

    async def execute(self, call: ToolCall, executor: Callable[[ToolCall], Any] | None = None) -> Any:
        """Carry out one call, or raise the refusal. Cancelled: what the executor left behind is noted."""
        if executor is None or not inspect.iscoroutinefunction(executor):
            return await in_thread(self.sync.execute, call, executor)
        async with around(self.sync.around(call)) as results:
            results.append(await executor(call))
        return results[0]


class AgentController(controller.RetryMachine):
    """`noclobber.AgentController` for asyncio: the same machine, and a step that is awaited."""

    def __init__(
        self,
        turn: Turn,
        *,
        max_attempts: int = 5,
        max_busy: int = 10,
        first_delay_s: float = controller.FIRST_DELAY_S,
        longest_delay_s: float = controller.LONGEST_DELAY_S,
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
