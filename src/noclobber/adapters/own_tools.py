"""
A check around tools of the user's own, which a framework carries out.

    OwnTools(turns, [Tool("save_note", "write", path=("note",), content="body")])

Says what each tool does to files (`noclobber.Tool`); tools that are not named go through unchecked. Around a
named one goes `guard/outside`: a stale write is refused before the tool runs, what a read showed is noted,
and what somebody saved while the tool wrote is noticed afterwards.

Calls of one agent that change the same file are carried out one after the other. At the same time, each would
find what the other one has just written, and be refused for the agent's own change.

*Weaker* than a guarded tool: between the check and the tool's own write there is a moment in which an
outsider's save is lost. Where that matters, use the guarded tools.
"""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from noclobber.adapters.call_queue import QUEUE
from noclobber.aio import around, in_thread
from noclobber.core.actions import READ
from noclobber.errors import BadRequestError, NoclobberError
from noclobber.guard.catalogue import Tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from noclobber.adapters.callers import Caller
    from noclobber.adapters.runs import RunTurns
    from noclobber.core.values import ToolCall


class OwnTools:
    """The user's own tools that are checked."""

    def __init__(self, turns: RunTurns, tools: Iterable[Tool]) -> None:
        self._turns, self._engine = turns, turns.workspace.engine
        self.names: set[str] = set()
        self._entered: dict[int, tuple[ToolCall, list[tuple[object, str]]]] = {}
        """The calls under way by `id`, and for which files they keep others waiting."""
        for tool in tools:
            if not isinstance(tool, Tool):
                raise BadRequestError(
                    "", f"Say what a tool does with noclobber.Tool(name, kind, …), not {type(tool).__name__}."
                )
            turns.workspace.catalogue.register(tool)
            self.names.add(tool.name)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def before(self, caller: Caller, name: str, params: Mapping[str, Any]) -> ToolCall:
        """Judge a call that the framework is about to carry out in this thread; raise the refusal."""
        call, keys = self._call(caller, name, params)
        for key in keys:
            QUEUE.enter_thread(*key)
        self._entered[id(call)] = (call, keys)
        return self._judged(call)

    async def before_async(self, caller: Caller, name: str, params: Mapping[str, Any]) -> ToolCall:
        """The same for a task. It waits without a thread."""
        call, keys = await in_thread(self._call, caller, name, params)
        entered: list[tuple[object, str]] = []
        self._entered[id(call)] = (call, entered)
        try:
            for key in keys:
                await QUEUE.enter(*key)
                entered.append(key)
            return await in_thread(self._judged, call)
        except BaseException:
            self._leave(call)  # Again, if the judge refused; cancelled, for the first time.
            raise

    def after(self, call: ToolCall, result: object) -> None:
        """Take note of what the tool returned or raised; raise what the model has to be told."""
        try:
            told = self._engine.post_tool_use(call, result)
        finally:
            self._leave(call)
        if told is not None:
            raise told

    def around(self, caller: Caller, name: str, params: Mapping[str, Any], run: Callable[[], Any]) -> Any:
        """Carry out a call with the check around it; a refusal is an exception."""
        with self._noted(self.before(caller, name, params)) as results:
            results.append(run())
        return results[0]

    async def around_async(
        self, caller: Caller, name: str, params: Mapping[str, Any], run: Callable[[], Awaitable[Any] | Any]
    ) -> Any:
        """The same around a coroutine function. Cancelled in the tool: what it left behind is still noted."""
        async with around(self._noted(await self.before_async(caller, name, params))) as results:
            result = run()
            results.append(await result if inspect.isawaitable(result) else result)
        return results[0]

    @contextmanager
    def _noted(self, call: ToolCall) -> Iterator[list[Any]]:
        """Within, the tool runs, and puts its result into the list. That, or its exception, is noted."""
        results: list[Any] = []
        try:
            yield results
        except BaseException as error:
            self.failed(call, error)
            raise
        self.after(call, results[0])

    def failed(self, call: ToolCall, error: BaseException) -> None:
        """Take note that the tool failed or was cancelled; what it left behind is compared all the same."""
        try:
            self._engine.post_tool_use(call, error)
        except NoclobberError as failure:
            error.add_note(f"And what the tool left behind could not be noted: {failure}")
        finally:
            self._leave(call)

    def _call(
        self, caller: Caller, name: str, params: Mapping[str, Any]
    ) -> tuple[ToolCall, list[tuple[object, str]]]:
        """Return the call, and the files that it changes, in an order that all calls keep."""
        turn = self._turns.turn(caller)
        call = turn.tool_call(name, dict(params), call_id=caller.call_id)
        try:
            actions = self._turns.workspace.catalogue.actions(call)
            names = {turn.context.name_of(action.path) for action in actions if action.kind != READ}
        except NoclobberError:
            names = set()  # The judge says what is wrong.
        return call, [(turn, each) for each in sorted(names)]

    def _judged(self, call: ToolCall) -> ToolCall:
        try:
            decision = self._engine.pre_tool_use(call)
        except BaseException:
            self._leave(call)
            raise
        if not decision.allowed:
            self._leave(call)
            raise decision.error
        return call

    def _leave(self, call: ToolCall) -> None:
        _, entered = self._entered.pop(id(call), (call, []))
        while entered:
            QUEUE.leave(*entered.pop())
