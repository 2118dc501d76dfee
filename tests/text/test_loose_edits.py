"""Edits as opencode's own tool makes them: what is found, what is not, and what stays."""

from __future__ import annotations

import pytest

from noclobber.errors import EditMismatchError
from noclobber.text.loose_edits import EMPTY, NOT_FOUND, SAME, SEVERAL, TOO_LARGE, LooseEdit, replaced

FUNCTION = "def f(a):\n    one = 1\n    two = 2\n    return one + two\n"


@pytest.mark.parametrize(
    ("text", "old", "found"),
    [
        pytest.param("a b c", "b", "b", id="exactly"),
        pytest.param("  if x:\n\t\ty()\n", "if x:\ny()", "  if x:\n\t\ty()", id="blanks around lines"),
        pytest.param(
            FUNCTION,
            "def f(a):\n    one = 1\n    two = 22\n    return one + two",
            FUNCTION.rstrip("\n"),
            id="alike between the same first and last lines",
        ),
        pytest.param("x   =\t1\n", "x = 1", "x   =\t1", id="runs of blanks"),
        pytest.param("say(x   =   1)\n", "x = 1", "x   =   1", id="runs of blanks within a line"),
        pytest.param("a\n\n\nb\nc\n", " a\n \n \n b", "a\n\n\nb", id="blank lines"),
        pytest.param('print("x\ty")\n', 'print("x\\ty")', 'print("x\ty")', id="escapes"),
        pytest.param("one two\n", " two ", "two", id="blanks around it all"),
        pytest.param(
            "begin\nsame\nother text altogether here\nend\n",
            "begin\nsame\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\nend",
            "begin\nsame\nother text altogether here\nend",
            id="half the lines between",
        ),
    ],
)
def test_the_old_text_is_found_as_opencode_finds_it(text: str, old: str, found: str) -> None:
    """finding H4: a model meets the same tool with and without us."""
    assert replaced(text, old, "NEW", replace_all=False) == text.replace(found, "NEW")


@pytest.mark.parametrize(
    ("text", "old", "new", "said"),
    [
        ("hello\n", "goodbye", "x", NOT_FOUND),
        ("a\na\n", "a", "x", SEVERAL),
        ("a\n", "a", "a", SAME),
        ("a\n", "", "b", EMPTY),
        ("start\n" + "x\n" * 2 + "end\nmore\n", "start\nx", "y", None),
    ],
)
def test_what_does_not_fit_is_told_in_opencodes_words(
    text: str, old: str, new: str, said: str | None
) -> None:
    """finding H4: the text of an error is part of the tool."""
    edit = LooseEdit(old, new)
    if said is None:
        assert edit.apply(text.encode(), "/f") == b"y\nx\nend\nmore\n"
        return
    with pytest.raises(EditMismatchError) as refused:
        edit.apply(text.encode(), "/f")
    assert refused.value.message == said


def test_a_loose_match_that_is_much_larger_than_what_was_asked_for_is_refused() -> None:
    """finding H4: the built-in tool refuses it, too."""
    old = "begin {\n  one\n}"
    assert replaced("begin {\n  one \n}\n", old, "x", replace_all=False) == "x\n"
    with pytest.raises(EditMismatchError) as refused:
        replaced("begin {\n  one" + " " * 600 + "\n}\n", old, "x", replace_all=False)
    assert refused.value.message == TOO_LARGE


def test_every_occurrence_is_replaced_if_asked_for() -> None:
    """N-edits."""
    assert LooseEdit("a", "$&", replace_all=True).apply(b"a b a\n", "/f") == b"$& b $&\n"


def test_line_endings_and_bytes_that_are_no_text_stay() -> None:
    """N-bytes: the built-in tool keeps the first, and damages the second."""
    edit = LooseEdit("two\nthree", "2\n3")
    assert edit.apply(b"one\r\ntwo\r\nthree\r\n", "/f") == b"one\r\n2\r\n3\r\n"
    assert LooseEdit("two", "2").apply(b"caf\xe9 two\n", "/f") == b"caf\xe9 2\n"
