"""
Serve MCP over HTTP on loopback: who may come in, and how many.

- A request needs the bearer token. The SDK refuses foreign `Host` and `Origin` headers.
- A session is one that this server opened. An id that it does not know is answered with 404, in the newer
  protocol too, which has no sessions: a client that sends an id relies on what it saw earlier, and nobody
  knows what that was.
- Connections are bounded in number and in time. One that has not sent a whole request in time is closed; if
  there are too many, the one that has been waiting the longest makes room. Without that, half a request is
  enough to hold a descriptor for ever.

Not promised: a client that knows the token can use up the sessions, and keep connections busy with requests.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import uvicorn
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio
    import socket

    from starlette.types import ASGIApp, Receive, Scope, Send

    from noclobber.mcp.server import FileServer

MOST_SESSIONS = 1000  # Open at a time. One more is refused with 503; nobody is forgotten to make room.
SESSION_IDLE_S = (
    24 * 3600.0
)  # What a session saw is kept overnight. Then it has to be opened, and read, again.
MOST_BODY_BYTES = 64 << 20
MOST_CONNECTIONS = 256
REQUEST_TIMEOUT_S = 30.0  # From the first byte, or from connecting, to the end of a request.

_SESSION, _VERSION = b"mcp-session-id", b"mcp-protocol-version"


def serve(server: FileServer, token: str, listener: socket.socket) -> None:
    """Serve until the process is told to end."""
    try:
        uvicorn.Server(config(http_app(server, token))).run(sockets=[listener])
    finally:
        server.close()


def config(app: ASGIApp, protocol: type[H11Protocol] | None = None) -> uvicorn.Config:
    """Return how uvicorn serves the application."""
    return uvicorn.Config(
        app, log_level="warning", lifespan="on", http=protocol or BoundedProtocol, ws="none"
    )


def http_app(server: FileServer, token: str) -> ASGIApp:
    """Return the ASGI application: MCP at `/mcp`, for clients that know the token."""
    app = server.protocol.streamable_http_app(
        json_response=True,
        max_request_body_size=MOST_BODY_BYTES,
        max_sessions=MOST_SESSIONS,
        session_idle_timeout=SESSION_IDLE_S,
        host="127.0.0.1",
    )
    return _Gate(app, token)


class _Gate:
    """Lets requests with the right bearer token through, unless they invent a session."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif not self._is_allowed(scope):
            more = [(b"www-authenticate", b"Bearer")]
            await _answer(send, 401, b'{"error": "a bearer token is required"}', more)
        elif _invents_session(scope):
            await _answer(send, 404, b'{"error": "no such session; this protocol version has none"}', [])
        else:
            await self._app(scope, receive, send)

    def _is_allowed(self, scope: Scope) -> bool:
        given = _values(scope, b"authorization")
        if len(given) != 1:
            return False
        kind, _, token = given[0].partition(b" ")
        return kind.lower() == b"bearer" and secrets.compare_digest(token.strip(), self._token)


def _invents_session(scope: Scope) -> bool:
    """
    True for a session id in a version of the protocol that has no sessions.

    The SDK compares an id with those that it made for the older versions only. It takes the first header of
    each name, so do we; without a version the request is of an older one.
    """
    versions = _values(scope, _VERSION)[:1]
    is_older = not versions or versions[0].decode("latin-1") in HANDSHAKE_PROTOCOL_VERSIONS
    return not is_older and bool(_values(scope, _SESSION))


def _values(scope: Scope, name: bytes) -> list[bytes]:
    return [value for key, value in scope["headers"] if key == name]


async def _answer(send: Send, status: int, body: bytes, more: list[tuple[bytes, bytes]]) -> None:
    headers = [(b"content-type", b"application/json"), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class BoundedProtocol(H11Protocol):
    """One connection. uvicorn limits the time between two requests, and not the time that one takes."""

    most_connections = MOST_CONNECTIONS
    request_timeout_s = REQUEST_TIMEOUT_S

    _deadline: asyncio.TimerHandle | None = None
    _waits_since_s = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection, and make room for it."""
        super().connection_made(transport)
        self._start_waiting()
        if len(self.connections) <= self.most_connections:
            return
        others = (one for one in self.connections if isinstance(one, BoundedProtocol) and one is not self)
        waiting = [one for one in others if one.is_waiting]
        # All the others are at work: then it is the new one that has to go.
        min(waiting, key=lambda one: one._waits_since_s, default=self)._close()

    def data_received(self, data: bytes) -> None:
        """Pass bytes on, and see whether the request is complete."""
        if self._deadline is None and self.is_waiting:
            self._start_waiting()
        super().data_received(data)
        if not self.is_waiting:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    @property
    def is_waiting(self) -> bool:
        """True unless a whole request is here that is not yet answered."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body

    def _start_waiting(self) -> None:
        self._waits_since_s = self.loop.time()
        self._deadline = self.loop.call_later(self.request_timeout_s, self._give_up)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if self.is_waiting:
            self._close()

    def _close(self) -> None:
        self._stop_waiting()
        self.connections.discard(self)  # Now, and not when the loop gets to it: the next one counts again.
        self.transport.abort()
