"""
The MCP server: passes tool calls from stdio or HTTP to `dispatch`, and its answers back.

This module, `stdio` and `http` import the SDK, and nothing else does. Every call runs in a thread, because
disks block; the event loop stays free for pings, progress and other calls.

Roots come from the command line. A client of the older protocol that declares roots of its own is asked
for them, and can narrow those of the command line; `client_roots=False` turns that off. (In the replaced
server they replace them. A root on the command line is a bound here, whatever the client says.)

A client with a session has a connection of its own, for as long as the SDK keeps that session; all clients
without one share one.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.runner import serve_loop
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from opentelemetry import trace

from noclobber import __version__
from noclobber.mcp import dispatch
from noclobber.mcp.call_threads import CallThreads
from noclobber.mcp.connection import ClientConnection, Workspaces
from noclobber.mcp.roots import Roots, from_client
from noclobber.mcp.stdio import HANDSHAKE, protocol_streams
from noclobber.mcp.tools import TOOLS, WITH_COMMANDS

if TYPE_CHECKING:
    from mcp.server.connection import Connection
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

    from noclobber.ledger.observer import Observer
    from noclobber.mcp.call_threads import RunningCall
    from noclobber.mcp.tools.definition import McpAnswer, McpTool

    Context = ServerRequestContext[Any, Any]

ROOTS_TIMEOUT_S = 10.0
_STATE_KEY = "noclobber"
_OTHER_ERA = (
    "this connection serves the handshake protocol era; requests carrying the 2026-07-28 envelope are not "
    "accepted on it"
)
INSTRUCTIONS = (
    "File tools that refuse to overwrite what you have not seen. Reads return a sha256; pass it as "
    "expected_hash when you write. If a write fails with STALE_FILE, somebody changed the file since you "
    "read it: read it again, merge the changes into yours, then write again."
)


class FileServer:
    """What all connections share: options, roots from the command line, workspaces."""

    def __init__(
        self,
        roots: Roots,
        *,
        strict: bool = False,
        client_roots: bool = True,
        durable: bool = False,
        one_process: bool = True,
        observer: Observer | None = None,
        allow_run: bool = False,
    ) -> None:
        self.tools = WITH_COMMANDS if allow_run else TOOLS
        self.roots, self.strict, self.client_roots = roots, strict, client_roots
        # A flag that is not given does not override what the options file says.
        options: dict[str, bool] = {"durable": True} if durable else {}
        self.workspaces = Workspaces(observer=observer, **options)
        self.one_process = one_process
        """True on stdio: the process serves one client, and is its session."""
        self._shared: ClientConnection | None = None
        """The connection of the one client, or of all clients that have no session."""
        self._of_sessions: set[ClientConnection] = set()
        self._asked_for_roots: set[str] = set()
        self._threads = CallThreads()
        with warnings.catch_warnings():
            # Roots are deprecated, and clients of the older protocol still have them.
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            self.protocol: Server[Any] = Server(
                "noclobber",
                version=__version__,
                title="noclobber guarded file tools",
                instructions=INSTRUCTIONS,
                on_list_tools=self._list_tools,
                on_roots_list_changed=self._roots_changed if client_roots else None,
            )
        self.protocol.add_request_handler("tools/call", types.CallToolRequestParams, self._call_tool)
        if not _is_traced():
            # A span that nobody gets takes a third of the time that the read itself takes.
            self.protocol.middleware.clear()
        self._listed = types.ListToolsResult(tools=[_as_tool(tool) for tool in self.tools.values()])

    def close(self) -> None:
        """End all turns."""
        for connection in {*self._of_sessions, self._shared} - {None}:
            assert connection is not None
            connection.close()
        self._of_sessions.clear()
        self._shared = None
        self.workspaces.close()
        self._threads.close()

    # -- handlers ----------------------------------------------------------------------------------

    async def _list_tools(self, _: Context, __: object) -> types.ListToolsResult:
        return self._listed

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
        connection = self._connection(context)
        await self._ask_for_roots(context, connection)
        wants_progress = _wants_progress(context)

        def work(call: RunningCall) -> McpAnswer:
            def report(done: int, total: int | None, message: str) -> None:
                call.check()
                if wants_progress:
                    call.run(context.session.report_progress(done, total, message))

            return dispatch.call(connection, params.name, params.arguments, report, self.tools)

        answer: McpAnswer = await self._threads.run(work)
        # As it is spelled on the wire. A model of it would be made only to be taken apart again: the SDK
        # checks every answer against the schema of the client's protocol in any case.
        return {
            "content": answer.content,
            "structuredContent": answer.structured,
            "isError": answer.is_error,
            "resultType": "complete",  # Of the newer protocol; for the older one the SDK leaves it out.
        }

    # -- the client -----------------------------------------------------------------------------

    def _connection(self, context: Context) -> ClientConnection:
        """
        Return the client's connection.

        The SDK's own state says whose request it is. A header would be the client's word: invented session
        ids made it forget what a real session had seen (finding S11).
        """
        client: Connection = context.session._connection
        if self.one_process or client.session_id is None:
            if self._shared is None:
                self._shared = self._new_connection(context, None)
            return self._shared
        connection: ClientConnection | None = client.state.get(_STATE_KEY)
        if connection is None:
            connection = client.state[_STATE_KEY] = self._new_connection(context, client.session_id)
            self._of_sessions.add(connection)
            client.exit_stack.push_async_callback(self._session_ended, connection)
        return connection

    def _new_connection(self, context: Context, session_id: str | None) -> ClientConnection:
        return ClientConnection(
            self.workspaces,
            self.roots,
            is_session=self.one_process or session_id is not None,
            is_process=self.one_process,
            strict=self.strict,
            agent_id=_client_name(context),
            session_id=session_id,
        )

    async def _session_ended(self, connection: ClientConnection) -> None:
        self._of_sessions.discard(connection)
        self._asked_for_roots.discard(connection.session_id)
        await anyio.to_thread.run_sync(connection.close)

    async def _ask_for_roots(self, context: Context, connection: ClientConnection) -> None:
        if (
            not self.client_roots
            or not connection.is_session
            or connection.session_id in self._asked_for_roots
        ):
            return
        self._asked_for_roots.add(connection.session_id)
        capabilities = context.session.client_capabilities
        if capabilities is None or capabilities.roots is None or not context.session.can_send_request:
            return
        try:
            with anyio.fail_after(ROOTS_TIMEOUT_S):
                named = await context.session.send_request(types.ListRootsRequest(), types.ListRootsResult)
        except (TimeoutError, MCPError, ValueError) as error:
            print(f"noclobber: the client did not name its roots: {error}", file=sys.stderr)
            return
        found = await anyio.to_thread.run_sync(
            from_client, [str(root.uri) for root in named.roots], self.roots
        )
        if found is not None:
            connection.roots = found

    async def _roots_changed(self, context: Context, _: object) -> None:
        # Asked for at the next call: nothing waits for the handler of a notification.
        self._asked_for_roots.discard(self._connection(context).session_id)


# -- transports ------------------------------------------------------------------------------------


async def serve_stdio(server: FileServer) -> None:
    """Serve one client on stdin and stdout until it closes them."""
    protocol = server.protocol
    try:
        with protocol_streams() as (incoming, outgoing):
            options = protocol.create_initialization_options(NotificationOptions())
            if not await incoming.begins_with_handshake():
                await protocol.run(incoming, outgoing, options)
                return
            # The same as `run()` without the task and the queue by which it looks at the first request.
            protocol.middleware.append(_refuse_the_newer_protocol)
            async with protocol.lifespan(protocol) as state:
                await serve_loop(protocol, incoming, outgoing, lifespan_state=state, init_options=options)
    finally:
        server.close()


async def _refuse_the_newer_protocol(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Refuse a request of the protocol without handshakes on a connection that began with one."""
    meta = (ctx.params or {}).get("_meta")
    is_of_it = isinstance(meta, Mapping) and types.PROTOCOL_VERSION_META_KEY in meta
    if is_of_it and ctx.request_id is not None and ctx.method != HANDSHAKE:
        raise MCPError(code=types.INVALID_REQUEST, message=_OTHER_ERA)
    return await call_next(ctx)


# -- small translations ----------------------------------------------------------------------------


def _as_tool(tool: McpTool) -> types.Tool:
    hints = types.ToolAnnotations.model_validate(tool.annotations)
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.parameters,
        output_schema=tool.output,
        annotations=hints,
    )


def _is_traced() -> bool:
    """True if this process has somewhere to send its traces to."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def _wants_progress(context: Context) -> bool:
    meta = context.meta
    return bool(meta) and "progress_token" in meta  # type: ignore[operator]


def _client_name(context: Context) -> str:
    params = context.session.client_params
    return params.client_info.name[:200] if params is not None and params.client_info.name else "mcp-client"
