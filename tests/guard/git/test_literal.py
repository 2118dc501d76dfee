"""git commands that are read beforehand: which files they reach, and whose those are."""

from __future__ import annotations

from pathlib import Path

import pytest

from noclobber import OthersWorkError
from noclobber.disk import hashing
from noclobber.guard.git.lineage import WrittenBy
from noclobber.guard.git.literal import others_work_before, reaches_of
from tests.rigs.clones import Clone

TEXT = b"".join(b"line %d\n" % number for number in range(1, 21))


@pytest.mark.parametrize(
    ("text", "reach"),
    [
        ("git stash", ("taken away", None, True, False)),
        ("git stash push -u -m text", ("taken away", None, True, True)),
        ("git stash pop", None),
        ("git reset --hard HEAD~1", ("taken away", None, True, False)),
        ("git reset HEAD a.md", None),
        ("git checkout main", None),
        ("git checkout -- a.md", ("taken away", ("/w/a.md",), True, False)),
        ("git checkout .", ("taken away", ("/w",), True, False)),
        ("git -C sub restore a.md", ("taken away", ("/w/sub/a.md",), True, False)),
        ("git restore --staged a.md", None),
        ("git clean -fdx", ("taken away", None, False, True)),
        ("git clean -nd", None),
        ("git commit -am 'all of it'", ("swept up", None, True, False)),
        ("git commit -m a", None),
        ("git commit -m a b.md", ("swept up", ("/w/b.md",), True, False)),
        ("git add -A", ("swept up", None, True, True)),
        ("git add -u", ("swept up", None, True, False)),
        ("git add src a.md", ("swept up", ("/w/src", "/w/a.md"), True, True)),
        ("git add $(ls)", None),
        ("git --git-dir=x stash", None),
        ("echo git stash", None),
        ("git log", None),
    ],
)
def test_what_a_command_would_reach(text: str, reach: tuple[object, ...] | None) -> None:
    """N-shell: told from its words, or not at all."""
    assert [tuple(each) for each in reaches_of(text, "/w")] == ([] if reach is None else [reach])


def test_others_work_is_refused_before_the_command_runs(root: Path) -> None:
    """N-shell, N-who: for hosts without the guarded shell; what the agent has seen is its own."""
    clone = Clone(root, {"of-ana.md": TEXT, "of-bob.md": TEXT})
    clone.write("ana", "of-ana.md", TEXT + b"ana\n")
    clone.write("bob", "of-bob.md", TEXT + b"bob\n")
    clone.write("bob", "new.md", b"bob\n")

    def asked(text: str, **known: str) -> str | None:
        paths = {f"{root}/{name.replace('_', '-')}.md": sha256 for name, sha256 in known.items()}
        error = others_work_before(text, root=str(root), cwd=str(root), me=WrittenBy("ana"), known=paths)
        assert error is None or isinstance(error, OthersWorkError)
        return None if error is None else str(error.details["files"])

    assert asked("git commit -am x") == "of-bob.md"
    assert asked("make && git add .") == "new.md, of-bob.md"
    assert asked("git clean -fd") == "new.md"
    assert asked("git commit -m x of-ana.md") is None
    assert asked("git checkout -- of-ana.md") is None
    assert asked("git commit -am x", of_bob=hashing.of_bytes(TEXT + b"bob\n")) is None
    clone.git("commit", "-qm", "bob's", "of-bob.md")
    assert asked("git stash") is None
