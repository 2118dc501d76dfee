"""
The `.lock` file of a lock that the server keeps: for people, and for programs that look for one.

It says of itself that it is a mirror, and noclobber believes nothing in it: the server decides. A `.lock`
that is *not* a mirror is another matter: somebody works here who has never heard of the coordinator.

Writing it may fail (a full disk, a folder that was deleted): the lock is held all the same.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.errors import NoclobberError
from noclobber.lock import messages
from noclobber.lock.file_arbiter import FileArbiter
from noclobber.lock.names import LOCK_NAME, STAGED_PREFIX

if TYPE_CHECKING:
    from noclobber.errors import LockContention
    from noclobber.lock.arbiter import Taker

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MOST_BYTES = 1 << 16


def put(folder: str, row: dict[str, Any], taker: Taker, secret_sha256: str) -> None:
    """Publish the mirror of a lock that was taken, whole; over another mirror, and over nothing else."""
    process = taker.process
    members = {
        "holder": row["holder"],
        "acquired": row["acquired"],
        "lease_duration_s": row["lease_s"],
        "pid": 1 if taker.lease_only else process.pid,
        "deliverable_id": row["deliverable_id"],
        "schema_version": "1",
        "lock_id": row["lock_id"],
        "secret_sha256": secret_sha256,
        "host": process.host,
        "boot_id": process.boot_id,
        "pid_namespace": process.pid_namespace,
        "pid_started": None if taker.lease_only else process.started,
        "renewal_s": row["renewal_s"],
        "fencing_token": row["token"],
        "mirror_of": "postgresql",
    }
    _write(folder, members)


def renew(folder: str, row: dict[str, Any], secret_sha256: str) -> None:
    """Show the new end of the lease."""
    members = _read(folder)
    if members is not None and members.get("secret_sha256") == secret_sha256:
        _write(folder, {**members, "lease_duration_s": row["lease_s"], "renewal_s": row["renewal_s"]})


def remove(folder: str, secret_sha256: str | None) -> None:
    """Take a mirror away: this lock's, or (None) any."""
    members = _read(folder)
    if members is not None and secret_sha256 in (None, members.get("secret_sha256")):
        try:
            os.unlink(f"{folder}/{LOCK_NAME}")
        except OSError:
            pass


def foreign_lock(folder: str) -> LockContention | None:
    """Return the refusal if somebody holds this folder by a lock file that is no mirror."""
    if not os.path.lexists(f"{folder}/{LOCK_NAME}") or _read(folder) is not None:
        return None
    try:
        status = FileArbiter(SYSTEM_CLOCK).read(folder)
    except NoclobberError:
        return messages.contention(folder, None, None, 0, SYSTEM_CLOCK.now_s())
    if not status.is_locked:
        return None
    return messages.contention(
        folder, f"{status.holder} (by a lock file, without the coordinator)", status.deliverable_id,
        status.lease_remaining_s or 0, SYSTEM_CLOCK.now_s(),
    )  # fmt: skip


def _read(folder: str) -> dict[str, Any] | None:
    """Return a mirror's members; None if there is no mirror."""
    try:
        descriptor = os.open(f"{folder}/{LOCK_NAME}", _READ)
        try:
            members = json.loads(os.read(descriptor, _MOST_BYTES))
        finally:
            os.close(descriptor)
    except (OSError, ValueError, RecursionError):
        return None
    return members if isinstance(members, dict) and members.get("mirror_of") == "postgresql" else None


def _write(folder: str, members: dict[str, Any]) -> None:
    if os.path.lexists(f"{folder}/{LOCK_NAME}") and _read(folder) is None:
        return  # Another program's file of that name.
    staged = f"{folder}/{STAGED_PREFIX}{os.urandom(8).hex()}"
    try:
        descriptor = os.open(staged, _CREATE, 0o644)
        try:
            os.write(descriptor, json.dumps(members, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
        finally:
            os.close(descriptor)
        os.rename(staged, f"{folder}/{LOCK_NAME}")
    except OSError:
        try:
            os.unlink(staged)
        except OSError:
            pass
