"""
Check a call's arguments against its tool's schema, and say what is wrong in the replaced server's words.

The schemas use little of JSON Schema (`type`, `properties`, `required`, `items`, `minItems`, `enum`,
`default`), so a walk of one screen does it; a full validator would word its complaints differently.
"""

from __future__ import annotations

import math

from noclobber.mcp.os_errors import bad_request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from noclobber.mcp.tools import Tool

_MISSING = object()


def checked(tool: Tool, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the arguments with defaults filled in; `PlainError` lists everything that is wrong."""
    values, schema = dict(given or {}), tool.parameters
    # Clients that must name every parameter send null for "not given". The replaced server takes
    # no null, so neither do its parameters here; those that are ours do.
    for key in tool.ours:
        if values.get(key, _MISSING) is None:
            del values[key]
    problems = list(_problems(schema, values, ""))
    if problems:
        listed = "\n".join(problems)
        raise bad_request(
            f"MCP error -32602: Input validation error: Invalid arguments for tool {tool.name}: {listed}"
        )
    for key, rule in schema["properties"].items():
        if "default" in rule:
            values.setdefault(key, rule["default"])
    return values


def _problems(rule: Mapping[str, Any], value: Any, where: str) -> Iterator[str]:
    wanted, found = rule["type"], _kind(value)
    if "enum" in rule:
        if value not in rule["enum"]:
            options = "|".join(f'"{option}"' for option in rule["enum"])
            yield f"Invalid option: expected one of {options} at {where}"
        return
    if wanted == "integer":
        if found != "number" or (isinstance(value, float) and not value.is_integer()):
            yield f"Invalid input: expected int, received {found} at {where}"
        return
    if found != wanted:
        yield f"Invalid input: expected {wanted}, received {found} at {where}"
    elif wanted == "array":
        if len(value) < rule.get("minItems", 0):
            yield f"Too small: expected array to have >={rule['minItems']} items at {where}"
        for number, item in enumerate(value):
            yield from _problems(rule["items"], item, f"{where}[{number}]")
    elif wanted == "object":
        required = rule.get("required", ())
        for key, inner in rule.get("properties", {}).items():
            if key in value or key in required:
                at = f"{where}.{key}" if where else key
                yield from _problems(inner, value.get(key, _MISSING), at)


def _kind(value: Any) -> str:
    if value is _MISSING:
        return "undefined"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number" if isinstance(value, int) or math.isfinite(value) else "NaN"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"
