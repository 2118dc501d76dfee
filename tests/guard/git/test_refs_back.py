"""Undo beside git: a repository is never taken back file by file, and its refs only by git itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from noclobber import Workspace
from noclobber.guard.commands import run_command
from noclobber.guard.git.refs_back import move_back
from noclobber.guard.undo import UndoPlan
from noclobber.shell.roots import why_not
from tests.rigs.clones import IDENTITY, Clone
from tests.rigs.commands import run

TEXT = b"".join(b"line %d\n" % number for number in range(1, 21))


@pytest.fixture
def clone(root: Path, monkeypatch: pytest.MonkeyPatch) -> Clone:
    """A clone with one commit."""
    if (reason := why_not(str(root))) is not None:
        pytest.skip(reason)
    for name, value in IDENTITY.items():
        monkeypatch.setenv(name, value)
    return Clone(root, {"a.md": TEXT, "b.md": TEXT})


def guarded(clone: Clone, agent: str, command: str) -> None:
    """Run a command in the guarded shell."""
    with Workspace(clone.root) as workspace, workspace.turn(agent_id=agent) as turn:
        done = run_command(turn, command)
        assert done.exit_code == 0, done.stderr


def undo(clone: Clone, agent: str) -> UndoPlan:
    """Take back what an agent did, and look whether the repository is sound."""
    with Workspace(clone.root) as workspace:
        planned = workspace.undo(agent_id=agent)
    clone.git("fsck", "--strict")
    return planned


def commit(clone: Clone, agent: str, name: str, text: bytes) -> str:
    """An agent changes a file and commits it in the guarded shell; return the commit before."""
    before = clone.git("rev-parse", "HEAD").strip()
    clone.write(agent, name, text)
    guarded(clone, agent, f"git add {name} && git commit -qm 'of {agent}'")
    return before


def test_what_was_fetched_stays_when_others_have_merged_it(clone: Clone, tmp_path: Path) -> None:
    """finding G1: an undo removed the objects of a commit that somebody had merged since."""
    up = Clone(tmp_path, {})
    up.git("fetch", "-q", str(clone.root), "main")
    up.git("reset", "-q", "--hard", "FETCH_HEAD")
    (up.root / "c.md").write_bytes(b"new\n")
    up.git("add", "-A")
    up.git("commit", "-qm", "upstream")
    before = clone.git("rev-parse", "HEAD")
    guarded(clone, "bot", f"git fetch -q {up.root} main:refs/remotes/up/main")
    clone.git("merge", "-q", "--ff-only", "up/main")

    planned = undo(clone, "bot")

    assert clone.git("rev-parse", "HEAD") != before
    assert (clone.root / "c.md").read_bytes() == b"new\n"
    assert clone.status() == []
    assert not planned.files
    assert [os.path.basename(each.path) for each in planned.left] == [".git"]
    assert "refs/remotes" in planned.left[0].reason


def test_a_commit_goes_back_with_its_files_and_forth_again(clone: Clone) -> None:
    """Finding G1: the branch is moved by git, the index with it, and what a person has staged stays staged."""
    before = commit(clone, "bot", "a.md", TEXT.replace(b"line 3\n", b"bot\n"))
    after = clone.git("rev-parse", "HEAD").strip()
    (clone.root / "b.md").write_bytes(b"a person's\n")
    clone.git("add", "b.md")

    planned = undo(clone, "bot")

    assert [(each.ref, each.now, each.then) for each in planned.refs] == [("refs/heads/main", after, before)]
    assert clone.git("rev-parse", "HEAD").strip() == before
    assert (clone.root / "a.md").read_bytes() == TEXT
    assert clone.status() == ["M  b.md"]
    with Workspace(clone.root) as workspace:
        again = workspace.undo(agent_id="noclobber-undo")
    assert again.refs[0].then == after
    assert clone.git("rev-parse", "HEAD").strip() == after
    assert clone.status() == ["M  b.md"]


def test_a_branch_that_others_have_moved_stays_and_that_is_said(clone: Clone) -> None:
    """Finding G1: a commit of somebody else on top stays where it is."""
    commit(clone, "bot", "a.md", TEXT.replace(b"line 3\n", b"bot\n"))
    (clone.root / "b.md").write_bytes(b"a person's\n")
    clone.git("commit", "-qam", "of a person")
    head = clone.git("rev-parse", "HEAD")

    planned = undo(clone, "bot")

    assert clone.git("rev-parse", "HEAD") == head
    assert planned.refs == ()
    assert any("others have moved it" in each.reason for each in planned.left)
    assert (clone.root / "a.md").read_bytes() == TEXT


def test_of_two_who_move_a_branch_at_once_git_decides(clone: Clone) -> None:
    """Finding G1: somebody commits between the plan and the undo."""
    commit(clone, "bot", "a.md", TEXT.replace(b"line 3\n", b"bot\n"))
    with Workspace(clone.root) as workspace:
        planned = workspace.undo(agent_id="bot", dry_run=True)
    clone.git("commit", "-q", "--allow-empty", "-m", "of a person")
    head = clone.git("rev-parse", "HEAD")

    assert not move_back(planned.refs[0])

    assert clone.git("rev-parse", "HEAD") == head
    assert not list((clone.root / ".git").glob("index*lock"))
    assert not list((clone.root / ".git").glob("index-*"))


def test_packed_and_checked_out_branches_are_not_removed(clone: Clone) -> None:
    """Finding G1: a packed ref has no file of its own, so its first move looks like a creation."""
    clone.git("branch", "packed")
    clone.git("pack-refs", "--all")
    old = clone.git("rev-parse", "packed")
    guarded(clone, "bot", "git checkout -q packed && git commit -q --allow-empty -m x")
    guarded(clone, "bot", "git checkout -q -b mine && git commit -q --allow-empty -m y && git tag t")

    planned = undo(clone, "bot")

    assert clone.git("rev-parse", "packed") == old
    assert clone.git("symbolic-ref", "HEAD").strip() == "refs/heads/mine"
    assert clone.git("tag", "--list") == ""
    assert any(each.path.endswith("refs/heads/mine") for each in planned.left)


def test_repositories_below_and_bare_ones_are_gits_too(clone: Clone) -> None:
    """Finding G1: a clone in a clone, a bare repository, a linked work tree, each made and used by an agent."""
    guarded(
        clone,
        "bot",
        "git clone -q . below && git clone -q --bare . bare.git && cp -r bare.git kept"
        " && cd below && echo x >> a.md && git commit -qam x",
    )
    for name in ("below", "bare.git", "kept"):
        subprocess.run(["git", "fsck"], cwd=clone.root / name, check=True, capture_output=True)
    guarded(clone, "bot", "git -C below push -q ../kept main:other && git worktree add -q linked -b linked")
    guarded(clone, "bot", "rm -rf bare.git")

    planned = undo(clone, "bot")

    assert {os.path.relpath(each.path, clone.root).split("/")[0] for each in planned.left} >= {
        "below",
        "kept",
    }
    assert not any("bare.git" in each.path for each in planned.files)
    for name in ("below", "kept"):
        subprocess.run(["git", "fsck"], cwd=clone.root / name, check=True, capture_output=True)
    assert (clone.root / "linked/.git").exists()


def test_nothing_that_a_repository_names_is_run(clone: Clone) -> None:
    """Finding G1: no hook, no monitor, no filter."""
    commit(clone, "bot", "a.md", TEXT.replace(b"line 3\n", b"bot\n"))
    trap = clone.root.parent / "trapped"
    program = f"#!/bin/sh\ntouch {trap}\n"
    for name in ("reference-transaction", "post-index-change", "post-checkout", "pre-auto-gc"):
        (clone.root / f".git/hooks/{name}").write_text(program)
        (clone.root / f".git/hooks/{name}").chmod(0o755)
    clone.git("config", "core.fsmonitor", str(clone.root / ".git/hooks/pre-auto-gc"))
    (clone.root / ".git/info/attributes").write_text("* filter=x diff=x\n")
    for key in ("filter.x.clean", "filter.x.smudge", "diff.x.textconv", "diff.external"):
        clone.git("-c", "core.hooksPath=/dev/null", "config", key, f"touch {trap}; cat")
    trap.unlink(missing_ok=True)

    with Workspace(clone.root) as workspace:
        assert workspace.undo(agent_id="bot").refs

    assert not trap.exists()


def test_what_git_keeps_is_nobodys_file(clone: Clone) -> None:
    """finding G6: `commit --mine` works after git in the guarded shell; blame and versions know no `.git`."""
    guarded(clone, "bot", "git status && git branch other && git checkout -q other && echo x >> b.md")
    clone.write("bot", "a.md", TEXT.replace(b"line 3\n", b"bot\n"))
    guarded(clone, "bot", "git add a.md")

    with Workspace(clone.root) as workspace:
        made = workspace.commit_mine("mine", agent_id="bot")

    assert sorted(each.path for each in made.plan.files) == ["a.md", "b.md"]
    assert clone.status() == []
    listed = run("versions", "list", ".git/index", cwd=clone.root)
    assert "bot" not in listed.out
    versions = clone.root / f".noclobber/versions.{os.geteuid()}"
    assert not any(b"DIRC" in each.read_bytes()[:4] for each in versions.glob("*/*"))
