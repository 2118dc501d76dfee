"""
Points in time as `get_file_info` spells them, and when a file was created.

Not promised: the long name of a time zone other than UTC. The replaced server takes it from a table that the
standard library does not have; the short name is shown instead.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LONG_NAMES = {"UTC": "Coordinated Universal Time", "GMT": "Greenwich Mean Time"}

_AT_FDCWD, _STATX_BTIME, _STATX_BYTES, _MASK_AT, _BTIME_AT = -100, 0x800, 256, 0, 80
_statx: Any = None  # The function; False where the C library has none.


def spelled(at_s: float) -> str:
    """Return local time, like `Sun Nov 15 2026 20:18:07 GMT+0000 (Coordinated Universal Time)`."""
    try:
        there = time.localtime(at_s)
    except (OverflowError, ValueError, OSError):
        return "Invalid Date"
    offset_min = (there.tm_gmtoff or 0) // 60
    sign = "-" if offset_min < 0 else "+"
    hours, minutes = divmod(abs(offset_min), 60)
    zone = _LONG_NAMES.get(there.tm_zone or "", there.tm_zone)
    return (
        f"{_DAYS[there.tm_wday]} {_MONTHS[there.tm_mon - 1]} {there.tm_mday:02d} {there.tm_year:04d} "
        f"{there.tm_hour:02d}:{there.tm_min:02d}:{there.tm_sec:02d} "
        f"GMT{sign}{hours:02d}{minutes:02d} ({zone})"
    )


def birth_s(path: str, status: os.stat_result) -> float:
    """Return when a file was created; if that is unknown, the earliest time that is known of it."""
    born: float | None = getattr(status, "st_birthtime", None)
    if born is None and sys.platform == "linux":
        born = _statx_birth_s(path)
    return min(status.st_ctime, status.st_mtime) if born is None else born


def _statx_birth_s(path: str) -> float | None:
    """Ask `statx`, which `os.stat` does not."""
    global _statx
    import ctypes

    if _statx is None:
        _statx = getattr(ctypes.CDLL(None, use_errno=True), "statx", None) or False
    if not _statx:
        return None
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    if _statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, buffer) != 0:
        return None
    mask = int.from_bytes(buffer.raw[_MASK_AT : _MASK_AT + 4], sys.byteorder)
    if not mask & _STATX_BTIME:
        return None
    seconds = int.from_bytes(buffer.raw[_BTIME_AT : _BTIME_AT + 8], sys.byteorder, signed=True)
    return seconds + int.from_bytes(buffer.raw[_BTIME_AT + 8 : _BTIME_AT + 12], sys.byteorder) / 1e9
