"""The mirror's file: kept while nobody holds the lock, written over by the next one, and by nobody else's trick."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from noclobber import DeliverableLock
from noclobber.core.project import MIRRORS_FOLDER, STATE_FOLDER
from noclobber.disk.processes import identify
from noclobber.lock.arbiter import Taker
from noclobber.lock.names import LOCK_NAME
from noclobber.postgres import mirror
from noclobber.postgres.coordinator import _connection
from noclobber.postgres.workspace_name import SharedFolder
from tests.rigs import postgres

SECRET = "5" * 64


class Folder:
    """A deliverable, and what is put there."""

    def __init__(self, root: Path) -> None:
        self.root, self.path = root, root / "report"
        self.path.mkdir()
        self.place = SharedFolder("w", "report", str(root))
        self.lock, self.spares = self.path / LOCK_NAME, root / STATE_FOLDER / MIRRORS_FOLDER

    def put(self, holder: str = "a") -> None:
        row = {"holder": holder, "acquired": "x", "lease_s": 60, "renewal_s": 60, "deliverable_id": "report"}
        taker = Taker("report", holder, 60, identify(), False)
        mirror.put(str(self.path), self.place, {**row, "lock_id": "1" * 32, "token": 7}, taker, SECRET)

    def remove(self) -> None:
        mirror.remove(str(self.path), self.place, SECRET)

    def spare(self) -> Path:
        (found,) = self.spares.iterdir()
        return found


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / STATE_FOLDER).mkdir()
    return Folder(tmp_path)


def test_the_next_lock_writes_over_the_file_of_the_last_one(folder: Folder) -> None:
    """N-machines: a mirror is whole, says who holds the lock now, and no file is made for it."""
    folder.put("a-holder-with-a-longer-name")
    number = folder.lock.stat().st_ino
    folder.remove()
    assert not folder.lock.exists()

    folder.put("b")

    assert folder.lock.stat().st_ino == number
    assert json.loads(folder.lock.read_bytes())["holder"] == "b"
    assert list(folder.spares.iterdir()) == []
    assert [path.name for path in folder.path.iterdir()] == [LOCK_NAME]


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_link_in_the_spares_place_is_not_written_through(folder: Folder, link: object) -> None:
    """N-machines: whoever may write to the state folder cannot have another file written over."""
    folder.put()
    folder.remove()
    spare, precious = folder.spare(), folder.root / "precious"
    precious.write_bytes(b"mine")
    spare.unlink()
    link(precious, spare)  # type: ignore[operator]

    folder.put("b")

    assert precious.read_bytes() == b"mine"
    assert json.loads(folder.lock.read_bytes())["holder"] == "b"


def test_a_spare_that_is_longer_is_not_used(folder: Folder) -> None:
    """N-machines: nothing of what was there before is left behind the new mirror."""
    folder.put()
    folder.remove()
    folder.spare().write_bytes(b"}" * 5000)

    folder.put("b")

    assert json.loads(folder.lock.read_bytes())["holder"] == "b"


@pytest.mark.parametrize("state", ["none", "a file"])
def test_a_mirror_that_cannot_be_kept_is_removed(folder: Folder, state: str) -> None:
    """N-machines: no mirror outlives its lock, also where the state folder takes none."""
    if state == "none":
        (folder.root / STATE_FOLDER).rmdir()
    else:
        folder.spares.write_bytes(b"")
    folder.put()

    folder.remove()

    assert not folder.lock.exists()


def test_two_locks_one_after_the_other_leave_nothing_in_the_folder(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines: the same through the server: taken, let go, taken again."""
    monkeypatch.setenv("NOCLOBBER_COORDINATOR", postgres.coordinator())
    numbers = []
    for holder in ("a", "b"):
        with DeliverableLock(folder.path, holder=holder, heartbeat=False):
            numbers.append(folder.lock.stat().st_ino)
            assert json.loads(folder.lock.read_bytes())["holder"] == holder
        assert list(folder.path.iterdir()) == []
    _connection.cache_clear()
    assert numbers[0] == numbers[1]
