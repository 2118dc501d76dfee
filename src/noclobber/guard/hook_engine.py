"""
HookEngine: the gateway for programs that describe tool calls as data.

Two ways to use it:

- `execute(call)`: the engine carries the call out. Check and commit are one step, and the promise is the
guard's.
- `execute(call, executor)`, or `pre_tool_use` and `post_tool_use` around an executor of the integrator's own.
  *Weaker*: the check comes before the executor runs. What an outsider saves in between, before the executor
  replaces the whole file, is lost and not noticed. What an outsider writes after it is: `post_tool_use`
  compares what is on the disk with what the call must have left there.

What an executor has to return (ruling 22). For a read, anything: the engine hashes the file before and
after, and if both are the same, that is what the agent saw. If the file changed meanwhile, the result
counts if it is exactly the current content: bytes, text, or a value or mapping with `content`. Otherwise
the agent must read again before it writes. For a write, nothing is needed; a value or mapping with `sha256`
says what an edit left behind where that cannot be worked out. An exception means that the call failed.

A call belongs to the turn that its `turn_id` names, or to its agent's only one.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from noclobber.core.actions import READ, CallResult
from noclobber.core.values import ALLOW, Decision, ReadResult
from noclobber.errors import NoclobberError, TurnClosedError
from noclobber.guard import engine
from noclobber.guard.outside import Outside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from noclobber.core.actions import Action
    from noclobber.core.values import ToolCall
    from noclobber.guard.turn import Turn
    from noclobber.guard.workspace import Workspace


class HookEngine:
    """Judges, carries out and records tool calls. Stateless: what was seen is the turn's."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def execute(self, call: ToolCall, executor: Callable[[ToolCall], Any] | None = None) -> Any:
        """Carry out one call, or raise the refusal. Reads return `ReadResult`, writes `WriteResult`."""
        if executor is not None:
            with self.around(call) as results:
                results.append(executor(call))
            return results[0]
        turn, actions = self._understand(call)
        return engine.carry_out(turn, call, actions)

    def pre_tool_use(self, call: ToolCall) -> Decision:
        """Judge a call that somebody else will carry out. A refused write is on record when this returns."""
        try:
            turn, actions = self._understand(call)
        except NoclobberError as error:
            return Decision(False, error)
        refused = Outside(turn, call, actions).before()
        return ALLOW if refused is None else Decision(False, refused)

    def post_tool_use(self, call: ToolCall, result: Any) -> NoclobberError | None:
        """
        Take note of what somebody else's executor read or wrote. Pass its exception if it raised one.

        Returns what the agent has to be told, if anything: a `StaleFileError` if something else is on the
        disk than what the call must have left there.
        """
        turn, actions = self._understand(call)
        outside = Outside(turn, call, actions)
        if isinstance(result, BaseException):
            outside.failed(result)
            return None
        return outside.after(_as_result(result, is_read=all(action.kind == READ for action in actions)))

    @contextmanager
    def around(self, call: ToolCall) -> Iterator[list[Any]]:
        """The check around an executor, which puts its result into the list. Raises what is to be told."""
        decision = self.pre_tool_use(call)
        if not decision.allowed:
            raise decision.error
        results: list[Any] = []
        try:
            yield results
        except BaseException as error:
            self.post_tool_use(call, error)
            raise
        if (told := self.post_tool_use(call, results[0])) is not None:
            raise told  # The call is over, and something else is on the disk: the agent must read again.

    def _understand(self, call: ToolCall) -> tuple[Turn, tuple[Action, ...]]:
        """Find the turn and read the parameters. What cannot be understood counts as a refused write."""
        workspace = self._workspace
        actions = engine.understand(workspace.recorder, workspace.catalogue, call)
        try:
            return workspace.open_turn(call), actions
        except TurnClosedError as error:
            if not workspace.catalogue.only_reads(call.tool):
                workspace.recorder.refusal(call, error)
            raise


def _as_result(result: Any, *, is_read: bool) -> CallResult:
    """Return what an executor's result says of a file's content. The text of a write is a message."""
    if isinstance(result, ReadResult):
        return CallResult(content=result.content if result.seen.is_whole else None, sha256=result.sha256)
    if isinstance(result, dict):
        content, sha256 = result.get("content"), result.get("sha256")
    elif isinstance(result, (bytes, str)):
        content, sha256 = result, None
    else:
        content, sha256 = getattr(result, "content", None), getattr(result, "sha256", None)
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogateescape")
    if is_read and isinstance(content, bytes):
        return CallResult(content=content)
    is_hash = isinstance(sha256, str) and len(sha256) == 64
    return CallResult(sha256=sha256 if is_hash else None)
