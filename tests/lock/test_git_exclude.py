"""Lock files stay out of git (REQ-LOCK-010)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from noclobber.lock.git_exclude import MOST_BYTES, keep_out_of_git
from noclobber.lock.lock import DeliverableLock

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_lock_files_are_ignored_wherever_a_deliverable_is(tmp_path: Path) -> None:
    """REQ-LOCK-010: in the repository's own excludes; no file of the project changes."""
    git(tmp_path, "init", "-q")
    deliverable = tmp_path / "a/b"
    deliverable.mkdir(parents=True)
    (tmp_path / ".git/info").mkdir(exist_ok=True)
    (tmp_path / ".git/info/exclude").write_text("mine")
    for _ in range(2):
        assert keep_out_of_git(str(deliverable)) == str(tmp_path / ".git/info/exclude")
    with DeliverableLock(deliverable, holder="a"):
        (deliverable / ".lock.take.0123").write_text("")
        assert git(tmp_path, "status", "--porcelain", "-uall") == ""
    text = (tmp_path / ".git/info/exclude").read_text()
    assert text.startswith("mine\n")
    assert text.count(".lock-ledger") == 1, "twice is once"


def test_a_worktrees_excludes_are_its_repositorys(tmp_path: Path) -> None:
    """REQ-LOCK-010: `.git` is a file there."""
    main, tree = tmp_path / "main", tmp_path / "tree"
    main.mkdir()
    git(main, "init", "-q")
    git(main, "commit", "-q", "--allow-empty", "-m", "x")
    git(main, "worktree", "add", "-q", str(tree))
    assert keep_out_of_git(str(tree)) == str(main / ".git/info/exclude")
    (tree / ".lock").write_text("")
    assert git(tree, "status", "--porcelain") == ""


def test_without_a_repository_there_is_nothing_to_do(tmp_path: Path) -> None:
    """REQ-LOCK-010."""
    assert keep_out_of_git(str(tmp_path)) is None
    (tmp_path / ".git").write_text("gitdir: nowhere")
    assert keep_out_of_git(str(tmp_path)) is None


def planted(git_folder: Path, victim: Path, how: str) -> None:
    """Make a repository whose excludes lead elsewhere, as an archive may bring one."""
    git_folder.mkdir()
    for name in ("objects", "refs"):
        (git_folder / name).mkdir()
    (git_folder / "HEAD").write_text("ref: refs/heads/main\n")
    if how == "linked info":
        (victim.parent / "info").mkdir()
        victim.rename(victim.parent / "info" / "exclude")
        (git_folder / "info").symlink_to(victim.parent / "info")
        return
    (git_folder / "info").mkdir()
    exclude = git_folder / "info" / "exclude"
    if how == "link":
        exclude.symlink_to(victim)
    elif how == "hard link":
        exclude.hardlink_to(victim)
    elif how == "fifo":
        os.mkfifo(exclude)
    elif how == "folder":
        exclude.mkdir()
    elif how == "huge":
        exclude.write_bytes(b"x" * (MOST_BYTES + 1))


@pytest.mark.parametrize("how", ["link", "hard link", "linked info", "fifo", "folder", "huge"])
def test_excludes_that_lead_elsewhere_are_left_alone(tmp_path: Path, how: str) -> None:
    """findings D7 and S20, N-hostile: `.git` of an archive may lead to `~/.profile`, or never answer."""
    victim = tmp_path / "profile"
    victim.write_text("mine\n")
    planted(tmp_path / ".git", victim, how)

    assert keep_out_of_git(str(tmp_path)) is None

    there = victim if victim.exists() else tmp_path / "info" / "exclude"
    assert there.read_text() == "mine\n"


@pytest.mark.parametrize("how", ["pointer", "link"])
def test_a_pointer_to_what_is_no_repository_is_not_followed(tmp_path: Path, how: str) -> None:
    """findings D7 and S20: `gitdir: /home/you/notes`, in a file that came with a folder."""
    project, victim = tmp_path / "project", tmp_path / "notes"
    project.mkdir()
    (victim / "info").mkdir(parents=True)
    (victim / "info" / "exclude").write_text("mine\n")
    if how == "pointer":
        (project / ".git").write_text(f"gitdir: {victim}\n")
    else:
        (project / ".git").symlink_to(victim)

    assert keep_out_of_git(str(project)) is None
    assert (victim / "info" / "exclude").read_text() == "mine\n"


def test_git_adds_no_lock_file_of_any_lock_command(tmp_path: Path) -> None:
    """finding D7: `git add -A` after each command that locks, in a repository that was never set up."""
    for name, words in {
        "run": ["lock", "run", "DEL", "--", "git", "add", "-A"],
        "acquire": ["lock", "acquire", "DEL", "--lease-only"],
    }.items():
        root = tmp_path / name
        (root / "DEL").mkdir(parents=True)
        (root / "DEL" / "work.md").write_text("x")
        git(root, "init", "-q")
        subprocess.run(
            [sys.executable, "-m", "noclobber", *words], cwd=root, check=True, capture_output=True, timeout=60
        )
        git(root, "add", "-A")
        assert git(root, "diff", "--cached", "--name-only").split() == ["DEL/work.md"]
