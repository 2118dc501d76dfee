"""Folders that a commit makes for its new files go again if it does not land."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from noclobber.disk.commit.change_set import Change, commit_changes
from noclobber.disk.commit.committer import Committer
from noclobber.disk.commit.moving import move
from noclobber.disk.paths import pin
from noclobber.errors import NoclobberError, StaleFileError
from tests.conftest import AtStep, sha256
from tests.disk.commit.test_recovery import killed, look_at, tree


def test_a_refused_commit_leaves_no_folder(root: Path) -> None:
    """N-many: "none" means no folder either, in whichever order the files are named."""
    (root / "a").write_bytes(b"theirs")
    new, stale = Change("new/deep/x", b"x", "ABSENT"), Change("a", b"mine", sha256(b"v1"))
    for rows in ([new, stale], [stale, new]):
        with pytest.raises(StaleFileError):
            commit_changes(Committer(str(root)), rows)
        assert tree(root) == {"a": b"theirs"}
        assert os.listdir(root / ".noclobber/swap") == []


def test_a_refused_write_and_a_refused_move_leave_no_folder(root: Path, at_step: AtStep) -> None:
    """009-FR-004: one file goes the same way."""
    (root / "a").write_bytes(b"a")
    committer = Committer(str(root))
    at_step("creating", lambda: (root / "new/x").write_bytes(b"theirs"))
    with pytest.raises(StaleFileError):
        committer.replace("new/x", "ABSENT", b"mine")
    with pytest.raises(StaleFileError):
        move(committer, "a", "other/place/a", sha256(b"not this"))
    assert tree(root) == {"a": b"a", "new": b"", "new/x": b"theirs"}


@pytest.mark.parametrize("step", ["entered", "noted", "one-visible"])
def test_what_a_killed_commit_had_made_goes_in_recovery(root: Path, step: str) -> None:
    """N-many: also if the process is killed before, or after, the first file is in its folder."""
    (root / "a").write_bytes(b"a")
    killed(root, step, (root / "new/deep/x", b"x"), (root / "a", b"mine"))
    assert (root / "new/deep").is_dir()
    look_at(root, "a")
    assert tree(root) == {"a": b"a"}
    assert not list((root / ".noclobber/swap").glob("made-*"))


def test_what_others_put_there_stays(root: Path) -> None:
    """009-SC-001: only empty folders go."""
    killed(root, "noted", (root / "new/deep/x", b"x"), (root / "new/y", b"y"))
    (root / "new/theirs").write_bytes(b"theirs")
    Committer(str(root)).recover_all()
    assert tree(root) == {"new": b"", "new/theirs": b"theirs"}


def test_the_folders_of_a_live_process_stay(root: Path) -> None:
    """N-many: another process that recovers does not take them away."""
    committer = Committer(str(root))
    with committer.made_folders() as made:
        pin(str(root), f"{root}/new/x", make_folders=made).close()
        Committer(str(root)).recover_all()
        assert (root / "new").is_dir()


def test_a_commit_into_a_folder_that_another_takes_away_makes_it_again(root: Path, at_step: AtStep) -> None:
    """009-SC-002: a refusal of one commit is none of another, which had found the folder."""
    committer = Committer(str(root))
    (root / "new").mkdir()
    seen = at_step("creating", lambda: (root / "new").rmdir())
    committer.replace("new/x", "ABSENT", b"x")
    assert len(seen) == 1
    seen = at_step("noted", lambda: shutil.rmtree(root / "new"))
    commit_changes(committer, [Change("new/y", b"y", "ABSENT"), Change("new/z", b"z", "ABSENT")])
    assert len(seen) == 1
    assert tree(root) == {"new": b"", "new/y": b"y", "new/z": b"z"}


def test_a_record_leads_nowhere_outside_the_root(root: Path) -> None:
    """S29: a record that came with a folder is not believed about anything else."""
    (root.parent / "outside").mkdir()
    (root / "link").symlink_to(root.parent)
    Committer(str(root)).open_store()
    names = [
        f"{root.parent}/outside",
        f"{root}/../outside",
        f"{root}/link/outside",
        f"{root}/.noclobber/kept",
    ]
    (root / ".noclobber/swap/made-0").write_bytes(b"\0".join(name.encode() for name in names))
    Committer(str(root)).recover_all()
    assert (root.parent / "outside").is_dir()
    assert (root / ".noclobber/kept").is_dir()


def test_a_folder_that_cannot_be_made_leaves_none(root: Path) -> None:
    """Ruling 12: of `new/deep` and a name that is too long, `new` does not stay."""
    with pytest.raises(NoclobberError):
        Committer(str(root)).replace(f"new/{'n' * 300}/x", "ABSENT", b"x")
    assert tree(root) == {}
