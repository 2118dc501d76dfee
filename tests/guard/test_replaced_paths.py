"""Versions that a killed process had replaced and not yet put away."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from noclobber import Workspace
from noclobber.disk.commit import sweep

CHILD = """
import os, signal, sys
from noclobber import Workspace
from noclobber.disk import steps
from noclobber.disk.commit import sweep
sweep.LATE_S = 3600.0  # What was replaced a moment ago waits for the sweep.
root, step, *names = sys.argv[1:]
turn = Workspace(root).turn(agent_id="killed").__enter__()
for name in names:
    turn.read_file(name)
steps.observer = lambda reached: reached == step and os.kill(os.getpid(), signal.SIGKILL)
for name in names:
    turn.write_file(name, "new\\n")
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(root: Path, step: str, *names: str) -> None:
    """Have another process write files, and die at a step of that, or right afterwards."""
    assert subprocess.run([sys.executable, "-c", CHILD, str(root), step, *names]).returncode == -9


def versions(root: Path) -> set[bytes]:
    return {path.read_bytes() for path in root.glob(".noclobber/versions.*/?/*")}


@pytest.mark.parametrize("step", ["exchanged", "settled"])
def test_a_version_that_a_commit_replaced_when_it_was_killed_is_kept(root: Path, step: str) -> None:
    """N-versions, ruling 19: the next guarded call finishes the commit, and keeps what it replaced."""
    (root / "a.txt").write_text("old\n")
    killed(root, step, "a.txt")
    with Workspace(root) as workspace, workspace.turn() as turn:
        assert turn.read_file("a.txt").text == "new\n"
        turn.write_file("other.txt", "x")
    assert b"old\n" in versions(root)
    assert os.listdir(root / ".noclobber/swap") == []


def test_versions_that_waited_for_a_killed_processs_sweep_are_kept(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-versions, ruling 19: the ledger says which files they were, so secrets are left out here, too."""
    for folder in ("sub", ".git"):
        (root / folder).mkdir()
    for name in ("a.txt", "sub/a.txt", ".env", "sub/skipped.log"):
        (root / name).write_text(f"old {name}\n")
    (root / ".gitignore").write_text("*.log\n")
    killed(root, "never", "a.txt", "sub/a.txt", ".env", "sub/skipped.log")
    assert len(os.listdir(root / ".noclobber/swap")) == 4
    monkeypatch.setattr(sweep, "YOUNG_S", 0.0)
    with Workspace(root) as workspace, workspace.turn() as turn:
        turn.write_file("other.txt", "x")
    assert {data for data in versions(root) if data.startswith(b"old")} == {
        b"old a.txt\n",
        b"old sub/a.txt\n",
    }
    assert os.listdir(root / ".noclobber/swap") == []


def test_more_files_than_wait_at_once_lose_no_version(root: Path) -> None:
    """N-versions, ruling 19: one commit of more than 64 files keeps every version that it replaced."""
    names = [f"{number}.txt" for number in range(100)]
    for name in names:
        (root / name).write_text(f"old {name}\n")
    with Workspace(root) as workspace, workspace.turn() as turn:
        for name in names:
            turn.read_file(name)
        turn.write_files(dict.fromkeys(names, "new\n"))
    assert versions(root) >= {f"old {name}\n".encode() for name in names}


def test_a_commit_of_more_files_than_can_be_open_loses_no_version(root: Path) -> None:
    """N-versions, ruling 19: a low limit of open files is raised for it."""
    names = [f"{number}.txt" for number in range(150)]
    for name in names:
        (root / name).write_text(f"old {name}\n")
    program = (
        "import resource, sys\n"
        "from noclobber import Workspace\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\n"
        "root, *names = sys.argv[1:]\n"
        "with Workspace(root) as workspace, workspace.turn() as turn:\n"
        "    for name in names:\n"
        "        turn.read_file(name)\n"
        "    turn.write_files(dict.fromkeys(names, 'new\\n'))\n"
    )
    subprocess.run([sys.executable, "-c", program, str(root), *names], check=True)
    assert versions(root) >= {f"old {name}\n".encode() for name in names}
