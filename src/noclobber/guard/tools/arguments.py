"""
A model's arguments, checked against a tool's schema before anything is touched.

Models get arguments wrong in known ways. What has one meaning is accepted: a number spelled as text, null for
"not given", JSON text where an object or a list belongs. What has none is a `BadRequestError` that names the
parameter and says what to send instead. An unknown parameter is refused: a mistyped `expected_hash` that is
dropped would overwrite the very edit that it was meant to protect.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, NamedTuple

from noclobber.errors import BadRequestError

_MOST_DIGITS = 18  # Enough for every line of every file; and Python refuses to read thousands.
_WANTED = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}


def parsed(tool: str, given: object) -> dict[str, Any]:
    """Return a call's arguments as a dict; APIs send them as an object, or as JSON text."""
    if given is None or given == "":
        return {}
    if isinstance(given, (str, bytes)):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise BadRequestError(
                "", f"The arguments of {tool!r} are not JSON ({error}). Send one JSON object.", tool=tool
            ) from None
    if not hasattr(given, "items"):
        raise BadRequestError(
            "",
            f"The arguments of {tool!r} are {_kind(given)}. Send an object with the parameters by name.",
            tool=tool,
        )
    return {str(name): value for name, value in given.items()}


def checked(
    tool: str,
    schema: Mapping[str, Any],
    given: Mapping[str, Any],
    *,
    aliases: Mapping[str, str] = MappingProxyType({}),
    ignores_unknown: bool = False,
) -> dict[str, Any]:
    """
    Return the arguments that a tool's function takes. Null and what has a default may be left out.

    `aliases`: other names of parameters, at any depth. `ignores_unknown`: drop what the schema does not have.
    """
    return _Check(tool, aliases, ignores_unknown).object(schema, given, "")


class _Check(NamedTuple):
    """The check of one call. Schemas use little of JSON Schema, so one short walk is enough."""

    tool: str
    aliases: Mapping[str, str]
    ignores_unknown: bool

    def object(self, schema: Mapping[str, Any], given: Mapping[str, Any], at: str) -> dict[str, Any]:
        known: Mapping[str, Any] = schema["properties"]
        required = schema.get("required", ())
        values: dict[str, Any] = {}
        for given_name, value in given.items():
            name = self.aliases.get(given_name, given_name)
            if name not in known:
                if self.ignores_unknown:
                    continue
                near = get_close_matches(name, known, n=1)
                hint = f"Did you mean {near[0]!r}?" if near else f"It takes: {', '.join(known)}."
                raise self.wrong(f"has no parameter {at + name!r}. {hint}", at + name)
            if value is None and name not in required:
                continue
            checked_value = self.value(known[name], value, at + name)
            if values.setdefault(name, checked_value) != checked_value:
                raise self.wrong(f"got {at + name!r} under two names, and they differ.", at + name)
        for name in required:
            if name not in values:
                raise self.wrong(f"needs the parameter {at + name!r}: {_described(known[name])}", at + name)
        return values

    def value(self, rule: Mapping[str, Any], value: Any, at: str) -> Any:
        wanted = rule["type"]
        if wanted in ("array", "object") and isinstance(value, str):
            value = _from_json(value, wanted)
        if wanted in ("integer", "number"):
            value = _whole(value)
        elif wanted == "boolean" and isinstance(value, str) and value.strip().lower() in ("true", "false"):
            value = value.strip().lower() == "true"
        kind = _kind(value)
        if kind != wanted and (kind, wanted) != ("integer", "number"):
            remedy = f"Send {_WANTED[wanted]}: {_described(rule)}"
            raise self.wrong(f"got {_WANTED.get(kind, kind)} as {at!r}. {remedy}", at)
        if "enum" in rule and value not in rule["enum"]:
            options = ", ".join(map(repr, rule["enum"]))
            raise self.wrong(f"got {value!r} as {at!r}. Send one of: {options}.", at)
        if wanted == "array":
            if len(value) < rule.get("minItems", 0):
                raise self.wrong(f"got an empty list as {at!r}. Send at least one.", at)
            return [self.value(rule["items"], item, f"{at}[{number}]") for number, item in enumerate(value)]
        if wanted == "object":
            return self.object(rule, value, f"{at}.")
        return value

    def wrong(self, what: str, parameter: str) -> BadRequestError:
        return BadRequestError("", f"The tool {self.tool!r} {what}", tool=self.tool, parameter=parameter)


def _from_json(value: str, wanted: str) -> Any:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return found if _kind(found) == wanted else value


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        digits = value.strip().removeprefix("-")
        if digits.isdecimal() and digits.isascii() and len(digits) <= _MOST_DIGITS:
            return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float) and math.isfinite(value):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, (list, tuple)):
        return "array"
    if hasattr(value, "items"):
        return "object"
    return "null" if value is None else f"a {type(value).__name__}"


def _described(rule: Mapping[str, Any]) -> str:
    said: str = rule.get("description", _WANTED[rule["type"]])
    return said if said.endswith(".") else f"{said}."
