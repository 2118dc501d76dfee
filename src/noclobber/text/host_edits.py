"""
Replacements as coding agents make them: `\n` in the old and new text matches either line ending.

The file's byte-order mark and its line endings are kept, as hosts keep them. Some hosts also match text that
differs in quotes or blanks. Such a change does not apply here, and its outcome counts as unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from noclobber.core.values import BOM
from noclobber.errors import EditMismatchError
from noclobber.text.encoding import encode_anyway

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noclobber.core.values import Edit


class HostEdits(NamedTuple):
    """Replacements in one file, one after the other."""

    edits: tuple[Edit, ...]

    def apply(self, data: bytes, path: str) -> bytes:
        """Return the new content; `EditMismatchError` if an old text is missing or occurs twice."""
        text = data.removeprefix(BOM).decode("utf-8", "surrogateescape").replace("\r\n", "\n")
        for edit in self.edits:
            old, new = _folded(edit.old), _folded(edit.new)
            if not old:
                if text:
                    raise EditMismatchError(path, "The old text is empty, and the file is not.")
                text = new
            elif old not in text or (not edit.replace_all and text.find(old, text.index(old) + 1) >= 0):
                raise EditMismatchError(path, "The old text was not found exactly once.")
            else:
                text = text.replace(old, new) if edit.replace_all else text.replace(old, new, 1)
        made = encode_anyway(text)
        if data.count(b"\r\n") * 2 > data.count(b"\n"):
            made = made.replace(b"\n", b"\r\n")
        return BOM + made if data.startswith(BOM) else made


def _folded(part: str | bytes) -> str:
    text = part if isinstance(part, str) else part.decode("utf-8", "surrogateescape")
    return text.replace("\r\n", "\n")


# -- an edit that we carry out in opencode's place ---------------------------------------------------------

# What JavaScript's trim() takes for blanks; Python's own list is another one.
_BLANKS = "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
    map(chr, range(0x2000, 0x200B))
)

NOT_FOUND = (
    "Could not find oldString in the file. It must match exactly, including whitespace, indentation, and "
    "line endings."
)
SEVERAL = "Found multiple matches for oldString. Provide more surrounding context to make the match unique."
EMPTY = (
    "oldString cannot be empty when editing an existing file. Provide the exact text to replace, or use "
    "write for an intentional full-file replacement."
)
SAME = "No changes to apply: oldString and newString are identical."


class OpencodeEdit(NamedTuple):
    """
    One replacement; an empty `old` makes a file that is not there.

    The old text is found exactly, or else by whole lines without the blanks around them. opencode looks on,
    ever more loosely; an edit in the wrong place is worse than one that must be sent again.

    Bytes that are not UTF-8 stay as they are. The built-in tool would replace them by U+FFFD.
    """

    old: str
    new: str
    replace_all: bool = False

    @property
    def creates(self) -> bool:
        """True if the file must not be there yet."""
        return not self.old

    def apply(self, data: bytes, path: str) -> bytes:
        """Return the new content; `EditMismatchError` with the words that opencode uses."""
        if self.old == self.new:
            raise EditMismatchError(path, SAME)
        if not self.old:
            if data:
                raise EditMismatchError(path, EMPTY)
            return encode_anyway(self.new)
        text = data.decode("utf-8", "surrogateescape")
        ending = "\r\n" if "\r\n" in text else "\n"
        old, new = (part.replace("\r\n", "\n").replace("\n", ending) for part in (self.old, self.new))
        found = {old} if old in text else set(_lines_like(text, old))
        if not found:
            raise EditMismatchError(path, NOT_FOUND)
        piece = found.pop()
        if found or (not self.replace_all and text.find(piece) != text.rfind(piece)):
            raise EditMismatchError(path, SEVERAL)
        return encode_anyway(text.replace(piece, new))


def _lines_like(text: str, old: str) -> Iterator[str]:
    """Yield the pieces of a text that have the same lines but for the blanks around each."""
    wanted = [line.strip(_BLANKS) for line in old.removesuffix("\n").split("\n")]
    lines = text.split("\n")
    trimmed = [line.strip(_BLANKS) for line in lines]
    for at in range(len(lines) - len(wanted) + 1):
        if trimmed[at : at + len(wanted)] == wanted:
            yield "\n".join(lines[at : at + len(wanted)])
