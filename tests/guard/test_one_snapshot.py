"""What the agent saw, asked and told alike by tools and by commands."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from noclobber import Edit, Workspace
from noclobber.errors import PartialReadError, StaleFileError, UnreadFileError
from noclobber.shell.roots import why_not
from tests.conftest import sha256
from tests.rigs.clones import IDENTITY

ENVIRONMENT = {**IDENTITY, "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent"}


@pytest.fixture(autouse=True)
def guarded(root: Path) -> None:
    if (reason := why_not(str(root))) is not None:
        pytest.skip(reason)


def git(root: Path, *words: str) -> None:
    """Run git in a folder."""
    subprocess.run(["git", "-C", str(root), *words], check=True, capture_output=True, env=ENVIRONMENT)


def test_a_merge_of_git_brings_in_what_the_agent_has_not_seen(root: Path) -> None:
    """Finding E5: read v1, `git merge` brings Bob's v2; a whole file made from v1 is refused until v2 is read."""
    file = root / "f.txt"
    file.write_text("v1\n")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "f.txt")
    git(root, "commit", "-qm", "v1")
    git(root, "checkout", "-qb", "other")
    file.write_text("bob's v2\n")
    git(root, "commit", "-qam", "v2")
    git(root, "checkout", "-q", "main")
    with Workspace(root) as workspace, workspace.turn() as turn:
        turn.read_file("f.txt")
        turn.run("git merge -q other", environment=ENVIRONMENT)
        assert file.read_text() == "bob's v2\n"
        with pytest.raises(StaleFileError) as refused:
            turn.write_file("f.txt", "made from v1\n")
        assert refused.value.expected == sha256(b"v1\n")
        assert refused.value.actual == sha256(b"bob's v2\n")
        assert turn.changes() == []  # It is the agent's own change.
        turn.edit_file("f.txt", [Edit("bob", "alice")])
        with pytest.raises(StaleFileError):
            turn.write_file("f.txt", "made from v1\n")
        turn.read_file("f.txt")
        turn.write_file("f.txt", "made from v2\n")


def test_what_a_command_made_of_a_file_that_was_not_read_must_be_read(root: Path) -> None:
    """Ruling 30: a copy, a generated file. To edit, move or delete it needs no reading."""
    (root / "theirs").write_text("theirs\n")
    with Workspace(root) as workspace, workspace.turn() as turn:
        turn.run("cp theirs a; cp theirs b; cp theirs c")
        with pytest.raises(UnreadFileError):
            turn.write_file("a", "mine\n")
        turn.edit_file("a", [Edit("theirs", "ours")])
        turn.move_file("b", "moved")
        with pytest.raises(UnreadFileError):
            turn.write_file("moved", "mine\n")
        turn.delete_file("c")
        turn.write_file("c", "mine\n")
        turn.read_file("moved")
        turn.write_file("moved", "mine\n")


def test_a_part_of_what_a_command_brought_in_is_not_enough(root: Path) -> None:
    """Finding E5, ruling 2: the agent would hold two halves of two versions."""
    file = root / "f.txt"
    file.write_text("1\n2\n")
    with Workspace(root) as workspace, workspace.turn() as turn:
        turn.read_file("f.txt")
        turn.run("sed -i s/2/3/ f.txt")
        turn.read_file("f.txt", start_line=1, end_line=1)
        with pytest.raises(StaleFileError):
            turn.write_file("f.txt", "mine\n")
        turn.read_file("f.txt", start_line=2, end_line=2)
        turn.write_file("f.txt", "mine\n")


def test_a_session_knows_in_its_next_turn_what_its_command_brought_in(root: Path) -> None:
    """Finding E5, ruling 14: what was not seen in one turn is not seen in the next."""
    file = root / "f.txt"
    file.write_text("v1\n")
    with Workspace(root, scope="session") as workspace:
        with workspace.turn(session_id="s") as turn:
            turn.read_file("f.txt")
            turn.run("sed -i s/1/2/ f.txt")
        with workspace.turn(session_id="s") as turn:
            with pytest.raises(StaleFileError):
                turn.write_file("f.txt", "mine\n")
            turn.edit_file("f.txt", [Edit("v2", "v3")])


def test_a_text_in_a_command_is_judged_as_a_write_by_a_tool(root: Path) -> None:
    """Finding E4, ruling 11: `partial = "deny"` is asked where a text replaces the whole file, and only there."""
    file = root / "f.txt"
    file.write_text("1\n2\n")
    with Workspace(root, partial="deny") as workspace, workspace.turn() as turn:
        turn.read_file("f.txt", start_line=1, end_line=1)
        with pytest.raises(PartialReadError):
            turn.run("cat > f.txt <<'E'\nmine\nE\n")
        assert file.read_text() == "1\n2\n"
        turn.run("echo 3 >> f.txt")
        assert file.read_text() == "1\n2\n3\n"


def test_a_refused_command_lets_the_next_read_count(root: Path) -> None:
    """009-FR-007, `rebaseline = "after-conflict"`: as after a refused write."""
    file = root / "f.txt"
    file.write_text("v1\n")
    with Workspace(root, rebaseline="after-conflict") as workspace, workspace.turn() as turn:
        turn.read_file("f.txt")
        file.write_text("a person's\n")
        with pytest.raises(StaleFileError):
            turn.run("sed -i s/a/b/ f.txt")
        turn.read_file("f.txt")
        turn.run("sed -i s/a/b/ f.txt")


def test_a_command_goes_on_with_what_the_one_before_has_made(root: Path) -> None:
    """Ruling 30: it is the agent's own, and stale only if somebody else has changed it since."""
    (root / "theirs").write_text("theirs\n")
    with Workspace(root) as workspace, workspace.turn() as turn:
        turn.run("cp theirs made; sed -i s/theirs/1/ made")
        turn.run("sed -i s/1/2/ made")
        assert (root / "made").read_text() == "2\n"
        (root / "made").write_text("a person's\n")
        with pytest.raises(StaleFileError):
            turn.run("sed -i s/a/b/ made")
