"""
The lines of a ledger from its end: for who looks for something recent in a file of any size.

Read in blocks, so memory does not grow with the ledger. After each block comes None: whoever searches can see
whether it takes too long, and stop.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from noclobber.core.project import ledger_path
from noclobber.errors import LedgerError
from noclobber.ledger.chosen import is_on_server, ledger_of
from noclobber.ledger.line import MAX_LINE_BYTES
from noclobber.ledger.open_file import FOR_READING, open_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK_BYTES = 4 << 20
SERVER_LINES = 20_000


def recent_lines(root: str) -> Iterator[bytes | None]:
    """Yield the lines of a workspace's ledger, the last one first; of one on a server, the last ones only."""
    if is_on_server():
        yield from reversed(ledger_of(root).last_lines(SERVER_LINES))
        yield None
    else:
        yield from lines_backwards(ledger_path(root))


def lines_backwards(path: str, block_bytes: int = BLOCK_BYTES) -> Iterator[bytes | None]:
    """Yield lines without their newlines, the last one first, and None after each block."""
    try:
        descriptor, _ = open_ledger(path, FOR_READING)
    except LedgerError:
        return
    try:
        end, carry = os.fstat(descriptor).st_size, b""
        while end:
            start = max(0, end - block_bytes)
            lines = (os.pread(descriptor, end - start, start) + carry).split(b"\n")
            # It began before this block. One that is too long for an entry is not gathered for ever.
            carry = lines.pop(0)[:MAX_LINE_BYTES] if start else b""
            yield from (line for line in reversed(lines) if line)
            yield None
            end = start
    finally:
        os.close(descriptor)
