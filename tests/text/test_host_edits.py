"""Edits as opencode's own tool makes them: what is found, what is not, and what stays."""

from __future__ import annotations

import pytest

from noclobber.errors import EditMismatchError
from noclobber.text.host_edits import EMPTY, NOT_FOUND, SAME, SEVERAL, OpencodeEdit


@pytest.mark.parametrize(
    ("text", "old", "found"),
    [
        pytest.param("a b c", "b", "b", id="exactly"),
        pytest.param("  if x:\n\t\ty()\n", "if x:\ny()", "  if x:\n\t\ty()", id="blanks around lines"),
        pytest.param(
            "def f():\n    a\n    b\n", "def f():\n  a\n  b\n", "def f():\n    a\n    b", id="indentation"
        ),
    ],
)
def test_the_old_text_is_found_exactly_or_by_its_lines(text: str, old: str, found: str) -> None:
    """N-edits: blanks around a line are what models get wrong most."""
    made = OpencodeEdit(old, "NEW").apply(text.encode(), "/f")
    assert made == text.replace(found, "NEW").encode()


@pytest.mark.parametrize(
    ("text", "old", "new", "said"),
    [
        ("hello\n", "goodbye", "x", NOT_FOUND),
        ("a\na\n", "a", "x", SEVERAL),
        ("a\n", "a", "a", SAME),
        ("a\n", "", "b", EMPTY),
        ("begin\none\nend\n", "begin\nxxx\nend", "y", NOT_FOUND),
        ("x   =\t1\n", "x = 1", "y", NOT_FOUND),
        (" a\nb\n\ta\nb\n", "a \nb", "y", SEVERAL),
        ("start\n" + "x\n" * 2 + "end\nmore\n", "start\nx", "y", None),
    ],
)
def test_what_does_not_fit_is_told_in_opencodes_words(
    text: str, old: str, new: str, said: str | None
) -> None:
    """finding H4: the text of an error is part of the tool."""
    edit = OpencodeEdit(old, new)
    if said is None:
        assert edit.apply(text.encode(), "/f") == b"y\nx\nend\nmore\n"
        return
    with pytest.raises(EditMismatchError) as refused:
        edit.apply(text.encode(), "/f")
    assert refused.value.message == said


def test_every_occurrence_is_replaced_if_asked_for() -> None:
    """N-edits."""
    assert OpencodeEdit("a", "$&", replace_all=True).apply(b"a b a\n", "/f") == b"$& b $&\n"


def test_line_endings_and_bytes_that_are_no_text_stay() -> None:
    """N-bytes: the built-in tool keeps the first, and damages the second."""
    edit = OpencodeEdit("two\nthree", "2\n3")
    assert edit.apply(b"one\r\ntwo\r\nthree\r\n", "/f") == b"one\r\n2\r\n3\r\n"
    assert OpencodeEdit("two", "2").apply(b"caf\xe9 two\n", "/f") == b"caf\xe9 2\n"
