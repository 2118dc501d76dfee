"""
A command that only read an SQLite database beside a running server.

Locks do not reach out of a private view. So SQLite takes itself for the last one at a database in WAL mode:
when it closes, it writes what is in the `-wal` file into the database, and removes `-wal` and `-shm`. What
the database says has not changed. But a server has all three open, so the command was refused. (finding G12)

It is no change if the copy holds exactly what the real database and its log hold together; if nobody wrote to
either since the command began (an equal copy could be another's change); and if somebody else has the log
open. A command that wrote to the database is judged as ever, and one that removed a log without opening it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from noclobber.disk import leases
from noclobber.disk.reading import LOOK

LOG, INDEX = "-wal", "-shm"
MAGIC = b"SQLite format 3\0"
LOG_MAGICS = (0x377F0682, 0x377F0683)
LOG_HEADER, FRAME_HEADER = 32, 24


def only_read(root: str, upper: str, removed: Mapping[str, bool], began_ns: int) -> set[str]:
    """Return those of the changed paths (True: removed) that a command changed by reading a database."""
    found: set[str] = set()
    for index in [path for path in removed if path.endswith(INDEX)]:
        database = index.removesuffix(INDEX)
        real, copy = f"{root}/{database}", f"{upper}/{database}"
        try:
            if not _is_open_elsewhere(real + LOG):
                continue
            is_closed = removed[index] and removed.get(database + LOG, False)
            if is_closed:
                # The times after the comparison: what the server commits meanwhile shows in them.
                is_same = _holds_the_same(copy, real)
                if is_same and _is_older(real, began_ns) and _is_older(real + LOG, began_ns):
                    found |= {database, database + LOG, index}
            elif not removed[index] and not {database, database + LOG} & set(removed):
                found.add(index)  # Not closed. It is locks and an index of the log, which SQLite makes anew.
        except OSError:
            continue  # One of them is not there, or cannot be read: then it is judged as any file.
    return found


def _is_older(path: str, began_ns: int) -> bool:
    return os.stat(path).st_ctime_ns < began_ns


def _is_open_elsewhere(path: str) -> bool:
    """True if somebody has a file open for writing."""
    descriptor = os.open(path, LOOK)
    try:
        if not leases.try_lease(descriptor, leases.READ):
            return True
        leases.release(descriptor)
    except leases.LeasesUnavailableError:
        pass
    finally:
        os.close(descriptor)
    return False


def _holds_the_same(copy: str, real: str) -> bool:
    """True if a database holds what another one holds together with its log."""
    with open(copy, "rb") as ours, open(real, "rb") as theirs, open(real + LOG, "rb") as log:
        if ours.read(len(MAGIC)) != MAGIC:
            return False
        page_bytes, pages, offsets = _committed(log.fileno())
        size = os.fstat(ours.fileno()).st_size
        if not page_bytes:  # Nothing in the log: they are equal as they are.
            page_bytes, pages = 1 << 16, -(-size // (1 << 16))
            if size != os.fstat(theirs.fileno()).st_size:
                return False
        elif size != pages * page_bytes:
            return False
        for page in range(pages):
            source, offset = (log, offsets[page]) if page in offsets else (theirs, page * page_bytes)
            wanted = os.pread(source.fileno(), page_bytes, offset)
            if os.pread(ours.fileno(), page_bytes, page * page_bytes) != wanted:
                return False
    return True


def _committed(log_fd: int) -> tuple[int, int, dict[int, int]]:
    """Return a page's size, the number of pages, and where the log has which page. Zeros: it has none."""
    header = os.pread(log_fd, LOG_HEADER, 0)
    if len(header) < LOG_HEADER or _number(header, 0) not in LOG_MAGICS:
        return 0, 0, {}
    page_bytes, salts = _number(header, 8), header[16:24]
    pages, committed, pending = 0, dict[int, int](), dict[int, int]()
    offset = LOG_HEADER
    while len(frame := os.pread(log_fd, FRAME_HEADER, offset)) == FRAME_HEADER and frame[8:16] == salts:
        pending[_number(frame, 0) - 1] = offset + FRAME_HEADER
        if _number(frame, 4):  # A commit, and how many pages the database has by then.
            pages = _number(frame, 4)
            committed |= pending
            pending = {}
        offset += FRAME_HEADER + page_bytes
    return (page_bytes, pages, committed) if pages else (0, 0, {})


def _number(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "big")
