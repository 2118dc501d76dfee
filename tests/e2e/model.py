"""
A scripted model behind the Messages API, on loopback: it says what the test wants and remembers what it was told.

A script is a list of steps, or a function that is given what the tools returned so far and says what to do next
(None: nothing). A step is a tool call, or a function that is called at that moment (to play the outsider) and
returns one. Which script a conversation follows is told by a word in its first message, so two
sessions, or an agent and its subagent, can follow two scripts at once. How far it got is told by the
conversation itself: the number of tool results in it. So a request that is repeated gets the same answer.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Use(NamedTuple):
    """One tool call."""

    tool: str
    input: dict[str, Any]


Step = Use | Callable[[], Use]
Script = list[Step] | Callable[[list[str]], Use | None]


class ScriptedModel:
    """Use as a context manager; `url` is what the host is given."""

    def __init__(self, **scripts: Script) -> None:
        self.scripts = scripts
        self.told: dict[str, list[str]] = {word: [] for word in scripts}
        """What came back for each tool call, by script."""
        self.requests = 0
        self.tools: set[str] = set()
        """What the host offers."""
        self._done: dict[tuple[str, int], Use] = {}
        self._lock = threading.Lock()
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_HEAD(self) -> None:
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            do_GET = do_HEAD  # noqa: N815 - the name is the server's

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                model.answer(self, body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> ScriptedModel:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    # -- the conversation ------------------------------------------------------------------------------

    def answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        """Answer one request of a host."""
        self.requests += 1
        request = json.loads(body or b"{}")
        messages = request.get("messages", [])
        if "count_tokens" in handler.path:
            _send_json(handler, {"input_tokens": 10})
            return
        self.tools |= {tool.get("name", "") for tool in request.get("tools", [])}
        word = self._word(messages)
        content: list[dict[str, Any]] = [{"type": "text", "text": "ok"}]
        if word is not None and request.get("tools"):
            content = self._next(word, messages)
        _send(handler, content, bool(request.get("stream")))

    def _word(self, messages: list[dict[str, Any]]) -> str | None:
        first = json.dumps(messages[0].get("content")) if messages else ""
        return next((word for word in self.scripts if f"script:{word}" in first), None)

    def _next(self, word: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        results = [
            block
            for message in messages
            if isinstance(message.get("content"), list)
            for block in message["content"]
            if block.get("type") == "tool_result"
        ]
        number = len(results)
        with self._lock:
            self.told[word] = [_text(block) for block in results]
            use = self._done.get((word, number))
        if use is None:
            use = self._step(self.scripts[word], number, self.told[word])
        if use is None:
            return [{"type": "text", "text": "done"}]
        self._done[word, number] = use
        return [{"type": "tool_use", "id": f"toolu_{word}_{number}", "name": use.tool, "input": use.input}]

    @staticmethod
    def _step(script: Script, number: int, told: list[str]) -> Use | None:
        if not isinstance(script, list):
            return script(list(told))
        if number >= len(script):
            return None
        step = script[number]
        return step if isinstance(step, Use) else step()


def _text(block: dict[str, Any]) -> str:
    content = block.get("content")
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return str(content)


def _send_json(handler: BaseHTTPRequestHandler, value: Any) -> None:
    data = json.dumps(value).encode()
    handler.send_response(200)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def _send(handler: BaseHTTPRequestHandler, content: list[dict[str, Any]], stream: bool) -> None:
    uses_tool = any(block["type"] == "tool_use" for block in content)
    message = {
        "id": "msg_0",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": content,
        "stop_reason": "tool_use" if uses_tool else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    if not stream:
        _send_json(handler, message)
        return
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    ]
    start: dict[str, Any]
    for index, block in enumerate(content):
        if block["type"] == "text":
            start = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        else:
            start = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        events += [
            {"type": "content_block_start", "index": index, "content_block": start},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    events += [
        {
            "type": "message_delta",
            "delta": {"stop_reason": message["stop_reason"], "stop_sequence": None},
            "usage": {"output_tokens": 1},
        },
        {"type": "message_stop"},
    ]
    _send_events(handler, events)


def _send_events(handler: BaseHTTPRequestHandler, events: list[dict[str, Any]]) -> None:
    data = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()
    handler.send_response(200)
    handler.send_header("content-type", "text/event-stream")
    handler.send_header("content-length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


class ScriptedResponses(ScriptedModel):
    """The same behind the Responses API, for Codex. A tool called `apply_patch` is given its text as such."""

    def answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        """Answer one request of a host."""
        self.requests += 1
        request = json.loads(body or b"{}")
        items = request.get("input", [])
        said = json.dumps([item for item in items if item.get("role") == "user"])
        word = next((word for word in self.scripts if f"script:{word}" in said), None)
        outputs = [item for item in items if str(item.get("type", "")).endswith("_call_output")]
        item: dict[str, Any] = {
            "type": "message",
            "role": "assistant",
            "id": "msg_0",
            "content": [{"type": "output_text", "text": "done"}],
        }
        if word is not None:
            self.told[word] = [_output(output) for output in outputs]
            number = len(outputs)
            use = self._done.get((word, number)) or self._step(self.scripts[word], number, self.told[word])
            if use is not None:
                self._done[word, number] = use
                item = _call(word, number, use)
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        events: list[dict[str, Any]] = [
            {"type": "response.created", "response": {"id": "r"}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": {"id": "r", "usage": usage}},
        ]
        _send_events(handler, events)


def _call(word: str, number: int, use: Use) -> dict[str, Any]:
    call = {"id": f"fc_{word}_{number}", "call_id": f"call_{word}_{number}", "name": use.tool}
    if use.tool == "apply_patch":
        return {**call, "type": "custom_tool_call", "input": use.input["patch"]}
    return {**call, "type": "function_call", "arguments": json.dumps(use.input)}


def _output(item: dict[str, Any]) -> str:
    output = item.get("output")
    return output if isinstance(output, str) else json.dumps(output)
