"""
What the calls of a lock and of a ledger would load when they first need it.

Modules are loaded late for the sake of processes that live for one call: hooks and commands. A program that
uses `noclobber.DeliverableLock` may have threads, and may fork. So there everything is loaded together with
the first name that is used, in one block that a fork waits for: nothing is imported while a lock is held or
a file is written. (finding R9)
"""

from __future__ import annotations

import fcntl  # noqa: F401
import pwd  # noqa: F401
import random  # noqa: F401
import sys

from noclobber.disk import ahead, processes  # noqa: F401
from noclobber.ledger import ledger, observer, tail, verify  # noqa: F401
from noclobber.lock import backend, lock  # noqa: F401

if sys.platform != "linux":  # Where there is no /proc, other ways lead to a process's start.
    import calendar  # noqa: F401
    import ctypes  # noqa: F401
    import struct  # noqa: F401
    import subprocess  # noqa: F401
