"""Edits: several changes to one file, all or none, pure bytes to bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from noclobber.core.values import Edit
from noclobber.errors import BadRequestError, EditMismatchError
from noclobber.text.edits import Edits, Insertion, Search
from noclobber.text.lines import line_span, line_starts

PROPERTY = settings(deadline=None)  # A busy machine is no counter-example.

NOTHING: Any = None
BOM = b"\xef\xbb\xbf"


@pytest.mark.parametrize(
    ("before", "edits", "after"),
    [
        (b"a b c", [Edit("b", "B")], b"a B c"),
        (b"a b c", [Edit("c", "C"), Edit("a", "A")], b"A b C"),
        (b"ab", [Edit("a", "x"), Edit("b", "y")], b"xy"),  # They touch, and do not overlap.
        (b"a b", [Edit("a", "b"), Edit("b", "a")], b"b a"),  # Looked up in the file as it is.
        (b"aaa", [Edit("a", "b", replace_all=True)], b"bbb"),
        (b"a b", [Edit("b", "")], b"a "),
        (b"a", [Edit("a", "\\1 \\n $1")], b"\\1 \\n $1"),  # Nothing in a replacement is special.
        (b"(a.c) abc", [Edit("a.c", "x")], b"(x) abc"),  # Nor in what is searched.
        (b"", [Edit("", "new\n")], b"new\n"),
    ],
)
def test_edits_are_made(before: bytes, edits: list[Edit], after: bytes) -> None:
    """N-edits: several edits, in any order."""
    assert Edits(tuple(edits)).apply(before, "") == after


@pytest.mark.parametrize(
    ("before", "edits", "which", "why"),
    [
        (b"a b", [Edit("a", "x"), Edit("z", "y")], 2, "was not found"),
        (b"a b a", [Edit("b", "x"), Edit("a", "y")], 2, "more than once"),
        (b"aaa", [Edit("aa", "x")], 1, "more than once"),  # Also where the two overlap.
        (b"abc", [Edit("ab", "x"), Edit("bc", "y")], 2, "overlaps with edit 1"),
        (b"abc", [Edit("abc", "x"), Edit("b", "y")], 2, "overlaps with edit 1"),
        (b"abc", [Edit("b", "y"), Edit("b", "z")], 2, "overlaps"),
        (b"a a", [Edit("a", "y", replace_all=True), Edit(" a", "z")], 1, "overlaps"),
        (b"abc", [Edit("", "x")], 1, "empty"),
        (b"", [Edit("", "x"), Edit("", "y")], 2, "overlaps"),
        (b"a", [Edit("z", "y", replace_all=True)], 1, "was not found"),
    ],
)
def test_one_edit_that_cannot_be_made_stops_all_and_is_named(
    before: bytes, edits: list[Edit], which: int, why: str
) -> None:
    """N-edits: missing, not unique, overlapping."""
    with pytest.raises(EditMismatchError, match=why) as refused:
        Edits(tuple(edits)).apply(before, "/ws/a.md")
    assert refused.value.details["edit"] == which
    assert refused.value.path == "/ws/a.md"


@pytest.mark.parametrize(
    "edits", [[], [Edit("a", b"b")], [Edit(NOTHING, "b")], [Edit("a", NOTHING)], [Edit("\ud800", "x")]]
)
def test_what_is_no_edit_is_a_bad_request(edits: list[Edit]) -> None:
    """N-edits."""
    with pytest.raises(BadRequestError):
        Edits(tuple(edits)).apply(b"a", "")


@pytest.mark.parametrize(
    ("before", "edit", "after"),
    [
        (b"a\r\nb\r\nc\r\n", Edit("a\nb", "x\ny\nz"), b"x\r\ny\r\nz\r\nc\r\n"),
        (b"a\r\nb\r\n", Edit("b", "x\ny"), b"a\r\nx\r\ny\r\n"),
        (b"a\nb\n", Edit("a\r\nb", "x\r\ny"), b"x\ny\n"),
        (b"a\r\nb\nc\nd\n", Edit("a\nb", "x\ny\nz"), b"x\r\ny\r\nz\nc\nd\n"),  # As what it replaces.
        (b"a\r\nb\nc\nd\n", Edit("b\nc", "x\ny\nz"), b"a\r\nx\ny\nz\nd\n"),
        (b"x\r\nfoo\r\n", Edit("\nfoo", "\nbar"), b"x\r\nbar\r\n"),  # Once, not once for each half.
        (b"a\rb\n", Edit("a\rb", "c"), b"c\n"),
    ],
)
def test_text_takes_the_line_endings_of_the_file(before: bytes, edit: Edit, after: bytes) -> None:
    """N-edits: line endings are kept."""
    assert Edits((edit,)).apply(before, "") == after


@pytest.mark.parametrize(
    ("before", "edit", "after"),
    [
        (BOM + b"a\nb\n", Edit("a\n", "x\n"), BOM + b"x\nb\n"),
        (BOM + b"a\n", Edit("\ufeffa", "x"), BOM + b"x\n"),
        (BOM + b"a\n", Edit("\ufeffa", "\ufeffx"), BOM + b"x\n"),
        (BOM, Edit("", "x"), BOM + b"x"),
        (b"a\nb", Edit("b", "x"), b"a\nx"),
        (b"a\nb", Edit("b\n", "x\n"), b"a\nx"),
        (b"a\nb", Edit("a\nb\n", "x\ny\n"), b"x\ny"),
        (b"b\nab", Edit("b\n", "x\n"), b"x\nab"),  # Exactly first, and only then without the newline.
        (b"a\nb", Edit("b\n", "x"), b"a\nx"),
        (b"a\r\nb", Edit("b\n", "x\ny\n"), b"a\r\nx\r\ny"),
    ],
)
def test_byte_order_mark_and_missing_last_newline_stay(before: bytes, edit: Edit, after: bytes) -> None:
    """N-edits."""
    assert Edits((edit,)).apply(before, "") == after


@pytest.mark.parametrize(
    ("before", "edit", "after"),
    [
        (b"\xff\xfe a \x00", Edit("a", "b"), b"\xff\xfe b \x00"),
        (b"\xff\xfe a", Edit(b"\xfe a", b"\x00"), b"\xff\x00"),
        (b"a\xffb", Edit("a\udcffb", "c\udcff"), b"c\xff"),  # As `ReadResult.text` shows it.
        (b"a\r\nb", Edit(b"\r\n", b"\n"), b"a\nb"),  # Bytes are exact.
    ],
)
def test_bytes_that_do_not_decode_can_be_edited(before: bytes, edit: Edit, after: bytes) -> None:
    """N-edits: works on bytes where text does not decode."""
    assert Edits((edit,)).apply(before, "") == after


def test_bytes_match_no_other_line_ending() -> None:
    """N-edits: bytes are exact."""
    with pytest.raises(EditMismatchError):
        Edits((Edit(b"a\nb", b"x"),)).apply(b"a\r\nb", "")


LINE = st.text(alphabet="ab \u00e9", max_size=4)


@st.composite
def files_and_edits(draw: st.DrawFn) -> tuple[Any, ...]:
    """A file of unique tokens between noise, and some of the tokens to replace."""
    ending = draw(st.sampled_from(["\n", "\r\n"]))
    count = draw(st.integers(1, 8))
    tokens = [
        f"<{number}{ending}{number}>" if draw(st.booleans()) else f"<{number}>" for number in range(count)
    ]
    noise = [draw(LINE) + draw(st.sampled_from(["", ending])) for _ in range(count + 1)]
    chosen = draw(st.lists(st.sampled_from(range(count)), unique=True, min_size=1))
    new = {number: draw(st.text(alphabet="xy\n", max_size=4)) for number in chosen}
    bom = draw(st.sampled_from(["", "\ufeff"]))
    return bom, ending, tokens, noise, chosen, new


@PROPERTY
@given(files_and_edits())
def test_edits_change_what_they_name_and_nothing_else(case: Any) -> None:
    """N-edits: whatever the order, the line endings, the mark at the start and the last newline."""
    bom, ending, tokens, noise, chosen, new = case
    before = bom + noise[0] + "".join(token + after for token, after in zip(tokens, noise[1:], strict=True))
    edits = [Edit(tokens[number].replace("\r\n", "\n"), new[number]) for number in chosen]
    after = before
    for number in chosen:
        # In a file without a single newline there is no ending to keep.
        there = ending if ending in before else "\n"
        after = after.replace(tokens[number], new[number].replace("\n", there))
    assert Edits(tuple(edits)).apply(before.encode(), "") == after.encode()


@PROPERTY
@given(st.binary(max_size=40), st.binary(min_size=1, max_size=4), st.binary(max_size=4))
def test_an_exact_edit_is_a_replacement_or_an_error(before: bytes, old: bytes, new: bytes) -> None:
    """N-edits: against the definition, on any bytes."""
    count = sum(before.startswith(old, at) for at in range(len(before)))
    if count == 1:
        assert Edits((Edit(old, new),)).apply(before, "") == before.replace(old, new)
    else:
        with pytest.raises(EditMismatchError):
            Edits((Edit(old, new),)).apply(before, "")


# -- insert_content --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "line", "text", "after"),
    [
        (b"a\nb\n", 1, "x", b"x\na\nb\n"),
        (b"a\nb\n", 2, "x\ny\n", b"a\nx\ny\nb\n"),
        (b"a\nb\n", 0, "x", b"a\nb\nx\n"),
        (b"a\nb\n", 3, "x\n", b"a\nb\nx\n"),
        (b"a\nb", 0, "x\n", b"a\nb\nx"),
        (b"a\r\nb\r\n", 2, "x\ny", b"a\r\nx\r\ny\r\nb\r\n"),
        (BOM + b"a\n", 1, "x", BOM + b"x\na\n"),
        (b"", 0, "x", b"x"),
        (b"", 1, "x\n", b"x\n"),
        (b"\xff\n", 1, "x", b"x\n\xff\n"),
    ],
)
def test_lines_are_inserted_before_a_line_or_at_the_end(
    before: bytes, line: int, text: str, after: bytes
) -> None:
    """N-edits: `insert_content`."""
    assert Insertion(line, text).apply(before, "") == after


@pytest.mark.parametrize("line", [-1, 4, 99])
def test_a_line_that_is_not_there_is_no_place(line: int) -> None:
    """N-edits, bad `insert_content`."""
    with pytest.raises(EditMismatchError, match="2 lines"):
        Insertion(line, "x").apply(b"a\nb\n", "")


# -- search_and_replace ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "search", "replace", "options", "after"),
    [
        (b"a b a", "a", "x", {}, b"x b x"),
        (b"a.b aXb", "a.b", "x", {}, b"x aXb"),
        (b"a.b aXb", "a.b", "x", {"use_regex": True}, b"x x"),
        (b"Aa", "a", "x", {"ignore_case": True}, b"xx"),
        ("Éé".encode(), "é", "x", {"ignore_case": True}, b"xx"),
        (b"k=v", r"(\w)=(\w)", "$2=$1 $& $$ $9a", {"use_regex": True}, None),
        (b"k=v", r"(\w)=(\w)", "$2=$1 $& $$", {"use_regex": True}, b"v=k k=v $"),
        (b"a\na\na\n", "a", "x", {"first_line": 2, "last_line": 2}, b"a\nx\na\n"),
        (b"a\na", "a", "x", {"first_line": 2}, b"a\nx"),
        (b"a\r\nb\r\n", "a\nb", "x\ny", {}, b"x\r\ny\r\n"),
        (b"a\r\nb\r\n", "a$", "x\ny", {"use_regex": True}, b"x\r\ny\r\nb\r\n"),
        (b"\xff a", "a", "b", {}, b"\xff b"),
        (b"a", "a", "\\1\\n", {}, b"\\1\\n"),
    ],
)
def test_every_occurrence_is_replaced(
    before: bytes, search: str, replace: str, options: dict[str, Any], after: bytes | None
) -> None:
    """N-edits: `search_and_replace`."""
    if after is None:
        with pytest.raises(BadRequestError):
            Search(search, replace, **options).apply(before, "")
    else:
        assert Search(search, replace, **options).apply(before, "") == after


def test_nothing_found_is_an_error_and_so_is_a_broken_expression() -> None:
    """N-edits, bad `search_and_replace`."""
    with pytest.raises(EditMismatchError):
        Search("z", "x").apply(b"a", "")
    with pytest.raises(EditMismatchError):
        Search("a", "x", first_line=2).apply(b"a\nb", "")
    with pytest.raises(BadRequestError, match="regular expression"):
        Search("(", "x", use_regex=True).apply(b"a", "")
    with pytest.raises(BadRequestError, match="empty"):
        Search("", "x").apply(b"a", "")


# -- lines -------------------------------------------------------------------------------------------------


@PROPERTY
@given(
    st.binary(max_size=30).map(lambda data: data.replace(b"\x01", b"\n")),
    st.integers(1, 8),
    st.integers(0, 8),
)
def test_a_range_of_lines_is_what_splitting_gives(data: bytes, first: int, more: int) -> None:
    """Ruling 8: lines are ranges of the raw bytes."""
    lines = data.split(b"\n")
    lines = [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    assert [data[start:] for start in line_starts(data)] == [b"".join(lines[at:]) for at in range(len(lines))]
    start, end = line_span(data, first, first + more)
    assert data[start:end] == b"".join(lines[first - 1 : first + more])


@PROPERTY
@given(st.integers(-3, 3), st.integers(-3, 3))
def test_a_range_that_runs_backwards_is_a_bad_request(first: int, last: int) -> None:
    """N-edits."""
    assume(first < 1 or last < first)
    with pytest.raises(BadRequestError):
        line_span(b"a\nb\n", first, last)
