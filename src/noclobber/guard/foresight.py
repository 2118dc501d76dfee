"""
What a call must leave on the disk, foreseen before it runs.

Two hashes: of the very bytes, and of the same text in its plainest dress (no byte-order mark, `\\n`
endings, one newline at the end). Hosts differ in what they do about line endings and marks when they write;
that is no race. A host that finds an edit's old text in a way of its own (straightened quotes, other
blanks) leaves an outcome that is not foreseen, and None says so.
"""

from __future__ import annotations

from noclobber.disk import hashing
from noclobber.errors import ABSENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    from noclobber.core.actions import Action
    from noclobber.core.values import Edit
else:
    from noclobber.core.light.named_tuples import NamedTuple

BOM = b"\xef\xbb\xbf"


class Outcome(NamedTuple):
    """What a file must hold afterwards. Both None: that cannot be told."""

    sha256: str | None
    plain: str | None
    """The hash of the plain text, if it is another one."""


UNFORESEEN = Outcome(None, None)


def foresee(action: Action, before: bytes | None) -> Outcome:
    """Return what a call must make of a file that holds `before` (None: nothing, or too much)."""
    if action.kind == "delete":
        return Outcome(ABSENT, None)
    if action.content is not None:
        return _outcome(to_bytes(action.content), before)
    if action.hunks is not None:
        return _patched(action, before)
    if action.edits:
        return _edited(action.edits, before)
    return UNFORESEEN


def _edited(edits: tuple[Edit, ...], before: bytes | None) -> Outcome:
    if before is None:
        # An edit of nothing by nothing makes the file.
        made = len(edits) == 1 and not edits[0].old
        return _outcome(to_bytes(as_text(edits[0].new)), None) if made else UNFORESEEN
    text = _unmarked(before).decode("utf-8", "surrogateescape").replace("\r\n", "\n")
    for given_old, given_new, every in edits:
        old, new = as_text(given_old).replace("\r\n", "\n"), as_text(given_new).replace("\r\n", "\n")
        if not old:
            if text:
                return UNFORESEEN
            text = new
        elif old not in text or (not every and text.find(old, text.index(old) + 1) >= 0):
            return UNFORESEEN
        else:
            text = text.replace(old, new) if every else text.replace(old, new, 1)
    return _dressed(text, before)


def _patched(action: Action, before: bytes | None) -> Outcome:
    from noclobber.text import apply_patch

    if before is None:
        return UNFORESEEN
    text = apply_patch.apply(before.decode("utf-8", "surrogateescape"), action.hunks or ())
    return UNFORESEEN if text is None else _outcome(to_bytes(text), None)


def _dressed(text: str, before: bytes) -> Outcome:
    """Give text the byte-order mark and the line endings of what it replaces."""
    data = to_bytes(text)
    plain = hashing.of_bytes(_trimmed(data))
    if before.count(b"\r\n") * 2 > before.count(b"\n"):
        data = data.replace(b"\n", b"\r\n")
    if before.startswith(BOM):
        data = BOM + data
    return Outcome(hashing.of_bytes(data), plain)


def _outcome(data: bytes, before: bytes | None) -> Outcome:
    sha256 = hashing.of_bytes(data)
    if before is None or (b"\r" not in before and b"\r" not in data and not before.startswith(BOM)):
        return Outcome(sha256, None)
    return Outcome(sha256, plain_hash(data))


def plain_hash(data: bytes) -> str:
    """Return the hash of bytes in their plainest dress."""
    return hashing.of_bytes(_trimmed(_unmarked(data).replace(b"\r\n", b"\n")))


def _trimmed(data: bytes) -> bytes:
    return data.rstrip(b"\n") + b"\n"


def _unmarked(data: bytes) -> bytes:
    return data.removeprefix(BOM)


def to_bytes(text: str) -> bytes:
    """Return text as UTF-8; what no file can hold becomes what a host would write for it."""
    return text.encode("utf-8", "replace")


def as_text(part: str | bytes) -> str:
    """Return an edit's old or new text as text."""
    return part if isinstance(part, str) else part.decode("utf-8", "surrogateescape")
