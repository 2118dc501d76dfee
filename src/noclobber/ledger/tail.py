"""
Find the last entry of a file, and set aside an end that a crash tore.

A crash leaves an *unterminated* piece after the last newline (the beginning of a line, from a kill or a
full disk) or a piece with NULs in it (a power cut: the file had grown, its blocks had not been written).
Only those are torn. They are copied to a file beside the ledger and then cut off, so that the next line
begins after a newline.

A complete line that is not an entry was not torn; somebody wrote it. It is left there, as evidence: the
next event is chained to the last entry before it, and `verify` names it. Appending never removes a
complete line.

A last line that lacks only its newline is whole (editors strip it, and a write can be torn there). It
gets its newline; nothing is lost.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from noclobber.disk import small_file
from noclobber.disk.hashing import sha256
from noclobber.errors import LedgerError
from noclobber.ledger.line import MAX_LINE_BYTES, START, Link, is_sealed, link_of
from noclobber.ledger.reader import FIRST_LOOK_BYTES, read_at

LOOK_BACK_BYTES = 4 * MAX_LINE_BYTES
TORN_MARK = ".torn-"


class Tail(NamedTuple):
    """The end of a ledger."""

    link: Link
    """The last entry."""
    end: int
    """Where complete lines end, in bytes from the start. What follows was torn."""
    lacks_newline: bool = False


def read_tail(descriptor: int, size: int, path: str) -> Tail:
    """Find the last entry by reading backwards from the end, usually a few KiB."""
    if size == 0:
        return Tail(START, 0)
    look_bytes = FIRST_LOOK_BYTES
    while True:
        start = max(0, size - look_bytes)
        tail = _last_entry(read_at(descriptor, start, size), start)
        if tail is not None:
            return tail
        if start == 0 or look_bytes >= LOOK_BACK_BYTES:
            raise LedgerError(
                path,
                "this file does not end in ledger entries, so nothing was written to it. "
                "If it is not a ledger, choose another path; if it is a damaged one, move it away, "
                "and a new one is begun",
            )
        look_bytes *= 8


def _last_entry(data: bytes, start: int) -> Tail | None:
    """Find the last entry in the last bytes of a file; None if they do not reach back far enough."""
    end = data.rfind(b"\n") + 1
    rest = data[end:]
    if rest and (end or start == 0):
        link = link_of(rest)
        if link is not None and is_sealed(rest):
            return Tail(link, start + len(data), lacks_newline=True)
    while end:  # Lines that a power cut tore, newline and all.
        line_start = data.rfind(b"\n", 0, end - 1) + 1
        if line_start == 0 and start:
            return None  # It may begin before the bytes that we have.
        if b"\0" not in data[line_start:end]:
            break
        end = line_start
    before = end
    while before > 0:
        newline = data.rfind(b'\n{"seq":', 0, before)
        if newline < 0 and (start or not data.startswith(b'{"seq":')):
            break
        link = link_of(data[newline + 1 : data.find(b"\n", newline + 1, end)])
        if link is not None:
            return Tail(link, start + end)
        before = newline
    if start == 0 and end == 0 and _may_begin_a_ledger(data):
        return Tail(START, 0)
    return None


def _may_begin_a_ledger(data: bytes) -> bool:
    """True for what a crash during the first append leaves; False for somebody's notes."""
    opening = b'{"seq":1,'
    return data[:1] == b"\0" or data.startswith(opening) or opening.startswith(data)


def set_aside(descriptor: int, path: str, tail: Tail, size: int) -> str:
    """
    Copy the torn end of a ledger to a file beside it, cut it off, and return the copy's path.

    Only under the ledger's mutex. The copy's name is made from its place and bytes, so that a crash in this
    function and another attempt leave one copy, not two.
    """
    digest = sha256()
    for offset in range(tail.end, size, MAX_LINE_BYTES):
        digest.update(read_at(descriptor, offset, min(size, offset + MAX_LINE_BYTES)))
    copy_path = f"{path}{TORN_MARK}{tail.link.seq + 1}-{digest.hexdigest()[:16]}"
    # A new file: the name can be foreseen, and what has it may be a second name of another file.
    small_file.remove(copy_path)
    with small_file.closing(os.open(copy_path, small_file.NEW, 0o600)) as copy:
        for offset in range(tail.end, size, MAX_LINE_BYTES):
            small_file.write_all(copy, read_at(descriptor, offset, min(size, offset + MAX_LINE_BYTES)))
        os.fsync(copy)  # Before the only other copy is cut off.
    os.ftruncate(descriptor, tail.end)
    return copy_path


def list_set_aside(path: str) -> tuple[str, ...]:
    """Return the paths of torn ends beside a ledger."""
    folder, name = os.path.split(path)
    try:
        names = os.listdir(folder)
    except OSError:
        return ()
    return tuple(os.path.join(folder, other) for other in sorted(names) if other.startswith(name + TORN_MARK))
