"""
What keeps a version when an NFS client takes its name away, which it does in two steps of its own.

The kernel's part is played here, on a local disk: `take_name` is the first step, `.nfs…`, of a rename whose second
one was revoked or never came. `make nfs` has the real one, between kernels.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import noclobber
from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.disk import filesystems
from noclobber.errors import FileBusyError, MissingFileError, StaleFileError, StorageError
from noclobber.postgres import section_recovery, sections, shared_volume
from noclobber.postgres.coordinator import _connection
from noclobber.postgres.second_names import SecondNames
from tests.conftest import sha256
from tests.postgres.test_sections import other
from tests.rigs import postgres


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that counts as an NFS volume, with one file in it."""
    monkeypatch.setenv("NOCLOBBER_COORDINATOR", postgres.coordinator())
    monkeypatch.setenv("NOCLOBBER_WORKSPACE", f"team-{os.urandom(4).hex()}")
    monkeypatch.setattr(shared_volume, "is_shared_volume", lambda root: True)
    monkeypatch.setattr(filesystems, "filesystem_type", lambda root: "nfs4")
    monkeypatch.setattr(sections, "SECTION_S", 0.2)
    (tmp_path / "p/.noclobber").mkdir(parents=True)
    (tmp_path / "p/a.txt").write_text("first\n")
    yield tmp_path / "p"
    _connection.cache_clear()


def take_name(path: Path) -> None:
    """The first step of a late rename, and the end of the program that had the file open."""
    path.rename(path.with_name(".nfs0001"))
    path.with_name(".nfs0001").unlink()


def kept(root: Path) -> list[str]:
    """Marks and second names."""
    return SecondNames(str(root / ".noclobber/sections"), "nfs4").leftovers()


def write(root: Path, text: str) -> None:
    """One guarded write."""
    with noclobber.Workspace(root) as workspace, workspace.turn() as turn:
        turn.read_file("a.txt")
        assert turn.write_file("a.txt", text).level == "section"


def test_in_quiet_times_no_second_name_is_left(root: Path) -> None:
    """N-machines: only while a rename is under way; a file has one name for its user."""
    write(root, "second\n")
    assert kept(root) == []
    assert (root / "a.txt").stat().st_nlink == 1


def test_a_writer_killed_between_the_two_steps_takes_nothing_away(root: Path) -> None:
    """N-machines: whoever finds it puts the version back that had its name taken."""
    assert other(root, "write", "section-checked")[0] == -9
    assert not kept(root), "it was no NFS for that one, so its second name is given here"
    names = SecondNames(str(root / ".noclobber/sections"), "nfs4")
    names.give(str(root / "a.txt"), noclobber.Workspace(root).guard.digest("a.txt"))
    take_name(root / "a.txt")
    with noclobber.Workspace(root) as workspace:
        recovered = workspace.guard._sections.recover_overdue()  # type: ignore[attr-defined]
        while not recovered:
            recovered = workspace.guard._sections.recover_overdue()  # type: ignore[attr-defined]
    assert (root / "a.txt").read_text() == "first\n"
    assert any(name.startswith("late-") for name in kept(root))


def overdue(root: Path) -> None:
    """A writer was stopped before its rename, and revoked: it may come late."""
    assert other(root, "write", "section-checked")[0] == -9
    write(root, "second\n")
    assert any(name.startswith("late-") for name in kept(root))


def test_a_late_first_step_is_undone_by_the_next_reader(root: Path) -> None:
    """N-machines: the newest version, of whoever wrote it, is there again."""
    overdue(root)
    write(root, "third\n")
    take_name(root / "a.txt")
    with noclobber.Workspace(root) as workspace, workspace.turn() as turn:
        assert turn.read_file("a.txt").text == "third\n"
    assert (root / "a.txt").read_text() == "third\n"


def test_a_late_first_step_is_undone_by_the_next_writer(root: Path) -> None:
    """N-machines: a writer that believes the file to be absent is refused, and the version stays."""
    overdue(root)
    write(root, "third\n")
    take_name(root / "a.txt")
    with noclobber.Workspace(root) as workspace, pytest.raises(StaleFileError):
        workspace.guard.write("a.txt", b"mine\n", expected="ABSENT")
    assert (root / "a.txt").read_text() == "third\n"


def test_a_landed_write_whose_version_a_late_step_took_is_not_undone_by_its_recovery(root: Path) -> None:
    """N-machines: its writer was told that it landed, the server did not hear of it, and the old one is kept, too."""
    overdue(root)
    names, path = SecondNames(str(root / ".noclobber/sections"), "nfs4"), str(root / "a.txt")
    for name in names.of(path):
        os.unlink(name)  # It is no NFS for the next writer. Its second names are given here.
    assert other(root, "write", "section-renamed")[0] == -9
    newest = (root / "a.txt").read_text()
    assert newest != "second\n"
    (root / "old").write_text("second\n")
    names.give(path, sha256(b"second\n"), str(root / "old"))
    names.give(path, sha256(newest.encode()))
    (root / "old").unlink()
    take_name(root / "a.txt")
    with noclobber.Workspace(root) as workspace:
        while not workspace.guard._sections.recover_overdue():  # type: ignore[attr-defined]
            pass
    assert (root / "a.txt").read_text() == newest
    write(root, "next\n")


def test_a_mark_is_asked_of_the_server_and_believed_to_be_there_if_the_volume_fails(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines: a machine that has found none remembers that, and would land a version without a second name."""
    names, asked = SecondNames(str(root / ".noclobber/sections"), "nfs4"), list[str]()
    monkeypatch.setattr(filesystems, "refresh", asked.append)
    assert not names.is_marked(str(root / "a.txt"))
    assert asked == [str(root / ".noclobber/sections")]

    def fails(path: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(os, "lstat", fails)
    assert names.is_marked(str(root / "a.txt"))


def test_a_file_that_somebody_deletes_in_quiet_times_stays_deleted(root: Path) -> None:
    """N-machines: without a mark nobody's rename is late, and what is gone was deleted."""
    write(root, "second\n")
    (root / "a.txt").unlink()
    with noclobber.Workspace(root) as workspace, workspace.turn() as turn, pytest.raises(MissingFileError):
        turn.read_file("a.txt")


def test_a_guarded_deletion_stays_one_also_while_a_rename_may_come_late(root: Path) -> None:
    """N-machines: the server knows of it, and no second name of it is left."""
    overdue(root)
    with noclobber.Workspace(root) as workspace:
        with workspace.turn() as turn:
            turn.read_file("a.txt")
            turn.delete_file("a.txt")
        with workspace.turn() as turn, pytest.raises(MissingFileError):
            turn.read_file("a.txt")
    assert not any(name.startswith("kept-") for name in kept(root))


def test_second_names_are_no_hard_links_of_the_user(root: Path) -> None:
    """N-machines: a file with a second name can be written; one with a link of its user's cannot."""
    overdue(root)
    assert (root / "a.txt").stat().st_nlink == 2
    write(root, "third\n")
    os.link(root / "a.txt", root / "b.txt")
    with noclobber.Workspace(root) as workspace, workspace.turn() as turn:
        turn.read_file("a.txt")
        with pytest.raises(noclobber.NoclobberError, match="several names"):
            turn.write_file("a.txt", "fourth\n")


def test_marks_and_second_names_are_swept_after_an_hour(root: Path) -> None:
    """N-machines: first the marks, then what they were for."""
    overdue(root)
    for name in kept(root):
        os.utime(
            root / ".noclobber/sections" / name, (0, SYSTEM_CLOCK.now_s() - 2 * section_recovery.LEFTOVER_S)
        )
    for _ in range(2):
        with noclobber.Workspace(root) as workspace:
            workspace.guard.sweep()
    assert kept(root) == []
    assert (root / "a.txt").read_text() == "second\n"


def fails(monkeypatch: pytest.MonkeyPatch, name: str, code: int) -> None:
    """Let one call of `SecondNames` meet what the kernel says when the file server was cut off."""

    def failed(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(SecondNames, name, failed)


@pytest.mark.parametrize(("code", "expected"), [(errno.EIO, StorageError), (errno.ESTALE, FileBusyError)])
def test_a_second_name_that_cannot_be_given_is_a_refusal_with_a_code(
    root: Path, monkeypatch: pytest.MonkeyPatch, code: int, expected: type[Exception]
) -> None:
    """N-machines: it was the system's own error; nothing was renamed, and the next write goes on at once."""
    with monkeypatch.context() as patch:
        fails(patch, "give", code)
        with pytest.raises(expected):
            write(root, "second\n")
    assert (root / "a.txt").read_text() == "first\n"
    assert os.listdir(root / ".noclobber/sections") == ["tree_id"]
    write(root, "second\n")
    assert (root / "a.txt").read_text() == "second\n"


@pytest.mark.parametrize("name", ["mark", "give"])
def test_a_volume_that_fails_during_a_recovery_is_a_refusal_with_a_code(
    root: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """N-machines: the section stays for the next one who comes, and so do both versions of the file."""
    assert other(root, "write", "section-checked")[0] == -9
    with monkeypatch.context() as patch:
        fails(patch, name, errno.EIO)
        with pytest.raises(StorageError, match="tries again") as failed:
            write(root, "second\n")
        assert failed.value.code == "STORAGE_FAILED"
        with pytest.raises(StorageError):  # Taking a lock ends what is overdue, too.
            noclobber.DeliverableLock(root, holder="a").acquire()
    assert (root / "a.txt").read_text() == "first\n"
    write(root, "second\n")
    assert (root / "a.txt").read_text() == "second\n"
