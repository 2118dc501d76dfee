"""
Is a path what it says, with no link on the way? One system call, where a walk asks about every folder.

`openat2` with `RESOLVE_NO_SYMLINKS` (Linux 5.6) refuses a path on which any part is a link, those of `/proc`
included. Six microseconds at four folders, where a `readlink` for each takes twenty. A "no" says nothing: the
path may have a link, lead nowhere, or the kernel (or a container's filter) may not have the call. Then walk.
"""

from __future__ import annotations

import os
import sys

from noclobber.disk.c_library import LONG, function

_OPENAT2 = 437  # On every machine: it was added after the numbers were made the same.
_CURRENT_FOLDER = -100  # AT_FDCWD; unused, since paths are absolute.
_RESOLVE_NO_SYMLINKS = 0x04
# A descriptor that only names the file: opening it for reading would wait for a FIFO, or end a lease.
_FLAGS = getattr(os, "O_PATH", 0) | os.O_CLOEXEC
_HOW = b"".join(number.to_bytes(8, sys.byteorder) for number in (_FLAGS, 0, _RESOLVE_NO_SYMLINKS))

_syscall = function("syscall") if sys.platform == "linux" else None


def leads_somewhere(path: str) -> bool:
    """True if something is at an absolute, normalised path, and no part of the path is a link."""
    if _syscall is None:
        return False
    name = path.encode("utf-8", "surrogateescape")
    descriptor = _syscall(LONG(_OPENAT2), _CURRENT_FOLDER, name, _HOW, LONG(len(_HOW)))
    if descriptor < 0:
        return False
    os.close(descriptor)
    return True
