"""`noclobber undo`, as a person types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from noclobber import Workspace
from tests.rigs.commands import run

TEXT = b"".join(b"line %d\n" % number for number in range(1, 21))


@pytest.fixture
def file(root: Path) -> Path:
    """A file that ana and bob have changed."""
    path = root / "plan.md"
    path.write_bytes(TEXT)
    with Workspace(root) as ws:
        for agent, old in (("ana", b"line 3\n"), ("bob", b"line 12\n")):
            with ws.turn(agent_id=agent, session_id=f"session-of-{agent}") as turn:
                content = turn.read_file("plan.md").content
                turn.write_file("plan.md", content.replace(old, agent.encode() + b"\n"))
    return path


def test_an_undo_says_what_it_did_and_how_to_take_it_back(root: Path, file: Path) -> None:
    """N-versions, N-cli."""
    done = run("undo", "--agent", "ana", cwd=root)

    assert done.code == 0, done.err
    first, second, last = done.out.splitlines()
    assert (first, second) == ("Undid 1 write:", "  changed  plan.md")
    words = last.removeprefix("To undo the undo: noclobber ").split()
    assert file.read_bytes() == TEXT.replace(b"line 12\n", b"bob\n")
    assert run(*words, cwd=root).code == 0
    assert b"ana\n" in file.read_bytes()


def test_a_dry_run_is_a_patch_and_changes_nothing(root: Path, file: Path) -> None:
    """N-versions, undo: `patch -p1` makes of it what `undo` would."""
    before = file.read_bytes()
    done = run("undo", "--session", "session-of-bob", "--dry-run", cwd=root)

    assert done.code == 0
    assert file.read_bytes() == before
    subprocess.run(["git", "apply", "-p1"], input=done.out.encode(), cwd=root, check=True)
    assert file.read_bytes() == TEXT.replace(b"line 3\n", b"ana\n")


def test_a_dry_run_of_a_file_that_is_not_utf8_is_a_patch(root: Path) -> None:
    """N-versions, undo: Latin-1 stays Latin-1."""
    path = root / "old.txt"
    path.write_bytes(b"caf\xe9\nline 2\nna\xefve\n")
    with Workspace(root) as ws, ws.turn(agent_id="ana") as turn:
        content = turn.read_file("old.txt").content
        turn.write_file("old.txt", content.replace(b"caf\xe9\n", b"th\xe9\n"))
    words = [sys.executable, "-m", "noclobber", "undo", "--agent", "ana", "--dry-run"]
    done = subprocess.run(words, cwd=root, capture_output=True, check=True, timeout=60)

    subprocess.run(["git", "apply", "-p1"], input=done.stdout, cwd=root, check=True)

    assert path.read_bytes() == b"caf\xe9\nline 2\nna\xefve\n"


def test_a_conflict_is_shown_and_refused(root: Path, file: Path) -> None:
    """N-versions, undo: exit code 3, and nothing is touched."""
    file.write_bytes(file.read_bytes().replace(b"ana\n", b"a person\n"))
    before = file.read_bytes()

    done = run("undo", "--agent", "ana", cwd=root)
    assert done.code == 3
    assert "conflict  plan.md" in done.out
    assert "Nothing was changed." in done.out
    told = json.loads(run("undo", "--agent", "ana", "--json", cwd=root).out)
    assert (told["done"], len(told["obstacles"])) == (False, 1)
    assert file.read_bytes() == before


def test_nothing_to_take_back_is_an_answer(root: Path, file: Path) -> None:
    """N-cli: exit code 1."""
    assert run("undo", "--agent", "nobody", cwd=root).code == 1
    assert run("undo", cwd=root).code == 2


def test_without_a_name_the_names_on_record_are_said(root: Path, file: Path) -> None:
    """N-versions, undo."""
    with Workspace(root) as workspace, workspace.turn(agent_id="builder-1") as turn:
        turn.write_file("new.md", "x")
    done = run("undo", "--root", str(root))
    assert done.code == 2
    assert "builder-1" in done.err
