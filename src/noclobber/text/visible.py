"""Make untrusted text safe to print: control characters are spelled out."""

from __future__ import annotations


def visible(text: str) -> str:
    """Return text with control characters spelled out, so that printing it cannot control the terminal."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def visible_lines(text: str) -> str:
    """The same for text of several lines: line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else repr(letter)[1:-1] for letter in text
    )
