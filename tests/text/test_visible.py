"""Text that is folded to a width says the same, within that width."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from noclobber.text.visible import fold


@given(text=st.text(alphabet="ab \n", max_size=400), columns=st.integers(20, 60))
def test_nothing_but_blanks_is_lost_and_no_line_is_too_wide(text: str, columns: int) -> None:
    """finding U1: also for words that are longer than a line."""
    folded = fold(text, columns)
    assert folded.replace(" ", "").replace("\n", "") == text.replace(" ", "").replace("\n", "")
    assert all(len(line) <= columns for line in folded.split("\n"))


def test_a_line_is_broken_between_words_and_keeps_its_indentation() -> None:
    """finding U1: legends no longer break in the middle of words."""
    assert fold("  one two three four five six", 20) == "  one two three four\n  five six"
    assert fold("short", 20) == "short"
