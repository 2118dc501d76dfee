"""
Hold on to a file's pages, so that what was last in them outlives the emptying of the file.

Two programs may have a file open at the same time: one adds a line and closes it, the other one empties it a
moment later. Nobody can be woken in between. But the kernel keeps a file's content in pages, and a program
that changes the file in place changes those pages. Emptying the file only lets go of them. So who holds the
pages finds in them what was there when the file was emptied, however late it wakes up.

A pipe holds them: `vmsplice` puts pages of a mapping into it by reference. (`splice` would do that without a
mapping, but only up to the end that the file had then.)

Not found: what a program writes after it has emptied the file itself, or behind the last of the pages.
Measured: 15 µs a file. Loaded before the fork: whoever opens the file right after it must not wait for that.
"""

from __future__ import annotations

import mmap
import os
import sys

from noclobber.core.light import c_library

TYPE_CHECKING = False
if TYPE_CHECKING:
    pass

MOST_BYTES = 1 << 16  # What a pipe takes without asking for more.

_vmsplice = c_library.function("vmsplice") if sys.platform == "linux" else None


def hold(descriptor: int, size: int) -> int | None:
    """Return a pipe that holds the pages of a file's first bytes; None where that is not offered."""
    if _vmsplice is None or not 0 < size <= MOST_BYTES:
        return None
    length = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE  # With the rest of the last page: a line may come.
    try:
        mapping = mmap.mmap(descriptor, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    except (OSError, ValueError):
        return None  # It has just become shorter.
    reading_fd, writing_fd = os.pipe()
    try:
        vector = c_library.address_of(mapping).to_bytes(8, sys.byteorder) + length.to_bytes(8, sys.byteorder)
        if _vmsplice(writing_fd, vector, c_library.LONG(1), 0) == length:
            return reading_fd
    finally:
        os.close(writing_fd)
        mapping.close()
    os.close(reading_fd)
    return None


def take(pipe_fd: int) -> bytes:
    """Return what is in the pages now, with the zeros behind the end; and let go of them."""
    pieces = []
    try:
        while piece := os.read(pipe_fd, MOST_BYTES):
            pieces.append(piece)
    finally:
        os.close(pipe_fd)
    return b"".join(pieces)
