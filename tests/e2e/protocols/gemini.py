"""Gemini's generateContent, at once and streamed: Gemini CLI."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.protocols import Asked, Item, Turn


class GenerateContent:
    """`POST /v1beta/models/NAME:generateContent` and `:streamGenerateContent`."""

    def speaks(self, path: str) -> bool:
        """Return whether an address belongs to this protocol."""
        return "/models/" in path and ":" in path.rpartition("/")[2]

    def is_conversation(self, path: str) -> bool:
        """Return whether an address is for a model's answer."""
        return path.lower().endswith("generatecontent")

    def understand(self, request: dict[str, Any]) -> Asked:
        """Return what a request says."""
        items = []
        for content in request.get("contents", []):
            for part in content.get("parts", []) if content.get("role") != "model" else ():
                if "functionResponse" in part:
                    items.append(Item(False, _result(part["functionResponse"].get("response"))))
                elif "text" in part:
                    items.append(Item(True, part["text"]))
        tools = [one for group in request.get("tools", []) for one in group.get("functionDeclarations", [])]
        return Asked(items, {tool.get("name", ""): tool for tool in tools})

    def say(self, turn: Turn) -> tuple[str, bytes]:
        """Return the answer's content type and bytes."""
        parts: list[dict[str, Any]] = [
            {"functionCall": {"id": turn.call_id(at), "name": use.tool, "args": use.input}}
            for at, use in enumerate(turn.uses)
        ] or [{"text": "done"}]
        answer = {
            "candidates": [
                {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
            ],
            "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
            "modelVersion": "scripted",
            "responseId": f"resp_{turn.word}_{turn.number}",
        }
        spelled = json.dumps(answer)
        if "stream" in turn.path:
            return "text/event-stream", f"data: {spelled}\n\n".encode()
        return "application/json", spelled.encode()


def _result(response: Any) -> str:
    """Return what a tool returned; a failure as the object that the host makes of it."""
    if isinstance(response, dict) and list(response) == ["output"] and isinstance(response["output"], str):
        return response["output"]
    return json.dumps(response, ensure_ascii=False)
