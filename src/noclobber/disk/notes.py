"""
What a commit under way writes down, so that the next one can finish it if its process dies.

The note of a folder is written only by the holder of that folder's mutex. Its first byte says how
far the commit is:

| byte | meaning |
|---|---|
| `-` | nothing is under way |
| `P` | preparing: swap files are being written; nothing has been touched |
| `S` | swapping: exchanges may have happened; the record says what was expected |
| `L` | landed: every exchange is verified; only tidying up is left |
| `R` | restoring: a conflict was found, and the displaced bytes are being put back |
| `M` | one of several folders; the record is in the note of the folder named here |

No fsync: after `kill -9` the page cache is still there. After a power cut every other writer is dead
too, and the worst that an old note can cause is a second look.
"""

from __future__ import annotations

import json
import os
from typing import NamedTuple

IDLE, PREPARING, SWAPPING, LANDED, RESTORING, MEMBER = b"-", b"P", b"S", b"L", b"R", b"M"


class Planned(NamedTuple):
    """One file of a commit, as a stranger needs to know it."""

    kind: str  # "exchange", "create", "delete", "inplace"
    folder: str
    name: str
    expected: str | None  # None: whatever was there
    new: str
    swap: str
    inode: int  # of the swap file as created: who still has it there was never exchanged
    undo: str = ""


class Note(NamedTuple):
    """A note, read back."""

    state: bytes
    files: tuple[Planned, ...] = ()
    swaps: tuple[str, ...] = ()  # PREPARING: names of swap files to remove
    leader: str = ""  # MEMBER: the folder with the record


def write_preparing(note_fd: int, swaps: list[str]) -> None:
    """Announce swap files, before the first byte goes into them."""
    os.pwrite(note_fd, b"P" + json.dumps(swaps).encode() + b"\n", 0)


def write_swapping(note_fd: int, files: list[Planned]) -> None:
    """Record what is about to happen, before the first exchange."""
    os.pwrite(note_fd, b"S" + json.dumps(files, ensure_ascii=True).encode() + b"\n", 0)


def write_member(note_fd: int, leader: str) -> None:
    """Point to the folder whose note has the record."""
    os.pwrite(note_fd, b"M" + json.dumps(leader).encode() + b"\n", 0)


def mark(note_fd: int, state: bytes) -> None:
    """Change how far it is, and nothing else."""
    os.pwrite(note_fd, state, 0)


def read(note_fd: int) -> Note:
    """Read a note back from its descriptor."""
    return parse(os.pread(note_fd, os.fstat(note_fd).st_size, 0))


def is_idle(note_fd: int) -> bool:
    """True if nothing is under way. One byte, because every commit asks."""
    return os.pread(note_fd, 1, 0) in (b"", IDLE, b"\0")


def parse(raw: bytes) -> Note:
    """Read a note. One that was cut while being written announces nothing that has begun."""
    line, newline, _ = raw.partition(b"\n")
    state, body = line[:1], line[1:]
    if state in (b"", IDLE, b"\0") or not newline:
        return Note(IDLE)
    try:
        value = json.loads(body)
        if state == PREPARING:
            return Note(state, swaps=tuple(str(name) for name in value))
        if state in (SWAPPING, LANDED, RESTORING):
            return Note(state, files=tuple(Planned(*row) for row in value))
        if state == MEMBER:
            return Note(state, leader=str(value))
    except (ValueError, TypeError):
        pass
    return Note(IDLE)
