"""
Pydantic AI, and its harness.

Four ways in, each a line of the agent's:

- `toolsets=[GuardedToolset("project")]`: our file tools.
- `toolsets=[GuardedTools(own_toolset, "project", tools=[Tool(…)])]`: tools of your own, checked before and
  after each call. Weaker than the others: see `guard/hook_engine`.
- `capabilities=[GuardedCalls("project", tools=[Tool(…)])]`: the same check around any tool of the agent,
  those of `@agent.tool` included.
- `capabilities=[GuardedWorkspace("project"), FileSystem(), Shell()]`: the harness's file tools and commands,
  with our workspace in place of `LocalWorkspace` (`pydantic_workspace`).

A refusal is a `ToolFailed` whose message is the exact object; its `__cause__` is the error. Arguments that a
model got wrong are a `ModelRetry`, as Pydantic AI does it for its own.

What was seen is tied to the messages of the conversation. A run that goes on from a message history keeps
what the tool calls in that history saw, if this process made them; of any others, the files must be read
again.
"""

from __future__ import annotations

from copy import copy
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

from noclobber.adapters.extras import extra

with extra("pydantic-ai"):
    from pydantic_ai import RunContext, ToolDefinition
    from pydantic_ai.messages import ToolCallPart
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset
    from pydantic_core import SchemaValidator, core_schema

from noclobber.adapters.own_tools import OwnTools
from noclobber.adapters.pydantic_runs import HOST, EndsTurns, callers_of, failure
from noclobber.adapters.pydantic_workspace import GuardedWorkspace, GuardedWorkspaceBackend
from noclobber.adapters.shared import run_turns
from noclobber.aio import in_thread
from noclobber.errors import NoclobberError
from noclobber.guard.tools import answers
from noclobber.guard.tools.tool_list import carry_out, chosen

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from typing import Unpack

    from noclobber.core.options import OptionValues
    from noclobber.guard.catalogue import Tool

__all__ = ["GuardedCalls", "GuardedTools", "GuardedToolset", "GuardedWorkspace", "GuardedWorkspaceBackend"]

_ANY_OBJECT = SchemaValidator(core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()))
"""The arguments as they are: our own check knows more ways of being right, and says what is wrong."""


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
        self._callers = callers_of(self._turns, self._is_ours)
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
            raise failure(answer)
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
        self._callers = callers_of(self._turns, self._own.__contains__)

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
            raise failure(answers.refused(error)) from error

    def _around(self, wrapped: AbstractToolset[Any]) -> GuardedTools:
        copied = copy(self)
        copied.wrapped = wrapped
        return copied


@dataclass
class GuardedCalls(EndsTurns):
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
        self._callers = callers_of(self._turns, self._own.__contains__)

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
            raise failure(answers.refused(error)) from error
