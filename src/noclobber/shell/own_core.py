"""
Leave the core to a child that was just forked.

The kernel often puts a new process on its parent's core, although another one is idle, and lets the parent go
on there for its whole slice: with two idle cores a child began 2 ms after the fork (median), and 0.65 ms
after it if the parent moves. So the parent moves, which takes it 0.15 ms, and may be anywhere again at once.

Not the child: what it becomes is somebody else's program, and would have an affinity that nobody has set.
"""

from __future__ import annotations

import os

from noclobber.core.light.c_library import function


def step_aside() -> None:
    """Go to another core, if one is idle. It is a hint: nothing depends on it."""
    which = function("sched_getcpu")
    try:
        allowed = os.sched_getaffinity(0)
        if which is None or len(allowed) < 2 or not _is_one_idle():
            return
        elsewhere = allowed - {which()}
        if elsewhere:
            os.sched_setaffinity(0, elsewhere)
            os.sched_setaffinity(0, allowed)
    except (OSError, ValueError, IndexError):
        pass  # The cores that we may use have changed meanwhile; or this /proc is none of Linux's own.


def _is_one_idle() -> bool:
    """True if fewer processes want to run than there are cores. On a busy one we would wait for others."""
    load_fd = os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)
    try:
        running = os.read(load_fd, 256).split()[3].partition(b"/")[0]
    finally:
        os.close(load_fd)
    return int(running) <= (os.cpu_count() or 1)
