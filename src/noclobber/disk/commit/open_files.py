"""Room for many open files: a commit holds each of its files, and the mutex and the note of each folder."""

from __future__ import annotations

import os

FEW = 12  # So many files or folders need no room to be made.
EACH_FILE, EACH_FOLDER, SPARE = 2, 3, 192


def make_room(files: int, folders: int) -> int:
    """Raise the limit of open files, if need be; return how many of the files there is room for."""
    in_use = len(os.listdir("/dev/fd")) + SPARE + EACH_FOLDER * folders
    needed = in_use + EACH_FILE * files
    if os.sysconf("SC_OPEN_MAX") >= needed:  # The soft limit.
        return files
    import resource  # Here: nearly every commit has room, and it takes a quarter of a millisecond.

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 0 or hard >= needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard >= 0 else needed, hard))
        return files
    return max(1, min(files - 1, (hard - in_use) // EACH_FILE))
