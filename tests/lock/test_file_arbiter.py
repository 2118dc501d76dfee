"""The arbiter whose locks are files, under the tests that every arbiter has to pass."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread, current_thread
from typing import Any

import pytest

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.disk import steps
from noclobber.errors import NoclobberError
from noclobber.lock.file_arbiter import FileArbiter
from noclobber.lock.lock import DeliverableLock
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

    def racing_arbiter(self) -> FileArbiter:
        arbiter = FileArbiter(SYSTEM_CLOCK)
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


@pytest.mark.parametrize("has_mutex", [False, True])
def test_a_release_that_takes_longer_than_its_lease_gives_nobody_elses_lock_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_mutex: bool
) -> None:
    """X-005: without a mutex that excludes anybody, three processes could end as two holders."""
    if not has_mutex:  # As on some network filesystems: it succeeds, and excludes nobody.
        monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    clock = ToldClock()
    first, second, third = (
        DeliverableLock(tmp_path, holder=name, lease_duration_s=60, heartbeat=False, clock=clock)
        for name in ("first", "second", "third")
    )
    stops = {"first": ["lock-release-bid", "lock-removed"], "second": ["lock-replacing"]}
    reached, go_on = {name: Event() for name in stops}, {name: Event() for name in stops}
    outcomes: dict[str, object] = {}

    def observe(step: str) -> None:
        name = current_thread().name
        if stops.get(name, [""])[:1] == [step]:
            del stops[name][0]
            go_on[name].clear()
            reached[name].set()
            assert go_on[name].wait(30)

    def run(name: str, call: Callable[[], object]) -> Thread:
        def work() -> None:
            try:
                outcomes[name] = call()
            except NoclobberError as error:
                outcomes[name] = error
            reached[name].set()  # Its end is a stop, too.

        thread = Thread(target=work, name=name)
        thread.start()
        assert reached[name].wait(30)
        return thread

    first.acquire()
    clock.time_s += 59  # Late, so that the release is disputed.
    rename = os.rename

    def about_to_replace(source: str, destination: str, **folders: int) -> None:
        if destination == ".lock":
            observe("lock-replacing")
        rename(source, destination, **folders)

    monkeypatch.setattr(os, "rename", about_to_replace)
    monkeypatch.setattr(steps, "observer", observe)
    releasing = run("first", first.release)
    clock.time_s += 120  # It was stopped for that long.
    taking = run("second", second.attempt)  # Breaks the bid, has looked, and is about to replace the lock.
    reached["first"].clear()
    go_on["first"].set()
    assert reached["first"].wait(30)  # It is over, or has just removed the lock and not its bid.
    third_try = third.attempt()
    go_on["second"].set()
    taking.join(30)
    go_on["first"].set()
    releasing.join(30)
    monkeypatch.setattr(steps, "observer", None)
    standing = [lock for lock in (first, second, third) if lock.held]
    assert len(standing) <= 1, (outcomes, third_try)
    for lock in standing:
        lock.assert_held()
        lock.release()


@pytest.mark.parametrize("content", [b"", b"not a record\n", b"{}", b'{"version": 4}'])
def test_a_write_leaves_another_programs_file_of_that_name_alone(tmp_path: Path, content: bytes) -> None:
    """finding D5: other programs have files called `.lock`. They lock nothing, and are not ours to remove."""
    other = tmp_path / ".lock"
    other.write_bytes(content)
    os.utime(other, (1.0, 1.0))
    clock = ToldClock()
    clock.time_s += 3600
    intent = FileArbiter(clock).intend_write(str(tmp_path), None, ())

    intent.begin()
    intent.settle()

    assert other.read_bytes() == content
    assert os.listdir(tmp_path) == [".lock"]
