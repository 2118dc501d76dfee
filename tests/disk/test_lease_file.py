"""Turns between mounts whose locks reach nobody else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from noclobber.core.clock import SystemClock
from noclobber.core.json_text import spell_in_ascii
from noclobber.disk import lease_file
from noclobber.disk.processes import identify


class FakeClock(SystemClock):
    """Time passes only while somebody sleeps."""

    passed_s = 0.0

    def monotonic_s(self) -> float:
        return self.passed_s

    def sleep(self, seconds: Any) -> None:
        self.passed_s += seconds * 20


@pytest.fixture
def folder_fd(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def take(folder_fd: int, clock: FakeClock, patience_s: float = 10.0) -> bytes | None:
    return lease_file.take("lease", folder_fd, patience_s=patience_s, clock=clock)


def test_a_lease_keeps_others_out_until_it_is_given_back(tmp_path: Path, folder_fd: int) -> None:
    """finding R11: flock of one mount says nothing to another."""
    clock = FakeClock()
    mine = take(folder_fd, clock)
    assert mine is not None
    assert take(folder_fd, clock, patience_s=1.0) is None
    lease_file.release("lease", folder_fd, mine)
    assert take(folder_fd, clock, patience_s=0.0) is not None


def test_a_lease_of_a_process_that_is_gone_is_taken_away_at_once(tmp_path: Path, folder_fd: int) -> None:
    """finding R11: a process that is killed leaves its file."""
    gone = identify()._replace(started=1)
    (tmp_path / "lease").write_text(spell_in_ascii([*gone, "nonce"]))
    assert take(folder_fd, FakeClock(), patience_s=0.0) is not None


@pytest.mark.parametrize(
    "said", [b"", b"[", b"null", spell_in_ascii([1, 1, "elsewhere", "b", "n", None, "x"])]
)
def test_a_lease_that_cannot_be_judged_ends_by_itself(
    tmp_path: Path, folder_fd: int, said: bytes | str
) -> None:
    """finding R11: a process on another machine is never taken for dead before its lease is over."""
    clock = FakeClock()
    (tmp_path / "lease").write_bytes(said if isinstance(said, bytes) else said.encode())
    assert take(folder_fd, clock, patience_s=lease_file.LEASE_S / 2) is None
    assert take(folder_fd, clock, patience_s=lease_file.LEASE_S * 2) is not None
    assert os.listdir(tmp_path) == ["lease"]


def test_a_lease_that_somebody_else_has_by_now_stays_theirs(tmp_path: Path, folder_fd: int) -> None:
    """finding R11: who was stopped for longer than its lease does not end the next one's."""
    clock = FakeClock()
    mine = take(folder_fd, clock)
    assert mine is not None
    (tmp_path / "lease").write_bytes(b"theirs")
    lease_file.release("lease", folder_fd, mine)
    assert (tmp_path / "lease").read_bytes() == b"theirs"


def test_of_two_that_take_an_old_lease_away_the_later_leaves_the_next_ones(
    tmp_path: Path, folder_fd: int
) -> None:
    """finding R11: what was judged is not what is there any more."""
    (tmp_path / "lease").write_bytes(b"the next one's")
    lease_file._take_away("lease", folder_fd, b"the old one")
    assert (tmp_path / "lease").read_bytes() == b"the next one's"
