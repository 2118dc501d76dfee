"""What the commit functions give back."""

from __future__ import annotations

import _thread
import os
import subprocess
import sys
from pathlib import Path

import noclobber
from noclobber.disk.commit.rows import Change
from noclobber.disk.file_guard import FileGuard
from noclobber.errors import ABSENT, DELETED
from tests.conftest import sha256


def test_every_kind_of_commit_gives_back_the_same_value(root: Path) -> None:
    """finding C3: one result value, from the commit to the caller."""
    guard = FileGuard(root)
    one, two = sha256(b"1"), sha256(b"2")
    a, b = str(root / "a.md"), str(root / "b.md")
    created = guard.write("a.md", b"1", expected=ABSENT)
    replaced = noclobber.replace_if_unchanged(a, one, b"2")
    many = guard.commit([Change("a.md", b"1", two), Change("b.md", b"2", ABSENT)])
    moved = guard.move("a.md", "c.md", expected=one)
    deleted = guard.delete("b.md", expected=two)
    assert [created, replaced, *many, moved, deleted] == [
        noclobber.WriteResult(a, one, "create", ABSENT),
        noclobber.WriteResult(a, two, replaced.level, one),
        noclobber.WriteResult(a, one, many[0].level, two),
        noclobber.WriteResult(b, two, "create", ABSENT),
        noclobber.WriteResult(str(root / "c.md"), one, "create", one),
        noclobber.WriteResult(b, DELETED, deleted.level, two),
    ]


def test_the_old_name_of_the_result_is_gone() -> None:
    """finding C3: two names for one value would make callers look for a difference."""
    assert not hasattr(noclobber, "Commit")


KILLED_AFTER_THE_EXCHANGE = """
import os, signal, sys
from noclobber.disk import steps
from noclobber.disk.commit.committer import Committer
def observe(reached):
    if reached == "exchanged":
        os.kill(os.getpid(), signal.SIGKILL)
steps.observer = observe
Committer(sys.argv[1]).replace("a.md", sys.argv[2], b"dead")
"""


def test_a_turn_hears_what_a_dead_process_had_left_in_the_folder(root: Path) -> None:
    """finding C3: what the commit found is in the result that the caller gets, not only in the ledger."""
    (root / "a.md").write_bytes(b"v1")
    child = subprocess.run(
        [sys.executable, "-c", KILLED_AFTER_THE_EXCHANGE, str(root), sha256(b"v1")], check=False
    )
    assert child.returncode == -9
    with noclobber.Workspace(root) as workspace, workspace.turn() as turn:
        result = turn.write_file("b.md", b"x")
    assert [(found.path, found.outcome) for found in result.recovered] == [
        (os.path.join(root, "a.md"), "landed")
    ]


def test_a_write_of_any_size_leaves_no_thread_behind(root: Path) -> None:
    """finding C4: Python 3.12 warns a program that forks while it has threads."""
    count = _thread._count()
    for size in (1, 1 << 16, 1 << 20):
        noclobber.replace_if_unchanged(root / "f", None, bytes(size))
        assert _thread._count() == count
