"""
Every answer that an MCP test sees is checked here against what was promised, as clients check it.

`check_answer` is the one place; `connect` (in-process), `CheckedPeer` (a server process) and `call_checked`
(the SDK's client) all go through it.
"""

from __future__ import annotations

import json
from typing import Any

import jsonschema
from bench.mcp_peer import Peer

from noclobber import schema
from noclobber.mcp.tools import TOOLS


def check_answer(tool: str, content: list[dict[str, Any]], structured: Any, is_error: bool) -> None:
    """Fail unless an answer is what the tool's output schema says, and a refusal what its own schema says."""
    if tool in TOOLS:
        jsonschema.validate(structured, TOOLS[tool].output)
    if is_error:
        block, *beside = content
        assert block["type"] == "text"
        is_gone = structured.get("actual_hash") == "DELETED"
        told = [
            each["text"] for each in beside if not each["text"].startswith(("Not merged: ", "Written by "))
        ]
        assert told == ["Target missing: it was deleted."] * is_gone
        _check_refusal(block["text"], structured)
    else:
        shown = [block["text"] for block in content] if content[0]["type"] == "text" else [content]
        assert structured["content"] == shown[0]


def _check_refusal(text: str, structured: dict[str, Any]) -> None:
    code = structured["error_type"]
    if code == "STALE_FILE":
        jsonschema.validate(structured, schema("stale-file-controller"))
        jsonschema.validate(json.loads(text), schema("stale-file-agent"))
    elif code == "LOCK_CONTENTION":
        jsonschema.validate(structured, schema("lock-contention"))
        assert json.loads(text) == structured
    else:
        jsonschema.validate(structured, schema("refusal"))
        if text.startswith("{"):
            assert json.loads(text) == structured
        else:  # The replaced server's words.
            assert structured["message"] == text


class CheckedPeer(Peer):
    """A client of a server process that checks every tool's answer. Not for the reference server."""

    def request(self, method: str, params: Any = None) -> dict[str, Any]:
        """Send a request and return the answer, `result` or `error` included."""
        answer = super().request(method, params)
        if method == "tools/call" and "result" in answer:
            self.check(params["name"], answer)
        return answer

    def check(self, tool: str, answer: dict[str, Any]) -> None:
        """Check an answer that was received apart from its request."""
        result = answer["result"]
        check_answer(tool, result["content"], result.get("structuredContent"), bool(result.get("isError")))


async def call_checked(client: Any, tool: str, arguments: dict[str, Any]) -> Any:
    """Call a tool by the SDK's client, and check the answer."""
    result = await client.call_tool(tool, arguments)
    content = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
    check_answer(tool, content, result.structured_content, bool(result.is_error))
    return result
