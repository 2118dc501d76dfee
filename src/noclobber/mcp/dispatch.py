"""
From a tool call to its answer. Knows no protocol: arguments in, content and structured content out.

Whatever happens inside becomes an answer:

| what | text for the model | structured content for programs |
|---|---|---|
| a stale write | the 009 object; beside it who wrote, or that the file is gone | the 011 object |
| any other refusal (`LOCK_CONTENTION` included) | its object | the same object |
| a bug of ours | one sentence; the traceback goes to stderr | a refusal object |
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from noclobber.errors import NoclobberError, UnknownToolError
from noclobber.guard.tools.answers import refused, sendable
from noclobber.guard.tools.arguments import checked
from noclobber.mcp.tools import TOOLS
from noclobber.mcp.tools.definition import McpAnswer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noclobber.mcp.connection import ClientConnection
    from noclobber.mcp.tools.definition import McpTool, Report

ALIASES = {"expected_sha256": "expected_hash"}
"""Other names of parameters, which are accepted."""


def call(
    connection: ClientConnection,
    name: str,
    arguments: Mapping[str, Any] | None,
    report: Report,
    tools: Mapping[str, McpTool] = TOOLS,
) -> McpAnswer:
    """Carry out one call. Every error becomes an answer."""
    try:
        tool = tools.get(name)
        if tool is None:
            raise UnknownToolError("", f"There is no tool {name!r}.", tool=name)
        return tool.run(connection, understood(tool, arguments or {}), report)
    except (NoclobberError, OSError) as error:
        answer = refused(error)
        return _error([answer.text, *answer.beside], answer.for_controller or {})
    except Exception as error:
        return _failed(name, error)


def understood(tool: McpTool, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checked arguments. The replaced server's reading tools ignore what they do not know."""
    values = checked(tool.name, tool.parameters, given, aliases=ALIASES, ignores_unknown=tool.ignores_unknown)
    for name, rule in tool.parameters["properties"].items():
        if "default" in rule:
            values.setdefault(name, rule["default"])
    return values


def _failed(name: str, error: Exception) -> McpAnswer:
    import traceback

    traceback.print_exception(error, file=sys.stderr)
    text = (
        f"noclobber failed inside {name}: {type(error).__name__}. It is unknown whether anything was "
        "changed: read the file before you go on. The server's stderr has the details."
    )
    code = {"error_type": NoclobberError.code, "resolution": NoclobberError.resolution}
    return _error([text], {**code, "file_path": "", "message": text, "details": {}})


def _error(texts: list[str], structured: dict[str, Any]) -> McpAnswer:
    # File names that are not UTF-8, and quoted arguments, would break the protocol's encoder.
    blocks = [{"type": "text", "text": sendable(text)} for text in texts]
    return McpAnswer(blocks, _encodable(structured), is_error=True)


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return sendable(value)
    return {key: _encodable(item) for key, item in value.items()} if isinstance(value, dict) else value
