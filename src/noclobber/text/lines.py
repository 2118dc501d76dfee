"""
Lines of a file as byte ranges: where they start, how they end, and text made to end like them.

A line ends in `\\n`, with or without `\\r` before it. Nothing is decoded, so any file has lines.
"""

from __future__ import annotations

import re

from noclobber.core.values import BOM as BOM
from noclobber.errors import BadRequestError
from noclobber.text.encoding import encode as encode

NEWLINE = re.compile(rb"\r?\n")

# Matches either ending as a whole. Without the look-behind, the second half of `\r\n` would match again,
# and text that occurs once would be found twice.
ANY_NEWLINE = r"(?:\r\n|(?<!\r)\n)"


def line_starts(data: bytes) -> list[int]:
    """Return where each line begins. A file that ends in a newline has no empty line after it."""
    if not data:
        return []
    starts, at = [0], data.find(b"\n") + 1
    while 0 < at < len(data):
        starts.append(at)
        at = data.find(b"\n", at) + 1
    return starts


def line_span(data: bytes, first: int | None, last: int | None, path: str = "") -> tuple[int, int]:
    """Return the byte range of lines `first` to `last`, both counted, the first line being 1."""
    first = 1 if first is None else first
    if first < 1 or (last is not None and last < first):
        raise BadRequestError(
            path, f"Lines are counted from 1 and a range does not run backwards; asked for {first} to {last}."
        )
    if first == 1 and last is None:
        return 0, len(data)
    starts = line_starts(data)
    start = starts[first - 1] if first <= len(starts) else len(data)
    return start, starts[last] if last is not None and last < len(starts) else len(data)


def line_ending(data: bytes) -> bytes:
    """Return the ending that most of the file's lines have; `\\n` if there is none to tell by."""
    crlf = data.count(b"\r\n")
    return b"\r\n" if crlf * 2 > data.count(b"\n") else b"\n"


def is_uniform(data: bytes) -> bool:
    """True if every line that ends, ends in `\\r\\n`."""
    return data.count(b"\r\n") == data.count(b"\n")


def with_ending(text: bytes, ending: bytes) -> bytes:
    """Return text with every line ending replaced by one kind."""
    return NEWLINE.sub(ending, text)


def without_last_newline(text: bytes) -> bytes:
    """Return text without the line ending that closes it, if one does."""
    return text[:-2] if text.endswith(b"\r\n") else text.removesuffix(b"\n")


def quoted(text: str | bytes) -> str:
    """Return the beginning of a text, for a message."""
    shown = text if isinstance(text, str) else text.decode("utf-8", "backslashreplace")
    return repr(shown if len(shown) <= 60 else shown[:57] + "...")
