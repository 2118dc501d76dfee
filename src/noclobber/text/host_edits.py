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
