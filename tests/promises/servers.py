"""Ways in of an MCP client: on stdio, a server process each; over HTTP, a session each."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import anyio.from_thread
import httpx2
from bench.mcp_peer import our_command

from noclobber.mcp import http
from noclobber.mcp.roots import Roots
from noclobber.mcp.server import FileServer
from tests.promises.agent import LANDED, Agent, Stand, Told, Way
from tests.promises.programs import NO_COMMANDS, OWN_READS, RAW
from tests.rigs.mcp import CheckedPeer, check_answer

TOKEN, URL = "t0ken", "http://127.0.0.1:1/mcp"


class ClientAgent(Agent):
    """A client of the server's file tools."""

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a tool; return its result."""
        raise NotImplementedError

    def _call(self, tool: str, **arguments: Any) -> Told:
        given = {name: value for name, value in arguments.items() if value is not None}
        result = self.call(tool, given)
        texts = [block["text"] for block in result["content"] if block["type"] == "text"]
        if not result.get("isError"):
            return Told(LANDED, text="\n".join(texts))
        structured = result["structuredContent"]
        agent = json.loads(texts[0]) if texts[0].startswith("{") else None
        return Told(structured["error_type"], agent, structured, "\n".join(texts[1:]))

    def read(self, name: str, lines: tuple[int, int] | None = None) -> None:
        if lines is None:
            self._call("read_text_file", path=name)
        elif lines[0] == 1:
            self._call("read_text_file", path=name, head=lines[1])
        else:
            total = self.stand.path(name).read_bytes().count(b"\n")
            assert lines[1] == total, "a tail ends at the end"
            self._call(
                "read_text_file", path=name, tail=lines[1] - lines[0] + 2
            )  # What follows the last newline counts.

    def write(self, name: str, content: bytes, expected: str | None = None) -> Told:
        return self._call("write_file", path=name, content=content.decode(), expected_hash=expected)

    def edit(self, name: str, old: str, new: str) -> Told:
        return self._call("edit_file", path=name, edits=[{"oldText": old, "newText": new}])

    def run(self, command: str) -> Told:
        return self._call("run_command", command=command)


class StdioAgent(ClientAgent):
    """A server process of its own. Processes are used again: the client names another root then."""

    _free: ClassVar[list[tuple[dict[str, str], CheckedPeer]]] = []

    def __init__(self, stand: Stand, name: str) -> None:
        super().__init__(stand, name)
        self._begin()

    def _begin(self) -> None:
        # What a process was started with stays: one with a coordinator is not used without it.
        environment = {
            name: value for name, value in self.stand.environment.items() if name.startswith("NOCLOBBER_")
        }
        at = next((at for at, (started, _) in enumerate(self._free) if started == environment), None)
        if at is None:
            self.peer = CheckedPeer([*our_command(), "--allow-run"], roots=[str(self.root)])
        else:
            self.peer = self._free.pop(at)[1]
            self.peer.roots = [str(self.root)]
            self.peer.notify("notifications/roots/list_changed")
        peer = self.peer
        self.stand.closing.append(lambda: self._free.append((environment, peer)))

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return self.peer.call(tool, **arguments)

    def new_turn(self) -> None:
        self._begin()

    @classmethod
    def end_all(cls) -> None:
        """End the processes."""
        while cls._free:
            cls._free.pop()[1].close()


class HttpAgent(ClientAgent):
    """A session of one server, over its HTTP application."""

    def __init__(self, stand: Stand, name: str) -> None:
        super().__init__(stand, name)
        self._server = _server_of(stand)
        self._begin()

    def _begin(self) -> None:
        about = {"name": self.name, "version": "1"}
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about}
        response = self._server.request({"id": 1, "method": "initialize", "params": hello}, {})
        self._headers = {"mcp-session-id": response.headers["mcp-session-id"]}
        self._server.request({"method": "notifications/initialized"}, self._headers)

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        params = {"name": tool, "arguments": arguments}
        response = self._server.request({"id": 2, "method": "tools/call", "params": params}, self._headers)
        result: dict[str, Any] = response.json()["result"]
        check_answer(tool, result["content"], result.get("structuredContent"), bool(result.get("isError")))
        return result

    def new_turn(self) -> None:
        self._begin()


class HttpServer:
    """The server's application, run by an event loop in another thread."""

    def __init__(self, stand: Stand) -> None:
        self._server = FileServer(Roots([str(stand.root)]), one_process=False, allow_run=True)
        portal = anyio.from_thread.start_blocking_portal()
        self._portal = portal.__enter__()
        running = self._portal.wrap_async_context_manager(self._start())
        self._client = running.__enter__()

        def close() -> None:
            running.__exit__(None, None, None)
            portal.__exit__(None, None, None)
            self._server.close()

        stand.closing.append(close)

    def _start(self) -> Any:
        from contextlib import asynccontextmanager

        @asynccontextmanager
        async def run() -> Any:
            app = http.http_app(self._server, TOKEN)
            headers = {"Authorization": f"Bearer {TOKEN}"}
            async with (
                self._server.protocol.session_manager.run(),
                httpx2.AsyncClient(
                    transport=httpx2.ASGITransport(app=app), headers=headers, timeout=60
                ) as client,
            ):
                yield client

        return run()

    def request(self, message: dict[str, Any], headers: dict[str, str]) -> httpx2.Response:
        """Send a message; return the response."""
        sent = {"Accept": "application/json, text/event-stream", **headers}

        async def post() -> httpx2.Response:
            posted: httpx2.Response = await self._client.post(
                URL, json={"jsonrpc": "2.0", **message}, headers=sent
            )
            return posted

        response: httpx2.Response = self._portal.call(post)
        assert response.status_code in (200, 202), response.text
        return response


def _server_of(stand: Stand) -> HttpServer:
    """One server for all agents of a project."""
    if not hasattr(stand, "http_server"):
        stand.http_server = HttpServer(stand)  # type: ignore[attr-defined]
    found: HttpServer = stand.http_server  # type: ignore[attr-defined]
    return found


NO_HASHES = "the server keeps the snapshot of a connection to itself"
SERVER = {"unsure": OWN_READS, "commands": NO_COMMANDS, "initial": NO_HASHES, "raw": RAW}

WAYS = (
    Way("MCP stdio", "MCP", StdioAgent, SERVER),
    Way("MCP HTTP", "MCP", HttpAgent, SERVER),
)
