"""Landings that are cut off, and git at work beside them: the next command finds one whole tree."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from noclobber.cli import run as guarded
from noclobber.disk import steps
from tests.shell.test_process import events, is_available, project, run_with_an_outsider, shell

__all__ = ["project"]
pytestmark = pytest.mark.skipif(not is_available(), reason="no namespaces here")
COMMAND = "echo two >> plan.md; echo two >> other.md; git commit -qam two"


@pytest.fixture
def clone(project: Path) -> Path:
    (project / "other.md").write_text("one\n")
    git(project, "init", "-q", "-b", "main", ".")
    git(project, "config", "user.email", "a@b")
    git(project, "config", "user.name", "a")
    git(project, "add", "plan.md", "other.md")
    git(project, "commit", "-qm", "one")
    return project


def git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout


def run_observed(root: Path, text: str, observe: Callable[[str], None]) -> int:
    """Run a command in a process of its own whose landing is observed; return its exit code, -9 if killed."""
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            os.chdir(root)
            nothing_fd = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(nothing_fd, descriptor)
            steps.observer = observe
            code = guarded.main(["--require", "--", "sh", "-c", text])
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("exchange", [2, 6])
def test_the_next_command_finds_the_old_tree_or_the_new_one(clone: Path, exchange: int) -> None:
    """N-shell: killed between two of its files, a landing is taken back before anybody looks, and recorded."""
    left = exchange

    def die(step: str) -> None:
        nonlocal left
        left -= step == "one-visible"
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    assert run_observed(clone, COMMAND, die) == -signal.SIGKILL
    seen = shell(clone, "cat plan.md other.md; git status --porcelain -uno; git log --format=%s")
    assert seen.stdout in ("one\none\none\n", "one\ntwo\none\ntwo\ntwo\none\n"), seen
    assert git(clone, "fsck", "--strict") == ""
    assert list(clone.glob(".git/**/*.lock")) == []
    git(clone, "commit", "-q", "--allow-empty", "-m", "by hand")
    assert "COMMIT_RECOVERED" in {event["action_type"] for event in events(clone)}
    assert os.listdir(clone / ".noclobber/run") == []


def test_a_git_that_works_beside_a_landing_waits(clone: Path) -> None:
    """N-shell: while the index and HEAD change, git's own locks are held; a plain git says so."""
    told = clone.parent / "told"

    def commit_plainly(step: str) -> None:
        if step == "one-visible" and not told.exists():
            words = ["git", "commit", "-q", "--allow-empty", "-m", "plain"]
            done = subprocess.run(words, cwd=clone, capture_output=True, text=True)
            told.write_text(done.stderr)

    assert run_observed(clone, COMMAND, commit_plainly) == 0
    assert "index.lock" in told.read_text()
    assert git(clone, "log", "--format=%s").split() == ["two", "one"]
    assert git(clone, "status", "--porcelain", "-uno") == ""
    assert list(clone.glob(".git/**/*.lock")) == []


def test_a_git_that_has_the_index_is_not_overrun(clone: Path) -> None:
    """N-shell: it would write its index over that of the command; so nothing of the command lands."""
    done = run_with_an_outsider(clone, "true", "touch .git/index.lock", before=COMMAND)
    assert (done.returncode, "index.lock" in done.stderr) == (75, True), done.stderr
    assert git(clone, "log", "--format=%s").split() == ["one"]
    assert (clone / ".git/index.lock").exists()
    assert (clone / "plan.md").read_text() == "one\n"
