"""Diffs: right, by applying them; and quick, whatever the versions look like."""

from __future__ import annotations

import difflib
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noclobber.text.diff import COMPARED_LINES, unified

PROPERTY = settings(deadline=None)  # A busy machine is no counter-example.

LINES = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=30)


def patched(before: bytes, diff: str) -> bytes:
    """Apply a unified diff, trusting nothing but its own words."""
    old = before.decode().splitlines(keepends=True)
    new: list[str] = []
    at = 0
    lines = diff.splitlines(keepends=True)[2:]
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
    diff = unified(before, after, "/ws/a.md")
    assert (diff == "") == (before == after)
    if diff:
        assert diff.startswith("--- a/ws/a.md\n+++ b/ws/a.md\n@@ ")
        assert patched(before, diff) == after


def test_three_lines_of_context_stand_around_a_change() -> None:
    """As every reader of diffs expects."""
    before = b"".join(b"%d\n" % number for number in range(20))
    after = before.replace(b"10\n", b"ten\n")
    assert unified(before, after, "/a") == (
        "--- a/a\n+++ b/a\n@@ -8,7 +8,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n"
    )


def test_a_large_rewrite_is_shown_without_a_search_for_likeness(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded: a megabyte of changed lines must not hang an agent."""
    # Few different lines, so that each is like thousands of others: the worst case of a search.
    before = b"".join(b"line %d\n" % (number % 7) for number in range(60_000))
    after = b"".join(b"line %d\n" % (number % 5) for number in range(60_000))
    monkeypatch.setattr(difflib, "SequenceMatcher", lambda *_, **__: pytest.fail("it searched"))
    diff = unified(b"same\n" + before, b"same\n" + after, "/a")
    assert diff.count("\n@@ ") == 1
    assert diff.count("\n+line") > 50_000 > COMPARED_LINES


def test_binary_files_are_not_spelled_out() -> None:
    """N-diff, N-input: not text."""
    assert unified(b"\0\1", b"\0\2", "/a") == "Binary files a/a and b/a differ\n"
    assert "\ufffd" in unified(b"\xff\n", b"a\n", "/a")
