"""An MCP server whose only tool does nothing: what the SDK, our streams and a thread cost by themselves."""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import NotificationOptions, Server

from noclobber.mcp.call_threads import CallThreads
from noclobber.mcp.stdio import protocol_streams

TEXT = ("x" * 79 + "\n") * 128  # 10 KiB.
STRUCTURED = {"content": TEXT, "sha256": "0" * 64}


async def main() -> None:
    """Serve one client."""
    threads = CallThreads()

    async def call_tool(_: Any, __: types.CallToolRequestParams) -> types.CallToolResult:
        text = await threads.run(lambda _: TEXT)
        content = types.TextContent.model_construct(type="text", text=text)
        return types.CallToolResult.model_construct(content=[content], structured_content=STRUCTURED)

    server: Server[Any] = Server("empty", version="1", on_call_tool=call_tool)
    server.middleware.clear()
    with protocol_streams() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options(NotificationOptions()))


if __name__ == "__main__":
    anyio.run(main)
