"""OpenAI's Responses: Codex, and Copilot with GPT models. Some tools are given a text instead of an object."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.protocols import Asked, Item, Turn, Use
from tests.e2e.protocols.anthropic import named_events

AS_TEXT = {"apply_patch": "patch", "exec": "script"}
"""The tools that are given a text, and the parameter that holds it in a script."""


class Responses:
    """`POST /v1/responses`."""

    def speaks(self, path: str) -> bool:
        """Return whether an address belongs to this protocol."""
        return "/responses" in path

    def is_conversation(self, path: str) -> bool:
        """Return whether an address is for a model's answer."""
        return path.endswith("/responses")

    def understand(self, request: dict[str, Any]) -> Asked:
        """Return what a request says."""
        items = []
        tools = _tools(request.get("tools") or [], "")
        given = request.get("input", [])
        for item in given if isinstance(given, list) else [{"role": "user", "content": given}]:
            if item.get("type") == "additional_tools":
                tools += _tools(item.get("tools", []), "")
            elif str(item.get("type", "")).endswith("_call_output"):
                items.append(Item(False, _output(item.get("output"))))
            elif item.get("role") == "user" or item.get("type") == "agent_message":
                items.append(Item(True, json.dumps(item.get("content"))))
        return Asked(items, dict(tools))

    def say(self, turn: Turn) -> tuple[str, bytes]:
        """Return the answer's content type and bytes."""
        items: list[dict[str, Any]] = [_call(turn.call_id(at), use) for at, use in enumerate(turn.uses)] or [
            {
                "type": "message",
                "role": "assistant",
                "id": f"msg_{turn.word}_{turn.number}",
                "status": "completed",
                "content": [{"type": "output_text", "text": "done", "annotations": []}],
            }
        ]
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        response = {
            "id": f"resp_{turn.word}_{turn.number}",
            "object": "response",
            "created_at": 0,
            "model": turn.request.get("model", "scripted"),
            "output": items,
            "usage": usage,
        }
        if not turn.request.get("stream"):
            return "application/json", json.dumps({**response, "status": "completed"}).encode()
        events: list[dict[str, Any]] = [
            {"type": "response.created", "response": {**response, "output": [], "status": "in_progress"}}
        ]
        for at, item in enumerate(items):
            events += [
                {"type": "response.output_item.added", "output_index": at, "item": item},
                {"type": "response.output_item.done", "output_index": at, "item": item},
            ]
        events.append({"type": "response.completed", "response": {**response, "status": "completed"}})
        for number, event in enumerate(events):
            event["sequence_number"] = number
        return "text/event-stream", named_events(events)


def _tools(tools: list[dict[str, Any]], space: str) -> list[tuple[str, Any]]:
    """Return the tools by name; those of a namespace as `namespace.name`."""
    found = []
    for tool in tools:
        if tool.get("type") == "namespace":
            found += _tools(tool.get("tools", []), f"{space}{tool.get('name', '')}.")
        else:
            found.append((f"{space}{tool.get('name', tool.get('type', ''))}", tool))
    return found


def _call(call_id: str, use: Use) -> dict[str, Any]:
    space, _, name = use.tool.rpartition(".")
    call = {"id": f"fc_{call_id}", "call_id": call_id, "name": name, "status": "completed"}
    if space:
        call["namespace"] = space
    if name in AS_TEXT and AS_TEXT[name] in use.input:
        return {**call, "type": "custom_tool_call", "input": use.input[AS_TEXT[name]]}
    return {**call, "type": "function_call", "arguments": json.dumps(use.input)}


def _output(output: Any) -> str:
    if isinstance(output, list):
        return "".join(part.get("text", "") for part in output if isinstance(part, dict))
    return output if isinstance(output, str) else json.dumps(output)
