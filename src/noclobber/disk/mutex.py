"""
A short kernel mutex on a directory.

`flock` on a directory's own descriptor: no extra file, about two microseconds, and the kernel frees
it when its process dies, however it dies. It orders the writers that cooperate. Other programs do not
take it; against those there are leases and exchange-rename.

Calling sequence: open the directory, `hold()` it, work, `release()`, close.

Not promised: on FUSE, NFS and SMB, and across overlay layers, the call succeeds and excludes nobody on the
other side. `volume_mutex` is what commits take there as well. Nothing may rely on this mutex alone where that
matters.
"""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

from noclobber.core.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from noclobber.core.clock import Clock

FIRST_NAP_S = 0.00005
LONGEST_NAP_S = 0.004
DEFAULT_PATIENCE_S = 10.0


def hold(descriptor: int, *, patience_s: float = DEFAULT_PATIENCE_S, clock: Clock = SYSTEM_CLOCK) -> bool:
    """
    Take the mutex of an open file or directory; return False if it stays taken for `patience_s`.

    Polling, not a blocking `flock`: a process that was stopped inside its critical section must not
    make everyone else wait for ever, and a blocking call cannot be given a deadline in a thread.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        pass
    deadline_s = clock.monotonic_s() + patience_s
    nap_s = FIRST_NAP_S
    while clock.monotonic_s() < deadline_s:
        # Jitter without `random`: an import here would keep a lock of the interpreter while we wait, and a
        # process forked meanwhile would inherit it locked. (finding R9)
        clock.sleep(nap_s * (0.5 + os.urandom(1)[0] / 256))
        nap_s = min(nap_s * 1.6, LONGEST_NAP_S)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            continue
    return False


def release(descriptor: int) -> None:
    """Let go. Always before close(): a child forked meanwhile shares this open file, and its copy
    would keep the mutex after our close()."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    except OSError:
        pass  # close() is next, and lets go too.
