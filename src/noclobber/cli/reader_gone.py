"""
Wait a little, unless nobody is listening any more.

`noclobber watch --json | head -1` prints something only when something happens. Without this it would
find out that its reader has gone at the next change, which may be never.
"""

from __future__ import annotations

import select
import sys


def wait(seconds: float) -> None:
    """Sleep; raise `BrokenPipeError` at once if stdout is a pipe that nobody reads."""
    try:
        descriptor = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):  # Closed, missing, or replaced by something in memory.
        select.select([], [], [], seconds)
        return
    poller = select.poll()
    poller.register(descriptor, 0)  # Errors and hang-ups are always reported.
    if poller.poll(seconds * 1000):
        raise BrokenPipeError
