"""
Make `edit_file`'s edits: they match as in the replaced server, and change nothing else in the file.

Edits are made one after the other, each where its old text is first found. If it is not found as it is,
lines are compared without the white space around them, and the new lines get the indentation of the lines
that they replace.

Texts are compared as the model saw them: as UTF-8, with `\\r\\n` as one newline and a replacement character
for what does not decode. The file is not rewritten that way. Every newline and every byte that no edit
touches stays as it was; a new line ends like the lines around it.
"""

from __future__ import annotations

import codecs
import re
import threading
from typing import TYPE_CHECKING

from noclobber.errors import EditMismatchError

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNDECODED = "\udc80"  # In place of undecodable bytes; no valid UTF-8 decodes to it.
_SHOWN = "\ufffd"
_SPECIAL = re.compile(f"[\n{_SHOWN}]")
# What ECMAScript calls white space, which the replaced server trims.
_WHITE_SPACE = "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
    map(chr, range(0x2000, 0x200B))
)

_aside = threading.local()  # An error handler has no other way to return what it found.


def _set_aside(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    _aside.pieces.append(error.object[error.start : error.end])
    return _UNDECODED, error.end


codecs.register_error("noclobber-set-aside", _set_aside)


class Draft:
    """A file while it is edited: the text as shown, and the bytes behind each special character."""

    def __init__(self, data: bytes) -> None:
        _aside.pieces = []
        text = data.decode("utf-8", "noclobber-set-aside")
        undecoded = iter(_aside.pieces)
        self._real: list[bytes] = []
        for found in re.finditer(f"\r\n|[\n{_SHOWN}{_UNDECODED}]", text):
            letter = found[0]
            self._real.append(next(undecoded) if letter == _UNDECODED else letter.encode())
        self.text = text.replace("\r\n", "\n").replace(_UNDECODED, _SHOWN)
        crlf = self._real.count(b"\r\n")
        self._ending = b"\r\n" if crlf > self._real.count(b"\n") else b"\n"

    def splice(self, start: int, end: int, new: str) -> None:
        """Replace a range by a text."""
        before = len(_SPECIAL.findall(self.text, 0, start))
        out = _SPECIAL.findall(self.text, start, end)
        put = _SPECIAL.findall(new)
        if out != put:  # Otherwise the newlines and the undecodable bytes stay as they are.
            there = self._real[before : before + len(out)]
            crlf, plain = there.count(b"\r\n"), there.count(b"\n")
            ending = b"\r\n" if crlf > plain else b"\n" if plain > crlf else self._ending
            self._real[before : before + len(out)] = [
                ending if letter == "\n" else letter.encode() for letter in put
            ]
        self.text = self.text[:start] + new + self.text[end:]

    def to_bytes(self) -> bytes:
        """Return the edited file."""
        pieces: list[bytes] = []
        real, last = iter(self._real), 0
        for found in _SPECIAL.finditer(self.text):
            pieces += (self.text[last : found.start()].encode(), next(real))
            last = found.end()
        pieces.append(self.text[last:].encode())
        return b"".join(pieces)


class EditPlan:
    """The edits of one call. After `apply`, `before` and `after` are the texts to show a diff of."""

    def __init__(self, edits: Sequence[tuple[str, str]]) -> None:
        self._edits = [(_plain(old), _plain(new)) for old, new in edits]
        self.before = self.after = ""

    def apply(self, data: bytes, path: str) -> bytes:
        """Return the edited file, or raise `EditMismatchError` with the replaced server's message."""
        draft = Draft(data)
        before = draft.text
        for number, (old, new) in enumerate(self._edits, 1):
            at = draft.text.find(old)
            if at >= 0:
                draft.splice(at, at + len(old), new)
            elif not _splice_lines(draft, old, new):
                raise EditMismatchError(path, f"Could not find exact match for edit:\n{old}", edit=number)
        self.before, self.after = before, draft.text
        return data if before == draft.text else draft.to_bytes()


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n")


def _splice_lines(draft: Draft, old: str, new: str) -> bool:
    """Replace the first lines that equal the old ones except for white space around; False if none do."""
    wanted = old.split("\n")
    bare = [line.strip(_WHITE_SPACE) for line in wanted]
    lines = draft.text.split("\n")
    trimmed = [line.strip(_WHITE_SPACE) for line in lines]
    for at in range(len(lines) - len(wanted) + 1):
        if trimmed[at] == bare[0] and trimmed[at : at + len(bare)] == bare:
            start = sum(len(line) + 1 for line in lines[:at])
            end = start + sum(len(line) + 1 for line in lines[at : at + len(bare)]) - 1
            draft.splice(start, end, _indented(new, wanted, _indent(lines[at])))
            return True
    return False


def _indented(new: str, wanted: Sequence[str], indent: str) -> str:
    out = []
    for number, line in enumerate(new.split("\n")):
        bare = line.lstrip(_WHITE_SPACE)
        if number == 0:
            out.append(indent + bare)
            continue
        was, now = _indent(wanted[number]) if number < len(wanted) else "", _indent(line)
        if was and now:
            out.append(indent + " " * max(0, len(now) - len(was)) + bare)
        else:
            out.append(line)
    return "\n".join(out)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(_WHITE_SPACE))]
