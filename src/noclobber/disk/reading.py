"""
What stands at a place now: opened without following, without blocking, without being fooled.
"""

from __future__ import annotations

import errno
import os
import stat

from noclobber.disk import forks, hashing
from noclobber.disk.leases import Patience
from noclobber.errors import DELETED, NOT_A_FILE, UNREADABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from noclobber.disk.paths import Target

LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
DEFAULT_PATIENCE_S = 10.0


def open_patiently(target: Target, patience: Patience) -> int:
    """
    Open a file to read it, without following a link and without blocking on a FIFO. `forks.close()` it.

    A commit hides its new version for a moment, and a non-blocking open() is then told to come again.
    BlockingIOError: it did, until its patience was at an end.
    """
    while True:
        try:
            return forks.open_tracked(target.name, LOOK, dir_fd=target.folder_fd)
        except BlockingIOError:
            if not patience.nap():
                raise


def look(target: Target) -> str:
    """Return the hash of what stands there now, or the word for why there is none. Never blocks."""
    try:
        descriptor = open_patiently(target, Patience(DEFAULT_PATIENCE_S))
    except FileNotFoundError:
        return DELETED
    except OSError as error:
        return NOT_A_FILE if error.errno in (errno.ELOOP, errno.ENXIO) else UNREADABLE
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return NOT_A_FILE
        return hashing.of_descriptor(descriptor)
    except OSError:
        return UNREADABLE
    finally:
        forks.close(descriptor)
