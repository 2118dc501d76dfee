"""Edits: where they fit, and what they leave alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noclobber.errors import EditMismatchError
from noclobber.mcp.edit_plan import EditPlan


@given(
    before=st.binary(max_size=40),
    after=st.binary(max_size=40),
    new=st.text(st.characters(exclude_categories=["Cs"])),
)
def test_an_edit_leaves_every_byte_that_it_does_not_replace(before: bytes, after: bytes, new: str) -> None:
    """N-bytes: whatever the rest of the file is: binary, mixed line endings, a byte-order mark."""
    marked = before + b"<MARK>" + after
    if marked.count(b"<MARK>") != 1 or "<MARK>" in new:
        return

    edited = EditPlan([("<MARK>", new)]).apply(marked, "f")

    assert edited.startswith(before)
    assert edited.endswith(after)
    middle = edited[len(before) : len(edited) - len(after)]
    assert middle.replace(b"\r\n", b"\n") == new.encode().replace(b"\r\n", b"\n")


def test_edits_are_made_one_after_the_other() -> None:
    """As in the replaced server: the second may change what the first put there."""
    assert EditPlan([("a", "b"), ("b", "c")]).apply(b"a b", "f") == b"c b"


def test_one_edit_that_does_not_fit_leaves_none() -> None:
    """All or none."""
    with pytest.raises(EditMismatchError) as refused:
        EditPlan([("a", "b"), ("zzz", "c")]).apply(b"a", "f")

    assert refused.value.details["edit"] == 2
