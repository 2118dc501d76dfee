"""
Changes given as SEARCH/REPLACE blocks, the format of `apply_diff`.

    <<<<<<< SEARCH
    :start_line:12
    -------
    lines of the file
    =======
    the lines to put in their place
    >>>>>>> REPLACE

The two lines after the first are optional, and there may be several blocks. Lines match whole lines, exactly,
whatever their endings; `:start_line:` says which ones are meant if they occur more than once, and where
to insert if SEARCH is empty. A line of the file that looks like a marker is written with `\\` before it.
Nothing is matched loosely: an edit in the wrong place is worse than an edit that must be sent again.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from noclobber.errors import BadRequestError
from noclobber.text.edits import Splice, make_changes, mismatch
from noclobber.text.lines import ANY_NEWLINE, BOM, NEWLINE, encode, line_ending, line_starts, quoted


class Blocks(NamedTuple):
    """SEARCH/REPLACE blocks as a model wrote them."""

    diff: str

    def apply(self, data: bytes, path: str) -> bytes:
        """Return the new content; `EditMismatchError` says which block does not fit."""
        changes = []
        for number, block in enumerate(_parse_blocks(self.diff, path), 1):
            changes.append(_place(data, block, number, path))
        return make_changes(data, changes, path)


class _Block(NamedTuple):
    search: list[str]
    replace: list[str]
    start_line: int | None


_MARKERS = ("<<<<<<<", "=======", ">>>>>>>", "-------")
_OPENING = re.compile(r"<{7,9} ?SEARCH>?\s*")
_CLOSING = re.compile(r">{7,9} ?REPLACE\s*")
_DIVIDER = re.compile(r"={7,9}\s*")
_HINT = re.compile(r":(start|end)_line:\s*(\d+)\s*")


def _parse_blocks(diff: str, path: str) -> list[_Block]:
    blocks: list[_Block] = []
    search: list[str] = []
    replace: list[str] = []
    start_line: int | None = None
    part = "outside"
    for number, line in enumerate(re.split(r"\r?\n", diff), 1):
        if part == "outside":
            if _OPENING.fullmatch(line):
                search, replace, start_line, part = [], [], None, "head"
            elif line.strip():
                raise _bad_diff(path, number, "expected '<<<<<<< SEARCH'")
        elif part == "head" and (hint := _HINT.fullmatch(line)):
            start_line = int(hint[2]) if hint[1] == "start" else start_line
        elif part == "head" and re.fullmatch(r"-{7}\s*", line):
            part = "search"
        elif part in ("head", "search") and _DIVIDER.fullmatch(line):
            part = "replace"
        elif part == "replace" and _CLOSING.fullmatch(line):
            blocks.append(_Block(search, replace, start_line or None))
            part = "outside"
        elif _OPENING.fullmatch(line) or _CLOSING.fullmatch(line) or _DIVIDER.fullmatch(line):
            raise _bad_diff(
                path, number, f"did not expect {line.strip()!r}; if it is text, put a \\ before it"
            )
        else:
            part = "search" if part == "head" else part
            (search if part == "search" else replace).append(_unescaped(line))
    if part != "outside":
        raise _bad_diff(path, number, "the last block has no '>>>>>>> REPLACE'")
    if not blocks:
        raise _bad_diff(path, number, "there is no block")
    return blocks


def _unescaped(line: str) -> str:
    return line[1:] if line.startswith("\\") and line[1:].startswith(_MARKERS) else line


def _place(data: bytes, block: _Block, number: int, path: str) -> Splice:
    ending = line_ending(data)
    new = ending.join(encode(line, path) for line in block.replace)
    if not block.search:
        return _placed_by_number(data, block, new, number, path)
    body = ANY_NEWLINE.encode().join(re.escape(encode(line, path)) for line in block.search)
    # Anchored to whole lines; a byte-order mark may come before the first. The match itself is empty, so that
    # overlapping occurrences are all found: two equal lines occur twice in three.
    pattern = re.compile(rb"(?:\A(?:%s)?|(?<=\n))(?=(%s)(?:\r?\n|\Z))" % (BOM, body))
    spans = [match.span(1) for match in pattern.finditer(data)]
    if not spans:
        raise mismatch(
            path, number, f"{quoted(block.search[0])} and the lines after it were not found in the file"
        )
    if len(spans) > 1:
        spans = [span for span in spans if span[0] == _start_of(data, block.start_line)]
        if not spans:
            raise mismatch(
                path,
                number,
                f"{quoted(block.search[0])} and the lines after it occur more than once; give :start_line:",
            )
    start, end = spans[0]
    if not block.replace:  # No line at all, which is not the same as an empty one: take its newline too.
        tail = NEWLINE.match(data, end)
        if tail:
            end = tail.end()
        elif start:
            start -= 2 if data[:start].endswith(b"\r\n") else 1
    return Splice(start, end, new, number)


def _start_of(data: bytes, line: int | None) -> int:
    """Where a line's text begins: after a byte-order mark; -1 if there is no such line."""
    starts = line_starts(data)
    if line is None or line > len(starts):
        return -1
    return starts[line - 1] or (len(BOM) if data.startswith(BOM) else 0)


def _placed_by_number(data: bytes, block: _Block, new: bytes, number: int, path: str) -> Splice:
    """An empty search inserts before a line, which must be named; an empty file has only one place."""
    if not data.removeprefix(BOM):
        return Splice(len(data), len(data), new, number)
    starts = line_starts(data)
    if block.start_line is None or block.start_line > len(starts) + 1:
        raise mismatch(path, number, "the search is empty and no line of the file is named")
    ending = line_ending(data)
    if block.start_line <= len(starts):
        at = _start_of(data, block.start_line)
        return Splice(at, at, new + ending, number)
    at = len(data)
    return Splice(at, at, new + ending if data.endswith(b"\n") else ending + new, number)


def _bad_diff(path: str, line: int, reason: str) -> BadRequestError:
    return BadRequestError(path, f"Line {line} of the diff: {reason}.", line=line)
