"""
Small changes to a user's JSON file: everything but the change stays byte for byte.

Key order, indentation, blank lines, comments (`//`, `/* */`) and trailing commas are kept, because people
read the file. `parse()` returns a tree of positions in the text; `add_member()`, `add_item()` and `remove()`
return a new text. Removing what was added gives back the old text.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from noclobber.errors import RefusalError

DEFAULT_INDENT = "  "
MOST_DEPTH = 200


class BadConfigurationError(RefusalError, ValueError):
    """A host's configuration cannot be read, so it was not changed."""

    code = "BAD_CONFIGURATION"
    resolution = "ASK_A_PERSON"


class JsonNode(NamedTuple):
    """A value, and its position in the text."""

    start: int
    end: int
    value: Any
    """Plain Python; what is inside a container is in `children` as well."""
    children: tuple[tuple[str | int, int, JsonNode], ...] = ()
    """Key or index, where the member begins (at its key), and the value."""

    def get(self, key: str | int) -> JsonNode | None:
        """Return a member's value."""
        return next((node for name, _, node in reversed(self.children) if name == key), None)


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def fail(self, why: str) -> BadConfigurationError:
        line = self.text.count("\n", 0, self.at) + 1
        return BadConfigurationError("", f"line {line}: {why}", line=line)

    def skip(self) -> None:
        text = self.text
        while self.at < len(text):
            if text[self.at] in " \t\r\n\ufeff":
                self.at += 1
            elif text.startswith("//", self.at):
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            elif text.startswith("/*", self.at):
                end = text.find("*/", self.at + 2)
                if end < 0:
                    raise self.fail("a comment does not end")
                self.at = end + 2
            else:
                return

    def value(self, depth: int = 0) -> JsonNode:
        self.skip()
        if depth > MOST_DEPTH:
            raise self.fail("nested too deeply")
        if self.at >= len(self.text):
            raise self.fail("a value is missing")
        opening = self.text[self.at]
        if opening in "{[":
            return self.container(opening, depth)
        start = self.at
        try:
            found, self.at = json.JSONDecoder().raw_decode(self.text, self.at)
        except ValueError as error:
            raise self.fail(f"this is not JSON ({str(error).partition(':')[0].lower()})") from None
        return JsonNode(start, self.at, found)

    def container(self, opening: str, depth: int) -> JsonNode:
        start, closing = self.at, "}" if opening == "{" else "]"
        self.at += 1
        children: list[tuple[str | int, int, JsonNode]] = []
        while True:
            self.skip()
            if self.at >= len(self.text):
                raise self.fail(f"{opening!r} is not closed")
            if self.text[self.at] == closing:
                self.at += 1
                break
            begins = self.at
            key: str | int = len(children)
            if opening == "{":
                name = self.value(depth + 1)
                if not isinstance(name.value, str):
                    raise self.fail("a key must be text")
                key = name.value
                self.skip()
                if self.text[self.at : self.at + 1] != ":":
                    raise self.fail("a colon is missing")
                self.at += 1
            children.append((key, begins, self.value(depth + 1)))
            self.skip()
            if self.text[self.at : self.at + 1] == ",":
                self.at += 1
            elif self.text[self.at : self.at + 1] != closing:
                raise self.fail("a comma or a closing bracket is missing")
        values: Any = {str(key): node.value for key, _, node in children}
        if opening == "[":
            values = [node.value for _, _, node in children]
        return JsonNode(start, self.at, values, tuple(children))


def parse(text: str) -> JsonNode:
    """Read a text; `BadConfigurationError` says which line is wrong."""
    reader = _Reader(text)
    root = reader.value()
    reader.skip()
    if reader.at != len(text):
        raise reader.fail("something follows the value")
    return root


def add_member(text: str, container: JsonNode, key: str, value: Any) -> str:
    """Return the text with a member added at an object's end."""
    return _add(text, container, value, f"{json.dumps(key, ensure_ascii=False)}: ")


def add_item(text: str, container: JsonNode, value: Any) -> str:
    """Return the text with an item added at an array's end."""
    return _add(text, container, value, "")


def _add(text: str, container: JsonNode, value: Any, opening: str) -> str:
    outer = _indent_at(text, container.start)
    unit = _unit(text)
    close = container.end - 1
    is_inline = bool(container.children) and "\n" not in text[container.start : container.end]
    if is_inline:
        spelled = opening + json.dumps(value, ensure_ascii=False)
        last = container.children[-1][2].end
        return f"{text[:last]}, {spelled}{text[last:]}"
    inner = outer + unit
    spelled = opening + json.dumps(value, ensure_ascii=False, indent=unit).replace("\n", f"\n{inner}")
    newline = _newline(text)
    spelled = spelled.replace("\n", newline)
    if not container.children:
        kept = text[container.start + 1 : close].rstrip()  # A comment, or nothing.
        head = text[: container.start + 1] + kept
        return f"{head}{newline}{inner}{spelled}{newline}{outer}{text[close:]}"
    last = container.children[-1][2].end
    tail = len(text[:close].rstrip())
    comma = _comma_after(text, last, close)
    if comma is None:
        return f"{text[:last]},{text[last:tail]}{newline}{inner}{spelled}{text[tail:]}"
    return f"{text[:tail]}{newline}{inner}{spelled},{text[tail:]}"  # The file uses trailing commas.


def remove(text: str, container: JsonNode, key: str | int) -> str:
    """Return the text without a member or an item, and without the comma that it needed."""
    at = next(number for number, child in enumerate(container.children) if child[0] == key)
    _, begins, node = container.children[at]
    close = container.end - 1
    if len(container.children) == 1:
        end = _after_comma(text, node.end, close)
        head, rest = text[container.start + 1 : begins].rstrip(), text[end:close].strip()
        between = head + rest
        if between:  # A comment: it must not swallow the bracket.
            between += f"{_newline(text)}{_indent_at(text, container.start)}"
        return f"{text[: container.start + 1]}{between}{text[close:]}"
    if at + 1 < len(container.children):
        return text[:begins] + text[container.children[at + 1][1] :]
    before = container.children[at - 1][2].end
    own_comma = _comma_after(text, node.end, close)
    start = len(text[:begins].rstrip())
    if own_comma is not None:
        return text[:start] + text[node.end : own_comma] + text[own_comma + 1 :]
    comma = _comma_after(text, before, begins)
    assert comma is not None
    return text[:comma] + text[comma + 1 : start] + text[node.end :]


def _comma_after(text: str, start: int, end: int) -> int | None:
    """Find a comma between two values; those in comments do not count."""
    reader = _Reader(text[:end])
    reader.at = start
    reader.skip()
    return reader.at if text[reader.at : reader.at + 1] == "," and reader.at < end else None


def _after_comma(text: str, start: int, end: int) -> int:
    comma = _comma_after(text, start, end)
    return start if comma is None else comma + 1


def _indent_at(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _unit(text: str) -> str:
    """Return the file's indentation of one level."""
    for line in text.splitlines():
        blank = line[: len(line) - len(line.lstrip(" \t"))]
        if blank and line.strip():
            return blank
    return DEFAULT_INDENT
