"""Text for people: control characters are spelled out, and long lines are folded."""

from __future__ import annotations


def visible(text: str) -> str:
    """Return text with control characters spelled out, so that printing it cannot control the terminal."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


MOST_PLAIN_CHARS = 200


def plain(text: str) -> str:
    """
    Return what others wrote, fit for a model and a terminal: one line, no control characters, not long.

    Names of files and agents, and who holds what: anybody may have written it (findings S19, S30, S31).
    """
    shown = visible(text[: MOST_PLAIN_CHARS + 1])
    return shown if len(shown) <= MOST_PLAIN_CHARS else shown[: MOST_PLAIN_CHARS - 1] + "…"


def visible_lines(text: str) -> str:
    """The same for text of several lines: line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else repr(letter)[1:-1] for letter in text
    )


_LEAST_COLUMNS = 20


def fold(text: str, columns: int) -> str:
    """
    Return text whose lines are at most so wide; what continues a line is indented as the line is.

    A word that is longer than a line (a hash, a path) is cut, because a terminal would do that as well, but
    without an indentation.
    """
    return "\n".join(part for line in text.split("\n") for part in _parts(line, max(columns, _LEAST_COLUMNS)))


def _parts(line: str, columns: int) -> list[str]:
    if len(line) <= columns:
        return [line]
    indent = line[: len(line) - len(line.lstrip(" "))][: columns // 2]
    parts, rest = [], line
    while len(rest) > columns:
        cut = rest.rfind(" ", len(indent) + 1, columns + 1)
        # A break that leaves most of the line empty is worse than one in the middle of a word.
        if cut <= columns // 3:
            cut = columns
        parts.append(rest[:cut].rstrip(" "))
        rest = indent + rest[cut:].lstrip(" ")
    return [*parts, rest]
