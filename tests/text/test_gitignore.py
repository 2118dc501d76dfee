"""What git leaves out: compared with git's own answers."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from noclobber.text import gitignore
from noclobber.text.gitignore import is_ignored, rules_in


@pytest.mark.parametrize(
    ("text", "ignored", "kept"),
    [
        ("*.log\n", ["a.log", "x/y/a.log"], ["a.txt", "log"]),
        ("/a.log\n", ["a.log"], ["x/a.log"]),
        ("build/\n", ["build/x", "x/build/y"], ["build"]),
        ("x/y\n", ["x/y", "x/y/z"], ["a/x/y"]),
        ("**/temp\n", ["temp", "a/b/temp", "temp/x"], ["temp2"]),
        ("a/**\n", ["a/b", "a/b/c"], ["a", "b/a/c"]),
        ("a/**/b\n", ["a/b", "a/x/b", "a/x/y/b"], ["ab", "b"]),
        ("*.md\n!keep.md\n", ["a.md"], ["keep.md", "x/keep.md"]),
        ("x/\n!x/keep.md\n", ["x/keep.md"], []),
        ("a?c\n[ab].txt\n[!x]y\n", ["abc", "a.txt", "zy"], ["a/c", "c.txt", "xy"]),
        ("# comment\n\n\\#real\ntrailing   \nspace\\ \n", ["#real", "trailing", "space "], ["comment"]),
        ("[unclosed\nfine\r\n", ["fine"], ["[unclosed", "u"]),
    ],
)
def test_a_pattern_leaves_out_what_it_says(text: str, ignored: list[str], kept: list[str]) -> None:
    """N-versions: by default what git ignores is not kept."""
    rules = {"": rules_in(text)}

    assert [path for path in ignored if not is_ignored(path, rules)] == []
    assert [path for path in kept if is_ignored(path, rules)] == []


def test_a_deeper_file_decides_after_those_above_it() -> None:
    """As in git: but nothing takes back what is inside a folder that is left out."""
    rules = {"": rules_in("*.log\nout/\n"), "x": rules_in("!*.log\nsecret\n"), "out": rules_in("!*\n")}

    assert not is_ignored("x/a.log", rules)
    assert is_ignored("x/secret", rules)
    assert not is_ignored("secret", rules)
    assert is_ignored("out/a.txt", rules)


def test_hostile_patterns_are_bounded() -> None:
    """N-input: a `.gitignore` comes with a folder. Whoever wrote it must not be able to stop us."""
    rules = rules_in("*a" * 40 + "\n" + "x" * 5000 + "\n" + "y\n" * (gitignore.MOST_PATTERNS + 5))

    assert len(rules) == gitignore.MOST_PATTERNS - 2


NAMES = st.lists(st.sampled_from(["a", "b", "ab", "a.c", "[", "-", " "]), min_size=1, max_size=3).map(
    "/".join
)
CLASSES = ("alpha", "digit", "upper", "lower", "alnum", "punct", "space", "xdigit", "print", "nonsense", "")
PATTERN = st.text(alphabet="ab.c*?/![]-^\\ #", min_size=1, max_size=8) | st.builds(
    "{}[{}[:{}:]{}]{}".format,
    st.text(alphabet="ab*/", max_size=2),
    st.sampled_from(["", "!", "^", "a", "a-", "]", "\\"]),
    st.sampled_from(CLASSES),
    st.sampled_from(["", "c", "-c", ":", "b-c"]),
    st.sampled_from(["", "*", "/"]),
)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed; it is the judge here")
@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(PATTERN, min_size=1, max_size=4), st.lists(NAMES, min_size=1, max_size=6, unique=True))
def test_git_gives_the_same_answers(tmp_path: Path, patterns: list[str], names: list[str]) -> None:
    """N-versions: any patterns, any names; but a slash in brackets, which nobody writes."""
    assume(not any(re.search(r"\[[^]]*/", pattern) for pattern in patterns))
    if not (tmp_path / ".git").exists():
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    text = "\n".join(patterns) + "\n"
    (tmp_path / ".gitignore").write_text(text)
    asked = subprocess.run(
        ["git", "-c", "core.excludesFile=", "check-ignore", "--stdin", "-z"],
        input="".join(f"{name}\0" for name in names).encode(),
        capture_output=True,
        cwd=tmp_path,
        check=False,
    )
    by_git = set(asked.stdout.decode().split("\0")[:-1])

    rules = {"": rules_in(text)}
    assert {name for name in names if is_ignored(name, rules)} == by_git


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "pattern",
    [
        "*a" * 12 + "b",
        "**/" * 12 + "x",
        "**/a/" * 10 + "b",
        "[a-a]*" * 12 + "c",
        "*/" * 15 + "x",
        "a*" * 16 + "[!a]",
    ],
)
def test_no_pattern_takes_for_ever(pattern: str) -> None:
    """N-fuzz, finding S20: it comes with a repository. With a backtracking search this would take years."""
    path = "/".join(["a" * 30] * 12) + "/" + "a" * 200
    assert not is_ignored(path, {"": rules_in(f"{pattern}\n")})
