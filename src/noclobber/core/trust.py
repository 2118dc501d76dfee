"""
Which folders the user trusts (ruling 34): what weakens the guard, or runs a program, counts only from there.

The list is the user's own file, `~/.config/noclobber/trusted` (or below `XDG_CONFIG_HOME`): one absolute path
a line. A folder that was cloned cannot put itself there. A list that others can write is nobody's.
"""

from __future__ import annotations

import os
import stat

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
MOST_BYTES = 1 << 20


def is_trusted(root: str) -> bool:
    """True if the user's list has this folder."""
    settings = os.environ.get("XDG_CONFIG_HOME", "")
    settings = settings if settings.startswith("/") else os.path.expanduser("~/.config")
    try:
        descriptor = os.open(f"{settings}/noclobber/trusted", _READ)
    except OSError:
        return False
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            return False
        return os.fsencode(os.path.realpath(root)) in os.read(descriptor, MOST_BYTES).splitlines()
    except OSError:
        return False
    finally:
        os.close(descriptor)
