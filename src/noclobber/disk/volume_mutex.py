"""
The mutex of a workspace on a volume that other machines, or other mounts, may use at the same time.

`flock` on a folder stays on this machine there: NFSv4 clients keep it to themselves. `flock` on a *file* is
asked of the server. So a commit takes both: the folder's mutex for the processes of this machine, then that
of one file in the state folder for everybody else. One file for the whole workspace, because the notes of
folders, which lead a commit from one folder to the others that it needs, are for one machine.

The file stays for ever. If its last user removed it, a client that still has its name in a cache could lock a
file that is gone, while another locks the new one.

Calling sequence: `take()`, then `filesystems.ask_anew()` for each folder, work, `mutex.release()`, close. The
second step is as important as the first: inside the mutex an NFS client opened versions that were up to six
commits old.

Not promised: that the lock reaches anybody; `reach` says where it does. And a machine that is cut off for
longer than the file server keeps its locks (90 s by default), between its last look and its rename: that
rename may still arrive. With a coordinator it cannot (level `section`).
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from noclobber.core.project import MUTEX_NAME
from noclobber.disk import filesystems, forks, mutex

if TYPE_CHECKING:
    from noclobber.core.clock import Clock

STALE_NAP_S = 0.01
_OPEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


def take(folder_fd: int, prefix: str, *, patience_s: float, clock: Clock) -> int | None:
    """
    Take the mutex in a state folder; return its open file, or None if it stays taken for `patience_s`.

    `prefix`: how our names begin, if the folder is one of the user's own. Let go with `mutex.release()` and
    `forks.close()`.
    """
    deadline_s = clock.monotonic_s() + patience_s
    while True:
        left_s = max(0.0, deadline_s - clock.monotonic_s())
        try:
            mutex_fd = forks.open_tracked(f"{prefix}{MUTEX_NAME}", _OPEN, 0o664, dir_fd=folder_fd)
            try:
                is_held = mutex.hold(mutex_fd, patience_s=left_s, clock=clock)
                if is_held and _is_at_its_name(mutex_fd, folder_fd, prefix):
                    taken, mutex_fd = mutex_fd, -1
                    return taken
                if not is_held:
                    return None
            finally:
                if mutex_fd >= 0:
                    mutex.release(mutex_fd)
                    forks.close(mutex_fd)
        except OSError as error:
            if error.errno != errno.ESTALE or left_s <= 0:
                raise
        # Somebody removed it (`git clean -fdx`) and somebody made it again, here or on another machine.
        if left_s <= 0:
            return None
        filesystems.ask_anew(folder_fd)
        clock.sleep(STALE_NAP_S)


def _is_at_its_name(mutex_fd: int, folder_fd: int, prefix: str) -> bool:
    ours = os.fstat(mutex_fd)
    if not stat.S_ISREG(ours.st_mode):
        raise FileExistsError(errno.EEXIST, "something else has the name of a mutex", f"{prefix}{MUTEX_NAME}")
    try:
        there = os.stat(f"{prefix}{MUTEX_NAME}", dir_fd=folder_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(ours, there)
