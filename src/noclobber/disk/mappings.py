"""
Who has a file mapped into memory, for writing?

On overlayfs a lease cannot tell. A lease is on the overlay's inode; a mapping, once its descriptor is closed,
holds the inode in the upper layer, which a container cannot even name. But the kernel lists every process's
mappings in `/proc`. New mappings need a descriptor that is open for writing, which the lease excludes: so one
look *under the lease* is enough.

From Linux 6.11 on the kernel answers a question (`PROCMAP_QUERY`) about each process, in some microseconds.
Before that the lists are read as text, which takes tens to hundreds of them.

Not seen: processes outside of this pid namespace. Those of other users may not be readable; then the answer
is None, and the caller promises less.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from noclobber.disk.small_file import closing

PROT_READ, MAP_SHARED = 1, 1
MAP_FAILED = 2 * sys.maxsize + 1

# struct procmap_query of linux/fs.h. What is asked for: the next mapping from an address on which is
# shared and of a file. There are few of those in any process.
_QUERY = 0xC0686611
# Without `struct`, which takes a third of a millisecond to load.
_QUERY_BYTES = 104
_END_AT, _FLAGS_AT, _INODE_AT, _MAJOR_AT, _MINOR_AT = 32, 40, 64, 72, 76
_NEXT_SHARED_OF_FILE = 0x08 | 0x10 | 0x20
_WRITABLE = 0x02


def is_mapped_for_writing(descriptor: int) -> bool | None:
    """True if a mapping can write to an open file, or can be made to; None if that cannot be known."""
    if os.fstat(descriptor).st_size == 0:
        return False  # Nothing of it can be reached through a mapping.
    try:
        question = _as_listed(descriptor)
        return None if question is None else _in_any_process(*question)
    except OSError:
        return None


def _as_listed(descriptor: int) -> tuple[bytes, Callable[[str, bytes], bool]] | None:
    """
    Return how mappings of a file are listed here, as the overlay's or as the upper layer's; and how to look.

    To find out, the file is mapped for a moment.
    """
    libc = _libc or _load()
    address = libc.mmap(None, 1, PROT_READ, MAP_SHARED, descriptor, 0)
    if address is None or address == MAP_FAILED:
        return None
    try:
        return next(_shared_mappings("self", address))[0], _find_by_query
    except OSError as error:
        if error.errno != errno.ENOTTY:
            raise
        return _listed_at(address), _find_in_text
    finally:
        libc.munmap(address, 1)


_libc: Any = None


def _load() -> Any:
    # Not Python's own `mmap`: it keeps a second descriptor of the file, and is thereby seen by every lease.
    global _libc
    import ctypes

    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    _libc = libc
    return libc


def _in_any_process(wanted: bytes, find: Callable[[str, bytes], bool]) -> bool | None:
    looked_at: set[str] = set()
    is_known = True
    # Until nobody is new: a mapping that a process passes on by fork and then gives up is in the child.
    while new := [pid for pid in os.listdir("/proc") if pid.isdigit() and pid not in looked_at]:
        for pid in new:
            looked_at.add(pid)
            try:
                if find(pid, wanted):
                    return True
            except (FileNotFoundError, ProcessLookupError):
                pass  # It has ended, or is one of the kernel's own.
            except OSError:
                is_known = is_known and _has_no_memory(pid)
    return False if is_known else None


def _find_by_query(pid: str, wanted: bytes) -> bool:
    for file, is_writable in _shared_mappings(pid):
        # One that can only be read now may be made writable by `mprotect`, which the query does not tell.
        if file == wanted and (is_writable or _can_write(pid, wanted)):
            return True
    return False


def _shared_mappings(pid: str, address: int = 0) -> Iterator[tuple[bytes, bool]]:
    """
    Ask for a process's shared mappings of files, one after the other: which file, and is it writable?

    ENOTTY: this kernel cannot say.
    """
    with closing(os.open(f"/proc/{pid}/maps", os.O_RDONLY | os.O_CLOEXEC)) as descriptor:
        while True:
            asked = (_QUERY_BYTES, _NEXT_SHARED_OF_FILE, address)
            question = bytearray(b"".join(number.to_bytes(8, sys.byteorder) for number in asked))
            question += bytes(_QUERY_BYTES - len(question))
            try:
                fcntl.ioctl(descriptor, _QUERY, question)
            except FileNotFoundError:
                return  # No more of them.
            address = _number(question, _END_AT)
            device = _number(question, _MAJOR_AT, 4), _number(question, _MINOR_AT, 4)
            is_writable = bool(_number(question, _FLAGS_AT) & _WRITABLE)
            yield b" %02x:%02x %d " % (*device, _number(question, _INODE_AT)), is_writable


def _number(answer: bytearray, at: int, size: int = 8) -> int:
    return int.from_bytes(answer[at : at + size], sys.byteorder)


def _find_in_text(pid: str, wanted: bytes) -> bool:
    return wanted in _read(f"/proc/{pid}/maps") and _can_write(pid, wanted)


def _listed_at(address: int) -> bytes:
    for line in _read("/proc/self/maps").splitlines():
        first, _, last = line.split(b" ", 1)[0].partition(b"-")
        if int(first, 16) <= address < int(last, 16):
            return _device_and_inode(line)
    raise ProcessLookupError(errno.ESRCH, "our own mapping is not listed")


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
    with closing(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as descriptor:
        while chunk := os.read(descriptor, 1 << 16):
            yield chunk
