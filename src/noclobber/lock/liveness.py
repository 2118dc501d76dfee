"""
Is a lock live, expired, dead or corrupt? One record, one clock.

The order of the questions is the rule (REQ-LOCK-006):

0. Being written: it cannot be parsed and is younger than `WRITING_S`. Counts as live (ruling 25): a program
   that creates the file first and fills it then may be in between.
1. Corrupt: not a record; or a record that was copied here with its folder; or one whose lease ends
   later than any lease could, whoever runs (finding S15).
2. Expired: `now >= acquired + lease_duration_s`. Counts everywhere, for everybody.
3. Dead: that pid with that start time no longer runs. Asked only on the same host, boot and pid
   namespace; elsewhere nobody can know, and the lease alone counts. A record that names none of these
   is of this machine, and its pid counts (ruling 25).
4. Dead, too: it belongs to an earlier boot of this host, and the folder is on a disk of this machine. Not on
   a volume that others have mounted: two machines may have one name.
5. Live.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple

from noclobber.disk.filesystems import keeps_inodes
from noclobber.disk.processes import GONE, fate, fate_of_pid, surroundings
from noclobber.lock.limits import MAX_LEASE_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from noclobber.disk.processes import ProcessIdentity
    from noclobber.lock.arbiter import LockState
    from noclobber.lock.record import LockContent, LockRecord

    Reason = Literal["lease_expired", "pid_dead", "corrupt"]

# No lease ends later than a day from now, and no clock here is wrong by more than a day. What says
# more would keep a folder locked for as long as it likes.
MAX_REMAINING_S = 2 * MAX_LEASE_S

WRITING_S = 5.0


class FolderIdentity(NamedTuple):
    """The folder that a record was found in, to tell its own lock from a copied one."""

    device: int
    inode: int
    path: str
    """Where it is; asked which filesystem that is, and only when the numbers differ."""


class Liveness(NamedTuple):
    """What became of a lock. `reason` is set if and only if anybody may take it over."""

    state: LockState
    reason: Reason | None
    remaining_s: int
    detail: str


FREE = Liveness("free", None, 0, "not locked")


def judge(
    found: LockContent | None,
    now_s: float,
    place: FolderIdentity | None = None,
    fate_of: Callable[[ProcessIdentity], str] = fate,
) -> Liveness:
    """Decide what became of the lock that was found."""
    if found is None:
        return FREE
    record = found.record
    if record is None:
        age_s = found.unparsed_age_s
        if age_s is not None and -1 < age_s < WRITING_S:  # From the future: then its age says nothing.
            wait_s = math.ceil(WRITING_S - max(age_s, 0))
            return Liveness("live", None, wait_s, "it is new and no record yet: somebody may be writing it")
        return Liveness("corrupt", "corrupt", 0, f"the lock file is damaged: {found.corruption}")
    if place is not None and is_copied(record, place):
        return Liveness("corrupt", "corrupt", 0, "the lock file was copied here from another folder")
    left_s = record.expires_s - now_s
    if left_s <= 0:
        return Liveness("expired", "lease_expired", 0, f"its lease ran out {abs(left_s):.0f} s ago")
    if (fate_of_pid(record.pid) if record.names_no_machine else fate_of(record.process)) == GONE:
        return Liveness("dead", "pid_dead", 0, f"its process {record.pid} no longer runs")
    if place is not None and _is_of_earlier_boot(record, place):
        return Liveness("dead", "pid_dead", 0, f"its machine was restarted, and process {record.pid} ended")
    if left_s > MAX_REMAINING_S:
        return Liveness("corrupt", "corrupt", 0, "its lease ends later than any lease can")
    return Liveness("live", None, math.ceil(left_s), "held")


def _is_of_earlier_boot(record: LockRecord, place: FolderIdentity) -> bool:
    """True if no process of a record's boot can run any more (finding R15)."""
    here = surroundings()
    return (
        record.host == here.host
        and None not in (record.boot_id, here.boot_id)
        and record.boot_id != here.boot_id
        and keeps_inodes(place.path)
    )


def is_copied(record: LockRecord, place: FolderIdentity) -> bool:
    """True if a record was made for another folder than the one it was found in."""
    if record.folder_inode is None or record.folder_device is None:
        return False
    if (record.folder_device, record.folder_inode) == (place.device, place.inode):
        return False
    # Device numbers differ between hosts and boots for one and the same folder, and on FUSE and overlay
    # filesystems inode numbers may change under a running process. Taking a live lock for a copy
    # would give two holders; taking a copy for a live lock only waits for its lease.
    here = surroundings()
    return (record.host, record.boot_id) == (here.host, here.boot_id) and keeps_inodes(place.path)
