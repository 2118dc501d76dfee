"""The one glob matcher: of `list_files` and `search_files` of models, and of the MCP server's searches."""

from __future__ import annotations

import pytest

from noclobber.errors import BadRequestError
from noclobber.guard.tools.listing import glob_test

NAMES = ["a.py", "b.ts", ".hid", "sub/a.py", "sub/deep/c.tsx", "sub/{x}", "é"]


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        ("*.{py,ts}", ["a.py", "b.ts", "sub/a.py"]),
        ("sub/**/*.{p{y,x},tsx}", ["sub/a.py", "sub/deep/c.tsx"]),
        ("{a,b}", []),
        ("sub/{x}", ["sub/{x}"]),
        ("[!a].*", ["b.ts", "sub/deep/c.tsx"]),
        ("[^a].*", ["b.ts", "sub/deep/c.tsx"]),
        ("?", ["é"]),
        ("sub/**", ["sub/a.py", "sub/deep/c.tsx", "sub/{x}"]),
        ("[", []),
    ],
)
def test_braces_sets_and_folders_are_matched(pattern: str, fits: list[str]) -> None:
    """N-mcp, N-frameworks: what models write; names that begin with a dot are names."""
    assert [name for name in NAMES if glob_test(pattern)(name)] == fits


def test_a_pattern_without_a_folder_may_be_tied_to_the_first() -> None:
    """N-mcp: as the replaced server reads it."""
    assert [name for name in NAMES if glob_test("*.py", at_any_depth=False)(name)] == ["a.py"]
    assert [name for name in NAMES if glob_test("**", at_any_depth=False)(name)] == NAMES


@pytest.mark.parametrize(
    "pattern", ["!*.py", "+(a|b)", "@(a)", "*(a|b)", "[[:alpha:]]", "{1..9}", "", "a" * 1001]
)
def test_a_pattern_of_another_dialect_is_refused_with_what_is_known(pattern: str) -> None:
    """N-input: "no matches" would be a wrong answer."""
    with pytest.raises(BadRequestError, match=r"Use \*, \*\*|Send one"):
        glob_test(pattern)


def test_no_pattern_takes_for_ever() -> None:
    """N-input: patterns come from a model, and one call must not stop the server."""
    for pattern in ("*a" * 70 + "b", "**/" * 300 + "b", "[a-z]*" * 100 + "!", "{a,b}" * 9):
        assert not glob_test(pattern)("a" * 200)
    with pytest.raises(BadRequestError, match="more than 1000"):
        glob_test("{a,b}" * 40)
