"""Other people's text, shown: control characters are spelled out, so that printing it moves no cursor."""

from __future__ import annotations


def visible(text: str) -> str:
    """Return text with control characters spelled out, so that printing it changes nothing but its cells."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
