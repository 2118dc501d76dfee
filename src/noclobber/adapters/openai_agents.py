"""
OpenAI Agents SDK: an editor for `ApplyPatchTool`, an executor for `ShellTool`, and guarded function
tools, which read the files that a patch changes.

    from noclobber.adapters.openai_agents import GuardedEditor, GuardedShell, guarded_tools

    patch = ApplyPatchTool(editor=GuardedEditor("project"))
    shell = ShellTool(executor=GuardedShell("project"))
    agent = Agent(name="builder", tools=[*guarded_tools("project"), patch, shell])

A refusal is the tool's output: the exact 009 object; of a patch or a command, with the status `failed`.

A run of the SDK is a session, whatever agents it hands over to: they pass their history on. If a filter may
have taken something out of it, what was seen is forgotten. What was seen in one run does not count in the
next one. A run that goes on with earlier tool calls in its input, or that was restored from a saved
`RunState`, reads a file before it changes it.
"""

from __future__ import annotations

import os
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noclobber.adapters import extra

with extra("openai-agents"):
    from agents import (
        ApplyPatchResult,
        FunctionTool,
        ShellCallOutcome,
        ShellCommandOutput,
        ShellResult,
        apply_diff,
    )

from noclobber.adapters import commands, gone
from noclobber.adapters.runs import Caller
from noclobber.adapters.shared import run_turns
from noclobber.aio import in_thread
from noclobber.core.values import BOM
from noclobber.errors import ABSENT, BadRequestError, EditMismatchError, NoclobberError
from noclobber.guard.tools.answers import refused
from noclobber.guard.tools.tool_list import carry_out, chosen, refuse_clashes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Unpack

    from agents import (
        ApplyPatchOperation,
        LocalShellCommandRequest,
        RunContextWrapper,
        ShellCommandRequest,
    )
    from agents.tool_context import ToolContext

    from noclobber.adapters.runs import RunTurns
    from noclobber.core.options import OptionValues
    from noclobber.guard.tools.definitions import ModelTool
    from noclobber.guard.turn import Turn

HOST = "openai-agents"
if not TYPE_CHECKING:  # A type checker misses the names that are gone by itself.
    __getattr__ = gone(__name__)
REFUSED_EXIT_CODE = 75  # As `noclobber run` ends: try again.

# -- who calls ---------------------------------------------------------------------------------------------


class _KnownRun:
    """A run: the agent that began it, and the one that called last, as far as the SDK tells it."""

    def __init__(self, agent_id: str, has_past: bool) -> None:
        self.run_id, self.agent_id, self.has_past = os.urandom(8).hex(), agent_id, has_past
        self._agent: Any = None
        self._hands = 0

    def history(self, agent: Any, config: Any) -> str:
        """Return what names the history that the agent has now: another one after a filtered handoff."""
        if agent is not None:
            if self._agent not in (None, agent) and _may_be_filtered(self._agent, agent, config):
                self._hands += 1
            self._agent = agent
        return f"{self.run_id}/history {self._hands}"


def _may_be_filtered(before: Any, agent: Any, config: Any) -> bool:
    """True unless the one agent hands over to the other directly, and nothing changes the history."""
    if getattr(config, "handoff_input_filter", None) or getattr(config, "nest_handoff_history", False):
        return True
    for each in getattr(before, "handoffs", ()):
        if each is agent:
            return False
        if getattr(each, "agent_name", None) == getattr(agent, "name", ""):
            return getattr(each, "input_filter", None) is not None or bool(
                getattr(each, "nest_handoff_history", False)
            )
    return True


_RUNS: dict[int, _KnownRun] = {}
"""By the object that counts a run's usage: every context of one run has it, and no other run. By its `id`,
because it cannot be hashed; the entry goes when the object does."""
_LOCK = threading.Lock()


def caller_of(context: RunContextWrapper[Any], call_id: str | None = None) -> Caller:
    """Return who calls, given the context that the SDK passes to tools and editors."""
    agent = getattr(context, "agent", None)
    config = getattr(context, "run_config", None)
    with _LOCK:
        key = id(context.usage)
        run = _RUNS.get(key)
        if run is None:
            run = _RUNS[key] = _KnownRun(getattr(agent, "name", None) or "agent", _has_past(context))
            weakref.finalize(context.usage, _RUNS.pop, key, None).atexit = False
        history = run.history(agent, config)
    return Caller(
        agent_id=run.agent_id,
        session_id=getattr(config, "group_id", None) or run.run_id,
        run_id=run.run_id,
        branch=run.run_id,
        call_id=call_id or getattr(context, "tool_call_id", None),
        memory=frozenset({history, "before this run"} if run.has_past else {history}),
        mark=history,
        step=f"{run.run_id}/{context.usage.requests}",
    )


def _has_past(context: RunContextWrapper[Any]) -> bool:
    """True if the model may have seen files before: in the input, or in a run that was saved and restored."""
    calls = any("call" in str(_member(item, "type")) for item in context.turn_input)
    return calls or context.usage.requests > 1


def _member(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, dict) else getattr(item, name, None)


# -- apply_patch -------------------------------------------------------------------------------------------


class GuardedEditor:
    """An `ApplyPatchEditor`: `ApplyPatchTool(editor=GuardedEditor("path/to/project"))`."""

    def __init__(self, workspace: Any, **options: Unpack[OptionValues]) -> None:
        self._turns = run_turns(workspace, HOST, **options)

    async def create_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        """Create a file; refused if there is one by now."""

        def work(turn: Turn) -> str:
            text = _patched("", operation, "create")
            turn.write_file(operation.path, text, expected_hash=ABSENT)
            return f"Created {operation.path}"

        return await self._guarded(operation, work)

    async def update_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        """Apply a diff, if the file is still what was seen; then move it, if the patch says so."""

        def work(turn: Turn) -> str:
            done = turn.change_file(operation.path, _Patch(operation), tool="apply_patch")
            if operation.move_to is None:
                return f"Updated {operation.path}"
            turn.move_file(operation.path, operation.move_to, expected_hash=done.sha256)
            return f"Updated {operation.path}\nMoved {operation.path} to {operation.move_to}"

        return await self._guarded(operation, work)

    async def delete_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        """Delete a file that is still what was seen."""

        def work(turn: Turn) -> str:
            turn.delete_file(operation.path)
            return f"Deleted {operation.path}"

        return await self._guarded(operation, work)

    async def _guarded(self, operation: ApplyPatchOperation, work: Callable[[Turn], str]) -> ApplyPatchResult:
        caller = Caller() if operation.ctx_wrapper is None else caller_of(operation.ctx_wrapper)

        def run() -> str:
            with self._turns.call(caller) as turn:
                return work(turn)

        try:
            return ApplyPatchResult(status="completed", output=await in_thread(run))
        except (NoclobberError, OSError) as error:
            return ApplyPatchResult(status="failed", output=refused(error).text)


class _Patch:
    """A diff as the SDK applies it. Bytes that no hunk touches stay, whatever their encoding."""

    def __init__(self, operation: ApplyPatchOperation) -> None:
        self._operation = operation

    def apply(self, data: bytes, path: str) -> bytes:
        """Return the new content."""
        body = data.removeprefix(BOM)
        text = _patched(body.decode("utf-8", "surrogateescape"), self._operation, "default")
        return data[: len(data) - len(body)] + text.encode("utf-8", "surrogateescape")


def _patched(text: str, operation: ApplyPatchOperation, mode: Any) -> str:
    if operation.diff is None:
        raise BadRequestError(operation.path, "The operation has no diff. Send one.", parameter="diff")
    try:
        return apply_diff(text, operation.diff, mode=mode)
    except ValueError as error:
        raise EditMismatchError(
            operation.path, f"The diff does not fit the file: {error}. Read the file and make a new one."
        ) from None


# -- commands ----------------------------------------------------------------------------------------------


class GuardedShell:
    """
    An executor: `ShellTool(executor=GuardedShell("path/to/project"))`; also for `LocalShellTool`.

    Each command is one transaction: what it changes in the workspace lands all together, or is refused
    (docs/shell.md). `environment` is added to this process's. `timeout_s` holds where the model names none.
    """

    def __init__(
        self,
        workspace: Any,
        *,
        environment: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        **options: Unpack[OptionValues],
    ) -> None:
        if timeout_s is not None and timeout_s <= 0:
            raise BadRequestError(
                "", f"timeout_s must be more than 0, not {timeout_s}.", parameter="timeout_s"
            )
        self._turns = run_turns(workspace, HOST, **options)
        self._environment, self._timeout_s = dict(environment or {}), timeout_s

    async def __call__(self, request: ShellCommandRequest | LocalShellCommandRequest) -> Any:
        """Run the commands of one call, one after the other, until one is refused or its time is over."""
        action: Any = request.data.action
        caller = caller_of(request.ctx_wrapper, request.data.call_id)
        if not hasattr(action, "commands"):
            return await self._local(caller, action)
        output: list[ShellCommandOutput] = []
        for command in action.commands:
            try:
                done = await self._run(caller, command, action.timeout_ms)
            except (NoclobberError, OSError) as error:
                text = refused(error).text
                if not output:  # Nothing has landed: the SDK gives such a call the status `failed`.
                    raise RefusedCommandError(text) from error
                outcome = ShellCallOutcome("exit", REFUSED_EXIT_CODE)
                output.append(ShellCommandOutput(text, "", outcome, command))
                break
            outcome = (
                ShellCallOutcome("timeout") if done.timed_out else ShellCallOutcome("exit", done.exit_code)
            )
            output.append(ShellCommandOutput(done.stdout, _stderr(done), outcome, command))
            if done.timed_out:
                break
        return ShellResult(output, max_output_length=action.max_output_length)

    async def _local(self, caller: Caller, action: Any) -> str:
        """The older tool: a list of arguments, and one text for everything that it says."""
        try:
            if action.user is not None:
                raise BadRequestError(
                    "",
                    "A guarded command runs as the user of this program. Send it without a user.",
                    parameter="user",
                )
            done = await self._run(
                caller, action.command, action.timeout_ms, action.working_directory, action.env
            )
        except (NoclobberError, OSError) as error:
            return refused(error).text
        said = done.stdout + _stderr(done)
        return said if done.exit_code == 0 or done.timed_out else f"{said}\nexit code: {done.exit_code}"

    async def _run(
        self,
        caller: Caller,
        command: str | list[str],
        timeout_ms: int | None,
        folder: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> commands.Ran:
        root = self._turns.workspace.root
        with self._turns.call(caller) as turn:
            return await commands.run_async(
                lambda: turn,
                command,
                cwd=None if folder is None else Path(root, folder),
                environment={**os.environ, **self._environment, **(environment or {})},
                timeout_s=self._timeout_s if not timeout_ms else timeout_ms / 1000,
                call_id=caller.call_id,
            )


class RefusedCommandError(Exception):
    """A command that was refused, as the SDK wants it told. Its text is the exact object."""


def _stderr(done: commands.Ran) -> str:
    """Return what a command wrote there, and, if its time was over, what became of its changes."""
    if not done.timed_out:
        return done.stderr
    return f"{done.stderr}\nIts time was over, so it was ended, and nothing of it landed.\n".lstrip("\n")


# -- function tools ----------------------------------------------------------------------------------------


def guarded_tools(
    workspace: Any,
    *,
    only: Iterable[str] | None = None,
    prefix: str = "",
    beside: Iterable[Any] = (),
    **options: Unpack[OptionValues],
) -> list[FunctionTool]:
    """Return noclobber's file tools for an agent. `beside`: your own tools, whose names must be others."""
    turns = run_turns(workspace, HOST, **options)
    tools = chosen(only)
    theirs = [str(getattr(tool, "name", "")) for tool in beside]
    refuse_clashes([prefix + name for name in tools], theirs, 'Rename yours, or pass prefix="fs_".')
    return [_function_tool(turns, tool, prefix) for tool in tools.values()]


def _function_tool(turns: RunTurns, tool: ModelTool, prefix: str) -> FunctionTool:
    async def invoke(context: ToolContext[Any], arguments: str) -> str:
        caller = caller_of(context)

        def run() -> str:
            with turns.call(caller) as turn:
                return carry_out(turn, tool.name, arguments, call_id=caller.call_id).text

        return await in_thread(run)

    return FunctionTool(
        name=prefix + tool.name,
        description=tool.description,
        params_json_schema=tool.parameters,
        on_invoke_tool=invoke,
        strict_json_schema=False,  # Optional parameters, which strict schemas do not have.
    )
