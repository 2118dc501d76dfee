"""
The `.lock` file of a lock that the server keeps: for people, and for programs that look for one.

It says of itself that it is a mirror, and noclobber believes nothing in it: the server decides. A `.lock`
that is *not* a mirror is another matter: somebody works here who has never heard of the coordinator.

Writing it may fail (a full disk, a folder that was deleted): the lock is held all the same.

A mirror that is taken away is kept in the state folder and written over at the next lock: a name is moved,
and no file is made or removed. Making one was the dearest thing that a client did (ext4 without a journal
looks for a file number that was not free a minute ago: 50 to 400 µs where many locks come and go). Whoever
has the old mirror open may so read the next one. Only the lock's holder touches the spare. Where it cannot be
used (another user's, another mount's, linked elsewhere) a file is made and removed as before.
"""

from __future__ import annotations

import json
import os
import stat
from hashlib import md5
from typing import TYPE_CHECKING, Any

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.project import MIRRORS_FOLDER, STATE_FOLDER
from noclobber.errors import NoclobberError
from noclobber.lock import messages
from noclobber.lock.file_arbiter import FileArbiter
from noclobber.lock.names import LOCK_NAME, STAGED_PREFIX

if TYPE_CHECKING:
    from noclobber.errors import LockContention
    from noclobber.lock.arbiter import Taker
    from noclobber.postgres.workspace_name import SharedFolder

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE_OVER = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MOST_BYTES = 1 << 16
_BLOCK_BYTES = 1 << 10  # A mirror is so long, or a multiple: it is written over without being cut.


def put(folder: str, place: SharedFolder, row: dict[str, Any], taker: Taker, secret_sha256: str) -> None:
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
    _write(folder, members, _spare(place))


def renew(folder: str, row: dict[str, Any], secret_sha256: str) -> None:
    """Show the new end of the lease."""
    members = _read(folder)
    if members is not None and members.get("secret_sha256") == secret_sha256:
        _write(folder, {**members, "lease_duration_s": row["lease_s"], "renewal_s": row["renewal_s"]})


def remove(folder: str, place: SharedFolder, secret_sha256: str | None) -> None:
    """Take a mirror away: this lock's, or (None) any."""
    content = _content(folder)
    if secret_sha256 is None:
        is_ours = _members(content) is not None
    else:  # Not parsed: nobody else's file has this text, and it is looked for at every release.
        is_ours = f'"secret_sha256": "{secret_sha256}"'.encode() in content
    if is_ours and not _set_aside(f"{folder}/{LOCK_NAME}", _spare(place)):
        _unlink(f"{folder}/{LOCK_NAME}")


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
    return _members(_content(folder))


def _content(folder: str) -> bytes:
    try:
        descriptor = os.open(f"{folder}/{LOCK_NAME}", _READ)
        try:
            return os.read(descriptor, _MOST_BYTES)
        finally:
            os.close(descriptor)
    except OSError:
        return b""


def _members(content: bytes) -> dict[str, Any] | None:
    try:
        members = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return members if isinstance(members, dict) and members.get("mirror_of") == "postgresql" else None


def _spare(place: SharedFolder) -> str:
    """Return where a folder's mirror is while the folder is not locked."""
    name = md5(place.path.encode(), usedforsecurity=False).hexdigest()
    return f"{place.root.rstrip('/')}/{STATE_FOLDER}/{MIRRORS_FOLDER}/{name}"


def _set_aside(mirror: str, spare: str) -> bool:
    """Keep a mirror's file for the next lock; False if it cannot be kept."""
    try:
        os.rename(mirror, spare)
    except FileNotFoundError:  # The first one here.
        try:
            os.mkdir(os.path.dirname(spare))
            os.rename(mirror, spare)
        except OSError:
            return False
    except OSError:
        return False
    return True


def _written_over(spare: str, content: bytes) -> bool:
    """Write a mirror into the file of an earlier one; False if there is none that is ours alone."""
    try:
        descriptor = os.open(spare, _WRITE_OVER)
    except OSError:
        return False
    try:
        found = os.fstat(descriptor)
        # Somebody may have put a link there, so that something else of ours is written over.
        is_ours = stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_uid == os.geteuid()
        return is_ours and found.st_size <= len(content) == os.pwrite(descriptor, content, 0)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _write(folder: str, members: dict[str, Any], spare: str | None = None) -> None:
    if os.path.lexists(f"{folder}/{LOCK_NAME}") and _read(folder) is None:
        return  # Another program's file of that name.
    content = json.dumps(members, ensure_ascii=False).encode("utf-8", "replace")
    content += b" " * (-(len(content) + 1) % _BLOCK_BYTES) + b"\n"
    if spare is not None and _written_over(spare, content):
        staged = spare
    else:
        staged = f"{folder}/{STAGED_PREFIX}{os.urandom(8).hex()}"
        if not _staged(staged, content):
            return
    try:
        os.rename(staged, f"{folder}/{LOCK_NAME}")
    except OSError:
        _unlink(staged)


def _staged(staged: str, content: bytes) -> bool:
    try:
        descriptor = os.open(staged, _CREATE, 0o644)
        try:
            os.write(descriptor, content)
        finally:
            os.close(descriptor)
    except OSError:
        _unlink(staged)
        return False
    return True


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
