"""Which files a shell command reads, and the patches inside of it."""

from __future__ import annotations

import pytest

from noclobber.errors import BadRequestError
from noclobber.shell import recognise


@pytest.mark.parametrize(
    ("command", "paths"),
    [
        ("cat a.txt", ["a.txt"]),
        ("cat -n 'a b.txt' c.txt", ["a b.txt", "c.txt"]),
        ("cd src && cat x.py; ls", ["src/x.py"]),
        ("sed -n '1,20p' a.txt", ["a.txt"]),
        ("head -n 5 a.txt && tail -3 b.txt", ["a.txt", "b.txt"]),
        ("nl -ba a.txt | sed -n '1,5p'", []),
        ("cat a.txt | grep -c x", []),
        ("true || cat a.txt", []),
        ("cat a.txt &", []),
        ("cat *.txt", []),
        ("cat $FILE", []),
        ("cat a.txt > b.txt", []),
        ("grep x a.txt", []),
        ("echo 'cat a.txt'", []),
        ("cat 'unclosed", []),
        ("# cat a.txt", []),
        ("", []),
    ],
)
def test_plain_reads_are_recognised_in_a_shell_command(command: str, paths: list[str]) -> None:
    """N-hosts: what expands or redirects is left alone."""
    assert [action.path for action in recognise.actions(command, "post")] == paths
    assert recognise.actions(command, "pre") == ()


def test_a_patch_in_a_shell_command_is_found_and_one_that_is_hidden_is_refused() -> None:
    """HOSTS, Codex: `apply_patch <<EOF` arrives as a shell command."""
    command = "cd sub && apply_patch <<'EOF'\n*** Begin Patch\n*** Delete File: a\n*** End Patch\nEOF"
    assert [(action.kind, action.path) for action in recognise.actions(command, "pre")] == [
        ("delete", "sub/a")
    ]
    with pytest.raises(BadRequestError):
        recognise.actions("apply_patch < some.patch", "pre")
    assert recognise.actions("which apply_patch", "pre") == ()


def test_ranges_of_lines_that_a_shell_showed() -> None:
    """A part is a part."""
    [part] = recognise.actions("sed -n '3,5p' a", "post")
    assert (part.first_line, part.line_count) == (3, 3)
    [part] = recognise.actions("head -20 a", "post")
    assert (part.first_line, part.line_count) == (1, 20)
    [part] = recognise.actions("tail -n 20 a", "post")
    assert (part.first_line, part.line_count) == (0, 20)


@pytest.mark.parametrize(
    ("command", "is_certain"),
    [
        ("cat a.txt", True),
        ("cd src && cat a.txt", True),
        ("cat a.txt b.txt", True),
        ("cat a.txt; ls", False),
        ("cat a.txt && cat b.txt", False),
        ("test -f a.txt && cat a.txt", False),
        ("false; cat a.txt", False),
    ],
)
def test_only_a_command_that_runs_alone_shows_a_file_for_certain(command: str, is_certain: bool) -> None:
    """finding S3: a mixed, piped, conditional or redirected output shows nothing for certain."""
    found = recognise.actions(command, "post")
    assert found
    assert {action.is_certain for action in found} == {is_certain}
