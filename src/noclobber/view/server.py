"""
The server of `noclobber view`: a few files, some answers in JSON, one stream. On loopback only.

| request | answer |
|---|---|
| `GET /`, `/view.css`, `/….js` | the page; it holds nothing of the project, so it needs no token |
| `POST /api/session` | the token, for a code that works once |
| `GET /api/stream` | server-sent events: first everything, then the sections that changed |
| `GET /api/snapshot` | the same once, as JSON |
| `GET /api/timeline?file=` | what happened to a file |
| `GET /api/diff?file=&from=&to=` | between two versions of a file |
| `GET /api/preview?…` | what an action would do, as a diff |
| `POST /api/action` | do it |
| `POST /api/check` | let `doctor` look again |
| `GET /metrics` | for Prometheus |

Everything below `/api` but the first, and `/metrics`, needs the token: see `access`. Nothing is changed by
a GET.
"""

from __future__ import annotations

import json
import os
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.errors import BadRequestError, NoclobberError
from noclobber.view import actions, file_timeline, prometheus
from noclobber.view.access import Access, Connections
from noclobber.view.live import Cursor, Live

PAGE_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "page")
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
MOST_CONNECTIONS = 32
MOST_BODY_BYTES = 64 << 10
SOCKET_S = 30.0
HEARTBEAT_S = 5.0
COALESCE_S = 0.1
# No inline script or style, nothing from elsewhere, no frame around it, no form that leads anywhere.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class ViewServer(ThreadingHTTPServer):
    """Serves one project. `serve_forever()` until `shutdown()`."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, live: Live, port: int = 0) -> None:
        """Raises `OSError` with a sentence for people if the port cannot be had."""
        self.live = live
        self._connections = Connections(MOST_CONNECTIONS)
        try:
            super().__init__(("127.0.0.1", port), PageRequest)
        except OSError as error:
            what = f"port {port} of 127.0.0.1 cannot be used: {error.strerror or error}"
            raise OSError(f"{what}. Choose another with --port, or leave it out for a free one.") from error
        except OverflowError:
            raise BadRequestError("", f"A port is a number from 0 to 65535, not {port}.") from None
        self.port = int(self.server_address[1])
        self.access = Access(self.port)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, if there is room."""
        if not self._connections.admit(request):
            self.shutdown_request(request)  # A page asks again; a program that opens too many is refused.
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Give the place back at the end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.leave(request)

    def trust(self, request: Any) -> None:
        """Whoever is at the other end has shown the token."""
        self._connections.trust(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news; nothing else may end the server either."""

    def server_bind(self) -> None:
        """Bind without asking the resolver for this machine's name, which may take seconds."""
        import socketserver

        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]


class PageRequest(BaseHTTPRequestHandler):
    """One connection."""

    server: ViewServer
    protocol_version = "HTTP/1.1"
    server_version = "noclobber"
    sys_version = ""
    timeout = SOCKET_S
    disable_nagle_algorithm = True

    # -- asking ---------------------------------------------------------------------------------------

    def do_GET(self) -> None:
        """Answer what only looks."""
        self._answer(self._get)

    def do_POST(self) -> None:
        """Answer what does something."""
        self._answer(self._post)

    def _answer(self, work: Any) -> None:
        try:
            parts = urlsplit(self.path)
            is_page = self.command == "GET" and parts.path == "/"
            if not self.server.access.is_here(self.headers, is_page=is_page):
                self._refuse(HTTPStatus.FORBIDDEN, "asked under another name, or by a page from elsewhere")
                return
            query = {name: values[-1] for name, values in parse_qs(parts.query, max_num_fields=20).items()}
            work(parts.path, query)
        except NoclobberError as error:
            self._send(HTTPStatus.CONFLICT, {"error": str(error), "code": error.code})
        except (ConnectionError, TimeoutError):
            self.close_connection = True
        except (OSError, ValueError) as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))

    def _get(self, path: str, query: dict[str, str]) -> None:
        if not path.startswith("/api/") and path != "/metrics":
            self._file(path)
            return
        if not self._is_known():
            return
        live = self.server.live
        if path == "/api/stream":
            self._stream()
        elif path == "/api/snapshot":
            self._send(HTTPStatus.OK, live.snapshot())
        elif path == "/api/timeline":
            found = file_timeline.timeline(live.root, query.get("file", ""), SYSTEM_CLOCK)
            events = [{**event._asdict(), "who": event.who._asdict()} for event in found.events]
            self._send(HTTPStatus.OK, {**found._asdict(), "events": events, "kept": sorted(found.kept)})
        elif path == "/api/diff":
            file, before, after = (query.get(name, "") for name in ("file", "from", "to"))
            diff = file_timeline.diff_between(live.root, file, before, after, SYSTEM_CLOCK)
            self._send(HTTPStatus.OK, {"diff": diff})
        elif path == "/api/preview":
            self._send(HTTPStatus.OK, {"diff": actions.preview(live.root, query)})
        elif path == "/metrics":
            self._body(HTTPStatus.OK, prometheus.CONTENT_TYPE, prometheus.spelled(live.gauges()).encode())
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")

    def _post(self, path: str, query: dict[str, str]) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit() or int(length) > MOST_BODY_BYTES:
            self.close_connection = True
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "a request has a length, and a short one")
            return
        body = self.rfile.read(int(length))
        if self.headers.get_content_type() != "application/json":
            self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "requests are JSON")
            return
        try:
            asked = json.loads(body)
        except (ValueError, RecursionError):
            asked = None
        if not isinstance(asked, dict):
            self._refuse(HTTPStatus.BAD_REQUEST, "a request is a JSON object")
            return
        if path == "/api/session":
            token = self.server.access.exchange(str(asked.get("code", "")))
            if token is None:
                self._refuse(
                    HTTPStatus.UNAUTHORIZED, "this link was used before; take the one that was printed last"
                )
            else:
                self._send(HTTPStatus.OK, {"token": token})
        elif not self._is_known():
            return
        elif path == "/api/check":
            self._send(HTTPStatus.OK, {"started": self.server.live.check()})
        elif path == "/api/action":
            done = actions.carry_out(self.server.live.root, asked)
            self.server.live.look_soon()
            self._send(HTTPStatus.OK, done._asdict())
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")

    def _is_known(self) -> bool:
        if self.server.access.is_known(self.headers):
            self.server.trust(self.connection)
            return True
        self._refuse(
            HTTPStatus.UNAUTHORIZED,
            "the token is missing or wrong; use the link that `noclobber view` printed last",
        )
        return False

    # -- answering ------------------------------------------------------------------------------------

    def _file(self, path: str) -> None:
        name = "index.html" if path == "/" else path.removeprefix("/")
        ending = os.path.splitext(name)[1]
        if "/" in name or "\0" in name or name.startswith(".") or ending not in TYPES:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")
            return
        try:
            with open(os.path.join(PAGE_FOLDER, name), "rb") as file:
                data = file.read()
        except FileNotFoundError:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")
            return
        self._body(HTTPStatus.OK, TYPES[ending], data)

    def _stream(self) -> None:
        """Tell a page everything, and then what changes, until it goes away or the server ends."""
        self.send_response(HTTPStatus.OK)
        self._headers("text/event-stream; charset=utf-8")
        self.send_header("Connection", "close")  # Its end is the end of the connection.
        self.end_headers()
        self.close_connection = True
        live, cursor = self.server.live, Cursor()
        while not live.is_ending:
            news = live.news(cursor, HEARTBEAT_S)
            told = f"event: news\ndata: {_spell(news)}\n\n" if news else ": nothing new\n\n"
            self.wfile.write(told.encode("utf-8", "backslashreplace"))
            SYSTEM_CLOCK.sleep(COALESCE_S)  # Several events in a row are told together.

    def _send(self, status: HTTPStatus, value: Any) -> None:
        self._body(
            status, "application/json; charset=utf-8", _spell(value).encode("utf-8", "backslashreplace")
        )

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._send(status, {"error": why})

    def _body(self, status: HTTPStatus, content_type: str, data: bytes) -> None:
        self.send_response(status)
        self._headers(content_type)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _headers(self, content_type: str) -> None:
        self.send_header("Content-Type", content_type)
        for name, value in HEADERS.items():
            self.send_header(name, value)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        """Keep quiet: the terminal belongs to the person."""


def _spell(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
