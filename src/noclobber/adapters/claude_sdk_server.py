"""
The MCP server that the Claude Agent SDK runs in the program's own process, built without the SDK's `tool()`.

The SDK's own server takes a call's arguments and drops the rest of the request. We need the rest: the call's
id is in it, and with it the tool knows who calls. It also checks the schema itself anew at each call, which
takes longer than a guarded read of 10 KiB. Our check of arguments is quicker, and names what is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noclobber.adapters import extra

with extra("claude-agent-sdk"):
    from mcp.server.lowlevel import Server
    from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool

import noclobber

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from noclobber.guard.tools.answers import ToolAnswer
    from noclobber.guard.tools.definitions import ModelTool

    Run = Callable[[str, dict[str, Any], str | None], Awaitable[ToolAnswer]]
    """Carries out a call: the tool's name, what the model sent, the call's id."""

CALL_ID = "claudecode/toolUseId"
"""Where in a request's `_meta` Claude Code puts the id that the model gave to its call."""


def sdk_server(name: str, tools: Iterable[ModelTool], run: Run) -> dict[str, Any]:
    """Return a server for `ClaudeAgentOptions.mcp_servers`."""
    listed = [
        Tool.model_validate(
            {"name": each.name, "description": each.description, "inputSchema": each.parameters}
        )
        for each in tools
    ]
    # Without `alwaysLoad` the model has to search for the tools first, and refusals get a note about that.
    return {"type": "sdk", "name": name, "instance": _server(name, listed, run), "alwaysLoad": True}


def _server(name: str, listed: list[Tool], run: Run) -> Any:
    async def call(tool: str, given: dict[str, Any] | None, meta: Any) -> CallToolResult:
        return _result(await run(tool, given or {}, _call_id(meta)))

    if not hasattr(Server, "call_tool"):  # mcp 2.

        async def on_list_tools(context: Any, params: Any) -> ListToolsResult:
            return ListToolsResult(tools=listed)

        async def on_call_tool(context: Any, params: Any) -> CallToolResult:
            return await call(params.name, params.arguments, context.meta)

        return Server(
            name, version=noclobber.__version__, on_list_tools=on_list_tools, on_call_tool=on_call_tool
        )

    server: Any = Server(name, version=noclobber.__version__)

    async def list_tools() -> list[Tool]:
        return listed

    async def call_tool(tool: str, given: dict[str, Any]) -> CallToolResult:
        return await call(tool, given, server.request_context.meta)

    server.list_tools()(list_tools)
    server.call_tool(validate_input=False)(call_tool)
    return server


def _call_id(meta: Any) -> str | None:
    """Return the call's id. `_meta` is a mapping in mcp 2, and an object with further members in mcp 1."""
    found = (
        meta.get(CALL_ID)
        if isinstance(meta, dict)
        else (getattr(meta, "model_extra", None) or {}).get(CALL_ID)
    )
    return found if isinstance(found, str) else None


def _result(answer: ToolAnswer) -> CallToolResult:
    # Without what there is to say beside a refusal: Claude Code makes one text of an error's parts, and the
    # object would no longer be the whole of it.
    return CallToolResult.model_validate(
        {"content": [TextContent(type="text", text=answer.text)], "isError": answer.is_error}
    )
