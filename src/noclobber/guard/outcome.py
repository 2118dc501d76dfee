"""
What a call must leave on the disk, worked out before somebody else carries it out.

Two hashes: of the very bytes, and of the same text in its plainest form (no byte-order mark, `\\n` endings,
one newline at the end). Hosts differ in what they do about line endings and marks when they write; that is
no race. Where the outcome cannot be told, both are None.

A file that is not UTF-8 has several outcomes (finding H13): some hosts keep the bytes that they do not
change, some write U+FFFD for each bad byte, some take the file for Latin-1 and write Latin-1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from noclobber.core.actions import DELETE, MOVE
from noclobber.core.values import BOM
from noclobber.disk import hashing
from noclobber.errors import ABSENT, RefusalError
from noclobber.text.encoding import encode_anyway

if TYPE_CHECKING:
    from noclobber.core.actions import Action, ContentChange


class Outcome(NamedTuple):
    """What a file must hold afterwards. Both None: that cannot be told."""

    sha256: str | None
    plain: str | None
    """The hash of the plain text, where other line endings are as good."""
    others: tuple[str, ...] = ()
    """Hashes that are as good, of a file that is not UTF-8: hosts differ in how they read and write one."""
    data: bytes | None = None
    """The very bytes."""


UNKNOWN_OUTCOME = Outcome(None, None)


def foresee(action: Action, before: bytes | None, path: str = "") -> Outcome:
    """Return what a call must make of a file that holds `before` (None: nothing, or too much to hold)."""
    if action.kind in (DELETE, MOVE):
        return Outcome(ABSENT, None)
    content = action.content
    if content is not None:
        data = encode_anyway(content) if isinstance(content, str) else content
        plain = plain_hash(data) if _has_marks(before, data) else None
        outcome = Outcome(hashing.of_bytes(data), plain, data=data)
        if before is None or _is_utf8(before):
            return outcome
        return outcome._replace(others=_hashes(_in_latin1(data)))
    if action.change is None:
        return UNKNOWN_OUTCOME
    made = _changed(action.change, before or b"", path)
    if before is None or _is_utf8(before):
        return UNKNOWN_OUTCOME if made is None else outcome_of(made)
    marked = _changed(action.change, before.decode("utf-8", "replace").encode(), path)
    guessed = _changed(action.change, before.decode("latin-1").encode(), path)
    found = [data for data in (made, marked, _in_latin1(guessed)) if data is not None]
    if not found:
        return UNKNOWN_OUTCOME
    return outcome_of(found[0])._replace(others=_hashes(*found[1:]))


def _changed(change: ContentChange, data: bytes, path: str) -> bytes | None:
    try:
        return change.apply(data, path)
    except RefusalError:
        return None  # Whoever carries it out may find the place in a way of its own.


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _in_latin1(data: bytes | None) -> bytes | None:
    """Return UTF-8 text as Latin-1, None if that cannot be."""
    try:
        return None if data is None else data.decode().encode("latin-1")
    except UnicodeError:
        return None


def _hashes(*found: bytes | None) -> tuple[str, ...]:
    return tuple(hashing.of_bytes(data) for data in found if data is not None)


def outcome_of(data: bytes) -> Outcome:
    """Return the outcome that is exactly these bytes, or the same text with other line endings."""
    return Outcome(hashing.of_bytes(data), plain_hash(data), data=data)


def plain_hash(data: bytes) -> str:
    """Return the hash of bytes in their plainest form."""
    return hashing.of_bytes(data.removeprefix(BOM).replace(b"\r\n", b"\n").rstrip(b"\n") + b"\n")


def _has_marks(before: bytes | None, data: bytes) -> bool:
    """True if a host may write other line endings, or a mark, than it was given."""
    return before is not None and (b"\r" in before or b"\r" in data or before.startswith(BOM))
