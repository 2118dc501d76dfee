"""Who calls, in Pydantic AI, when a run is over, and what a refusal looks like there: for every way in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from noclobber.adapters.extras import extra

with extra("pydantic-ai"):
    from pydantic_ai import ModelRetry, RunContext, ToolFailed
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import ModelResponse, ToolCallPart

from noclobber.adapters.callers import Caller
from noclobber.adapters.runs import MOST_RUNS
from noclobber.aio import in_thread
from noclobber.errors import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from noclobber.adapters.runs import RunTurns
    from noclobber.guard.tools.answers import ToolAnswer

HOST = "pydantic-ai"


class RunCallers:
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


_CALLERS: WeakKeyDictionary[RunTurns, RunCallers] = WeakKeyDictionary()


def callers_of(turns: RunTurns, is_ours: Callable[[str], bool]) -> RunCallers:
    """Return who calls in these turns' runs. Tools whose names `is_ours` knows touch files."""
    found = _CALLERS.setdefault(turns, RunCallers())
    found.add(is_ours)
    return found


class EndsTurns(AbstractCapability[Any]):
    """A capability whose run's turn ends with the run."""

    _turns: RunTurns
    _callers: RunCallers

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Callable[[], Awaitable[Any]]) -> Any:
        """At the end of a run, its turn ends."""
        try:
            return await handler()
        finally:
            await in_thread(self._turns.end, self._callers.caller(ctx))
            self._callers.forget(ctx.run_id)


def failure(answer: ToolAnswer) -> Exception:
    """Return a refusal in Pydantic AI's own form. What other arguments would put right is a retry."""
    kind = ModelRetry if isinstance(answer.error, BadRequestError) else ToolFailed
    told = kind(answer.text)
    told.__cause__ = answer.error
    return told
