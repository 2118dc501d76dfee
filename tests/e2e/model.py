"""
A scripted model on loopback: it says what the test wants, in the protocol of whoever asks, and remembers what it was told.

A script is a list of steps, or a function that is given what the tools returned so far and says what to do next
(None: nothing). A step is a tool call, or several for one message, or a function that is called at that moment
(to play the outsider) and returns them. Which script a conversation follows is told by a word in what the user
said (`script:WORD`), so two sessions, two hosts, or an agent and its subagent, can follow two scripts at once. How
far it got is told by the conversation itself: the number of tool results in it. So a request that is repeated gets
the same answer.

The address of a request tells the protocol; see the modules in `protocols`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from tests.e2e.protocols import Asked, ModelProtocol, Turn, Use
from tests.e2e.protocols.anthropic import Messages
from tests.e2e.protocols.chat import ChatCompletions
from tests.e2e.protocols.gemini import GenerateContent
from tests.e2e.protocols.responses import Responses

PROTOCOLS: tuple[ModelProtocol, ...] = (Messages(), Responses(), ChatCompletions(), GenerateContent())

Uses = Use | list[Use]
Step = Uses | Callable[[], Uses]
Script = Sequence[Step] | Callable[[list[str]], Uses | None]

__all__ = ["Asking", "Script", "ScriptedModel", "ScriptedResponses", "Step", "Use", "Uses"]


class Asking(NamedTuple):
    """One request of a host that had nothing to do with a script: a title, a summary, a classification."""

    path: str
    tools: int


class _Place(NamedTuple):
    """A message of a script: how many results came before it, and what it said."""

    number: int
    uses: tuple[Use, ...]


class ScriptedModel:
    """Use as a context manager; `url` is what the host is given."""

    answers_at_once = False
    """
    If not, an answer's body waits for the host's kernel to acknowledge its head: up to 40 ms, which is nobody's work where
    calls are timed. Elsewhere it is left: no model answers at once.
    """

    def __init__(self, **scripts: Script) -> None:
        self.scripts = scripts
        self.told: dict[str, list[str]] = {word: [] for word in scripts}
        """What came back for each tool call, by script."""
        self.requests_of: dict[str, int] = dict.fromkeys(scripts, 0)
        """How often each script's conversation was sent to the model."""
        self.heard: dict[str, list[str]] = {word: [] for word in scripts}
        """Every text in a script's conversation when it was last sent, wherever its host put it."""
        self.beside: list[Asking] = []
        """What else the host asked the model."""
        self.tools: set[str] = set()
        """What the host offers."""
        self.described: dict[str, Any] = {}
        """How it describes them."""
        self.failures: list[Exception] = []
        """What went wrong in a script itself. The host is told that all is done, so that it ends."""
        self._said: dict[str, list[_Place]] = {word: [] for word in scripts}
        self._locks = {word: threading.Lock() for word in scripts}
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = model.answers_at_once

            def log_message(self, *_: object) -> None:
                pass

            def do_HEAD(self) -> None:
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def do_GET(self) -> None:
                data = b'{"object":"list","data":[],"models":[]}'
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                model.answer(self, body)

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Say nothing: a host that ends in the middle of an answer is part of some scenarios."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @property
    def requests(self) -> int:
        """Return how many requests there were in all."""
        return sum(self.requests_of.values()) + len(self.beside)

    def __enter__(self) -> ScriptedModel:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        if self.failures and kind is None:
            raise self.failures[0]

    # -- the conversation ------------------------------------------------------------------------------

    def answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        """Answer one request of a host."""
        path = handler.path.partition("?")[0]
        protocol = next((one for one in PROTOCOLS if one.speaks(path)), None)
        request = json.loads(body or b"{}") if protocol is not None else {}
        if protocol is None or not protocol.is_conversation(path):
            _send(handler, "application/json", b'{"input_tokens":10,"totalTokens":10}')
            return
        asked = protocol.understand(request)
        word, results = self._place(asked)
        uses: tuple[Use, ...] = ()
        number = len(results)
        if word is None or not asked.tools:
            self.beside.append(Asking(path, len(asked.tools)))
        else:
            self.tools |= set(asked.tools)
            self.described |= asked.tools
            with self._locks[word]:
                self.requests_of[word] += 1
                self.heard[word] = list(_texts({**request, "tools": None}))
                if number >= len(self.told[word]):
                    self.told[word] = results
                try:
                    uses = self._next(word, number, list(results))
                except Exception as failure:
                    self.failures.append(failure)
        kind, data = protocol.say(Turn(request, path, word or "none", number, uses))
        _send(handler, kind, data)

    def _place(self, asked: Asked) -> tuple[str | None, list[str]]:
        """Return the script that a conversation follows, and the results since it was named."""
        for at in range(len(asked.items) - 1, -1, -1):
            if not asked.items[at].is_said:
                continue
            for word in self.scripts:
                if f"script:{word}" in asked.items[at].text:
                    return word, [item.text for item in asked.items[at:] if not item.is_said]
        return None, []

    def _next(self, word: str, number: int, told: list[str]) -> tuple[Use, ...]:
        said = self._said[word]
        known = next((place.uses for place in said if place.number == number), None)
        if known is not None:
            return known
        uses = self._step(self.scripts[word], len(said), told)
        said.append(_Place(number, uses))
        return uses

    @staticmethod
    def _step(script: Script, at: int, told: list[str]) -> tuple[Use, ...]:
        found: Uses | None
        if callable(script):
            found = script(told)
        elif at >= len(script):
            found = None
        else:
            step = script[at]
            found = step() if callable(step) else step
        if found is None:
            return ()
        return (found,) if isinstance(found, Use) else tuple(found)


# The protocol is told by the address; the name says which one a test is about.
ScriptedResponses = ScriptedModel


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)


def _send(handler: BaseHTTPRequestHandler, kind: str, data: bytes) -> None:
    handler.send_response(200)
    handler.send_header("content-type", kind)
    handler.send_header("content-length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)
