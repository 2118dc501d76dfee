"""HTTP on loopback: sessions are the server's own, and connections are bounded."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra 'mcp' is not installed")

import anyio
import httpx2
import uvicorn
from bench.mcp_peer import our_command
from mcp.client.streamable_http import streamable_http_client

from mcp import Client
from noclobber.mcp import http
from noclobber.mcp.roots import Roots
from noclobber.mcp.server import FileServer
from tests.rigs.mcp import call_checked

TOKEN = "t0ken"
URL = "http://127.0.0.1:1/mcp"
OLDER, NEWER = "2025-06-18", "2026-07-28"


def talk_to(
    root: Path,
    steps: Callable[[httpx2.AsyncClient], Awaitable[None]],
    *,
    roots: Callable[[Path], Roots] = lambda root: Roots([str(root)]),
) -> None:
    """Run a conversation with a server in this process, over HTTP without a network."""
    server = FileServer(roots(root), one_process=False)

    async def run() -> None:
        app = http.http_app(server, TOKEN)
        transport = httpx2.ASGITransport(app=app)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with (
            server.protocol.session_manager.run(),
            httpx2.AsyncClient(transport=transport, headers=headers) as client,
        ):
            await steps(client)

    try:
        anyio.run(run)
    finally:
        server.close()


async def request(
    client: httpx2.AsyncClient, method: str, params: dict[str, Any], **headers: str
) -> httpx2.Response:
    """Send one request as it is, session or not."""
    sent = {"Accept": "application/json, text/event-stream", **headers}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return await client.post(URL, json=body, headers=sent)


async def open_session(client: httpx2.AsyncClient) -> httpx2.Response:
    """Ask for a session, as a client of the older protocol does."""
    about = {"protocolVersion": OLDER, "capabilities": {}, "clientInfo": {"name": "one", "version": "1"}}
    return await request(client, "initialize", about)


async def call_newer(client: httpx2.AsyncClient, session: str | None, tool: str, **arguments: Any) -> Any:
    """Call a tool in the newer protocol, with a session id that somebody made up."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": NEWER,
        "io.modelcontextprotocol/clientInfo": {"name": "one", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    headers = {"mcp-protocol-version": NEWER, "mcp-method": "tools/call", "mcp-name": tool}
    if session is not None:
        headers["mcp-session-id"] = session
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    return await request(client, "tools/call", params, **headers)


def test_invented_sessions_make_a_real_one_forget_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding S11: they pushed the real session out, and its stale write passed."""
    monkeypatch.setattr(http, "MOST_SESSIONS", 2)
    plan = root / "plan.md"
    plan.write_bytes(b"v1")

    async def steps(raw: httpx2.AsyncClient) -> None:
        async with Client(streamable_http_client(URL, http_client=raw), mode="legacy") as client:
            await call_checked(client, "read_text_file", {"path": "plan.md"})
            assert (await call_newer(raw, None, "read_text_file", path="plan.md")).status_code == 200
            for number in range(20):
                invented = await call_newer(raw, f"made-up-{number}", "read_text_file", path="plan.md")
                assert invented.status_code == 404
            plan.write_bytes(b"v2")
            stale = await call_checked(client, "write_file", {"path": "plan.md", "content": "mine"})
            assert stale.structured_content["error_type"] == "STALE_FILE"

    talk_to(root, steps)
    assert plan.read_bytes() == b"v2"


def test_real_sessions_are_not_pushed_out_either(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """finding S11: one more than there may be is refused; those that are open remember what they saw."""
    monkeypatch.setattr(http, "MOST_SESSIONS", 3)
    plan = root / "plan.md"
    plan.write_bytes(b"v1")

    async def steps(raw: httpx2.AsyncClient) -> None:
        async with Client(streamable_http_client(URL, http_client=raw), mode="legacy") as client:
            await call_checked(client, "read_text_file", {"path": "plan.md"})
            opened = [(await open_session(raw)).status_code for _ in range(5)]
            assert opened == [200, 200, 503, 503, 503]
            plan.write_bytes(b"v2")
            stale = await call_checked(client, "write_file", {"path": "plan.md", "content": "mine"})
            assert stale.structured_content["error_type"] == "STALE_FILE"

    talk_to(root, steps)
    assert plan.read_bytes() == b"v2"


@pytest.mark.parametrize("version", [OLDER, None, NEWER, "2099-01-01", "nonsense"])
def test_a_session_that_the_server_did_not_open_can_do_nothing(root: Path, version: str | None) -> None:
    """finding S11: unknown, ended or made up: it must be opened, and files read, first."""
    plan = root / "plan.md"
    plan.write_bytes(b"v1")

    async def steps(raw: httpx2.AsyncClient) -> None:
        opened = (await open_session(raw)).headers["mcp-session-id"]
        ended = await raw.delete(URL, headers={"mcp-session-id": opened})
        assert ended.status_code == 200
        for session in (opened, "made-up", "", "x" * 5000):
            headers = {"mcp-session-id": session} | ({"mcp-protocol-version": version} if version else {})
            arguments = {"name": "write_file", "arguments": {"path": "plan.md", "content": "mine"}}
            refused = await request(raw, "tools/call", arguments, **headers)
            assert refused.status_code in (400, 404)

    talk_to(root, steps)
    assert plan.read_bytes() == b"v1"


@pytest.mark.parametrize("disguise", ["{}x", "x{}", "{},{}", "{}, {}", "UPPER", "{}/../{}", "{}%00", '"{}"'])
def test_a_session_has_one_spelling(root: Path, disguise: str) -> None:
    """finding S11: a second attack, on the real id of an open session. What that one saw stays its own."""
    plan = root / "plan.md"
    plan.write_bytes(b"v1")

    async def steps(raw: httpx2.AsyncClient) -> None:
        session = (await open_session(raw)).headers["mcp-session-id"]
        spelled = session.swapcase() if disguise == "UPPER" else disguise.format(session, session)
        arguments = {"name": "write_file", "arguments": {"path": "plan.md", "content": "mine"}}
        headers = {"mcp-session-id": spelled, "mcp-protocol-version": OLDER}
        refused = await request(raw, "tools/call", arguments, **headers)
        assert refused.status_code in (400, 404)

    talk_to(root, steps)
    assert plan.read_bytes() == b"v1"


def test_what_a_session_saw_ends_with_it(root: Path) -> None:
    """finding S11: nothing is kept for sessions that are over, so none has to be forgotten for others."""
    server = FileServer(Roots([str(root)]), one_process=False)
    (root / "plan.md").write_bytes(b"v1")
    kept: list[int] = []

    async def run() -> None:
        transport = httpx2.ASGITransport(app=http.http_app(server, TOKEN))
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with (
            server.protocol.session_manager.run(),
            httpx2.AsyncClient(transport=transport, headers=headers) as raw,
        ):
            for _ in range(3):
                async with Client(streamable_http_client(URL, http_client=raw), mode="legacy") as client:
                    await call_checked(client, "read_text_file", {"path": "plan.md"})
                    kept.append(len(server._of_sessions))

    anyio.run(run)
    server.close()

    assert kept == [1, 1, 1]


# -- connections -----------------------------------------------------------------------------------------

HALF_A_HEADER = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthoriz"
HALF_A_BODY = (
    b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer t0ken\r\n"
    b"Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"
    b"Content-Length: 100\r\n\r\n{"
)
WHOLE = b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


class Served:
    """A server in a thread, on loopback, with limits of its own."""

    def __init__(self, root: Path, **limits: float) -> None:
        self.protocol = type("Limited", (http.BoundedProtocol,), limits)
        self.files = FileServer(Roots([str(root)]), one_process=False)
        config = http.config(http.http_app(self.files, TOKEN), self.protocol)
        self.server = uvicorn.Server(config)
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(128)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.listener]})
        self.thread.start()

    def connect(self, sent: bytes = b"") -> socket.socket:
        """Open a connection and send the beginning of a request."""
        client = socket.create_connection(self.listener.getsockname(), timeout=60)
        client.sendall(sent)
        return client

    def close(self) -> None:
        """End the server."""
        self.server.should_exit = True
        self.thread.join(60)
        self.files.close()


@pytest.fixture
def serve(root: Path) -> Iterator[Callable[..., Served]]:
    """Starts servers, and ends them."""
    started: list[Served] = []

    def start(**limits: float) -> Served:
        started.append(Served(root, **limits))
        return started[-1]

    yield start
    for served in started:
        served.close()


def is_closed(client: socket.socket) -> bool:
    """Wait for the other side to close, whatever it said before."""
    with client:
        try:
            while client.recv(65536):
                pass
        except ConnectionResetError:
            pass
        except TimeoutError:
            return False
    return True


@pytest.mark.parametrize("sent", [b"", b"P", HALF_A_HEADER, HALF_A_BODY, WHOLE + HALF_A_HEADER])
def test_half_a_request_is_waited_for_a_limited_time(serve: Callable[..., Served], sent: bytes) -> None:
    """finding S20: headers, body, or a second request: what is not complete in time is closed."""
    served = serve(request_timeout_s=0.2)

    assert is_closed(served.connect(sent))


def test_a_request_that_trickles_in_gets_no_more_time(serve: Callable[..., Served]) -> None:
    """finding S20: a byte now and then does not start the clock anew."""
    served = serve(request_timeout_s=0.3)
    client = served.connect(HALF_A_HEADER)
    client.settimeout(0.02)
    sent, is_open = 0, True
    while is_open and sent < 2000:
        try:
            client.sendall(b"x")
            sent += 1
            is_open = client.recv(100) != b""
        except TimeoutError:
            continue
        except OSError:
            is_open = False
    client.close()

    assert not is_open


def test_many_half_open_connections_make_room_for_a_whole_request(serve: Callable[..., Served]) -> None:
    """finding S20: the one that has waited the longest goes; others are served, however many there are."""
    served = serve(most_connections=8, request_timeout_s=3600.0)
    half_open = [served.connect(HALF_A_HEADER if number % 2 else b"") for number in range(30)]

    answered = served.connect(WHOLE)

    assert answered.recv(100).startswith(b"HTTP/1.1 401")
    assert all(is_closed(client) for client in half_open[:20])
    assert len(served.server.server_state.connections) <= 8
    for client in [answered, *half_open[20:]]:
        client.close()


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors by way of /proc")
def test_nine_hundred_half_open_connections_hold_a_bounded_number_of_descriptors(root: Path) -> None:
    """finding S20: with the limits that users have, in a process of its own."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
        "NOCLOBBER_MCP_TOKEN": TOKEN,
    }
    server = subprocess.Popen(
        [*our_command(), str(root), "--http"], stderr=subprocess.PIPE, text=True, env=environment
    )
    clients: list[socket.socket] = []
    try:
        assert server.stderr is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)/mcp", server.stderr.readline())
        assert found
        for _ in range(900):
            clients.append(socket.create_connection(("127.0.0.1", int(found[1])), timeout=60))
            clients[-1].sendall(HALF_A_HEADER)
        answered = socket.create_connection(("127.0.0.1", int(found[1])), timeout=60)
        clients.append(answered)
        answered.sendall(WHOLE)

        assert answered.recv(100).startswith(b"HTTP/1.1 401")
        assert len(os.listdir(f"/proc/{server.pid}/fd")) < http.MOST_CONNECTIONS + 50
    finally:
        for client in clients:
            client.close()
        server.terminate()
        server.communicate(timeout=60)
