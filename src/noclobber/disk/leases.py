"""
Kernel file leases: does anybody have this file open, and is anybody about to?

A read lease on a descriptor is granted only while nobody has the file open for writing; a write
lease only while nobody else has it open at all. A process that then opens it in a conflicting way waits
inside `open()` until the lease is released. This is how a commit notices writers that do not use
noclobber, and how it keeps everyone away from bytes that are not verified yet.

Calling sequence: `lease()`, work, `is_quiet()` for the decisive check, `release()`.

Facts that the code depends on:

- An opener raises the inode's writer count first and asks for leases afterwards. So between the two
  it is invisible to F_GETLEASE, and only *setting the lease again*, which looks at the count, sees it.
- The kernel tells the holder of a lease with SIGIO, which kills a process that does not expect it.
  SIGURG is ignored by default, so that is the signal asked for, before the lease is taken.
- Ending a lease forgets that signal too. So it is asked for each time that one is taken.
- A lease belongs to the open file. A forked child shares it, so it must be released, not only closed.
- Network filesystems answer EAGAIN to everybody who has no delegation of the server: nobody has the file
  open, and there is no lease. Where leases are blind, "busy" therefore means "not available".
- An NFS client that has one grants the lease. Then whatever makes the server take the delegation back waits
  for the lease to end: our own `utime` on that very file hung for 45 s. So none is taken there.
- The kernel breaks a lease by force after /proc/sys/fs/lease-break-time (45 s). Commits take milliseconds,
  but a process may be stopped. So who writes under a lease asks `stands()` before each write.
"""

from __future__ import annotations

import errno
import fcntl
import sys
import time
from signal import SIGURG
from typing import TYPE_CHECKING

from noclobber.disk import filesystems

if TYPE_CHECKING:
    from noclobber.core.clock import Patience

# Not by what `fcntl` has: macOS has an F_SETLEASE that needs an entitlement, and another command 10.
SUPPORTED = sys.platform == "linux"
F_SETSIG = 10
F_SETLEASE: int = getattr(fcntl, "F_SETLEASE", -1)
F_GETLEASE: int = getattr(fcntl, "F_GETLEASE", -1)
DEFAULT_BREAK_TIME_S = 45.0
BREAK_MARGIN_S = 1.0
READ, WRITE, NONE = fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK


class LeaseEndedError(OSError):
    """The kernel ended our lease by force: others have the file by now, and what is in it may be theirs."""


class LeasesUnavailableError(OSError):
    """Not on this filesystem, or not on a file of this owner. The caller uses a lower level then."""


def _set(descriptor: int, kind: int) -> bool:
    try:
        fcntl.fcntl(descriptor, F_SETLEASE, kind)
        return True
    except BlockingIOError:
        return False  # EAGAIN: somebody has it open in a way that conflicts.
    except OSError as error:
        # EACCES: not our file. EINVAL: filesystem without leases. ENOLCK: none left.
        raise LeasesUnavailableError(
            error.errno or errno.EINVAL, "file leases are not available here"
        ) from error


def try_lease(descriptor: int, kind: int) -> bool:
    """Take a lease now, or return False because somebody has the file open in a conflicting way."""
    if not SUPPORTED:
        raise LeasesUnavailableError(errno.ENOTSUP, "this platform has no file leases")
    if filesystems.has_seen_network and filesystems.kind_of(descriptor) in filesystems.NETWORK:
        raise LeasesUnavailableError(errno.ENOTSUP, "file leases are of no use on network filesystems")
    fcntl.fcntl(descriptor, F_SETSIG, SIGURG)
    if _set(descriptor, kind):
        return True
    if not filesystems.sees_writers(filesystems.kind_of(descriptor)):
        raise LeasesUnavailableError(errno.EAGAIN, "file leases mean nothing on this filesystem")
    return False


def lease(descriptor: int, kind: int, patience: Patience) -> bool:
    """Take a lease, waiting until nobody has the file open; False if that takes too long."""
    while not try_lease(descriptor, kind):
        if not patience.nap():
            return False
    return True


def is_quiet(descriptor: int, kind: int) -> bool:
    """
    True if our lease is intact and nobody is inside `open()`, waiting for it to end or about to wait.

    Both checks are needed: F_GETLEASE sees an opener that waits; setting the lease again sees one that has
    been counted as a writer and does not wait yet.
    """
    return fcntl.fcntl(descriptor, F_GETLEASE) == kind and _set(descriptor, kind)


def stands(descriptor: int, kind: int, since_s: float) -> bool:
    """
    True if our lease has kept everyone out since it was taken, and does still. It was taken after `since_s`.

    While somebody waits, the kernel gives the same answers about a lease that is being broken and one that is
    gone. So then the time decides: nobody can have waited for longer than the lease has been there.
    """
    if is_quiet(descriptor, kind):
        return True
    limit_s = break_time_s()
    return limit_s is None or time.monotonic() - since_s < limit_s - BREAK_MARGIN_S


def break_time_s() -> float | None:
    """Return after how long the kernel ends a lease by force, once somebody waits for it; None for never."""
    try:
        with open("/proc/sys/fs/lease-break-time", "rb") as file:
            return float(file.read()) or None
    except (OSError, ValueError):
        return DEFAULT_BREAK_TIME_S


def release(descriptor: int) -> None:
    """End the lease; harmless where there is none."""
    try:
        fcntl.fcntl(descriptor, F_SETLEASE, NONE)
    except OSError:
        pass  # EAGAIN: there is no lease, or the kernel has broken it already.
