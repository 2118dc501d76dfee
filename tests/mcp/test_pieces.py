"""The pieces behind the MCP tools: patterns, patches, edits, arguments, the wire."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noclobber.errors import EditMismatchError
from noclobber.mcp.arguments import checked
from noclobber.mcp.reference import collation, patch
from noclobber.mcp.reference.editing import EditPlan
from noclobber.mcp.reference.globs import BadPatternError, matcher
from noclobber.mcp.reference.os_errors import PlainError
from noclobber.mcp.roots import Roots
from noclobber.mcp.tools.definition import TOOLS

LINES = st.lists(st.sampled_from(["a", "b", "c", "", "  x"]), max_size=12)


# -- patches -----------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("patch") is None, reason="the program `patch` is not installed")
@settings(max_examples=40, deadline=None)
@given(before=LINES, after=LINES, ends=st.tuples(st.booleans(), st.booleans()))
def test_the_patch_tool_takes_our_patches(
    before: Any, after: Any, ends: tuple[bool, bool], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Counts, contexts and missing last newlines are right for a program that checks them."""
    old, new = (
        "\n".join(lines) + ("\n" if lines and end else "")
        for lines, end in zip((before, after), ends, strict=True)
    )
    folder = tmp_path_factory.mktemp("patch")
    (folder / "f").write_text(old)

    text = patch.unified(old, new, "f")
    if old != new:
        done = subprocess.run(
            ["patch", "-s", "f"], input=text, text=True, cwd=folder, capture_output=True, check=False
        )
        assert done.returncode == 0, (text, done.stdout)
        # patch removes a file that has become empty.
        assert ((folder / "f").read_text() if (folder / "f").exists() else "") == new


# -- edits -------------------------------------------------------------------------------------------


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


# -- patterns ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("*.md", ["a.md", ".md"], ["d/a.md", "a.txt", "a.mdx"]),
        ("**/*.md", ["a.md", "d/a.md", "d/e/a.md", ".d/a.md"], ["a.txt"]),
        ("d/**", ["d/a", "d/e/f"], ["d", "x/d"]),
        ("a{b,c{d,e}}", ["ab", "acd", "ace"], ["ac", "a{b,c{d,e}}"]),
        ("{01..3}", ["01", "02", "03"], ["1", "4"]),
        ("[!a-c]x", ["dx"], ["ax", "bx", "/x"]),
        ("+(a|b)c", ["ac", "abac"], ["c", "adc"]),
        ("x!(a|b)", ["xc", "x", "xaa"], ["xa", "xb"]),
        ("!*.md", ["a.txt", "d/a.md"], ["a.md"]),
        ("#a", [], ["#a", "a"]),
        ("[", ["["], ["a"]),
    ],
)
def test_patterns_match_what_people_expect(pattern: str, matching: list[str], others: list[str]) -> None:
    """The dialect that the replaced server's clients use; the differential test has many more."""
    match = matcher(pattern)

    assert [path for path in matching if not match(path)] == []
    assert [path for path in others if match(path)] == []


@given(pattern=st.text(st.sampled_from("ab*?[]{}(),|!^-\\./@+1"), max_size=14), path=st.text(max_size=8))
def test_no_pattern_is_an_error(pattern: str, path: str) -> None:
    """Issue 4, bad input: patterns come from a model."""
    matcher(pattern)(path)


@pytest.mark.parametrize(
    "pattern",
    [
        "{" * 4000, "{a,b}" * 40, "{1..999999999}", "[" * 4000, "[a" * 2000 + "]", "(" * 4000, "@(" * 1000,
        "+(a|aa)b" * 9, "+(+(+(a)))b", "*a" * 90 + "b", "**/a/" * 60 + "b", "!(a)" * 14 + "b", "*(*a)" * 20 + "b",
        "!(" * 40 + "a" + ")" * 40, "@(" * 900 + "a" + ")" * 900,
    ],
)  # fmt: skip
def test_patterns_that_would_take_for_ever_do_not(pattern: str) -> None:
    """Issue 4, bad input: a pattern is matched inside the interpreter's lock, so one stops everything."""
    begun_s = time.process_time()
    try:
        match = matcher(pattern)
        match("a" * 150 + "c")
        match("/".join("a" * 40))
    except BadPatternError:
        pass

    assert time.process_time() - begun_s < 5


def test_a_pattern_longer_than_any_path_is_refused() -> None:
    """Issue 4, bad input."""
    with pytest.raises(BadPatternError):
        matcher("a" * 100_000)


# -- names, arguments, roots -------------------------------------------------------------------------


def test_names_are_in_the_order_in_which_people_expect_them() -> None:
    """The order that the replaced server was seen to list these in."""
    listed = [
        " a",
        "_a",
        "-a",
        ".a",
        "(a",
        "@a",
        "#a",
        "~a",
        "$a",
        "1a",
        "a b",
        "aa",
        "Aa",
        "ab",
        "ba",
        "ea",
        "éa",
    ]
    listed += ["File1", "file10", "file9", "resume", "Resume", "résumé", "ss", "ß", "st"]

    jumbled = list(reversed(listed))

    assert sorted(jumbled, key=collation.key) == listed


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["path", "content", "edits", "files", "oldText", "x"]), inner)))  # fmt: skip
def test_arguments_of_any_shape_are_taken_or_refused(value: Any) -> None:
    """Issue 4, bad input: wrong types are complaints, never crashes."""
    for tool in TOOLS.values():
        try:
            checked(tool, value if isinstance(value, dict) else {"path": value})
        except PlainError as refused:
            assert refused.text.startswith("MCP error -32602")


@given(
    parts=st.lists(st.sampled_from(["..", ".", "", "in", "out", "up", "file", "new", "~", "\0"]), max_size=7)
)
def test_no_spelling_of_a_path_leads_out_of_the_roots(
    parts: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Issue 4: paths are confined to the roots, links included."""
    top = tmp_path_factory.getbasetemp() / "confined"
    root = top / "root"
    if not root.exists():
        (root / "in").mkdir(parents=True)
        (top / "file").write_text("outside")
        (root / "file").write_text("inside")
        (root / "out").symlink_to(top)
        (root / "in" / "up").symlink_to("../..")
    home = str(root.resolve())

    try:
        located = Roots([str(root)]).locate("/".join(parts))
    except PlainError:
        return

    assert located.real == home or located.real.startswith(f"{home}/")
    assert Path(located.real).resolve() == Path(located.real)
