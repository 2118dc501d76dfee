"""A few power cuts on one filesystem, where that can be done; `make torture` makes hundreds on three."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from torture import divided_cuts, power, power_disk

SEED = 20_240_611


def _records(*writes: tuple[int, bytes] | None) -> bytes:
    log = b""
    for write in writes:
        offset, data = write or (power_disk.FLUSHED, b"")
        log += offset.to_bytes(8, "little") + len(data).to_bytes(8, "little") + data
    return log


def test_a_cut_keeps_what_was_flushed_and_any_part_of_the_rest(tmp_path: Path) -> None:
    """finding R1: the disk on which cuts are made loses what a real one may lose, and nothing else."""
    one, two, three = (bytes([letter]) * 4096 for letter in b"123")
    log = tmp_path / "log"
    log.write_bytes(_records((0, one), None, (0, two), (4096, three)))
    seen = set()
    for seed in range(60):
        cutter = power_disk.Cutter(str(log), str(tmp_path / "stable"), 8192)
        cutter.cut(4, str(tmp_path / "image"), random.Random(seed))
        cutter.close()
        data = (tmp_path / "image").read_bytes()
        seen.add((data[:4096], data[4096:]))
    assert seen == {(first, second) for first in (one, two) for second in (bytes(4096), three)}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_after_a_power_cut_every_file_is_whole() -> None:
    """Ruling 15, finding R1, N-power: old or new, of several files all or none, and durable writes are there."""
    ext4 = power.FILESYSTEMS[0]
    if reason := power.unavailable(ext4):
        pytest.skip(reason)
    outcome = power.cut_often(ext4, 4, SEED, 4.0)
    assert outcome.cuts == 4
    assert outcome.operations["write"] > 5, "nothing was written, so nothing was tested"
    assert outcome.wrong == []


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("left_out", ["", "flush"])
def test_a_commit_of_several_files_needs_its_flush(left_out: str) -> None:
    """Ruling 15, N-power: a few fixed cuts hold, and without the flush of the names they do not."""
    count, wrong = divided_cuts.differing(_slow_ext4(), 4, what="several", left_out=left_out)
    assert count == 4 * divided_cuts.COMMITS
    assert bool(wrong) == bool(left_out), wrong


def _slow_ext4() -> power.Filesystem:
    ext4 = power.FILESYSTEMS[0]
    if reason := power.unavailable(ext4):
        pytest.skip(reason)
    return ext4._replace(options="commit=60")  # It does not commit by itself in between.


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("left_out", ["", *divided_cuts.LEFT_OUT["tree"]])
def test_the_commit_of_a_command_s_changes_needs_each_of_its_waits(left_out: str) -> None:
    """Ruling 15, N-power, N-shell: a few fixed cuts hold, and none does without one of the steps."""
    count, wrong = divided_cuts.differing(_slow_ext4(), 1, what="tree", left_out=left_out, commits=1)
    assert count == divided_cuts.PLACES["tree"]
    assert bool(wrong) == bool(left_out), wrong
