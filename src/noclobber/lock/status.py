"""
Look at locks without touching them: one folder, or a whole tree.

No mutex and no section: a record is published whole or not at all, so a plain read is right. What is
reported was true at the moment of reading, and may be history when it is printed.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.lock.liveness import Place, judge
from noclobber.lock.names import LOCK_NAME
from noclobber.lock.record import read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from noclobber.core.clock import Clock
    from noclobber.lock.liveness import State

# Full of folders, and never a deliverable among them.
SKIPPED_FOLDERS = frozenset((".git", ".hg", ".svn", ".noclobber", "node_modules", "__pycache__", ".venv"))


class LockStatus(NamedTuple):
    """What one folder's lock is like. Everything but `folder`, `state` and `detail` is None if unknown."""

    folder: str
    state: State
    """
    `free`, `live`, `expired`, `dead` or `corrupt`. The last three are taken over by the next to acquire.
    """
    detail: str
    deliverable_id: str | None = None
    holder: str | None = None
    acquired: str | None = None
    age_s: int | None = None
    lease_duration_s: int | None = None
    lease_remaining_s: int | None = None
    pid: int | None = None
    host: str | None = None
    lock_id: str | None = None

    @property
    def is_locked(self) -> bool:
        """True if acquire would be refused."""
        return self.state == "live"

    def to_dict(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        return self._asdict()


def status_of(folder: str, clock: Clock = SYSTEM_CLOCK) -> LockStatus:
    """Return the state of a folder's lock. Errors as in acquire: what cannot be read is not free."""
    try:
        found = read(f"{folder}/{LOCK_NAME}")
        there = os.stat(folder if found is not None else f"{folder}/.")  # ENOTDIR if the folder is a file.
    except OSError as error:
        from noclobber.lock.os_errors import explain

        name = folder if isinstance(error, FileNotFoundError) else f"{folder}/{LOCK_NAME}"
        explain(error, name, "look into the deliverable folder")
    if found is None:
        return LockStatus(folder, "free", "not locked")
    now_s = clock.now_s()
    verdict = judge(found, now_s, Place(there.st_dev, there.st_ino, folder))
    record = found.record
    if record is None:
        return LockStatus(folder, verdict.state, verdict.detail)
    return LockStatus(
        folder, verdict.state, verdict.detail, record.deliverable_id, record.holder, record.acquired,
        max(0, int(now_s - record.acquired_s)), record.lease_duration_s, verdict.remaining_s,
        record.pid, record.host, record.lock_id,
    )  # fmt: skip


def list_locks(root: str, clock: Clock = SYSTEM_CLOCK) -> Iterator[LockStatus]:
    """
    Yield the status of every locked folder below a root, the root included, in no particular order.

    Links are not followed. A folder that cannot be listed is left out; a lock that cannot be read is
    yielded as `corrupt`, with the reason, because somebody has to look at it.
    """
    from noclobber.errors import NoclobberError

    waiting = [root]
    while waiting:
        folder = waiting.pop()
        is_locked = False
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    name = entry.name
                    if name == LOCK_NAME:
                        is_locked = True
                    elif name not in SKIPPED_FOLDERS and entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError as error:
            if folder == root:
                from noclobber.lock.os_errors import explain

                explain(error, root, "list")
            continue
        if is_locked:
            try:
                status = status_of(folder, clock)
            except NoclobberError as error:
                yield LockStatus(folder, "corrupt", str(error))
                continue
            if status.state != "free":  # Released between our two looks.
                yield status
