"""How a refusal is phrased: who holds the lock, how it was lost, what to do next. Pure but for the clock."""

from __future__ import annotations

from noclobber.core.clock import SYSTEM_CLOCK, iso8601
from noclobber.errors import LockContention, LockLost
from noclobber.lock.liveness import FREE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from noclobber.errors import FileBusyError
    from noclobber.lock.liveness import Verdict
    from noclobber.lock.record import Found


def contention(
    folder: str,
    found: Found | None,
    verdict: Verdict,
    now_s: float,
    *,
    deliverable_id: str | None = None,
    busy: FileBusyError | None = None,
) -> LockContention:
    """
    Say that somebody else is in the folder, or (`busy`) that somebody was stopped while changing its
    lock.
    """
    record = None if found is None else found.record
    if busy is not None:
        holder = f"process {busy.details.get('pid') or 'unknown'} (stopped while changing the lock?)"
        message = busy.message
    else:
        holder = (record.holder if record is not None else "") or "unknown"
        message = (
            f"locked by {holder}, for another {verdict.remaining_s} s unless renewed; try again later, "
            "or work on another deliverable"
        )
    if deliverable_id is None:
        recorded = record.deliverable_id if record is not None else ""
        deliverable_id = recorded or folder.rpartition("/")[2] or "/"
    return LockContention(
        folder,
        message,
        deliverable_id=deliverable_id,
        holder=holder,
        lease_remaining_s=verdict.remaining_s,
        contention_time=iso8601(now_s),
    )


def contention_at(folder: str) -> LockContention:
    """Say who is in a folder that was found locked a moment ago."""
    from noclobber.lock.liveness import judge
    from noclobber.lock.names import LOCK_NAME
    from noclobber.lock.record import read

    now_s = SYSTEM_CLOCK.now_s()
    try:
        found = read(f"{folder}/{LOCK_NAME}")
    except OSError:
        found = None
    return contention(folder, found, judge(found, now_s) if found else FREE, now_s)


def lost(folder: str, found: Found | None, lock_id: str, *, exists: bool = True) -> LockLost:
    """Say how a lock was lost, from what stands in its place now."""
    by = None
    if not exists:
        what = "the folder was deleted"
    elif found is None:
        what = "its lock file is gone: it was released or removed"
    elif found.record is None:
        what = f"its lock file was damaged: {found.corruption}"
    elif found.key == lock_id:
        what = "this is a copy of the locked folder"
    else:
        by = found.record.holder
        what = f"it was taken over by {by}"
    return LockLost(
        folder,
        f"the lock was lost: {what}. Stop writing here; acquire again, and read again what you need",
        lock_id=lock_id,
        taken_by=by,
    )
