"""
From a tool call to its answer. Knows no protocol: arguments in, content and structured content out.

Whatever happens inside becomes an answer:

| what | text for the model | structured content for programs |
|---|---|---|
| a stale write | the 009 object; a second text if the file is gone | the 011 object |
| an error that the replaced server has, too | that server's text | the refusal object |
| any other refusal (`LOCK_CONTENTION` included) | its object | the same object |
| a bug of ours | one sentence; the traceback goes to stderr | a refusal object |
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from noclobber.core import wire
from noclobber.errors import EditMismatchError, NoclobberError, RefusalError, StaleFileError
from noclobber.mcp.arguments import checked
from noclobber.mcp.reference.os_errors import RewordedError, bad_request, os_error
from noclobber.mcp.surrogates import replace_lone_surrogates
from noclobber.mcp.tools import TOOLS
from noclobber.mcp.tools.definition import McpAnswer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noclobber.mcp.connection import ClientConnection
    from noclobber.mcp.tools.definition import McpTool, Report


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
            raise bad_request(f"MCP error -32602: Tool {name} not found")
        return tool.run(connection, checked(tool, arguments), report)
    except RewordedError as error:
        return _refused(error.refusal, error.text)
    except EditMismatchError as error:
        # The replaced server refuses an edit that does not fit, too, and in these words.
        return _refused(error, error.message)
    except StaleFileError as error:
        answer = _refused(error, wire.to_json(error, "agent"))
        # Beside the object, which is fixed (ruling 3): the specification's words for a deleted file, who
        # wrote what is there (ruling 21), and why a write was not merged.
        who = f"Written by {error.written_by}." if error.written_by else None
        why = f"Not merged: {error.not_merged}" if error.not_merged else None
        told = [{"type": "text", "text": text} for text in (error.target_missing, who, why) if text]
        return answer._replace(content=[*answer.content, *told])
    except RefusalError as error:
        return _refused(error, wire.to_json(error, "agent"))
    except OSError as error:
        reworded = os_error(error.errno, "call", str(error.filename or ""))
        return _refused(reworded.refusal, reworded.text)
    except Exception as error:
        return _failed(name, error)


def _refused(refusal: StaleFileError | RefusalError, text: str) -> McpAnswer:
    return _error(text, wire.to_object(refusal, "controller"))


def _failed(name: str, error: Exception) -> McpAnswer:
    import traceback

    traceback.print_exception(error, file=sys.stderr)
    text = (
        f"noclobber failed inside {name}: {type(error).__name__}. It is unknown whether anything was "
        "changed: read the file before you go on. The server's stderr has the details."
    )
    code = {"error_type": NoclobberError.code, "resolution": NoclobberError.resolution}
    return _error(text, {**code, "file_path": "", "message": text, "details": {}})


def _error(text: str, structured: dict[str, Any]) -> McpAnswer:
    # File names that are not UTF-8, and quoted arguments, would break the protocol's encoder.
    block = {"type": "text", "text": replace_lone_surrogates(text)}
    return McpAnswer([block], _encodable(structured), is_error=True)


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return replace_lone_surrogates(value)
    return {key: _encodable(item) for key, item in value.items()} if isinstance(value, dict) else value
