"""`noclobber versions`: what is kept can be listed, seen and had back."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from noclobber import AgentTraceLedger, Workspace
from noclobber.core.project import ledger_path
from tests.rigs.commands import Terminal, run


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def history(root: Path) -> Path:
    """A file that a person wrote and an agent rewrote twice."""
    file = root / "plan.md"
    file.write_bytes(b"a person's\n")
    with Workspace(root) as ws, ws.turn(agent_id="ana", session_id="session-1") as turn:
        turn.write_file("plan.md", b"one\n")
        turn.write_file("plan.md", b"two\n")
    return file


def test_the_versions_of_a_file_are_listed_with_their_authors(root: Path, history: Path) -> None:
    """N-versions, N-who: in the order in which they were written."""
    done = run("versions", "list", "plan.md", "--json", cwd=root)

    listed = json.loads(done.out)["versions"]
    assert [(each["sha256"], each["by"]) for each in listed] == [
        (sha(b"a person's\n"), "an outsider"),
        (sha(b"one\n"), "ana, session session-"),
        (sha(b"two\n"), "ana, session session-"),
    ]
    assert [each["size_bytes"] for each in listed] == [11, 4, 4]
    assert "an outsider" in run("versions", "list", "plan.md", cwd=root).out


def test_everything_that_is_kept_is_listed(root: Path, history: Path) -> None:
    """N-versions: also a version that no event names."""
    os.unlink(ledger_path(str(root)))
    assert len(json.loads(run("versions", "list", "--json", cwd=root).out)["versions"]) == 3
    assert "(not on record)" in run("versions", "list", cwd=root).out


def test_a_version_is_shown_byte_for_byte(root: Path, history: Path) -> None:
    """N-versions: by the first digits of its hash."""
    assert run("versions", "show", sha(b"one\n")[:6], cwd=root).out == "one\n"


def test_a_version_cannot_control_the_terminal(root: Path) -> None:
    """finding S18: escape sequences in a version are spelled out."""
    (root / "a.md").write_bytes(b"\x1b]0;owned\x07 text\n")
    with Workspace(root) as ws, ws.turn() as turn:
        turn.write_file("a.md", b"new\n")

    with Terminal("versions", "show", sha(b"\x1b]0;owned\x07 text\n")[:12], cwd=root) as terminal:
        shown = terminal.read_all()

    assert "\x1b]0;" not in shown
    assert "text" in shown


def test_a_version_is_restored_by_a_guarded_write_and_what_was_there_is_kept(
    root: Path, history: Path
) -> None:
    """N-versions: restoring is on record and can itself be taken back."""
    done = run("versions", "restore", sha(b"a person's\n")[:8], "plan.md", cwd=root)

    assert done.code == 0, done.err
    assert history.read_bytes() == b"a person's\n"
    assert f"noclobber versions restore {sha(b'two' + chr(10).encode())[:12]} plan.md" in done.out
    assert [*AgentTraceLedger(ledger_path(str(root))).events()][-1]["action_type"] == "MUTATION"
    assert run("versions", "restore", sha(b"two\n")[:12], "plan.md", cwd=root).code == 0
    assert history.read_bytes() == b"two\n"


def test_a_file_that_was_replaced_without_a_read_can_be_had_back(root: Path) -> None:
    """finding U3: it may be replaced by default, and the first sentence of the README says so."""
    (root / "never.md").write_bytes(b"a person's\n")
    with Workspace(root) as ws, ws.turn() as turn:
        turn.write_file("never.md", b"the agent's\n")
    done = run("versions", "restore", sha(b"a person's\n")[:12], "never.md", cwd=root)
    assert done.code == 0, done.err
    assert (root / "never.md").read_bytes() == b"a person's\n"

    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert "a file that it never read may be replaced" in readme.split("**")[1]


def test_a_deleted_file_is_restored(root: Path, history: Path) -> None:
    """N-versions: nothing is gone for good."""
    with Workspace(root) as ws, ws.turn() as turn:
        turn.read_file("plan.md")
        turn.delete_file("plan.md")

    assert run("versions", "restore", sha(b"two\n"), "plan.md", cwd=root).code == 0
    assert history.read_bytes() == b"two\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["show", "zz"], 2, "at least 4 digits"),
        (["show", "00000000"], 3, "No version 00000000 is kept"),
        (["restore", "00000000", "plan.md"], 3, "No version"),
        (["restore", "", "plan.md"], 2, "at least 4 digits"),
    ],
)
def test_what_is_not_there_is_said_plainly(
    root: Path, history: Path, words: list[str], code: int, said: str
) -> None:
    """N-input: the thing and the remedy, and nothing is changed."""
    done = run("versions", *words, cwd=root)

    assert (done.code, said in done.err) == (code, True), done.err
    assert history.read_bytes() == b"two\n"


def test_restoring_outside_the_project_is_refused(root: Path, history: Path, tmp_path: Path) -> None:
    """N-input: a guarded write, with the guard's rules."""
    outside = tmp_path / "outside.md"
    done = run("versions", "restore", "--any", sha(b"one\n"), str(outside), cwd=root)

    assert done.code == 3
    assert not outside.exists()


def test_versions_are_removed(root: Path, history: Path) -> None:
    """N-versions: `prune`, and `prune --all`."""
    assert json.loads(run("versions", "prune", "--json", cwd=root).out)["left"] == 3
    assert json.loads(run("versions", "prune", "--all", "--json", cwd=root).out)["removed"] == 3
    assert "No versions are kept." in run("versions", "list", cwd=root).out


def test_a_project_without_versions_has_none(root: Path) -> None:
    """N-input."""
    assert "No versions are kept." in run("versions", "list", cwd=root).out
    assert run("versions", "prune", cwd=root).code == 0
    assert run("versions", "show", "12345678", cwd=root).code == 3


def test_a_folder_of_versions_that_is_not_ours_is_said_plainly(root: Path, history: Path) -> None:
    """N-versions: by the command and by `doctor`."""
    (root / ".noclobber" / f"versions.{os.geteuid()}").chmod(0o755)

    assert "must belong to you" in run("versions", "list", cwd=root).err
    assert "past versions cannot be kept here" in run("doctor", cwd=root).out


def test_diff_shows_what_changed_since_an_agent_wrote(root: Path, history: Path) -> None:
    """finding U6: `noclobber diff` shows the diff."""
    with Workspace(root) as ws, ws.turn(agent_id="bob") as turn:
        turn.read_file("plan.md")
        turn.write_file("plan.md", b"two\nand more\n")

    done = run("diff", "plan.md", "--agent", "ana", cwd=root)

    assert done.code == 1
    assert "+and more" in done.out


def test_a_version_of_another_file_is_refused_unless_one_insists(root: Path, history: Path) -> None:
    """N-input: a mistyped name must not get another file's content."""
    done = run("versions", "restore", sha(b"one\n"), "other.md", cwd=root)
    assert (done.code, "--any" in done.err) == (2, True)
    assert not (root / "other.md").exists()
    assert run("versions", "restore", "--any", sha(b"one\n"), "other.md", cwd=root).code == 0
    assert (root / "other.md").read_bytes() == b"one\n"


def test_what_a_turn_that_is_still_open_has_replaced_can_be_restored(root: Path) -> None:
    """N-versions: it was called gone until the turn ended, which in an MCP session may be hours later."""
    (root / "a.md").write_bytes(b"by hand\n")
    with Workspace(root) as ws, ws.turn(agent_id="ana") as turn:
        turn.write_file("a.md", b"one\n")
        turn.write_file("a.md", b"two\n")
        lines = run("versions", "list", "a.md", cwd=root).out.splitlines()
        assert [line.split()[1:3] for line in lines[1:3]] == [["8", "B"], ["4", "B"]], lines
        assert run("versions", "show", sha(b"one\n")[:12], cwd=root).out == "one\n"
        done = run("versions", "restore", sha(b"by hand\n")[:12], "a.md", cwd=root)
        assert done.code == 0, done.err
        assert (root / "a.md").read_bytes() == b"by hand\n"


def test_what_the_file_has_now_is_not_called_gone(root: Path) -> None:
    """N-versions: it is not kept as a past version, and looked like a loss."""
    with Workspace(root) as ws, ws.turn() as turn:
        turn.write_file("a.md", b"one\n")
        turn.write_file("a.md", b"two\n")
    assert run("versions", "prune", "--all", cwd=root).code == 0
    lines = run("versions", "list", "a.md", cwd=root).out.splitlines()
    assert "in the file" in next(line for line in lines if sha(b"two\n")[:12] in line)
    (root / "a.md").write_bytes(b"three\n")
    lines = run("versions", "list", "a.md", cwd=root).out.splitlines()
    assert "gone" in next(line for line in lines if sha(b"two\n")[:12] in line)
