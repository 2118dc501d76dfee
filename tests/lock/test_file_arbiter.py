"""The arbiter whose locks are files, under the tests that every arbiter has to pass."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from noclobber.lock.file_arbiter import FileArbiter
from tests.lock.arbiter_suite import ArbiterSuite, ignore, taken
from tests.rigs.locks import ToldClock, events


class FileRig:
    """Folders below one root, judged by a clock that is told what time it is."""

    def __init__(self, root: Path) -> None:
        self._root, self._clock = root, ToldClock()
        self._arbiters: list[FileArbiter] = []

    def arbiter(self) -> FileArbiter:
        arbiter = FileArbiter(self._clock)
        self._arbiters.append(arbiter)
        return arbiter

    def folder(self, name: str) -> str:
        (self._root / name).mkdir(parents=True)
        return str(self._root / name)

    def root(self) -> str:
        return str(self._root)

    def pass_time(self, seconds: float) -> None:
        self._clock.time_s += seconds

    def events(self, folder: str) -> list[dict[str, Any]]:
        return events(Path(folder))

    def close(self) -> None:
        for arbiter in self._arbiters:
            arbiter.close()


class TestFileArbiter(ArbiterSuite):
    """The shared suite."""

    @pytest.fixture
    def rig(self, tmp_path: Path) -> Any:
        (tmp_path / "deliverables").mkdir()
        rig = FileRig(tmp_path / "deliverables")
        yield rig
        rig.close()


def test_closing_leaves_no_descriptor_open(tmp_path: Path) -> None:
    """N-leaks: a program may make thousands of locks."""
    before = len(os.listdir("/dev/fd"))
    rig = FileRig(tmp_path)
    folder = rig.folder("a")
    for _ in range(10):
        arbiter = rig.arbiter()
        holding = taken(arbiter, folder)
        intent = arbiter.intend_write(folder, holding, ())
        intent.begin()
        intent.settle()
        arbiter.give_up(holding, ignore)
    rig.close()
    assert len(os.listdir("/dev/fd")) == before
