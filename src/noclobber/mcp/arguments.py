"""
Check a call's arguments against its tool's schema. Wrong types are reported in the replaced server's words.

The schemas use little of JSON Schema (`type`, `properties`, `required`, `items`, `minItems`, `enum`,
`default`), so one short walk is enough; a full validator would word its errors differently.

Unknown parameters are refused: a mistyped `expected_hash` that is ignored would overwrite the very edit that
it was meant to protect. Only the reading tools of the replaced server ignore them, as that server does.
"""

from __future__ import annotations

import math
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from noclobber.mcp.reference.os_errors import bad_request

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from noclobber.mcp.tools.definition import McpTool

ALIASES = {"expected_sha256": "expected_hash"}
"""Other names of parameters, which are accepted, and the names that the rest of the code knows."""

_MISSING = object()


def checked(tool: McpTool, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the arguments under their one name, with defaults; `RewordedError` lists all that is wrong."""
    schema, problems = tool.parameters, list[str]()
    values: dict[str, Any] = _named(tool, schema, given or {}, "", problems)
    problems += _problems(schema, values, "")
    if problems:
        listed = "\n".join(problems)
        raise bad_request(
            f"MCP error -32602: Input validation error: Invalid arguments for tool {tool.name}: {listed}"
        )
    for key, rule in schema["properties"].items():
        if "default" in rule:
            values.setdefault(key, rule["default"])
    return values


def _named(tool: McpTool, rule: Mapping[str, Any], value: Any, where: str, problems: list[str]) -> Any:
    """Return a value with every parameter under its one name, at any depth; unknown ones go to `problems`."""
    if rule["type"] == "array" and isinstance(value, list):
        items = enumerate(value)
        return [_named(tool, rule["items"], item, f"{where}[{at}]", problems) for at, item in items]
    if rule["type"] != "object" or not isinstance(value, dict):
        return value
    known: dict[str, Any] = rule["properties"]
    named: dict[str, Any] = {}
    given: dict[str, Any] = value
    for given_name, item in given.items():
        name = ALIASES.get(given_name, given_name)
        if name not in known:
            if not tool.ignores_unknown:
                problems.append(_unknown(given_name, known, where))
        # Clients that must send every parameter send null for "not given". The replaced server accepts
        # no null, so its own parameters do not accept it here either.
        elif item is not None or name not in tool.ours:
            if name in named and named[name] != item:
                problems.append(f"{name} and its other name are both given, and differ{_at(where)}")
            if type(item) in (dict, list):
                inner = f"{where}.{name}" if where else name
                item = _named(tool, known[name], item, inner, problems)
            named[name] = item
    return named


def _unknown(name: str, known: Mapping[str, Any], where: str) -> str:
    names = {option: option for option in known} | {
        alias: option for alias, option in ALIASES.items() if option in known
    }
    nearest = get_close_matches(name, names, n=1)
    hint = f"did you mean {names[nearest[0]]!r}?" if nearest else f"known are: {', '.join(known) or 'none'}"
    return f"unknown parameter {name!r}{_at(where)}; {hint}"


def _at(where: str) -> str:
    return f" at {where}" if where else ""


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
            if type(value.get(key)) is str and inner["type"] == "string" and "enum" not in inner:
                continue  # Most are texts, and need no closer look.
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
