"""A server of the view in the test's own process, and what a program asks it."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from noclobber.view.access import TOKEN_HEADER
from noclobber.view.live import Live
from noclobber.view.server import ViewServer

PATIENCE_S = 30
STATE_S = 0.1


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@contextmanager
def serving(root: Path, *, with_doctor: bool = False) -> Iterator[ViewServer]:
    """Serve a project until the end of the block."""
    live = Live(str(root), with_doctor=with_doctor, state_s=STATE_S)
    server = ViewServer(live)
    live.start()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        live.stop()
        server.shutdown()
        server.server_close()
        thread.join(PATIENCE_S)


def ask(
    server: ViewServer,
    path: str,
    body: Any = None,
    *,
    method: str | None = None,
    token: str | None = "",
    headers: dict[str, str] | None = None,
) -> Answer:
    """Ask once; with the right token unless another one, or none, is given."""
    sent = {"Host": f"127.0.0.1:{server.port}", **(headers or {})}
    if token is not None:
        sent[TOKEN_HEADER] = token or server.access.token
    data = None
    if body is not None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent.setdefault("Content-Type", "application/json")
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    try:
        connection.request(method or ("GET" if body is None else "POST"), path, data, sent)
        response = connection.getresponse()
        return Answer(response.status, dict(response.getheaders()), response.read())
    finally:
        connection.close()


@contextmanager
def stream(server: ViewServer) -> Iterator[Iterator[dict[str, Any]]]:
    """The stream of a server: each message as it comes."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    host = f"127.0.0.1:{server.port}"
    connection.request("GET", "/api/stream", headers={"Host": host, TOKEN_HEADER: server.access.token})
    response = connection.getresponse()
    assert response.headers.get_content_type() == "text/event-stream"

    def messages() -> Iterator[dict[str, Any]]:
        while line := response.readline():
            if line.startswith(b"data: "):
                yield json.loads(line[6:])

    try:
        yield messages()
    finally:
        response.close()
        connection.close()
