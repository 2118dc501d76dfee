"""How a refusal is phrased: who holds the lock, how it was lost, what to do next. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noclobber.core.clock import iso8601
from noclobber.errors import LockContention, LockLost
from noclobber.text.visible import plain as plain

if TYPE_CHECKING:
    from noclobber.errors import FileBusyError


def contention(
    folder: str,
    holder: str | None,
    deliverable_id: str | None,
    lease_remaining_s: int,
    now_s: float,
    busy: FileBusyError | None = None,
    *,
    where: str | None = None,
) -> LockContention:
    """
    Say that somebody else is in the folder, or (`busy`) was stopped while it changed the lock. `where` is
    the locked folder, if it is one above or below. The holder is named as the lock has it, and nothing is
    added: programs compare it.
    """
    if busy is not None:
        holder = plain(holder or f"process {busy.details.get('pid') or 'unknown'}")
        message = busy.message
    else:
        holder = plain(holder or "unknown")
        what = (
            ""
            if where is None
            else f"{plain(where)}, {'above' if len(where) < len(folder) else 'inside'} it, is "
        )
        message = (
            f"{what}locked by {holder}, for another {lease_remaining_s} s unless renewed; try again later, "
            "or work on another deliverable"
        )
    return LockContention(
        folder,
        message,
        deliverable_id=plain(deliverable_id or "") or folder.rpartition("/")[2] or "/",
        holder=holder,
        lease_remaining_s=lease_remaining_s,
        contention_time=iso8601(now_s),
    )


def lost(folder: str, lock_id: str, what: str, taken_by: str | None = None) -> LockLost:
    """Say how a lock was lost. `what` is the reason, as a clause."""
    return LockLost(
        folder,
        f"the lock was lost: {what}. Stop writing here; acquire again, and read again what you need",
        lock_id=lock_id,
        taken_by=taken_by,
    )
