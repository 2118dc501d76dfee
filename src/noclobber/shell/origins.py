"""
What the overlay remembers of a thing that it copied up: which one of the real tree it was.

The kernel copies a file or a folder to the upper layer before its first change, and notes the *handle* of the
original: a number that no other file of the filesystem has had or will have. What a command made itself has
none. So two questions can be answered when the command has ended: did the command make this, or
was it there? And is what the real tree has at that path still the same one?

Not known: links and other special things (they carry no attributes of users), and files with several names.
"""

from __future__ import annotations

import ctypes
import errno
import os
from sys import byteorder

from noclobber.disk.c_library import function

_HEADER = 5 + 16  # Version, magic, length, flags, type of handle; the filesystem's id.
_TYPE_AT = 4
_MOST_BYTES = 128
_AT_FDCWD = -100
_NONE = (errno.ENODATA, errno.EPERM, errno.EACCES)  # A user may not ask for the attributes of the system.


def origin_of(upper: str) -> bytes | None:
    """Return the handle of what was copied up; b"" if it is not known; None: the command made this itself."""
    for space in ("user", "trusted"):
        try:
            told = os.getxattr(upper, f"{space}.overlay.origin", follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NONE:
                return b""
            continue
        return told[_TYPE_AT : _TYPE_AT + 1] + told[_HEADER:] if len(told) > _HEADER else b""
    return None


def handle_of(path: str) -> bytes:
    """Return the handle of what is at a path, spelled as `origin_of` does; b"" if there is none."""
    called = function("name_to_handle_at")
    if called is None:
        return b""
    room = ctypes.create_string_buffer(_MOST_BYTES.to_bytes(4, byteorder), 8 + _MOST_BYTES)
    if called(_AT_FDCWD, os.fsencode(path), room, ctypes.create_string_buffer(8), 0) != 0:
        return b""
    told = room.raw
    length = int.from_bytes(told[:4], byteorder)
    kind = int.from_bytes(told[4:8], byteorder) & 0xFF
    return bytes([kind]) + told[8 : 8 + length]


def is_replaced(upper: str, real: str) -> bool | None:
    """True if the real tree has another thing at a path than the one that was copied up; None: not known."""
    origin, now = origin_of(upper), handle_of(real)
    return origin != now if origin and now else None
