"""An MCP server whose only tool does nothing: what the SDK, our streams and a thread cost by themselves."""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.runner import serve_loop

from noclobber.mcp.call_threads import CallThreads
from noclobber.mcp.stdio import protocol_streams

TEXT = ("x" * 79 + "\n") * 128  # 10 KiB.
STRUCTURED = {"content": TEXT, "sha256": "0" * 64}


async def main() -> None:
    """Serve one client."""
    threads = CallThreads()

    async def call_tool(_: Any, __: types.CallToolRequestParams) -> dict[str, Any]:
        text = await threads.run(lambda _: TEXT)
        return {"content": [{"type": "text", "text": text}], "structuredContent": STRUCTURED}

    server: Server[Any] = Server("empty", version="1")
    server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)
    server.middleware.clear()
    options = server.create_initialization_options(NotificationOptions())
    with protocol_streams() as (incoming, outgoing):
        await serve_loop(server, incoming, outgoing, lifespan_state={}, init_options=options)


if __name__ == "__main__":
    anyio.run(main)
