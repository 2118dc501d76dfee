"""
Text as UTF-8 bytes, in two ways.

Text that was read by `ReadResult.text` has a lone surrogate for each byte that did not decode; both ways
turn it into that byte again, so that writing text back loses nothing. They differ in what no file can hold.
"""

from __future__ import annotations

from noclobber.errors import BadRequestError


def encode(text: str, path: str) -> bytes:
    """Return text as UTF-8; `BadRequestError` for a lone surrogate that is no escaped byte."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise BadRequestError(path, "The text has a lone surrogate, which no file can hold.") from None


def encode_anyway(text: str) -> bytes:
    """Return text as UTF-8, with `?` for what no file can hold; for what a host writes."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")
