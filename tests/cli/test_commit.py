"""`noclobber commit --mine`, as a person types it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.rigs.clones import IDENTITY, Clone
from tests.rigs.commands import run

TEXT = b"".join(b"line %d\n" % number for number in range(1, 21))


@pytest.fixture
def clone(root: Path) -> Clone:
    """A clone with one file, which ana and bob have changed."""
    clone = Clone(root, {"plan.md": TEXT})
    clone.change("ana", "plan.md", b"line 3\n", b"ana\n", "4f2a91c3")
    clone.change("bob", "plan.md", b"line 12\n", b"bob\n", "91c34f2a")
    return clone


def test_a_commit_says_what_it_holds_and_what_stays(clone: Clone) -> None:
    """N-shell, N-cli."""
    done = run("commit", "--mine", "--agent", "ana", "-m", "One", "-m", "Two", cwd=clone.root, **IDENTITY)
    assert done.code == 0, done.err
    head = clone.git("rev-parse", "HEAD")[:12]
    assert done.out == (
        f"Committed 1 file as {head}:\n"
        "  changed  plan.md  (others' changes stay uncommitted: bob, session 91c34f2a)\n"
    )
    assert clone.git("log", "-1", "--format=%B").startswith("One\n\nTwo\n")
    again = run("commit", "--mine", "--agent", "ana", "-m", "again", cwd=clone.root, **IDENTITY)
    assert (again.code, again.out[:27]) == (1, "There is nothing to commit:")


def test_a_dry_run_is_a_patch_and_commits_nothing(clone: Clone) -> None:
    """N-shell: git applies it to what is committed."""
    done = run("commit", "--mine", "--session", "4f2a", "--dry-run", cwd=clone.root, **IDENTITY)
    assert done.code == 0
    assert clone.count() == 1
    clone.git("stash", "--quiet")
    subprocess.run(["git", "apply", "-p1"], input=done.out.encode(), cwd=clone.root, check=True)
    assert (clone.root / "plan.md").read_bytes() == TEXT.replace(b"line 3\n", b"ana\n")


def test_a_refusal_names_file_lines_and_owners(clone: Clone) -> None:
    """N-shell: exit code 3; as an object with --json; a dry run shows every obstacle."""
    clone.change("cay", "plan.md", b"ana\n", b"cay\n")
    words = ("commit", "--mine", "--agent", "cay", "-m", "mine", "--json")
    done = run(*words, cwd=clone.root, **IDENTITY)
    assert done.code == 3
    told = json.loads(done.out or done.err)
    assert told["error_type"] == "CANNOT_COMMIT"
    assert told["details"] == {"owners": "ana, session 4f2a91c3", "lines": "3-3"}
    dry = run(*words, "--dry-run", cwd=clone.root, **IDENTITY)
    assert dry.code == 3
    assert json.loads(dry.out)["obstacles"][0]["lines"] == [[3, 3]]


def test_whose_changes_must_be_said(clone: Clone) -> None:
    """N-cli: and whoever is on record is named."""
    done = run("commit", "--mine", "-m", "x", cwd=clone.root, **IDENTITY)
    assert done.code == 2
    assert "ana, session 4f2a91c3; bob, session 91c34f2a" in done.err
    assert run("commit", "-m", "x", "--agent", "ana", cwd=clone.root, **IDENTITY).code == 2
    assert run("commit", "--mine", "--agent", "ana", cwd=clone.root, **IDENTITY).code == 2


def test_outside_of_git_it_says_so(root: Path) -> None:
    """N-cli."""
    done = run("commit", "--mine", "--agent", "a", "-m", "x", "--root", str(root), **IDENTITY)
    assert done.code == 3
    assert "not in a work tree of git" in done.err
