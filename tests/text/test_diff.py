"""Diffs: right, by applying them; and bounded, whatever the versions look like."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noclobber.text import diff, edit_script
from noclobber.text.diff import unified

PROPERTY = settings(deadline=None)  # A busy machine is no counter-example.

LINES = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=30)


def patched(before: bytes, shown: str) -> bytes:
    """Apply a unified diff, trusting nothing but its own words."""
    old = before.decode().splitlines(keepends=True)
    new: list[str] = []
    at = 0
    lines = shown.splitlines(keepends=True)[2:]
    while lines:
        start, count = re.match(r"@@ -(\d+)(?:,(\d+))?", lines.pop(0)).groups()
        first = int(start) - (count != "0")
        new += old[at:first]
        at = first
        while lines and not lines[0].startswith("@@"):
            line = lines.pop(0)
            text = line[1:]
            if lines and lines[0].startswith("\\"):
                lines.pop(0)
                text = text[:-1]
            if line[0] in " -":
                assert old[at] == text, "the diff speaks of lines that are not there"
                at += 1
            if line[0] in " +":
                new.append(text)
    return "".join(new + old[at:]).encode()


@PROPERTY
@given(LINES, LINES, st.booleans(), st.booleans())
def test_a_diff_leads_from_the_old_version_to_the_new(
    old: Any, new: Any, old_ends: bool, new_ends: bool
) -> None:
    """DESIGN: `changes_since_read` is a unified diff, with context, and with or without a last newline."""
    before = "\n".join(old).encode() + (b"\n" if old_ends else b"")
    after = "\n".join(new).encode() + (b"\n" if new_ends else b"")
    shown = unified(before, after, "/ws/a.md")
    assert (shown == "") == (before == after)
    if shown:
        assert shown.startswith("--- a/ws/a.md\n+++ b/ws/a.md\n@@ ")
        assert patched(before, shown) == after


def test_three_lines_of_context_are_shown_around_a_change() -> None:
    """As every reader of diffs expects."""
    before = b"".join(b"%d\n" % number for number in range(20))
    after = before.replace(b"10\n", b"ten\n")
    assert unified(before, after, "/a") == (
        "--- a/a\n+++ b/a\n@@ -8,7 +8,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n"
    )


class CountedLine(str):
    """A line that counts how often lines are compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedLine.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


@pytest.mark.parametrize(("old_period", "new_period"), [(7, 5), (1, 60)])
def test_a_search_for_a_short_diff_is_given_up_after_a_number_of_steps(
    monkeypatch: pytest.MonkeyPatch, old_period: int, new_period: int
) -> None:
    """Bounded: a megabyte of changed lines must not stop an agent. All is shown as removed and added."""
    # Few different lines, so that each equals thousands of others: the worst case of a search.
    old = [CountedLine(number % old_period) for number in range(20_000)]
    new = [CountedLine(number % new_period) for number in range(20_000)]
    monkeypatch.setattr(edit_script, "MOST_STEPS", 50_000)
    monkeypatch.setattr(CountedLine, "compared", 0)

    script = diff.edit_script(["same", *old, "end"], ["same", *new, "end"])

    marks = "".join(mark for mark, _ in script)
    assert re.fullmatch(r" +-+\++ +", marks)
    assert script[0] == (" ", "same")
    assert script[-1] == (" ", "end")
    # The steps that are allowed, both versions once more, and the round in which they ran out; twice, because
    # where slices of lines differ their halves are compared again.
    assert CountedLine.compared < 2 * (50_000 + 4 * 20_000 + 2 * edit_script.MOST_EDITS)


def test_versions_that_have_nothing_in_common_are_removed_and_added_whole() -> None:
    """The greedy method is quadratic in the number of edits, so it stops at a number of them."""
    before = [f"a{number}" for number in range(20_000)]
    after = [f"b{number}" for number in range(20_000)]

    script = diff.edit_script(["same", *before, "end"], ["same", *after, "end"])

    assert script[0] == (" ", "same")
    assert script[-1] == (" ", "end")
    assert len(script) == 40_002


@PROPERTY
@given(before=LINES, after=LINES)
def test_an_edit_script_leads_from_one_version_to_the_other(before: list[str], after: list[str]) -> None:
    """What is not added is the old version, what is not removed the new one."""
    script = diff.edit_script(before, after)

    assert [line for mark, line in script if mark != "+"] == before
    assert [line for mark, line in script if mark != "-"] == after


def test_binary_files_are_not_spelled_out() -> None:
    """N-diff, N-input: not text."""
    assert unified(b"\0\1", b"\0\2", "/a") == "Binary files a/a and b/a differ\n"
    assert "\ufffd" in unified(b"\xff\n", b"a\n", "/a")
