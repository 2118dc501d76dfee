"""Read a configuration: it may have come with a folder, and be a FIFO, on which a plain open() waits."""

from __future__ import annotations

import errno
import os
import stat

# Links are followed: people keep their dotfiles so.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


def read_plain(path: str, most_bytes: int = -1) -> bytes:
    """Return a regular file's bytes, or the first of them; `OSError` for everything else."""
    descriptor = os.open(path, _READ)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", path)
        return file.read(most_bytes)
