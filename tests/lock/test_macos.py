"""
What only macOS on APFS can show (REQ-LOCK-011, X-004). Everything else of the lock's suite runs there
too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from noclobber.disk import processes
from noclobber.disk.filesystems import filesystem_type
from noclobber.disk.processes import GONE, RUNNING, fate, identify
from noclobber.errors import LockContention
from noclobber.lock.backend import status_of
from noclobber.lock.lock import DeliverableLock
from tests.rigs.locks import dead_process, put_record

pytestmark = pytest.mark.skipif(
    sys.platform != "darwin", reason="needs macOS: its kernel's process table and APFS (docs/lock/macos.md)"
)


@pytest.fixture
def on_apfs(tmp_path: Path) -> Path:
    if filesystem_type(str(tmp_path)) != "apfs":
        pytest.skip(f"the temporary folder is on {filesystem_type(str(tmp_path))}, not on APFS")
    return tmp_path


def test_link_publishes_a_lock_and_refuses_a_second_on_apfs(on_apfs: Path) -> None:
    """REQ-LOCK-003, X-004: atomic creation."""
    with DeliverableLock(on_apfs, holder="a"), pytest.raises(LockContention):
        DeliverableLock(on_apfs, holder="b").acquire()
    assert [path.name for path in on_apfs.iterdir()] == [".lock-ledger.jsonl"], "a staged file stayed"


def test_another_case_of_the_name_is_the_same_lock_on_apfs(on_apfs: Path) -> None:
    """X-004: APFS folds case by default; a file `.LOCK` is our lock file, and corrupt."""
    (on_apfs / ".LOCK").write_text("")
    expected = "corrupt" if (on_apfs / ".lock").exists() else "free"
    assert status_of(str(on_apfs)).state == expected


def test_a_cloned_folder_does_not_carry_the_lock(on_apfs: Path) -> None:
    """X-004: `cp -c` clones; the clone is another folder."""
    original, clone = on_apfs / "original", on_apfs / "clone"
    original.mkdir()
    with DeliverableLock(original, holder="a") as lock:
        subprocess.run(["cp", "-c", "-R", str(original), str(clone)], check=True)
        with DeliverableLock(clone, holder="b"):
            lock.assert_held()


def test_a_path_through_a_firmlink_is_the_same_folder() -> None:
    """X-004: /tmp is a link to /private/tmp, and /System/Volumes/Data is a firmlink away."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, DeliverableLock(folder, holder="a"):
        for other in (f"/private{folder}", f"/System/Volumes/Data/private{folder}"):
            if os.path.isdir(other):
                with pytest.raises(LockContention):
                    DeliverableLock(other, holder="b").acquire()


def test_processes_are_told_apart_by_sysctl_and_by_ps() -> None:
    """REQ-LOCK-006: both ways agree to a second about when this process started."""
    assert fate(identify()) == RUNNING
    assert fate(dead_process()) == GONE
    by_sysctl, by_ps = processes._look_up_sysctl(os.getpid()), processes._look_up_ps(os.getpid())
    assert by_sysctl is not None
    assert by_ps is not None
    assert abs((by_sysctl.started or 0) - (by_ps.started or 0)) < 2_000_000
    assert processes.surroundings().boot_id


def test_a_killed_holder_is_recovered_on_macos(on_apfs: Path) -> None:
    """REQ-LOCK-006."""
    put_record(on_apfs, dead_process())
    with DeliverableLock(on_apfs, holder="next"):
        pass
