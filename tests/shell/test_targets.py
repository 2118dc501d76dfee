"""Which files a shell command writes, where its text tells."""

from __future__ import annotations

import pytest

from noclobber.shell.targets import targets


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("sed -i 's/a/b/' a.md b.md", ["edit a.md", "edit b.md"]),
        ("sed -i.bak -e 's/a/b/' a.md", ["edit a.md"]),
        ("sed -n 's/a/b/p' a.md", []),
        ("sed 's/in/out/' a.md > b.md", ["edit b.md"]),
        ("echo x >> 'a b.md'", ["edit a b.md"]),
        ("echo x > a.md 2> err.txt", ["edit a.md", "edit err.txt"]),
        ("make > /dev/null 2>&1", []),
        ("cat a | tee -a b.md", ["edit b.md"]),
        ("cd sub && rm -f a.md", ["delete sub/a.md"]),
        ("cd sub && cd deeper && git rm a.md", ["delete sub/deeper/a.md"]),
        ("cd $X && rm a.md", []),
        ("mv a.md b.md", ["delete a.md", "edit b.md"]),
        ("cp a.md b.md", ["edit b.md"]),
        ("git checkout -- a.md", ["edit a.md"]),
        ("git checkout main -- a.md b.md", ["edit a.md", "edit b.md"]),
        ("git checkout main", []),
        ("git restore a.md", ["edit a.md"]),
        ("git restore --staged a.md", []),
        ("ruff format a.py", ["edit a.py"]),
        ("ruff check a.py", []),
        ("prettier --write a.js", ["edit a.js"]),
        ("black .", []),
        ("test -f a.md || rm a.md", []),
        ("rm *.md", []),
        ("rm $X", []),
        ("rm $(cat list)", []),
        ("for f in a; do rm $f; done", []),
        ("echo 'rm a.md'", []),
        ("python fix.py", []),
        ("cat a.md", []),
    ],
)
def test_a_target_is_told_only_for_certain(command: str, expected: list[str]) -> None:
    """N-shell: a target that is guessed wrongly would refuse a command for a file that it leaves alone."""
    assert [f"{action.kind} {action.path}" for action in targets(command)] == expected


def test_the_content_of_a_heredoc_is_known() -> None:
    """N-shell: what the command must leave can be compared afterwards, as with any other write."""
    [action] = targets("cat > a.md <<'EOF'\none $two\n'three\nEOF\n")
    assert (action.kind, action.path, action.content) == ("write", "a.md", "one $two\n'three\n")
    [action] = targets("cat <<-EOF > a.md\n\tone\n\tEOF")
    assert action.content == "one\n"
    [action] = targets("cat > a.md <<EOF\none $two\nEOF")
    assert action.content is None
    assert targets("cat > a.md <<EOF\nnever ends") == ()
    found = targets("cat > a.md <<EOF\n$(rm b.md)\nEOF")
    assert [(action.path, action.content) for action in found] == [("a.md", None), ("b.md", None)]
    assert [action.path for action in targets("cat > a.md <<EOF\nx\nEOF\nrm b.md")] == ["a.md", "b.md"]
