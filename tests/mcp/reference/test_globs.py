"""Patterns: what they match, and how much work that is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from re import _constants, _parser  # type: ignore[attr-defined]  # What a pattern became, as a tree.
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noclobber.mcp.reference import extglob, globs
from noclobber.mcp.reference.globs import BadPatternError, matcher


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
    """N-mcp, N-input: patterns come from a model."""
    matcher(pattern)(path)


HOSTILE = [
    "{" * 4000, "{a,b}" * 40, "{1..999999999}", "[" * 4000, "[a" * 2000 + "]", "(" * 4000, "@(" * 1000,
    "+(a|aa)b" * 9, "+(+(+(a)))b", "*a" * 90 + "b", "**/a/" * 60 + "b", "!(a)" * 14 + "b", "a" + "!(a)" * 14 + "b",
    "*(*a)" * 20 + "b", "!(" * 40 + "a" + ")" * 40, "a!(" * 40 + "a" + ")" * 40, "@(" * 900 + "a" + ")" * 900,
]  # fmt: skip
LONG_NAME, LONG_PATH = "a" * 150 + "c", "/".join("a" * 40)


@pytest.mark.parametrize("pattern", HOSTILE)
def test_no_pattern_takes_exponential_work(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-mcp, N-input: a pattern is matched inside the interpreter's lock, so one stops everything."""
    expressions: list[str] = []
    translate = globs._whole

    def remember(names: list[str]) -> str:
        expressions.append(translate(names))
        return expressions[-1]

    monkeypatch.setattr(globs, "_whole", remember)
    extglob._ends.cache_clear()
    try:
        match = matcher.__wrapped__(pattern)
        match(LONG_NAME)
        match(LONG_PATH)
    except BadPatternError:
        assert not expressions
        return

    # Groups are matched step by step, and each step is one miss of the cache.
    assert extglob._ends.cache_info().misses <= len(pattern) * len(LONG_NAME)
    # All else is a regular expression. Its time is at most the length of the name, to the power of the number
    # of repeats that it can go back to; that number is small, however long the pattern is.
    assert len(expressions) <= globs.MOST_BRACES + 1
    for expression in expressions[:100]:
        for sequence in _sequences(_parser.parse(expression, re.S)):
            assert _repeats(sequence) <= 2


def _repeats(sequence: Any) -> int:
    """Count the unbounded repeats of a parsed expression that matching can go back to."""
    found = 0
    for operation, value in sequence:
        if operation in (_constants.MAX_REPEAT, _constants.MIN_REPEAT):
            found += (value[1] == _constants.MAXREPEAT) + _repeats(value[2])
        elif operation is _constants.SUBPATTERN:
            found += _repeats(value[3])
        elif operation is _constants.BRANCH:
            found += sum(_repeats(option) for option in value[1])
    return found


def _sequences(sequence: Any) -> Iterator[Any]:
    """Yield an expression and its atomic groups, each of which is matched once and never gone back to."""
    yield sequence
    for operation, value in sequence:
        if operation is _constants.ATOMIC_GROUP:
            yield from _sequences(value)


def test_an_expression_that_goes_back_is_found_by_the_count_above() -> None:
    """The test of the test: what a plain translation of `*a*a*a` would be."""
    assert _repeats(_parser.parse("[^/]*a[^/]*a[^/]*a")) == 3
    assert _repeats(_parser.parse("(?:a|aa)+(?:a+)+")) == 3
    assert max(map(_repeats, _sequences(_parser.parse(globs._whole(["*a*a*a*"]))))) == 1


def test_a_pattern_longer_than_any_path_is_refused() -> None:
    """N-mcp, N-input."""
    with pytest.raises(BadPatternError):
        matcher("a" * 100_000)
