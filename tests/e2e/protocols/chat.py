"""OpenAI's Chat Completions: Qwen Code, opencode, Copilot, Cline."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.protocols import Asked, Item, Turn


class ChatCompletions:
    """`POST /v1/chat/completions`."""

    def speaks(self, path: str) -> bool:
        """Return whether an address belongs to this protocol."""
        return path.endswith("/chat/completions")

    def is_conversation(self, path: str) -> bool:
        """Return whether an address is for a model's answer."""
        return True

    def understand(self, request: dict[str, Any]) -> Asked:
        """Return what a request says."""
        items = []
        for message in request.get("messages", []):
            if message.get("role") == "tool":
                items.append(Item(False, _text(message.get("content"))))
            elif message.get("role") == "user":
                items.append(Item(True, _text(message.get("content"))))
        tools = [tool.get("function", {}) for tool in request.get("tools", [])]
        return Asked(items, {tool.get("name", ""): tool for tool in tools})

    def say(self, turn: Turn) -> tuple[str, bytes]:
        """Return the answer's content type and bytes."""
        calls: list[dict[str, Any]] = [
            {
                "index": at,
                "id": turn.call_id(at),
                "type": "function",
                "function": {"name": use.tool, "arguments": json.dumps(use.input)},
            }
            for at, use in enumerate(turn.uses)
        ]
        said: dict[str, Any] = {"role": "assistant", "content": None if calls else "done"}
        if calls:
            said["tool_calls"] = calls
        end = "tool_calls" if calls else "stop"
        whole = {
            "id": f"chat_{turn.word}_{turn.number}",
            "created": 0,
            "model": turn.request.get("model", "scripted"),
        }
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        if not turn.request.get("stream"):
            choice = {"index": 0, "message": said, "finish_reason": end}
            answer = {**whole, "object": "chat.completion", "choices": [choice], "usage": usage}
            return "application/json", json.dumps(answer).encode()
        chunk = {**whole, "object": "chat.completion.chunk"}
        chunks = [
            {**chunk, "choices": [{"index": 0, "delta": said, "finish_reason": None}]},
            {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": end}]},
            {**chunk, "choices": [], "usage": usage},
        ]
        lines = [*(json.dumps(one) for one in chunks), "[DONE]"]
        return "text/event-stream", "".join(f"data: {line}\n\n" for line in lines).encode()


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return "" if content is None else str(content)
