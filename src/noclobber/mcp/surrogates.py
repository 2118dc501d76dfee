"""
Lone surrogates: JSON can spell them, Python strings can hold them, and UTF-8 cannot encode them.

They come from clients (half of an emoji, cut off) and from the disk (file names that are not UTF-8).
"""

from __future__ import annotations


def replace_lone_surrogates(text: str) -> str:
    """Return a text that can be encoded: each lone surrogate is U+FFFD, a pair is one character."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
