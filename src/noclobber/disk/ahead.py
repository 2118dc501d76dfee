"""
Room behind a file's end, set aside on the disk before there is something to write.

Writing it later cannot fail because the disk has become full. The file's size stays as it is, and what is
not used goes when the file is cut or removed.
"""

from __future__ import annotations

import os

from noclobber.disk.c_library import LONG, function, get_errno

KEEP_SIZE = 1

_fallocate = function("fallocate")


def set_aside(descriptor: int, offset: int, length: int) -> None:
    """Set room aside; nothing happens where the C library cannot. `OSError` if the filesystem cannot."""
    if _fallocate is not None and _fallocate(descriptor, KEEP_SIZE, LONG(offset), LONG(length)) != 0:
        code = get_errno()
        raise OSError(code, os.strerror(code))
