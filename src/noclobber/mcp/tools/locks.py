"""
The lock tools: one task at a time in a deliverable's folder, for agents that speak MCP.

A lock is known by its id, so any connection that has the id can renew and release it: the newer protocol has
no sessions. On stdio the lock is bound to this process as well, and ends with it at once; over HTTP only the
lease counts. A write inside a locked folder is allowed on the connection that acquired the lock, and for a
call that passes its id (`lock_id`); others are refused. Nothing renews a lock automatically: an agent that
forgets its lock must not keep the folder for as long as the program is open.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from noclobber.core.clock import iso8601
from noclobber.errors import BadRequestError, OutsideWorkspaceError
from noclobber.lock.backend import status_of
from noclobber.lock.git_exclude import keep_lock_files_out_of_git
from noclobber.lock.limits import DEFAULT_LEASE_S, MAX_LEASE_S, MIN_LEASE_S
from noclobber.lock.lock import DeliverableLock
from noclobber.mcp.tools.definition import TEXT, McpAnswer, text_answer, tool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noclobber.mcp.connection import ClientConnection
    from noclobber.mcp.tools.definition import Report

LONGEST_WAIT_S = 60.0  # Clients give up on a call that takes longer.

_FOLDER = {"path": {"type": "string", "description": "The deliverable's folder."}}
_HELD_ID = {"lock_id": {"type": "string", "description": "The lock_id that lock_acquire returned."}}
_LEASE = {
    "lease_duration_s": {
        "type": "integer",
        "minimum": MIN_LEASE_S,
        "maximum": MAX_LEASE_S,
        "description": "How long the lock lasts unless it is renewed, in seconds.",
    }
}
_HELD = {
    "lock_id": TEXT,
    "deliverable_id": TEXT,
    "holder": TEXT,
    "acquired": {"type": ["string", "null"]},
    "lease_duration_s": {"type": "integer"},
    "expires": TEXT,
}

# -- lock_acquire ----------------------------------------------------------------------------------------


def lock_acquire(connection: ClientConnection, given: Mapping[str, Any], report: Report) -> McpAnswer:
    """Lock a folder."""
    folder = connection.roots.locate(given["path"]).real
    timeout_s = float(given.get("timeout_s", 0))
    if not 0 <= timeout_s <= LONGEST_WAIT_S:
        raise BadRequestError(
            folder, f"timeout_s must be from 0 to {LONGEST_WAIT_S:.0f}. To wait longer, call again."
        )
    lock = DeliverableLock(
        folder,
        deliverable_id=given.get("deliverable_id"),
        holder=given.get("holder") or connection.agent_id,
        lease_duration_s=int(given.get("lease_duration_s", DEFAULT_LEASE_S)),
        lease_only=not connection.is_process,
        heartbeat=False,
        # The holder itself may lock below its own lock (ruling 24).
        held_ids=[*connection.acquired_lock_ids(), *([given["lock_id"]] if "lock_id" in given else [])],
    )
    # Of the root, not of the folder: somebody may put a link to another repository in its place.
    keep_lock_files_out_of_git(connection.roots.root_of(folder))
    _refuse_another_place(lock.folder, folder)
    lock.acquire(timeout_s)
    answer = _held_answer(lock, f"Locked {folder}.")
    # From here on the id alone proves ownership: the next call may come by another connection. Without
    # sessions every write has to pass it, because the server cannot tell its clients apart.
    lock_id = lock.detach()
    if connection.is_session:
        connection.add_lock(lock_id, folder)
    return answer


LOCK_ACQUIRE = tool(
    "lock_acquire",
    "Acquire Lock",
    "Lock a deliverable's folder, so that no other task works in it. Fails with LOCK_CONTENTION if somebody "
    "else holds the lock. Renew it before its lease runs out; release it when done.",
    run=lock_acquire,
    takes={
        **_FOLDER,
        "holder": {"type": "string", "description": "Your name, for others to read."},
        "deliverable_id": {"type": "string", "description": "Default: the folder's name."},
        **_LEASE,
        "timeout_s": {"type": "number", "description": "How long to wait for the lock; default 0."},
        "lock_id": {"type": "string", "description": "The lock_id of a lock that you hold further up."},
    },
    required=["path"],
    answers=_HELD,
    hints="lock",
)

# -- lock_renew ------------------------------------------------------------------------------------------


def lock_renew(connection: ClientConnection, given: Mapping[str, Any], report: Report) -> McpAnswer:
    """Extend a lock."""
    lock = _lock(connection, given)
    lease_s = given.get("lease_duration_s")
    lock.renew(None if lease_s is None else int(lease_s))
    return _held_answer(lock, f"Renewed the lock of {given['path']}.")


LOCK_RENEW = tool(
    "lock_renew",
    "Renew Lock",
    "Extend a lock that you hold to a full lease from now.",
    run=lock_renew,
    takes={**_FOLDER, **_HELD_ID, **_LEASE},
    required=["path", "lock_id"],
    answers=_HELD,
    hints="lock",
)

# -- lock_release ----------------------------------------------------------------------------------------


def lock_release(connection: ClientConnection, given: Mapping[str, Any], report: Report) -> McpAnswer:
    """Release a lock."""
    try:
        released = _lock(connection, given).release()
    finally:
        connection.forget_lock(given["lock_id"])  # Also if it was lost: then it is of no use any more.
    return text_answer(f"Released the lock of {given['path']}.", released=released)


LOCK_RELEASE = tool(
    "lock_release",
    "Release Lock",
    "Release a lock that you hold.",
    run=lock_release,
    takes={**_FOLDER, **_HELD_ID},
    required=["path", "lock_id"],
    answers={"released": {"type": "boolean"}},
    hints="lock",
)

# -- lock_status -----------------------------------------------------------------------------------------


def lock_status(connection: ClientConnection, given: Mapping[str, Any], report: Report) -> McpAnswer:
    """Tell whether a folder is locked, by whom and until when."""
    folder = connection.roots.locate(given["path"]).real
    status = status_of(folder)
    _refuse_another_place(status.folder, folder)
    facts = status.to_dict()
    facts.pop("lock_id", None)  # It is the right to renew and release, so it is for the holder alone.
    by = f" by {status.holder}, {status.lease_remaining_s} s left" if status.is_locked else ""
    return text_answer(f"{given['path']}: {status.state}{by} ({status.detail})", **facts)


LOCK_STATUS = tool(
    "lock_status",
    "Lock Status",
    "Show whether a deliverable's folder is locked, by whom and until when.",
    run=lock_status,
    takes=_FOLDER,
    required=["path"],
    answers={"state": TEXT, "detail": TEXT},
)

# -- inside ----------------------------------------------------------------------------------------------


def _lock(connection: ClientConnection, given: Mapping[str, Any]) -> DeliverableLock:
    folder = connection.roots.locate(given["path"]).real
    lock = DeliverableLock.attach(folder, given["lock_id"])
    _refuse_another_place(lock.folder, folder)
    return lock


def _refuse_another_place(found: str, folder: str) -> None:
    """Refuse if a link has taken the folder's place since it was found to be inside the roots."""
    if found != folder:
        raise OutsideWorkspaceError(folder, "it leads to another folder by now. Try again.")


def _held_answer(lock: DeliverableLock, text: str) -> McpAnswer:
    status = lock.status()
    lease_s = status.lease_duration_s or 0
    began = datetime.fromisoformat(status.acquired) if status.acquired else datetime.now(UTC)
    expires = iso8601(began.timestamp() + lease_s)
    return text_answer(
        f"{text} It lasts until {expires}. lock_id: {lock.lock_id}",
        lock_id=lock.lock_id,
        deliverable_id=lock.deliverable_id,
        holder=lock.holder,
        acquired=status.acquired,
        lease_duration_s=lease_s,
        expires=expires,
    )
