"""
Several changes to one file, all or none: pure functions from bytes to bytes.

Every change is looked up in the file as it is, not in what the change before it left behind, so the
order does not matter, and two that touch the same bytes are an error instead of a surprise.

Text and bytes. A change given as `str` is about lines: `\\n` in it matches the file's own line
ending, and what is put in gets that ending too; a byte-order mark is never touched; `old` that ends in
a newline also matches a last line that has none, which then stays without. A change given as
`bytes` is exact, so even a line ending can be changed. Files that are no valid UTF-8 can be edited either
way: the bytes that do not decode are never looked at.

Not promised: a regular expression of a `Search` may take for ever; Python cannot stop it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from noclobber.core.values import Edit
from noclobber.errors import BadRequestError, EditMismatchError
from noclobber.text.lines import (
    ANY_NEWLINE,
    BOM,
    NEWLINE,
    encode,
    is_uniform,
    line_ending,
    line_span,
    line_starts,
    quoted,
    with_ending,
    without_last_newline,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ANY_NEWLINE = ANY_NEWLINE.encode()


class Splice(NamedTuple):
    """Put `new` in place of the bytes from `start` to `end`; `number` is the edit's, from 1."""

    start: int
    end: int
    new: bytes
    number: int


class Edits(NamedTuple):
    """Edits of one file, all or none."""

    edits: tuple[Edit, ...]

    def apply(self, data: bytes, path: str) -> bytes:
        """Return the new content; `EditMismatchError` says which edit cannot be made."""
        if not self.edits:
            raise BadRequestError(path, "There are no edits. Give at least one.")
        changes: list[Splice] = []
        for number, edit in enumerate(self.edits, 1):
            changes += _find(data, edit, number, path)
        return make_changes(data, changes, path)


class Insertion(NamedTuple):
    """Lines to insert before a line; 0 means after the last one."""

    line: int
    text: str

    def apply(self, data: bytes, path: str) -> bytes:
        """Return the new content."""
        starts = line_starts(data)
        if not 0 <= self.line <= len(starts) + 1:
            raise EditMismatchError(
                path,
                f"The file has {len(starts)} lines, so nothing can be inserted before line {self.line}.",
                edit=1,
            )
        ending = line_ending(data)
        new = with_ending(encode(self.text, path), ending)
        if 0 < self.line <= len(starts):
            at = starts[self.line - 1] or (len(BOM) if data.startswith(BOM) else 0)
            return data[:at] + new + (b"" if new.endswith(b"\n") else ending) + data[at:]
        if not starts or data.endswith(b"\n"):
            closing = b"" if new.endswith(b"\n") or not starts else ending
            return data + new + closing
        return data + ending + without_last_newline(new)  # No last newline before, none now.


class Search(NamedTuple):
    """
    Every occurrence of a text or a regular expression, to be replaced; in a range of lines, if one is given.

    Both ends of the range count, the first line is 1. In a regular expression's replacement `$1` to `$99` are
    its groups and `$&` is the match.
    """

    search: str
    replace: str
    use_regex: bool = False
    ignore_case: bool = False
    first_line: int | None = None
    last_line: int | None = None

    def apply(self, data: bytes, path: str) -> bytes:
        """Return the new content."""
        if not self.search:
            raise BadRequestError(path, "The text to search for is empty.")
        start, end = line_span(data, self.first_line, self.last_line, path)
        part = data[start:end]
        ending = line_ending(data)
        flags = re.IGNORECASE if self.ignore_case else 0
        if self.use_regex:
            # On text with plain newlines, so that `$` and `\n` in the expression mean what they say.
            folded = part.replace(b"\r\n", b"\n") if ending == b"\r\n" and is_uniform(part) else part
            text = folded.decode("utf-8", "surrogateescape")
            try:
                found, count = re.subn(
                    self.search, lambda match: _expand(self.replace, match), text, flags=flags | re.M
                )
            except (re.error, IndexError) as error:
                raise BadRequestError(path, f"The regular expression cannot be used: {error}.") from None
            new = encode(found, path)
            new = with_ending(new, ending) if folded is not part else new
        else:
            # As text and not as bytes: only text knows which letters differ in case alone.
            pattern = ANY_NEWLINE.join(re.escape(piece) for piece in re.split(r"\r?\n", self.search))
            filling = with_ending(encode(self.replace, path), ending).decode("utf-8", "surrogateescape")
            text = part.decode("utf-8", "surrogateescape")
            found, count = re.subn(pattern, lambda _: filling, text, flags=flags)
            new = encode(found, path)
        if not count:
            raise EditMismatchError(
                path, f"{quoted(self.search)} was not found in the file. Read it again.", edit=1
            )
        return data[:start] + new + data[end:]


# -- finding and changing --------------------------------------------------------------------------


def _find(data: bytes, edit: Edit, number: int, path: str) -> list[Splice]:
    if type(edit.old) is not type(edit.new) or not isinstance(edit.old, (str, bytes)):
        raise BadRequestError(path, f"Edit {number}: old and new must both be text or both be bytes.")
    old, new = _as_bytes(edit.old, path), _as_bytes(edit.new, path)
    if not old:
        if not data.removeprefix(BOM):
            return [Splice(len(data), len(data), new, number)]
        raise mismatch(path, number, "the old text is empty, so it says nothing about where to change")
    if isinstance(edit.old, bytes):
        spans = _spans(re.compile(re.escape(old)), data, edit.replace_all)
        if not spans:
            raise mismatch(path, number, f"{quoted(edit.old)} was not found in the file")
        _require_single(spans, edit, number, path)
        return [Splice(start, end, new, number) for start, end in spans]

    lines = [re.escape(line) for line in NEWLINE.split(old)]
    spans = _spans(re.compile(_ANY_NEWLINE.join(lines)), data, edit.replace_all)
    if not spans and not lines[-1]:
        # `old` ends in a newline and the file does not: it may be the file's last line.
        spans = _spans(re.compile(_ANY_NEWLINE.join(lines[:-1]) + rb"\Z"), data, edit.replace_all)
        new = without_last_newline(new)
    if not spans:
        raise mismatch(path, number, f"{quoted(edit.old)} was not found in the file")
    _require_single(spans, edit, number, path)
    return [Splice(start, end, _ended_like(new, data, start, end), number) for start, end in spans]


def _ended_like(new: bytes, data: bytes, start: int, end: int) -> bytes:
    """Give new text the line ending of what it replaces; of the whole file if that has none or several."""
    there = data[start:end]
    newlines, crlf = there.count(b"\n"), there.count(b"\r\n")
    if newlines and crlf in (0, newlines):
        return with_ending(new, b"\r\n" if crlf else b"\n")
    return with_ending(new, line_ending(data))


def _spans(pattern: re.Pattern[bytes], data: bytes, every: bool) -> list[tuple[int, int]]:
    """Return all matches; or the first two, counting those that overlap, to tell one from several."""
    if every:
        return [match.span() for match in pattern.finditer(data)]
    first = pattern.search(data)
    if first is None:
        return []
    second = pattern.search(data, first.start() + 1)
    return [first.span()] if second is None else [first.span(), second.span()]


def _require_single(spans: Sequence[object], edit: Edit, number: int, path: str) -> None:
    if len(spans) > 1 and not edit.replace_all:
        raise mismatch(
            path,
            number,
            f"{quoted(edit.old)} occurs more than once. Give more of the text around it, or replace all",
        )


def make_changes(data: bytes, changes: Iterable[Splice], path: str) -> bytes:
    """Make all changes at once; `EditMismatchError` if two of them touch."""
    pieces: list[bytes] = []
    before = Splice(0, 0, b"", 0)
    for change in sorted(changes, key=lambda change: (change.start, change.end)):
        # Two insertions at one place overlap as well: which one comes first would be a guess.
        same_place = before.number and change.start == change.end == before.start == before.end
        if change.start < before.end or same_place:
            raise mismatch(path, change.number, f"it overlaps with edit {before.number}")
        pieces += (data[before.end : change.start], change.new)
        before = change
    return b"".join((*pieces, data[before.end :]))


def mismatch(path: str, number: int, reason: str) -> EditMismatchError:
    """Return the error for an edit that cannot be made."""
    return EditMismatchError(path, f"Edit {number} cannot be made: {reason}. No edit was made.", edit=number)


def _as_bytes(text: str | bytes, path: str) -> bytes:
    return text if isinstance(text, bytes) else encode(text.removeprefix("\ufeff"), path)


def _expand(template: str, match: re.Match[str]) -> str:
    def part(found: re.Match[str]) -> str:
        what = found[1]
        return "$" if what == "$" else match[0] if what == "&" else match[int(what)] or ""

    return re.sub(r"\$(\$|&|[1-9]\d?)", part, template)
