"""
How each API spells a tool, a call of it, and a result.

| format | call | result |
|---|---|---|
| `openai` (Chat Completions) | an item of `message.tool_calls` | a message with the role `tool` |
| `openai-responses` | a `function_call` item | a `function_call_output` item |
| `anthropic` | a `tool_use` block | a `tool_result` block, with `is_error` |
| `gemini` | a `functionCall`, or the part that has it | a part with a `functionResponse` |
| `mcp` | the `params` of `tools/call` | a `CallToolResult`, with `isError` |

A call may be a mapping or an object of the API's own package: members are looked up by key or by attribute.
A result is a plain dict, which those packages take.

OpenAI's formats have no mark for a failed call: the refusal's object is the result, and its `error_type` says
so. In Gemini's it goes under the key `error`, which that API reserves for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.errors import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from noclobber.guard.tools.answers import ToolAnswer
    from noclobber.guard.tools.definitions import ModelTool


class ModelCall(NamedTuple):
    """A model's tool call: the same members in every format."""

    name: str
    arguments: object
    """As sent: a mapping, or JSON text."""
    id: str | None


class ApiFormat(NamedTuple):
    """One API's spelling."""

    name: str
    tools: Callable[[Sequence[ModelTool]], list[dict[str, Any]]]
    call: Callable[[object], ModelCall]
    result: Callable[[ModelCall, ToolAnswer], dict[str, Any]]


def member(value: object, *names: str) -> Any:
    """Return a member by key or by attribute, under the first name that is there; None if none is."""
    for name in names:
        found = value.get(name) if hasattr(value, "get") else getattr(value, name, None)
        if found is not None:
            return found
    return None


def _call(value: object, inner: object, identity: object, arguments: object, shape: str) -> ModelCall:
    name = member(inner, "name")
    if not isinstance(name, str) or not name:
        raise BadRequestError(
            "",
            f"This is not a tool call in the format asked for: a {type(value).__name__} without a tool's "
            f"name. Pass {shape}.",
            parameter="tool_call",
        )
    return ModelCall(name, arguments, identity if isinstance(identity, str) else None)


# -- OpenAI ----------------------------------------------------------------------------------------------


def _function(tool: ModelTool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}


def _openai_call(value: object) -> ModelCall:
    inner = member(value, "function")
    inner = value if inner is None else inner
    shape = "an item of message.tool_calls, or a function_call item"
    return _call(value, inner, member(value, "call_id", "id"), member(inner, "arguments"), shape)


def _chat_result(call: ModelCall, answer: ToolAnswer) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call.id, "content": answer.text}


def _response_result(call: ModelCall, answer: ToolAnswer) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call.id, "output": answer.text}


# -- Anthropic -------------------------------------------------------------------------------------------


def _anthropic_tools(tools: Sequence[ModelTool]) -> list[dict[str, Any]]:
    return [
        {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
        for tool in tools
    ]


def _anthropic_call(value: object) -> ModelCall:
    return _call(value, value, member(value, "id"), member(value, "input"), "a tool_use block")


def _anthropic_result(call: ModelCall, answer: ToolAnswer) -> dict[str, Any]:
    content = [{"type": "text", "text": text} for text in (answer.text, *answer.beside)]
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": call.id, "content": content}
    if answer.is_error:
        result["is_error"] = True
    return result


# -- Gemini ----------------------------------------------------------------------------------------------


def _gemini_tools(tools: Sequence[ModelTool]) -> list[dict[str, Any]]:
    return [
        {
            "functionDeclarations": [
                {**_function(tool), "parameters": _open(tool.parameters)} for tool in tools
            ]
        }
    ]


def _open(schema: Any) -> Any:
    """Return a schema without `additionalProperties`, which the API's own kind of schema does not have."""
    if isinstance(schema, dict):
        return {key: _open(value) for key, value in schema.items() if key != "additionalProperties"}
    return [_open(item) for item in schema] if isinstance(schema, list) else schema


def _gemini_call(value: object) -> ModelCall:
    inner = member(value, "functionCall", "function_call")
    inner = value if inner is None else inner
    shape = "a functionCall, or the part that has it"
    return _call(value, inner, member(inner, "id"), member(inner, "args"), shape)


def _gemini_result(call: ModelCall, answer: ToolAnswer) -> dict[str, Any]:
    said: dict[str, Any] = {"error": answer.for_agent} if answer.is_error else {"output": answer.text}
    response: dict[str, Any] = {"name": call.name, "response": said}
    if call.id is not None:
        response["id"] = call.id
    return {"functionResponse": response}


# -- MCP -------------------------------------------------------------------------------------------------


def _mcp_tools(tools: Sequence[ModelTool]) -> list[dict[str, Any]]:
    return [
        {
            "name": tool.name,
            "description": tool.description,
            "inputSchema": tool.parameters,
            "annotations": {"readOnlyHint": tool.only_reads, "openWorldHint": False},
        }
        for tool in tools
    ]


def _mcp_call(value: object) -> ModelCall:
    params = member(value, "params")
    inner = value if params is None else params
    shape = "the params of a tools/call request, or the request"
    return _call(value, inner, None, member(inner, "arguments"), shape)


def _mcp_result(call: ModelCall, answer: ToolAnswer) -> dict[str, Any]:
    content = [{"type": "text", "text": text} for text in (answer.text, *answer.beside)]
    result: dict[str, Any] = {"content": content, "isError": answer.is_error}
    if answer.is_error:
        result["structuredContent"] = answer.for_controller
    return result


FORMATS = {
    spelling.name: spelling
    for spelling in (
        ApiFormat(
            "openai",
            lambda tools: [{"type": "function", "function": _function(tool)} for tool in tools],
            _openai_call,
            _chat_result,
        ),
        ApiFormat(
            "openai-responses",
            lambda tools: [{"type": "function", **_function(tool)} for tool in tools],
            _openai_call,
            _response_result,
        ),
        ApiFormat("anthropic", _anthropic_tools, _anthropic_call, _anthropic_result),
        ApiFormat("gemini", _gemini_tools, _gemini_call, _gemini_result),
        ApiFormat("mcp", _mcp_tools, _mcp_call, _mcp_result),
    )
}


def format_named(name: str) -> ApiFormat:
    """Return a format by its name."""
    found = FORMATS.get(name) if isinstance(name, str) else None
    if found is None:
        raise BadRequestError(
            "", f"There is no format {name!r}. Choose one of: {', '.join(FORMATS)}.", parameter="format"
        )
    return found
