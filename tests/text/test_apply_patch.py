"""Patches in Codex's format: the files they name, and the content they lead to."""

from __future__ import annotations

import pytest

from noclobber.errors import BadRequestError
from noclobber.text import apply_patch


def test_a_patch_names_every_file_that_it_touches() -> None:
    """N-hosts: update, add, delete, move."""
    found = apply_patch.actions(
        "*** Begin Patch\n*** Update File: a\n@@ def f():\n context\n-old\n+new\n*** End of File\n"
        "*** Update File: b\n*** Move to: c\n@@\n-x\n+y\n*** Add File: d\n+1\n+2\n*** Delete File: e\n*** End Patch\n"
    )
    assert [(action.kind, action.path, action.moved_from) for action in found] == [
        ("edit", "a", None),
        ("write", "c", "b"),
        ("delete", "b", None),
        ("write", "d", None),
        ("delete", "e", None),
    ]
    assert found[3].content == "1\n2\n"


@pytest.mark.parametrize(
    "patch",
    [
        "",
        "*** Begin Patch\n*** End Patch",
        "*** Begin Patch\n*** Update File: a\n@@\n-x\n+y\n",
        "*** Begin Patch\n*** Rewrite File: a\n*** End Patch",
        "*** Begin Patch\n*** Delete File: \n*** End Patch",
        "*** Begin Patch\n*** Add File: a\nno plus\n*** End Patch",
    ],
)
def test_a_patch_that_cannot_be_read_is_an_error(patch: str) -> None:
    """N-hosts: what cannot be understood cannot be checked."""
    with pytest.raises(BadRequestError):
        apply_patch.actions(patch)


@pytest.mark.parametrize(
    ("text", "patch", "outcome"),
    [
        ("a\nb\nc\n", "@@\n a\n-b\n+B\n c", "a\nB\nc\n"),
        ("a\nb\na\nb\n", "@@ a\n-b\n+B", "a\nB\na\nb\n"),
        ("a\n", "@@\n+end", "a\nend\n"),
        ("x\ny\nx\ny\n", "@@\n-x\n-y\n+z\n*** End of File", "x\ny\nz\n"),
        ("a\nb\n", "@@\n-  a\n+c", "c\nb\n"),
        ("a\nb\n", "@@\n-x\n+c", None),
        # Outcomes of Codex 0.166.0 itself.
        ("a\r\nb\r\nc\r\n", "@@\n a\n-b\n+B\n c", "a\r\nB\r\nc\r\n"),
        ("a\nb\r\nc\nd\r\n", "@@\n a\n-b\n+B\n c", "a\nB\nc\nd\r\n"),
        ("a\r\nb", "@@\n-a\n+A", "A\r\nb\r\n"),
        ("a\rb\r", "@@\n-a\n+A", "A\rb\r"),
        ("a  \nb\n", "@@\n a\n-b\n+B", "a  \nB\n"),
        ("say \u201chi\u201d\nb\n", '@@\n say "hi"\n-b\n+B', "say \u201chi\u201d\nB\n"),
        ("a", "@@\n-a\n+b", "b\n"),
        ("a\nb\nc\nd\n", "@@\n-a\n+A\n@@\n-c\n+C", "A\nb\nC\nd\n"),
    ],
)
def test_the_outcome_of_a_patch_is_foreseen_as_codex_writes_it(
    text: str, patch: str, outcome: str | None
) -> None:
    """N-foresight, finding H10: lines that match loosely, line endings that are kept, quotes and dashes."""
    [action] = apply_patch.actions(f"*** Begin Patch\n*** Update File: f\n{patch}\n*** End Patch")
    assert isinstance(action.change, apply_patch.Patch)
    assert apply_patch.apply(text, action.change.hunks) == outcome
