"""SEARCH/REPLACE blocks, the format of `apply_diff`."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noclobber.errors import BadRequestError, EditMismatchError
from noclobber.text.search_blocks import Blocks

PROPERTY = settings(deadline=None)  # A busy machine is no counter-example.

BOM = b"\xef\xbb\xbf"


def block(search: str, replace: str, line: int | None = None, dashes: bool = True) -> str:
    head = f":start_line:{line}\n" if line is not None else ""
    rule = "-------\n" if dashes else ""
    return f"<<<<<<< SEARCH\n{head}{rule}{search}=======\n{replace}>>>>>>> REPLACE\n"


@pytest.mark.parametrize(
    ("before", "diff", "after"),
    [
        (b"a\nb\nc\n", block("b\n", "x\ny\n"), b"a\nx\ny\nc\n"),
        (b"a\nb\nc\n", block("b\n", "x\n", dashes=False), b"a\nx\nc\n"),
        (b"a\nb\nc\n", block("a\n", "x\n") + "\n" + block("c\n", "z\n"), b"x\nb\nz\n"),
        (b"a\nb\na\n", block("a\n", "x\n", line=3), b"a\nb\nx\n"),
        (b"a\na\na\n", block("a\na\n", "x\n", line=2), b"a\nx\n"),
        (b"a\nb\n", block("b\n", "x\n", line=99), b"a\nx\n"),  # Unique, so the number does not matter.
        (b"ab\nb\n", block("b\n", "x\n"), b"ab\nx\n"),  # Whole lines.
        (b"a\nb", block("b\n", "x\n"), b"a\nx"),
        (b"a\r\nb\r\nc\r\n", block("a\nb\n", "x\ny\n"), b"x\r\ny\r\nc\r\n"),
        (BOM + b"a\nb\n", block("a\n", "x\n"), BOM + b"x\nb\n"),
        (BOM + b"a\nb\na\n", block("a\n", "x\n", line=1), BOM + b"x\nb\na\n"),
        (b"a\nb\nc\n", block("b\n", ""), b"a\nc\n"),
        (b"a\nb", block("b\n", ""), b"a"),
        (b"a\r\nb", block("b\n", ""), b"a"),
        (b"a\nb\nc\n", block("b\n", "\n"), b"a\n\nc\n"),
        (b"a\nb\n", block("", "x\n", line=2), b"a\nx\nb\n"),
        (b"a\nb\n", block("", "x\n", line=3), b"a\nb\nx\n"),
        (b"a\nb", block("", "x\n", line=3), b"a\nb\nx"),
        (b"", block("", "x\ny\n"), b"x\ny"),
        (b"\xff\nb\n", block("b\n", "x\n"), b"\xff\nx\n"),
        (b"=======\n", block("\\=======\n", "\\<<<<<<< SEARCH\n"), b"<<<<<<< SEARCH\n"),
        (b"a\n", block("a\n", "x\n").replace("\n", "\r\n"), b"x\n"),
    ],
)
def test_blocks_change_whole_lines(before: bytes, diff: str, after: bytes) -> None:
    """N-edits: `apply_diff`."""
    assert Blocks(diff).apply(before, "") == after


@pytest.mark.parametrize(
    ("before", "diff", "which"),
    [
        (b"a\nb\n", block("a\n", "x\n") + block("z\n", "y\n"), 2),
        (b"a\nb\na\n", block("a\n", "x\n"), 1),
        (b"a\nb\na\n", block("a\n", "x\n", line=2), 1),
        (b"a\na\na\n", block("a\na\n", "x\n"), 1),
        (b"a\nb\nc\n", block("a\nb\n", "x\n") + block("b\nc\n", "y\n"), 2),
        (b"a\n", block("", "x\n"), 1),
        (b"a\n", block("", "x\n", line=9), 1),
        (b"a b\n", block("a\n", "x\n"), 1),
    ],
)
def test_a_block_that_does_not_fit_stops_all_and_is_named(before: bytes, diff: str, which: int) -> None:
    """N-edits; nothing is matched loosely."""
    with pytest.raises(EditMismatchError) as refused:
        Blocks(diff).apply(before, "")
    assert refused.value.details["edit"] == which


@pytest.mark.parametrize(
    "diff",
    [
        "",
        "just text",
        "<<<<<<< SEARCH\na\n",
        "<<<<<<< SEARCH\na\n=======\nb\n",
        "<<<<<<< SEARCH\na\n>>>>>>> REPLACE\n",
        "<<<<<<< SEARCH\na\n=======\nb\n=======\nc\n>>>>>>> REPLACE\n",
        "<<<<<<< SEARCH\n<<<<<<< SEARCH\n=======\n>>>>>>> REPLACE\n",
        block("a\n", "b\n") + "trailing",
    ],
)
def test_a_malformed_diff_is_a_bad_request(diff: str) -> None:
    """N-edits."""
    with pytest.raises(BadRequestError):
        Blocks(diff).apply(b"a\n", "")


@PROPERTY
@given(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=8),
    st.data(),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
)
def test_a_block_with_a_line_number_replaces_those_lines(
    lines: list[str], data: st.DataObject, ending: str, has_last_newline: bool
) -> None:
    """N-edits: `apply_diff`, against splitting and joining."""
    first = data.draw(st.integers(0, len(lines) - 1))
    last = data.draw(st.integers(first + 1, len(lines)))
    new = data.draw(st.lists(st.sampled_from("xyz"), min_size=1, max_size=3))
    tail = ending if has_last_newline else ""
    before = ending.join(lines) + tail
    after = ending.join([*lines[:first], *new, *lines[last:]]) + tail
    if ending not in before:
        after = after.replace(ending, "\n")
    diff = block("\n".join(lines[first:last]) + "\n", "\n".join(new) + "\n", line=first + 1)
    assert Blocks(diff).apply(before.encode(), "") == after.encode()
