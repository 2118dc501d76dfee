"""
What a call must leave on the disk, worked out before somebody else carries it out.

Two hashes: of the very bytes, and of the same text in its plainest form (no byte-order mark, `\\n` endings,
one newline at the end). Hosts differ in what they do about line endings and marks when they write; that is
no race. Where the outcome cannot be told, both are None.
"""

from __future__ import annotations

from noclobber.core.actions import DELETE, MOVE
from noclobber.core.values import BOM
from noclobber.disk import hashing
from noclobber.errors import ABSENT, RefusalError
from noclobber.text.encoding import encode_anyway

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    from noclobber.core.actions import Action
else:
    from noclobber.core.light.named_tuples import NamedTuple


class Outcome(NamedTuple):
    """What a file must hold afterwards. Both None: that cannot be told."""

    sha256: str | None
    plain: str | None
    """The hash of the plain text, where other line endings are as good."""


UNKNOWN_OUTCOME = Outcome(None, None)


def foresee(action: Action, before: bytes | None, path: str = "") -> Outcome:
    """Return what a call must make of a file that holds `before` (None: nothing, or too much to hold)."""
    if action.kind in (DELETE, MOVE):
        return Outcome(ABSENT, None)
    content = action.content
    if content is not None:
        data = encode_anyway(content) if isinstance(content, str) else content
        return Outcome(hashing.of_bytes(data), plain_hash(data) if _has_marks(before, data) else None)
    if action.change is None:
        return UNKNOWN_OUTCOME
    try:
        data = action.change.apply(before or b"", path)
    except RefusalError:
        return UNKNOWN_OUTCOME  # Whoever carries it out may find the place in a way of its own.
    return outcome_of(data)


def outcome_of(data: bytes) -> Outcome:
    """Return the outcome that is exactly these bytes, or the same text with other line endings."""
    return Outcome(hashing.of_bytes(data), plain_hash(data))


def plain_hash(data: bytes) -> str:
    """Return the hash of bytes in their plainest form."""
    return hashing.of_bytes(data.removeprefix(BOM).replace(b"\r\n", b"\n").rstrip(b"\n") + b"\n")


def _has_marks(before: bytes | None, data: bytes) -> bool:
    """True if a host may write other line endings, or a mark, than it was given."""
    return before is not None and (b"\r" in before or b"\r" in data or before.startswith(BOM))
