"""
Which folder above a file is locked? Asked by every guarded write, so it is small and imports little.

The innermost one decides. The walk goes up to the root of the filesystem and not only to the workspace's: a
lock on a folder above the workspace covers the workspace too (finding S6).

Inside the workspace a lock file is enough, whatever is in it: what is orphaned or damaged is recovered by
the write that finds it. Above the workspace only a live lock counts. A write changes nothing outside its
workspace, so it recovers nothing there, and other programs have files of that name (pytest and uv, for two).
Nor does a lock count there that another user made in a folder that everybody may write to, such as `/tmp`:
any user could lock everybody's projects.

With a coordinator (`NOCLOBBER_COORDINATOR`) the server is asked as well: a deliverable that another
machine has locked in its own checkout has no lock file here.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.project import COORDINATOR
from noclobber.disk import small_file
from noclobber.lock.names import LOCK_NAME

if TYPE_CHECKING:
    from noclobber.core.clock import Clock


def locked_folder(path: str, root: str, clock: Clock = SYSTEM_CLOCK) -> str | None:
    """Return the innermost locked folder that a canonical path is inside of, or None."""
    here = locked_here(path, root, clock)
    if not os.environ.get(COORDINATOR):
        return here
    # By its name: it is above this folder in the order of imports, and its driver takes long to load.
    from importlib import import_module

    elsewhere: str | None = import_module("noclobber.postgres.coordinator").locked_above(path)
    return max((here or "", elsewhere or ""), key=len) or None


def locked_here(path: str, root: str, clock: Clock) -> str | None:
    """Return the innermost folder above a canonical path that has a lock file, or None."""
    folder = path.rpartition("/")[0]
    # `access` costs half of what `lstat` costs when the answer is no. It says no for what it may not look at,
    # too, but above a folder that can be looked into there is no such thing.
    exists = _exists if os.access(f"{folder}/.", os.F_OK) else _may_exist
    while True:
        if exists(f"{folder}/{LOCK_NAME}"):
            name = folder or "/"
            if _is_inside(name, root) or _is_live_outside(name, clock):
                return name
        if not folder:
            return None
        folder = folder.rpartition("/")[0]


def _exists(name: str) -> bool:
    # A broken link counts as none. It is no lock either: whoever finds it may remove it.
    return os.access(name, os.F_OK)


def _may_exist(name: str) -> bool:
    try:
        os.lstat(name)
    except (FileNotFoundError, NotADirectoryError):
        return False  # A folder that does not exist yet is not locked; the folders above it may be.
    except OSError:
        return True  # Cannot be looked at, so it is not free. Opening it says why.
    return True


def _is_inside(folder: str, root: str) -> bool:
    return folder == root or folder.startswith(root.rstrip("/") + "/")


def _is_live_outside(folder: str, clock: Clock) -> bool:
    """True if a folder above the workspace has a lock that keeps others out."""
    try:
        descriptor = os.open(f"{folder}/{LOCK_NAME}", small_file.READ)
    except PermissionError:
        return not os.stat(folder).st_mode & stat.S_IWOTH  # Cannot be read, so it is not free.
    except OSError:
        return False
    try:
        # A record is a JSON object. Looking at one byte loads no parser for other programs' files.
        if not stat.S_ISREG(os.fstat(descriptor).st_mode) or os.read(descriptor, 1) != b"{":
            return False
        if os.fstat(descriptor).st_uid != os.geteuid() and os.stat(folder).st_mode & stat.S_IWOTH:
            return False
    except OSError:
        return True
    finally:
        os.close(descriptor)
    from noclobber.errors import NoclobberError
    from noclobber.lock.backend import status_of

    try:
        status = status_of(folder, clock)
        # Without a holder it is what somebody may be writing: here that is some program's own file.
        return status.is_locked and status.holder is not None
    except NoclobberError:
        return True
