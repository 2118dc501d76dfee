"""
A mutex for mounts whose locks reach nobody else: a file that says who is at work.

Where the kernel keeps `flock` to one mount (`reach`), writers of two mounts would meet. To create a file that
must not exist is one step everywhere, so they take turns by that. A file does not go when its process dies.
Whoever finds it takes it away if its process is seen to be gone; one that cannot be seen has `LEASE_S`,
counted by whoever waits. Taken after the kernel's mutex, so processes of one mount do not meet here.

Calling sequence: `take()`, work, `release()`.

Not promised: that it excludes. A process that was stopped for longer than its lease goes on when it wakes. So
nothing but a record, and the order of commits at level `plain`, relies on it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from noclobber.core.json_text import parse, spell_in_ascii
from noclobber.disk import filesystems
from noclobber.disk.processes import GONE, ProcessIdentity, fate, identify
from noclobber.disk.reading import LOOK

if TYPE_CHECKING:
    from noclobber.core.clock import Clock

LEASE_S = 4.0
ASIDE = ".old"
_NAP_S = 0.002
_MOST_BYTES = 4096
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def take(name: str, folder_fd: int, *, patience_s: float, clock: Clock) -> bytes | None:
    """Make the file, and return what is in it, for `release()`; None if others have it for `patience_s`."""
    mine = spell_in_ascii([*identify(), os.urandom(8).hex()]).encode()
    deadline_s = clock.monotonic_s() + patience_s
    seen: bytes | None = None
    since_s = 0.0
    while True:
        try:
            lease_fd = os.open(name, _CREATE, 0o664, dir_fd=folder_fd)
        except FileExistsError:
            pass
        else:
            try:
                os.write(lease_fd, mine)
            finally:
                os.close(lease_fd)
            return mine
        there, now_s = _read(name, folder_fd), clock.monotonic_s()
        if there != seen:
            seen, since_s = there, now_s
        if there is not None and (now_s - since_s >= LEASE_S or _is_gone(there)):
            _take_away(name, folder_fd, there)
            continue
        if now_s >= deadline_s:
            return None
        clock.sleep(_NAP_S * (0.5 + os.urandom(1)[0] / 256))


def release(name: str, folder_fd: int, mine: bytes) -> None:
    """Take the file away, if it is still ours. An error leaves it to whoever finds it."""
    try:
        if _read(name, folder_fd) == mine:
            os.unlink(name, dir_fd=folder_fd)
    except OSError:
        pass


def _read(name: str, folder_fd: int) -> bytes | None:
    """Return what the file says now; None if it is gone."""
    try:
        lease_fd = os.open(name, LOOK, dir_fd=folder_fd)
    except OSError:
        return None
    try:
        filesystems.forget_cached(lease_fd)
        return os.read(lease_fd, _MOST_BYTES)
    except OSError:
        return None
    finally:
        os.close(lease_fd)


def _is_gone(said: bytes) -> bool:
    try:
        return fate(ProcessIdentity(*parse(said)[:-1])) == GONE
    except (ValueError, TypeError, KeyError, RecursionError):
        return False  # Half of it is written. Or it is nobody's, and has its lease.


def _take_away(name: str, folder_fd: int, said: bytes) -> None:
    """Remove what says this. Under another name first: of several that do so one finds it."""
    aside = f"{name}{ASIDE}"
    try:
        os.rename(name, aside, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
        if _read(aside, folder_fd) != said:  # Somebody was faster, and this is the next one's.
            os.link(aside, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd, follow_symlinks=False)
    except OSError:
        pass
    try:
        os.unlink(aside, dir_fd=folder_fd)
    except OSError:
        pass
