"""The order in which a commit writes: bytes before names, and the note before what it undoes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from noclobber.disk import ordering, steps
from noclobber.disk.commit.change_set import Change, commit_changes, delete
from noclobber.disk.commit.committer import Committer
from noclobber.disk.hashing import of_bytes
from noclobber.errors import ABSENT, StaleFileError

if TYPE_CHECKING:
    from noclobber.core.values import Level

OLD, NEW = b"old\n" * 700, b"new\n" * 500


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The inodes whose bytes were waited for, in order."""
    inodes: list[int] = []

    def note(descriptor: int, kind: str) -> None:
        inodes.append(os.fstat(descriptor).st_ino)
        real(descriptor, kind)

    real = ordering.wait
    monkeypatch.setattr(ordering, "wait", note)
    return inodes


@pytest.mark.parametrize("level", ["lease+exchange", "exchange", "plain"])
@pytest.mark.parametrize("before", [OLD, None])
def test_the_bytes_are_written_before_the_name_leads_to_them(
    root: Path, waited: list[int], level: Level, before: bytes | None
) -> None:
    """Ruling 15, finding R1: at every level, for a new file and for one that is replaced."""
    file = root / "a.md"
    if before is not None:
        file.write_bytes(before)
    Committer(str(root), ceiling=level).replace("a.md", of_bytes(before) if before else ABSENT, NEW)
    assert file.read_bytes() == NEW
    assert file.stat().st_ino in waited


def test_a_write_whose_bytes_cannot_be_written_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding R1: a failing disk shows before the exchange, and the old version stays."""
    file = root / "a.md"
    file.write_bytes(OLD)

    def fail(descriptor: int, kind: str) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(ordering, "wait", fail)
    with pytest.raises(OSError, match=r"a\.md"):
        Committer(str(root)).replace("a.md", of_bytes(OLD), NEW)
    assert file.read_bytes() == OLD
    assert os.listdir(root / ".noclobber" / "swap") == []


def test_several_files_have_their_record_written_first_and_ended_last(
    root: Path, waited: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ruling 15, N-power, finding R1: a cut between two exchanges finds the record; it ends when both are on the disk."""
    for name in ("one", "two"):
        (root / name).mkdir()
        (root / name / "a").write_bytes(OLD)
    order: list[str] = []
    notes_when_exchanged: list[set[int]] = []

    def observe(step: str) -> None:
        order.append(step)
        if step == "one-visible":
            notes_when_exchanged.append(set(waited))

    real = ordering.flush_names

    def flush(folders: object, kind: str) -> None:
        order.append("flushed")
        real(folders, kind)  # type: ignore[arg-type]

    monkeypatch.setattr(ordering, "flush_names", flush)
    monkeypatch.setattr(steps, "observer", observe)
    changes = [Change(f"{name}/a", NEW, of_bytes(OLD)) for name in ("one", "two")]
    commit_changes(Committer(str(root)), changes)
    notes = {entry.stat().st_ino for entry in os.scandir(root / ".noclobber" / "notes")}
    assert len(notes) == 2
    assert notes <= notes_when_exchanged[0]
    assert order.index("flushed") > max(at for at, step in enumerate(order) if step == "one-visible")
    assert order.index("flushed") < order.index("decided")


def test_a_delete_has_its_note_written_before_the_placeholder_and_ended_after_it(
    root: Path, waited: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding R1: a cut in the middle of a delete leaves an empty placeholder, which the note undoes."""
    (root / "a.md").write_bytes(OLD)
    order: list[str] = []
    monkeypatch.setattr(steps, "observer", order.append)
    states: list[bytes] = []

    def flush(folders: object, kind: str) -> None:
        (path,) = (root / ".noclobber" / "notes").iterdir()
        states.append(path.read_bytes()[:1])
        order.append("flushed")

    monkeypatch.setattr(ordering, "flush_names", flush)
    delete(Committer(str(root)), "a.md", of_bytes(OLD))
    (note,) = (path.stat().st_ino for path in (root / ".noclobber" / "notes").iterdir())
    assert note in waited
    assert states == [b"S"], "the note must not end before the delete is on the disk"
    assert order.index("placeholder-away") < order.index("flushed")


def test_a_rewrite_in_place_that_a_cut_left_in_any_mixture_is_undone(root: Path) -> None:
    """finding R1: a cut keeps sectors in any order, where a killed process leaves a beginning."""
    file = root / "a.md"
    file.write_bytes(OLD)
    os.link(file, root / "b.md")
    child = os.fork()
    if not child:
        steps.observer = lambda step: os._exit(9) if step == "inplace-written" else None
        try:
            Committer(str(root)).replace("a.md", of_bytes(OLD), NEW)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    mixture = bytearray(file.read_bytes())
    mixture[0:512], mixture[1024:1536] = OLD[0:512], OLD[1024:1536]
    with open(file, "r+b") as there:
        there.write(mixture)
    assert file.read_bytes() not in (OLD, NEW)
    with pytest.raises(StaleFileError):
        Committer(str(root)).replace("a.md", of_bytes(b""), b"x")
    assert file.read_bytes() == OLD
    assert os.listdir(root / ".noclobber" / "kept") == []


def test_a_filesystem_that_nothing_is_known_of_is_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding R1: waiting for the write is enough only where a journal orders names after bytes."""
    flushed: list[int] = []
    monkeypatch.setattr(ordering, "flush_bytes", flushed.append)
    with open(tmp_path / "a", "wb") as file:
        ordering.wait(file.fileno(), "f2fs")
        ordering.wait(file.fileno(), "unknown")
    assert len(flushed) == 2
