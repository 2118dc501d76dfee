"""
Merge two versions of a text that began as the same one, if nothing of either can be lost.

Three versions, as bytes: `base`, what an agent saw; `ours`, what it wants to write; `theirs`, what is in the
file now. The answer is the merged bytes, or where the two sides are in conflict. Nothing is decoded, so any
text has lines, and a last line without a newline differs from the same line with one.

Nobody looks at the result before it lands, so this is stricter than git:

- The base is cut at lines that both sides surely kept: in every shortest way to line the versions up
  (`alignment`). Of the pieces between them each is taken from the side that changed it. A piece that both
  changed is a conflict, also if both made the same of it: two agents that count from 3 to 4 have counted
  two, and the bytes cannot tell that from one change that was made twice (ruling 29).
- Only a telling line cuts: one with a letter or a digit that is not all over the file. Blank lines, braces
  and `return` are alike everywhere, and a person would not take them for a border between two changes either.
- Every result carries a proof that knows nothing of pieces: each line occurs in it as often as in ours and
  in theirs together, less how often it was in the base. So no line was dropped and none doubled.

`equal_once` is for what looks back, an undo and a commit: what the file has already need not be done again.

What fails is a conflict, and so is a version that differs in more than `alignment.MOST_EDITS` lines.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from noclobber.text.alignment import surely_kept

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noclobber.text.alignment import KeptLines


class LineRange(NamedTuple):
    """A range of lines, counted from 0; `end` is the first line after it."""

    start: int
    end: int


class Conflict(NamedTuple):
    """Where the two sides cannot both be kept: the same place in each of the three versions."""

    base: LineRange
    ours: LineRange
    theirs: LineRange


class Merge(NamedTuple):
    """The merged content; or None, and where the conflicts are."""

    content: bytes | None
    conflicts: tuple[Conflict, ...] = ()


def merge(base: bytes, ours: bytes, theirs: bytes, *, equal_once: bool = False) -> Merge:
    """
    Return a version with the changes of both sides, or where they are in conflict.

    What both changed is a conflict; with `equal_once` what both changed to the same text is one change.
    """
    if theirs == base or (equal_once and theirs == ours):
        return Merge(ours)
    if ours == base:
        return Merge(theirs)
    three = _Versions(split_lines(base), split_lines(ours), split_lines(theirs))
    everything = Conflict(*(LineRange(0, len(version)) for version in three))
    if is_binary(base) or is_binary(ours) or is_binary(theirs):
        return Merge(None, (everything,))
    our_kept, their_kept = surely_kept(three.base, three.ours), surely_kept(three.base, three.theirs)
    if our_kept is None or their_kept is None:
        return Merge(None, (everything,))
    merged: list[bytes] = []
    alike: list[_Versions] = []
    conflicts: list[Conflict] = []
    for place in _pieces(three, our_kept, their_kept):
        piece = _Versions(*(version[start:end] for version, (start, end) in zip(three, place, strict=True)))
        if piece.ours == piece.base:
            merged += piece.theirs
        elif piece.theirs == piece.base:
            merged += piece.ours
        elif equal_once and piece.ours == piece.theirs:
            merged += piece.ours
            alike.append(piece)
        else:
            conflicts.append(place)
    if conflicts or not _nothing_lost(three, merged, alike):
        return Merge(None, tuple(conflicts) or (everything,))
    return Merge(b"".join(merged))


def is_binary(data: bytes) -> bool:
    """True if it is no text: git's rule, a NUL within the first 8 000 bytes."""
    return b"\0" in data[:8000]


class _Versions(NamedTuple):
    base: list[bytes]
    ours: list[bytes]
    theirs: list[bytes]


def split_lines(text: bytes) -> list[bytes]:
    """Return the lines, each with its newline; the last one may have none."""
    *ended, last = text.split(b"\n")
    lines = [line + b"\n" for line in ended]
    return [*lines, last] if last else lines


def _nothing_lost(three: _Versions, merged: list[bytes], alike: list[_Versions]) -> bool:
    due = Counter(three.ours)
    due.update(three.theirs)
    due.subtract(three.base)
    for piece in alike:  # `equal_once`: counted twice by now.
        due.subtract(piece.ours)
        due.update(piece.base)
    due.subtract(merged)
    return not any(due.values())


# -- the pieces ------------------------------------------------------------------------------------------


def _pieces(three: _Versions, our_kept: list[KeptLines], their_kept: list[KeptLines]) -> Iterator[Conflict]:
    """Cut all three versions at the telling lines that both sides kept. A piece begins with such a line."""
    start = (0, 0, 0)
    telling = _Telling(three.base)
    for first, end, our_first, their_first in _kept_by_both(our_kept, their_kept):
        # Within such a stretch nothing differs, so only its first and its last cut matter.
        top = next((at for at in range(first, end) if telling.is_so(at)), None)
        if top is None:
            continue
        bottom = next(at for at in range(end - 1, first - 1, -1) if telling.is_so(at))
        for at in {top: None, bottom: None}:
            here = (at, our_first + at - first, their_first + at - first)
            yield _place(start, here)
            start = here
    yield _place(start, (len(three.base), len(three.ours), len(three.theirs)))


def _place(starts: tuple[int, int, int], ends: tuple[int, int, int]) -> Conflict:
    return Conflict(*(LineRange(start, end) for start, end in zip(starts, ends, strict=True)))


def _kept_by_both(
    our_kept: list[KeptLines], their_kept: list[KeptLines]
) -> Iterator[tuple[int, int, int, int]]:
    """Yield the stretches of the base that both have: start, end, and where each side has the start."""
    ours, theirs = iter(our_kept), iter(their_kept)
    our, their = next(ours, None), next(theirs, None)
    while our is not None and their is not None:
        start, end = max(our.start, their.start), min(our.end, their.end)
        if start < end:
            yield start, end, our.new_start + start - our.start, their.new_start + start - their.start
        if our.end <= their.end:
            our = next(ours, None)
        else:
            their = next(theirs, None)


class _Telling:
    """Lines of the base that are distinctive enough to anchor on."""

    def __init__(self, base: list[bytes]) -> None:
        self._base = base
        self._most = math.isqrt(len(base))
        self._counts: Counter[bytes] | None = None

    def is_so(self, at: int) -> bool:
        """True if the line has a letter, a digit or a character beyond ASCII, and is not a common one."""
        line = self._base[at]
        if not is_telling(line):
            return False
        if self._counts is None:
            self._counts = Counter(self._base)
        return self._counts[line] <= self._most


def is_telling(line: bytes) -> bool:
    """True if a line has a letter, a digit or a character beyond ASCII."""
    return b"x" in line.translate(_TELLING_AS_X)


_TELLING_AS_X = bytes(ord("x" if byte >= 128 or chr(byte).isalnum() else ".") for byte in range(256))
