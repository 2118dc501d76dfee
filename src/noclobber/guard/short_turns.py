"""
Have a process that hardly ever runs run at once when it is woken.

On a machine that is busy, a process that is woken waits until whoever runs has used up its turn: some
milliseconds. Linux lets every process ask for turns that are shorter than others' (6.12, a tenth of a
millisecond at least), and whoever asked for a short one goes first. Its share of the machine stays the same.
Measured on two processors with ten busy processes, saves within 3 ms of a host's write, which nothing can
keep apart (`lookout`): of 540, 105 were neither in the file nor kept; without short turns 220.
"""

from __future__ import annotations

import os
import sys

TURN_NS = 100_000
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274, "riscv64": 274}


def ask() -> bool:
    """Ask for short turns for this process; False where that is not offered."""
    number = _SCHED_SETATTR.get(os.uname().machine) if os.uname().sysname == "Linux" else None
    if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    try:
        # What `ctypes` is made from: the module itself takes ten times as long to load.
        from _ctypes import call_function, dlopen, dlsym

        itself = dlopen(None, os.RTLD_NOW)  # type: ignore[arg-type]
        syscall = dlsym(itself, "syscall")
        return bool(call_function(syscall, (number, 0, _wanted(), 0)) == 0)
    except (ImportError, OSError):
        return False


def _wanted() -> bytes:
    """Return the kernel's `struct sched_attr` in its first form; policy and nice value stay as they are."""
    nice = os.getpriority(os.PRIO_PROCESS, 0) & 0xFFFFFFFF
    size, policy, flags, priority, unused = 48, 0, 0, 0, 0
    words = (size, 4), (policy, 4), (flags, 8), (nice, 4), (priority, 4), (TURN_NS, 8), (unused, 16)
    return b"".join(value.to_bytes(length, sys.byteorder) for value, length in words)
