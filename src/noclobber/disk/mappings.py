"""
Who has a file mapped into memory, for writing?

On overlayfs a lease cannot tell. A lease is on the overlay's inode; a mapping, once its descriptor is closed,
holds the inode in the upper layer, which a container cannot even name. But the kernel lists every process's
mappings in `/proc`. New mappings need a descriptor that is open for writing, which the lease excludes: so one
look *under the lease* is enough.

Not seen: processes outside of this pid namespace. Those of other users may not be readable; then the answer
is None, and the caller promises less.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PROT_READ, MAP_SHARED = 1, 1


def is_mapped_for_writing(descriptor: int) -> bool | None:
    """True if a mapping can write to an open file, or can be made to; None if that cannot be known."""
    if os.fstat(descriptor).st_size == 0:
        return False  # Nothing of it can be reached through a mapping.
    try:
        wanted = _as_listed(descriptor)
        return None if wanted is None else _in_any_process(wanted)
    except OSError:
        return None


def _as_listed(descriptor: int) -> bytes | None:
    """Return a file's device and inode as mappings are listed here: the overlay's, or the upper layer's."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    address = libc.mmap(None, 1, PROT_READ, MAP_SHARED, descriptor, 0)
    if address is None or address == ctypes.c_void_p(-1).value:
        return None
    try:
        for line in _read("/proc/self/maps").splitlines():
            first, _, last = line.split(b" ", 1)[0].partition(b"-")
            if int(first, 16) <= address < int(last, 16):
                return _device_and_inode(line)
    finally:
        libc.munmap(address, 1)
    return None


def _in_any_process(wanted: bytes) -> bool | None:
    looked_at: set[str] = set()
    is_known = True
    # Until nobody is new: a mapping that a process passes on by fork and then gives up is in the child.
    while new := [pid for pid in os.listdir("/proc") if pid.isdigit() and pid not in looked_at]:
        for pid in new:
            looked_at.add(pid)
            try:
                if wanted in _read(f"/proc/{pid}/maps") and _can_write(pid, wanted):
                    return True
            except (FileNotFoundError, ProcessLookupError):
                pass  # It has ended.
            except OSError:
                is_known = is_known and _has_no_memory(pid)
    return False if is_known else None


def _can_write(pid: str, wanted: bytes) -> bool:
    """True if a shared mapping of the file may be written to, now or after an `mprotect`."""
    is_it = False
    for line in _read(f"/proc/{pid}/smaps").splitlines():
        words = line.split(b" ", 2)
        if not words[0].endswith(b":"):
            is_it = _device_and_inode(line) == wanted and words[1].endswith(b"s")
        elif is_it and words[0] == b"VmFlags:" and b" mw" in line:
            return True
    return False


def _has_no_memory(pid: str) -> bool:
    """True for kernel threads and zombies, which map nothing."""
    try:
        fields = _read(f"/proc/{pid}/statm").split()
    except OSError:
        return not os.path.lexists(f"/proc/{pid}")
    return fields[:1] == [b"0"]


def _device_and_inode(line: bytes) -> bytes:
    # "7f82…-7f82… rw-s 00000000 00:27 2187410      /path"; spaces, so that 1 is not found in 12.
    words = line.split(None, 5)
    return b" " + words[3] + b" " + words[4] + b" "


def _read(path: str) -> bytes:
    return b"".join(_chunks(path))


def _chunks(path: str) -> Iterator[bytes]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while chunk := os.read(descriptor, 1 << 16):
            yield chunk
    finally:
        os.close(descriptor)
