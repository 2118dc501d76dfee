"""Lines that are surely the same: held against all shortest edit scripts, one by one."""

from __future__ import annotations

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from noclobber.text import alignment
from noclobber.text.alignment import KeptLines, surely_kept
from noclobber.text.edit_script import equal_lines

PROPERTY = settings(deadline=None, max_examples=300)
LINES = st.lists(st.sampled_from("abc"), max_size=9)


def all_shortest_scripts(old: list[str], new: list[str]) -> list[dict[int, int]]:
    """Every way to keep as many lines as can be kept: which old line is which new line."""

    @cache
    def ways(i: int, j: int) -> tuple[int, frozenset[tuple[tuple[int, int], ...]]]:
        if i == len(old) or j == len(new):
            return 0, frozenset({()})
        options = [ways(i + 1, j), ways(i, j + 1)]
        if old[i] == new[j]:
            count, rest = ways(i + 1, j + 1)
            options.append((count + 1, frozenset(((i, j), *way) for way in rest)))
        most = max(count for count, _ in options)
        return most, frozenset[tuple[tuple[int, int], ...]]().union(
            *(found for count, found in options if count == most)
        )

    return [dict(way) for way in ways(0, 0)[1]]


def places(kept: list[KeptLines] | None) -> dict[int, int]:
    """Which old line is which new line."""
    assert kept is not None
    return {line: line - piece.start + piece.new_start for piece in kept for line in range(*piece[:2])}


@PROPERTY
@given(LINES, LINES)
def test_a_line_is_surely_kept_exactly_if_every_shortest_script_keeps_it_in_one_place(
    old: list[str], new: list[str]
) -> None:
    """N-merge: no guess about which of several equal lines was kept."""
    scripts = all_shortest_scripts(old, new)
    expected = {
        line: scripts[0][line]
        for line in range(len(old))
        if line in scripts[0] and len({script.get(line) for script in scripts}) == 1
    }

    assert places(surely_kept(old, new)) == expected


def test_texts_that_are_too_different_are_not_lined_up() -> None:
    """Bounded: the work grows with the square of the number of edits."""
    count = alignment.MOST_EDITS // 2 + 1

    assert surely_kept([f"a{n}" for n in range(count)], [f"b{n}" for n in range(count)]) is None
    assert surely_kept([f"a{n}" for n in range(count - 1)], [f"b{n}" for n in range(count - 1)]) == []


@PROPERTY
@given(LINES, LINES, st.integers(0, 9), st.integers(0, 9))
def test_equal_lines_are_counted_up_to_the_first_difference(
    old: list[str], new: list[str], old_at: int, new_at: int
) -> None:
    """Longer and longer slices, then shorter and shorter ones, give the same as one line after another."""
    expected = 0
    for one, other in zip(old[old_at:], new[new_at:], strict=False):
        if one != other:
            break
        expected += 1

    assert equal_lines(old, new, old_at, new_at) == expected
