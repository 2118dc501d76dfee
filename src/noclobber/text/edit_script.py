"""
The shortest way from one list of lines to another: which lines are removed, and which are added where.

Found by the greedy method (Myers, 1986): for each number of edits, how far every diagonal can get. Where
several ways are equally short it is the one that JavaScript's `diff` package finds, because the server that
`noclobber mcp` replaces answers with that: of two ways to reach a diagonal it takes the removal, unless the
addition starts farther on.

Bounded: a search that takes more than `MOST_EDITS` edits or `MOST_STEPS` steps is given up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_EDITS = 1000
MOST_STEPS = 2_000_000  # Half a second at most; a line that is passed is one step.


class LineEdit(NamedTuple):
    """One line removed (`-`) or added (`+`), and how many lines of each version come before it."""

    mark: str
    old_at: int
    new_at: int


_Chain = tuple | None  # type: ignore[type-arg]
"""Edits, the last one first: (mark, old lines before it, new lines before it, the chain before it)."""


def shortest(old: Sequence[object], new: Sequence[object]) -> list[LineEdit] | None:
    """Return the edits in order; None if the search takes too long."""
    start = equal_lines(old, new, 0, 0)
    found = _walk(old[start:], new[start:])
    if found is None:
        return None
    return [LineEdit(mark, old_at + start, new_at + start) for mark, old_at, new_at in found]


def equal_lines(old: Sequence[object], new: Sequence[object], old_at: int, new_at: int) -> int:
    """Return how many lines are the same in both from there on."""
    most = min(len(old) - old_at, len(new) - new_at)
    count, take = 0, 1
    # Slices are compared in C: a thousand lines cost about as much as ten one by one. First longer and longer
    # slices ...
    while count < most:
        take = min(take, most - count)
        old_from, new_from = old_at + count, new_at + count
        if old[old_from : old_from + take] != new[new_from : new_from + take]:
            break
        count += take
        take *= 2
    else:
        return count
    # ... and then, because the difference is within the next `take` lines, shorter and shorter ones.
    while take > 1:
        half = take // 2
        old_from, new_from = old_at + count, new_at + count
        if old[old_from : old_from + half] == new[new_from : new_from + half]:
            count += half
            take -= half
        else:
            take = half
    return count


def _walk(old: Sequence[object], new: Sequence[object]) -> list[LineEdit] | None:
    """Try all diagonals, one edit further at a time. The first lines differ."""
    old_count, new_count = len(old), len(new)
    steps_left = MOST_STEPS
    reached: dict[int, tuple[int, _Chain]] = {0: (0, None)}
    """By diagonal: how many old lines are used up, and by which edits."""
    if not old_count and not new_count:
        return []
    lowest, highest = -MOST_EDITS, MOST_EDITS
    for edits in range(1, MOST_EDITS + 1):
        for diagonal in range(max(lowest, -edits), min(highest, edits) + 1, 2):
            remove, add = reached.get(diagonal - 1), reached.get(diagonal + 1)
            if remove is not None:
                del reached[diagonal - 1]  # No other diagonal continues from there.
            if remove is not None and remove[0] >= old_count:
                remove = None
            if add is not None and add[0] - diagonal > new_count:
                add = None
            if add is not None and (remove is None or remove[0] < add[0]):
                used_old = add[0]
                chain: _Chain = ("+", used_old, used_old - diagonal - 1, add[1])
            elif remove is not None:
                used_old = remove[0] + 1
                chain = ("-", remove[0], used_old - diagonal, remove[1])
            else:
                reached.pop(diagonal, None)
                continue
            used_new = used_old - diagonal
            if used_old < old_count and used_new < new_count and old[used_old] == new[used_new]:
                passed = equal_lines(old, new, used_old, used_new)
                used_old, used_new = used_old + passed, used_new + passed
                steps_left -= passed
            steps_left -= 1
            reached[diagonal] = (used_old, chain)
            if used_old >= old_count and used_new >= new_count:
                return _in_order(chain)
            if used_old >= old_count:
                highest = min(highest, diagonal - 1)
            if used_new >= new_count:
                lowest = max(lowest, diagonal + 1)
        if steps_left < 0:
            return None
    return None


def _in_order(chain: _Chain) -> list[LineEdit]:
    edits = []
    while chain is not None:
        mark, old_at, new_at, chain = chain
        edits.append(LineEdit(mark, old_at, new_at))
    edits.reverse()
    return edits
