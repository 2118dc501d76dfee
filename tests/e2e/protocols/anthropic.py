"""Anthropic's Messages: Claude Code; others if they are told to."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.protocols import Asked, Item, Turn


class Messages:
    """`POST /v1/messages`."""

    def speaks(self, path: str) -> bool:
        """Return whether an address belongs to this protocol."""
        return "/messages" in path

    def is_conversation(self, path: str) -> bool:
        """Return whether an address is for a model's answer."""
        return path.endswith("/messages")

    def understand(self, request: dict[str, Any]) -> Asked:
        """Return what a request says."""
        items = []
        for message in request.get("messages", []):
            content = message.get("content")
            blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
            for block in blocks:
                if block.get("type") == "tool_result":
                    items.append(Item(False, _text(block.get("content"))))
                elif block.get("type") == "text" and message.get("role") == "user":
                    items.append(Item(True, str(block.get("text"))))
        return Asked(items, {tool.get("name", ""): tool for tool in request.get("tools", [])})

    def say(self, turn: Turn) -> tuple[str, bytes]:
        """Return the answer's content type and bytes."""
        content: list[dict[str, Any]] = [
            {"type": "tool_use", "id": f"toolu_{turn.call_id(at)}", "name": use.tool, "input": use.input}
            for at, use in enumerate(turn.uses)
        ] or [{"type": "text", "text": "done"}]
        message = {
            "id": f"msg_{turn.word}_{turn.number}",
            "type": "message",
            "role": "assistant",
            "model": "scripted",
            "content": content,
            "stop_reason": "tool_use" if turn.uses else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        if not turn.request.get("stream"):
            return "application/json", json.dumps(message).encode()
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
        ]
        for index, block in enumerate(content):
            events += _streamed(index, block)
        delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        events += [
            {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ]
        return "text/event-stream", named_events(events)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return str(content)


def _streamed(index: int, block: dict[str, Any]) -> list[dict[str, Any]]:
    start: dict[str, Any]
    if block["type"] == "text":
        start = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": block["text"]}
    else:
        start = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        {"type": "content_block_delta", "index": index, "delta": delta},
        {"type": "content_block_stop", "index": index},
    ]


def named_events(events: list[dict[str, Any]]) -> bytes:
    """Return server-sent events that carry their type as their name."""
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()
