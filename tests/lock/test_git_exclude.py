"""Lock files stay out of git (REQ-LOCK-010)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from noclobber.lock.git_exclude import keep_out_of_git
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
