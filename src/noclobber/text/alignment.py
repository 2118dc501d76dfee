"""
Which lines of one version are surely the same lines in another.

A shortest edit script is rarely the only one. Of `a a a` that became `a a` any `a` may have been removed, and
merging by one of the scripts is merging by a guess. So this looks at all of them: a line counts as kept only
if every shortest script keeps it, and in the same place.

How: with the greedy method (Myers, 1986), from the top and from the bottom. `top[d][k]` is how far down
diagonal k one gets with d edits, `bottom[d][k]` how far up from the end. The number of edits that
a point needs never falls along a diagonal. So of all shortest scripts, those that have made d of D edits on
diagonal k pass exactly the points from `bottom[D - d][k]` to `top[d][k]`. A line of the old version is
uncertain if two such ranges can keep it, or if a step from one range to the next can remove it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from noclobber.text.edit_script import equal_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    _Reach = list[dict[int, int]]
    """By number of edits and diagonal (old lines used less new lines used): how many old lines are used."""

MOST_STEPS = 1_000_000
"""Lines that are compared, all ways together: where lines repeat there are very many ways."""
MOST_EDITS = 500
"""What is more different is another text. The work grows with the square: this many take half a second."""


class KeptLines(NamedTuple):
    """Old lines `start` to before `end`, which are the new lines from `new_start` on."""

    start: int
    end: int
    new_start: int


def surely_kept(old: Sequence[object], new: Sequence[object]) -> list[KeptLines] | None:
    """Return the stretches of old lines that are surely in the new version; None if it is too different."""
    top = _reach(old, new)
    if top is None:
        return None
    from_the_end = _reach(old[::-1], new[::-1])
    if from_the_end is None:
        return None  # As many edits, but more steps.
    end = len(old) - len(new)
    bottom = [{end - k: len(old) - used for k, used in step.items()} for step in reversed(from_the_end)]
    ways = _Tally()  # In how many ways a line can be kept,
    removals = _Tally()  # in how many it can be removed,
    diagonals = _Tally()  # and the sum of the diagonals of all ways: where there is one way, its diagonal.
    before: dict[int, tuple[int, int]] = {}
    steps_left = MOST_STEPS + len(old)
    for highest_by_k, lowest_by_k in zip(top, bottom, strict=True):
        now: dict[int, tuple[int, int]] = {}
        for k, highest in highest_by_k.items():
            lowest = lowest_by_k.get(k, highest + 1)
            if lowest > highest:
                continue
            now[k] = (lowest, highest)
            steps_left -= highest - lowest + 1
            if steps_left < 0:
                return None
            for first, last in _equal_runs(old, new, lowest, highest, k):
                ways.add(first, last)
                diagonals.add(first, last, k)
            if k - 1 in before:  # One removal leads from there to here.
                removals.add(max(before[k - 1][0], lowest - 1), min(before[k - 1][1] + 1, highest))
        before = now
    return _certain(ways, removals, diagonals, len(old))


class _Tally:
    """A number for every line, kept as the places where it changes."""

    def __init__(self) -> None:
        self.changes: dict[int, int] = {}

    def add(self, first: int, end: int, number: int = 1) -> None:
        if first < end:
            self.changes[first] = self.changes.get(first, 0) + number
            self.changes[end] = self.changes.get(end, 0) - number


def _certain(ways: _Tally, removals: _Tally, diagonals: _Tally, count: int) -> list[KeptLines]:
    kept: list[KeptLines] = []
    way_count = removal_count = diagonal = 0
    places = sorted({*ways.changes, *removals.changes, count})
    for start, end in pairwise(places):
        way_count += ways.changes.get(start, 0)
        removal_count += removals.changes.get(start, 0)
        diagonal += diagonals.changes.get(start, 0)
        if way_count == 1 and not removal_count:
            kept.append(KeptLines(start, end, start - diagonal))
    return kept


def _reach(old: Sequence[object], new: Sequence[object]) -> _Reach | None:
    """How far one gets with no edit, one edit, and so on, until all is used; None if it takes too many."""
    old_count, new_count = len(old), len(new)
    reach: _Reach = []
    last: dict[int, int] = {}
    steps_left = 4 * MOST_STEPS + old_count
    for edits in range(MOST_EDITS + 1):
        if steps_left < 0:
            return None
        now: dict[int, int] = {}
        for k in range(-edits, edits + 1, 2):
            removal, addition = last.get(k - 1, -2) + 1, last.get(k + 1, -1)
            used = max(removal, addition) if edits else 0
            if used > old_count:
                used = addition  # Nothing is left to remove; and what is added starts there.
            used_new = used - k
            if used < 0 or used_new < 0 or used > old_count or used_new > new_count:
                continue
            if used < old_count and used_new < new_count and old[used] == new[used_new]:
                passed = equal_lines(old, new, used, used_new)
                steps_left -= passed
                used += passed
            now[k] = used
        reach.append(now)
        if now.get(old_count - new_count) == old_count:
            return reach
        last = now
    return None


def _equal_runs(
    old: Sequence[object], new: Sequence[object], first: int, last: int, diagonal: int
) -> list[tuple[int, int]]:
    """Return the stretches of old lines, from `first` to before `last`, that equal the new ones."""
    runs = []
    while first < last:
        count = min(equal_lines(old, new, first, first - diagonal), last - first)
        if count:
            runs.append((first, first + count))
        first += count + 1
    return runs
