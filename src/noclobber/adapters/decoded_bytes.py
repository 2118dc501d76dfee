"""
The bytes behind a text that a tool decoded with a mark (U+FFFD) for every byte that is not UTF-8.

Such a tool changes the text and writes it. Written as it is, the marks would take the place of the bytes: a
file in Latin-1 loses every umlaut by an edit of one comment. So what the edit left alone is taken from the
old bytes, and only what it changed from the new text.
"""

from __future__ import annotations

import os

MARK = "\ufffd"


def bytes_of(old: bytes, text: str) -> bytes | None:
    """Return the content that a tool meant, given what it read. None if a mark is in what it changed."""
    before, ends = _decoded(old)
    start = len(os.path.commonprefix([before, text]))
    most = min(len(before), len(text)) - start
    end = len(os.path.commonprefix([before[::-1][:most], text[::-1][:most]]))
    changed = text[start : len(text) - end]
    if MARK in changed:
        return None
    first, last = ends[start], ends[len(before) - end]
    return old[:first] + changed.encode("utf-8", "surrogateescape") + old[last:]


def _decoded(data: bytes) -> tuple[str, list[int]]:
    """Return the text with marks, and where in the bytes each of its characters begins; the end, too."""
    text, ends = data.decode("utf-8", "replace"), [0]
    bad = _undecodable(data)
    at = 0
    for letter in text:
        at = bad.get(at) or at + len(letter.encode())
        ends.append(at)
    return text, ends


def _undecodable(data: bytes) -> dict[int, int]:
    """Return where each piece begins that is not UTF-8, and where it ends."""
    found: dict[int, int] = {}
    at = 0
    for line in data.split(
        b"\n"
    ):  # No character has this byte in it. By lines, or large files take for ever.
        done = 0
        while done < len(line):
            try:
                line[done:].decode()
                break
            except UnicodeDecodeError as error:
                found[at + done + error.start] = at + done + error.end
                done += error.end
        at += len(line) + 1
    return found
