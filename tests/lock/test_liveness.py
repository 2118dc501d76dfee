"""What became of a lock: every verdict, whole, and every border between two of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from noclobber.disk.processes import GONE, RUNNING, UNKNOWN
from noclobber.lock import liveness
from noclobber.lock.limits import MAX_LEASE_S
from noclobber.lock.liveness import FolderIdentity, Liveness, is_copied, judge
from noclobber.lock.record import LockContent, LockRecord

ACQUIRED_S = 1_800_000_000.0
RECORD = LockRecord(
    "DEL-1", "ana", "2027-01-15T08:00:00Z", 60, 4242, "0" * 32, "host-m", "boot-m", "ns", 77, 50, 500
)
HERE = FolderIdentity(50, 500, "/work/del-1")


class Here(NamedTuple):
    """The machine that judges."""

    host: str = "host-m"
    boot_id: str = "boot-m"


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is the same in every run, with a filesystem that keeps inode numbers."""
    monkeypatch.setattr(liveness, "surroundings", Here)
    monkeypatch.setattr(liveness, "keeps_inodes", lambda path: path == HERE.path)


def verdict(
    now_s: float, fate: str = RUNNING, place: FolderIdentity | None = HERE, **changes: Any
) -> Liveness:
    """Judge the record, changed as asked."""
    record = RECORD._replace(**changes)
    # Made anew, so that no comparison by identity can pass for one by value.
    return judge(LockContent("0" * 32, record), now_s, place, lambda _: "".join(fate))


def test_no_lock_file_is_a_free_folder() -> None:
    """REQ-LOCK-001."""
    assert judge(None, ACQUIRED_S, HERE) == Liveness("free", None, 0, "not locked")


def test_a_damaged_lock_file_can_be_recovered_and_says_what_is_wrong() -> None:
    """REQ-LOCK-006: whatever the clock says."""
    damaged = judge(LockContent("corrupt", None, "not JSON"), ACQUIRED_S, HERE)
    assert damaged == Liveness("corrupt", "corrupt", 0, "the lock file is damaged: not JSON")


@pytest.mark.parametrize("fate", [RUNNING, UNKNOWN])
@pytest.mark.parametrize(
    ("age_s", "remaining_s"), [(-5.0, 65), (0.0, 60), (0.25, 60), (1.0, 59), (59.0, 1), (59.999, 1)]
)
def test_a_live_lock_says_how_long_it_lasts(fate: str, age_s: float, remaining_s: int) -> None:
    """REQ-LOCK-004, REQ-LOCK-007: whole seconds, rounded up, so that 0 never means "still locked"."""
    assert verdict(ACQUIRED_S + age_s, fate) == Liveness("live", None, remaining_s, "held")


@pytest.mark.parametrize("fate", [RUNNING, UNKNOWN, GONE])
@pytest.mark.parametrize(("age_s", "ago"), [(60.0, 0), (61.0, 1), (3660.0, 3600)])
def test_an_expired_lease_counts_before_anything_that_is_known_of_the_process(
    fate: str, age_s: float, ago: int
) -> None:
    """REQ-LOCK-004, REQ-LOCK-006: expired the moment now >= acquired + lease_duration_s, 0 s ago, not -0 (finding D13)."""
    expired = verdict(ACQUIRED_S + age_s, fate)
    assert expired == Liveness("expired", "lease_expired", 0, f"its lease ran out {ago} s ago")


def test_a_lock_of_an_earlier_boot_is_an_orphan() -> None:
    """finding R15: a reboot kept a folder locked for half an hour, although no process survives one."""
    restarted = Liveness("dead", "pid_dead", 0, "its machine was restarted, and process 4242 ended")
    assert verdict(ACQUIRED_S + 1, UNKNOWN, boot_id="boot-before") == restarted


@pytest.mark.parametrize(
    ("place", "changes"),
    [
        (HERE, {"boot_id": "boot-there", "host": "host-n"}),
        (HERE, {"boot_id": None}),
        (FolderIdentity(50, 500, "/nfs/del-1"), {"boot_id": "boot-there"}),
        (None, {"boot_id": "boot-there"}),
    ],
)
def test_another_machines_boot_is_not_taken_for_an_earlier_one(
    place: FolderIdentity | None, changes: dict[str, Any]
) -> None:
    """finding R15: on a volume that others have mounted two machines may have one name."""
    assert verdict(ACQUIRED_S + 1, UNKNOWN, place, **changes).state == "live"


def test_a_process_that_is_gone_leaves_an_orphan() -> None:
    """REQ-LOCK-006: at once, whatever is left of the lease."""
    dead = Liveness("dead", "pid_dead", 0, "its process 4242 no longer runs")
    assert verdict(ACQUIRED_S + 1, GONE) == dead
    assert verdict(ACQUIRED_S - 10 * MAX_LEASE_S, GONE) == dead


def test_a_lease_that_ends_later_than_any_lease_can_is_damage_whoever_runs() -> None:
    """REQ-LOCK-004, finding S15: two days are the border; a pid that always runs changes nothing."""
    longest_s = 2 * 86_400
    at_border_s = ACQUIRED_S + 60 - longest_s
    beyond_s = at_border_s - 0.5
    assert verdict(at_border_s, UNKNOWN) == Liveness("live", None, longest_s, "held")
    impossible = Liveness("corrupt", "corrupt", 0, "its lease ends later than any lease can")
    assert verdict(beyond_s, UNKNOWN) == impossible
    assert verdict(beyond_s, "a fate of another kind") == impossible
    assert verdict(beyond_s, RUNNING) == impossible


def test_a_record_that_was_copied_with_its_folder_locks_nothing() -> None:
    """REQ-LOCK-012: the original is still held; the copy is not."""
    copied = verdict(ACQUIRED_S, place=HERE._replace(inode=501))
    assert copied == Liveness("corrupt", "corrupt", 0, "the lock file was copied here from another folder")
    assert verdict(ACQUIRED_S, place=None).state == "live"


@pytest.mark.parametrize(
    ("device", "inode", "copied"),
    [(50, 500, False), (49, 500, True), (51, 500, True), (50, 499, True), (50, 501, True), (500, 50, True)],
)
def test_a_folder_is_known_by_device_and_inode(device: int, inode: int, copied: bool) -> None:
    """REQ-LOCK-012: each of the two counts, in either direction."""
    assert is_copied(RECORD, FolderIdentity(device, inode, HERE.path)) is copied


@pytest.mark.parametrize(
    "changes",
    [
        {"folder_inode": None},
        {"folder_device": None},
        {"folder_inode": None, "folder_device": None},
        *({"host": host} for host in ("host-a", "host-z", None)),
        *({"boot_id": boot} for boot in ("boot-a", "boot-z", None)),
    ],
)
def test_what_cannot_be_known_is_no_copy(changes: dict[str, Any]) -> None:
    """REQ-LOCK-006: taking a live lock for a copy would give two holders."""
    elsewhere = FolderIdentity(51, 501, HERE.path)
    assert is_copied(RECORD, elsewhere) is True
    assert is_copied(RECORD._replace(**changes), elsewhere) is False


def test_a_filesystem_whose_inode_numbers_change_proves_no_copy() -> None:
    """REQ-LOCK-006: FUSE and overlay filesystems."""
    assert is_copied(RECORD, FolderIdentity(51, 501, "/mnt/fuse")) is False
