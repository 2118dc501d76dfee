"""
How far does a mutex reach: this machine, this mount only, or everybody who has the volume mounted?

Whether a lock on a file excludes another machine cannot be tried from this one. But it is known who decides:

- on a local filesystem the kernel does, for all who can get at it: `machine`;
- NFS clients ask the server for locks on files, unless mounted with `nolock` or `local_lock`: `volume`;
- for FUSE the kernel keeps the locks of a mount to itself, unless the filesystem has asked for them. A lock
  that the kernel keeps is in /proc/locks; one that was handed on is not. Handed on, two tries must exclude
  each other: `volume`. Else: `mount`;
- of other network filesystems nothing is known, and what is not known to be good is taken for bad: `mount`.

`mount` means: guarded writers that come through this mount lose nothing to each other; of two mounts, or two
machines, each may overwrite what the other has just written. Nobody there can tell another mount's commit
that runs from one whose process has died. So commits are at `plain`, and each mount has notes and swap files
of its own, which no other one touches (`note_keys.mount_tag`).
"""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

from noclobber.core.project import BESIDE_PREFIX
from noclobber.disk import filesystems, paths
from noclobber.disk.processes import mutex_holder
from noclobber.disk.small_file import closing

if TYPE_CHECKING:
    from noclobber.core.values import Reach

REACHES: dict[Reach, str] = {
    "machine": "every process of this machine",
    "volume": "every machine and every mount that uses this volume: the file server decides about locks",
    "mount": "the processes that use this mount, and nobody else: locks are not handed on to other mounts"
    " and machines",
}
KEPT_TO_ITSELF = frozenset(("nolock", "local_lock=flock", "local_lock=all"))


def reach_of(folder: str) -> Reach:
    """Return how far the mutex of guarded writes in a folder reaches. Tried with a file, which is removed."""
    with closing(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as folder_fd:
        return reach_of_open(folder_fd)


def reach_of_open(folder_fd: int) -> Reach:
    """The same for an open folder."""
    kind = filesystems.kind_of(folder_fd)
    if not filesystems.is_remote(kind):
        return "machine"
    if kind not in ("nfs", "fuse"):
        return "mount"
    name = f"{BESIDE_PREFIX}reach-{os.urandom(6).hex()}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    first_fd = os.open(name, flags, 0o600, dir_fd=folder_fd)
    try:
        with closing(os.open(name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder_fd)) as second_fd:
            if not _exclude(first_fd, second_fd):
                return "mount"
            is_handed_on = _asks_the_server(folder_fd) if kind == "nfs" else not _is_kept_here(first_fd)
            return "volume" if is_handed_on else "mount"
    finally:
        os.close(first_fd)
        os.unlink(name, dir_fd=folder_fd)


_known: dict[tuple[int, bytes], bool] = {}


def is_this_mount_only(folder_fd: int) -> bool:
    """True if nothing excludes whoever writes through another mount. What cannot be tried is not proved."""
    mount = os.fstat(folder_fd).st_dev, paths.mount_of(folder_fd)
    if mount not in _known:
        try:
            _known[mount] = reach_of_open(folder_fd) == "mount"
        except OSError:
            return True
    return _known[mount]


def _exclude(first_fd: int, second_fd: int) -> bool:
    try:
        fcntl.flock(first_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    try:
        fcntl.flock(second_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def _is_kept_here(locked_fd: int) -> bool:
    status = os.fstat(locked_fd)
    # Where /proc/locks cannot be read, nothing is proved.
    return not os.access("/proc/locks", os.R_OK) or mutex_holder(status.st_dev, status.st_ino) is not None


def _asks_the_server(folder_fd: int) -> bool:
    """True if no option of an NFS mount keeps its locks on this machine. Unknown: False."""
    status = os.fstat(folder_fd)
    wanted = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            left, _, right = line.partition(" - ")
            if left.split(" ")[2] == wanted:
                return hands_on_locks(right.split(" ")[2].strip())
    return False


def hands_on_locks(options: str) -> bool:
    """True if the options of an NFS mount leave the decision about locks to the server."""
    return KEPT_TO_ITSELF.isdisjoint(options.split(","))
