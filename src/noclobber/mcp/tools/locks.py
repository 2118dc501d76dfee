"""
The lock tools: one task at a time in a deliverable's folder, for agents that speak MCP.

A lock is known by its id, so any connection that has the id can renew and release it: the protocol has no
sessions. On stdio the lock is bound to this process as well, and ends with it at once; over HTTP only
the lease counts. Writes inside a locked
folder are let through for who took the lock on this connection or shows its id (`lock_id`), and refused for
others. Nothing renews a lock on its own: an agent that forgets it must not keep a folder for
as long as some program happens to be open.
"""

from __future__ import annotations

from datetime import UTC, datetime

from noclobber.core.clock import iso8601
from noclobber.errors import BadRequestError
from noclobber.lock.liveness import DEFAULT_LEASE_S
from noclobber.lock.lock import DeliverableLock
from noclobber.lock.status import status_of
from noclobber.mcp.tools.writing import text_answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from noclobber.mcp.connection import Memory
    from noclobber.mcp.dispatch import Answer, Report

LONGEST_WAIT_S = 60.0  # Longer than that a client has given up on the call.


def lock_acquire(memory: Memory, given: Mapping[str, Any], report: Report) -> Answer:
    """Take a folder's lock."""
    folder = memory.roots.locate(given["path"]).real
    timeout_s = float(given.get("timeout_s", 0))
    if not 0 <= timeout_s <= LONGEST_WAIT_S:
        raise BadRequestError(folder, f"timeout_s is from 0 to {LONGEST_WAIT_S:.0f}; ask again after that.")
    lock = DeliverableLock(
        folder,
        deliverable_id=given.get("deliverable_id"),
        holder=given.get("holder") or memory.agent_id,
        lease_duration_s=int(given.get("lease_duration_s", DEFAULT_LEASE_S)),
        lease_only=not memory.is_process,
        heartbeat=False,
    )
    lock.acquire(timeout_s)
    answer = _standing(lock, f"Locked {folder}.")
    # From here on the id speaks for the lock: the next call may come by another connection. Without
    # sessions it is shown with each write, because nobody knows who else comes this way.
    lock_id = lock.detach()
    if memory.is_session:
        memory.locks[lock_id] = folder
        memory.taken.add(lock_id)
    return answer


def lock_renew(memory: Memory, given: Mapping[str, Any], report: Report) -> Answer:
    """Extend a lock."""
    lock = _held(memory, given)
    lease_s = given.get("lease_duration_s")
    lock.renew(None if lease_s is None else int(lease_s))
    return _standing(lock, f"Renewed the lock of {given['path']}.")


def lock_release(memory: Memory, given: Mapping[str, Any], report: Report) -> Answer:
    """Give a lock back."""
    try:
        released = _held(memory, given).release()
    finally:
        memory.forget_lock(given["lock_id"])  # If it was lost it is of no use either.
    return text_answer(f"Released the lock of {given['path']}.", released=released)


def lock_status(memory: Memory, given: Mapping[str, Any], report: Report) -> Answer:
    """Whether a folder is locked, by whom and until when."""
    status = status_of(memory.roots.locate(given["path"]).real)
    facts = status.to_dict()
    # The id is the right to renew and release: it is for the holder alone.
    del facts["lock_id"]
    by = f" by {status.holder}, {status.lease_remaining_s} s left" if status.is_locked else ""
    return text_answer(f"{given['path']}: {status.state}{by} ({status.detail})", **facts)


def _held(memory: Memory, given: Mapping[str, Any]) -> DeliverableLock:
    folder = memory.roots.locate(given["path"]).real
    return DeliverableLock.attach(folder, given["lock_id"])


def _standing(lock: DeliverableLock, said: str) -> Answer:
    status = lock.status()
    lease_s = status.lease_duration_s or 0
    began = datetime.fromisoformat(status.acquired) if status.acquired else datetime.now(UTC)
    expires = iso8601(began.timestamp() + lease_s)
    return text_answer(
        f"{said} It lasts until {expires}. lock_id: {lock.lock_id}",
        lock_id=lock.lock_id,
        deliverable_id=lock.deliverable_id,
        holder=lock.holder,
        acquired=status.acquired,
        lease_duration_s=lease_s,
        expires=expires,
    )
