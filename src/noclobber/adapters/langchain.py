"""
LangChain 1.x: a middleware around tools that people already have, and noclobber's tools for `create_agent`.

    from noclobber import Tool
    from noclobber.adapters.langchain import GuardMiddleware, guarded_tools

    saves = Tool("save_note", "write", path=("note",), content="body")
    agent = create_agent(model, tools=[save_note], middleware=[GuardMiddleware("project", tools=[saves])])
    agent = create_agent(model, tools=guarded_tools("project"))

A refused call is a `ToolMessage` with the status `error`: its content is the exact 009 object for the model,
and with the middleware its artifact is the 011 object for the program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noclobber.adapters.extras import extra

with extra("deepagents"):
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.messages import ToolMessage
    from langchain_core.tools import BaseTool, StructuredTool, ToolException

from noclobber.adapters.langgraph_calls import HOST, caller_of, current_caller
from noclobber.adapters.own_tools import OwnTools
from noclobber.adapters.shared import run_turns
from noclobber.aio import in_thread
from noclobber.core import wire
from noclobber.errors import NoclobberError
from noclobber.guard.tools.answers import refused
from noclobber.guard.tools.clashes import refuse_clashes
from noclobber.guard.tools.tool_list import carry_out, chosen

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from typing import Unpack

    from langgraph.prebuilt.tool_node import ToolCallRequest

    from noclobber.adapters.callers import Caller
    from noclobber.adapters.runs import RunTurns
    from noclobber.core.options import OptionValues
    from noclobber.guard.catalogue import Tool
    from noclobber.guard.tools.answers import ToolAnswer
    from noclobber.guard.tools.definitions import ModelTool


class GuardMiddleware(AgentMiddleware):
    """
    A check around tools of the user's own; `tools` says what each does to files. Others go through unchecked.

    Weaker than a guarded tool: what somebody saves between the check and the tool's own write is lost, and
    only a save after it is noticed.
    """

    def __init__(self, workspace: Any, tools: Iterable[Tool] = (), **options: Unpack[OptionValues]) -> None:
        super().__init__()
        self._turns = run_turns(workspace, HOST, **options)
        self._own = OwnTools(self._turns, tools)

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[Any], Any]) -> Any:
        """Carry out a call with the check around it."""
        call = request.tool_call
        if call["name"] not in self._own:
            return _with_artifact(handler(request))
        try:
            return self._own.around(
                _caller(request), call["name"], call["args"], lambda: _done(handler(request))
            )
        except _FailedToolError as failed:
            return failed.message
        except NoclobberError as error:
            return _refusal(request, error)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[Any], Awaitable[Any]]
    ) -> Any:
        """The same, asynchronous."""
        call = request.tool_call
        if call["name"] not in self._own:
            return _with_artifact(await handler(request))

        async def run() -> Any:
            return _done(await handler(request))

        try:
            return await self._own.around_async(_caller(request), call["name"], call["args"], run)
        except _FailedToolError as failed:
            return failed.message
        except NoclobberError as error:
            return _refusal(request, error)


class _FailedToolError(Exception):
    """A tool reported an error in its message: for the check it is as if it had raised."""

    def __init__(self, message: Any) -> None:
        super().__init__(str(message.content)[:200])
        self.message = message


def _done(result: Any) -> Any:
    if isinstance(result, ToolMessage) and result.status == "error":
        raise _FailedToolError(result)
    return result


def _caller(request: ToolCallRequest) -> Caller:
    state = request.state
    messages = state.get("messages", ()) if isinstance(state, dict) else getattr(state, "messages", ())
    return caller_of(request.runtime.config, messages, request.tool_call["id"])


def _refusal(request: ToolCallRequest, error: NoclobberError) -> ToolMessage:
    answer = refused(error)
    return ToolMessage(
        content=answer.text,
        name=request.tool_call["name"],
        tool_call_id=request.tool_call["id"],
        status="error",
        artifact=answer.for_controller,
    )


def _with_artifact(result: Any) -> Any:
    """Give the program the 011 object beside a refusal that a guarded tool or backend gave to the model."""
    if not isinstance(result, ToolMessage):
        return result
    # deepagents marks no result of `execute` as an error, and its artifact is only about the output.
    is_refusal = result.name == "execute" or (result.status == "error" and result.artifact is None)
    stale = wire.parse_stale(result.content) if is_refusal else None
    if stale is None:
        return result
    return result.model_copy(update={"artifact": dict(stale.to_controller()), "status": "error"})


# -- guarded tools -----------------------------------------------------------------------------------------


def guarded_tools(
    workspace: Any,
    *,
    only: Iterable[str] | None = None,
    prefix: str = "",
    beside: Iterable[BaseTool] = (),
    **options: Unpack[OptionValues],
) -> list[BaseTool]:
    """
    Return noclobber's file tools for `create_agent`. `beside`: your own tools, whose names must be others.

    A refusal is a `ToolMessage` with the status `error` whose content is the refusal's object.
    """
    turns = run_turns(workspace, HOST, **options)
    tools = chosen(only)
    ours = [prefix + name for name in tools]
    refuse_clashes(ours, [tool.name for tool in beside], 'Rename yours, or pass prefix="fs_".')
    return [_tool(turns, tool, prefix) for tool in tools.values()]


def _tool(turns: RunTurns, tool: ModelTool, prefix: str) -> BaseTool:
    def run(**given: Any) -> str:
        caller = current_caller()
        with turns.call(caller) as turn:
            return _text(carry_out(turn, tool.name, given, call_id=caller.call_id))

    async def arun(**given: Any) -> str:
        return await in_thread(run, **given)

    return StructuredTool(
        name=prefix + tool.name,
        description=tool.description,
        args_schema=tool.parameters,
        func=run,
        coroutine=arun,
        handle_tool_error=True,
    )


def _text(answer: ToolAnswer) -> str:
    """Return what the model reads; a refusal as the framework's own exception, which becomes a message."""
    if answer.error is not None:
        raise ToolException(answer.text) from answer.error
    return answer.text
