"""
The lines of a ledger's file, for everybody who reads one: forwards, backwards, and as they are appended.

- `blocks()` reads forwards; `Lines` are the complete lines from there, and what is appended later;
- `backwards()` begins at the end, for a reader that wants something recent;
- `Follower` begins near the end and then reads what is appended, a bounded number of bytes each time.

No mutex is taken, and memory does not grow with the ledger: all of them read in blocks, and a line that is
too long to be an entry comes in pieces. An end without a newline belongs to a line that is being written, or
that a crash tore; it counts as a line only if it is a whole entry.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from noclobber.disk import hashing
from noclobber.disk.small_file import closing
from noclobber.errors import LedgerError
from noclobber.ledger.line import MAX_LINE_BYTES, is_entry
from noclobber.ledger.open_file import FOR_READING, open_ledger

BLOCK_BYTES = 1 << 18
FIRST_LOOK_BYTES = 4096  # Holds several lines of the usual length.
LONGEST_LOOK_BYTES = 4 << 20


def read_at(descriptor: int, start: int, end: int) -> bytes:
    """Return the bytes between two places; fewer if the file became shorter."""
    data = os.pread(descriptor, end - start, start)
    while start + len(data) < end and (
        more := os.pread(descriptor, end - start - len(data), start + len(data))
    ):
        data += more
    return data


def blocks(descriptor: int, start: int = 0, size: int | None = None) -> Iterator[tuple[int, list[bytes]]]:
    """Yield how far was read, and the lines on the way; the last of each list is not complete yet."""
    rest, offset = b"", start
    while size is None or offset < size:
        most = BLOCK_BYTES if size is None else min(BLOCK_BYTES, size - offset)
        block = os.pread(descriptor, most, offset)
        if not block:
            return  # The end; or the file became shorter, because a torn end was set aside meanwhile.
        offset += len(block)
        lines = (rest + block).split(b"\n")
        if len(lines[-1]) > MAX_LINE_BYTES:
            lines.append(b"")
        rest = lines[-1]
        yield offset, lines


def backwards(descriptor: int, first_bytes: int = FIRST_LOOK_BYTES) -> Iterator[bytes | None]:
    """Yield the lines without their newlines, the last one first, and None after each block."""
    end, carry, look_bytes, is_end = os.fstat(descriptor).st_size, b"", first_bytes, True
    while end:
        start = max(0, end - look_bytes)
        lines = (read_at(descriptor, start, end) + carry).split(b"\n")
        # It began before this block. One that is too long for an entry is not gathered for ever.
        carry = lines.pop(0)[:MAX_LINE_BYTES] if start else b""
        if lines and is_end:
            is_end = False
            if not is_entry(lines[-1]):
                lines.pop()
        yield from reversed(lines)
        yield None
        end, look_bytes = start, min(4 * look_bytes, LONGEST_LOOK_BYTES)


def lines_backwards(path: str, first_bytes: int = FIRST_LOOK_BYTES) -> Iterator[bytes | None]:
    """The same of the ledger at a path; nothing if there is none that can be read."""
    try:
        opened, _ = open_ledger(path, FOR_READING)
    except LedgerError:
        return
    with closing(opened) as descriptor:
        yield from backwards(descriptor, first_bytes)


class LedgerPlace(NamedTuple):
    """The end of a line: where it is, and the line's length and hash, newline included."""

    offset: int
    length: int
    sha256: str


class Lines:
    """The complete lines of a ledger, once; then what was appended since, as often as it is asked for."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor, self._identity = open_ledger(path, FOR_READING)
        self._offset = 0

    def __iter__(self) -> Iterator[bytes]:
        """Yield them without their newlines. One too long to be an entry comes in pieces."""
        with closing(self._descriptor):
            rest = b""
            for offset, lines in blocks(self._descriptor, self._offset):
                rest = lines.pop()
                for line in lines:
                    self._offset += len(line) + 1
                    yield line
                self._offset = offset - len(rest)
            if is_entry(rest):
                self._offset += len(rest) + 1  # Its newline comes with the next line.
                yield rest

    def go_on_behind(self, place: LedgerPlace) -> bool:
        """Begin behind a line that was read before; False, and closed, if it is not there any more."""
        begin = place.offset - place.length
        line = os.pread(self._descriptor, place.length, begin) if begin >= 0 else b""
        if len(line) != place.length or hashing.of_bytes(line) != place.sha256:
            os.close(self._descriptor)
            return False
        self._offset = place.offset
        return True

    def place_of(self, line: bytes) -> LedgerPlace:
        """Return where the line ends that was just yielded."""
        return LedgerPlace(self._offset, len(line) + 1, hashing.of_bytes(line + b"\n"))

    def appended(self) -> Iterator[bytes]:
        """Yield what has been appended since, in the file that the path names now."""
        try:
            again = Lines(self.path)
        except LedgerError:
            return  # Moved away, and nothing was written since.
        # Another file, or a shorter one, is a new beginning; `verify` says whether that is right.
        size = os.fstat(again._descriptor).st_size
        if again._identity == self._identity and size >= self._offset - 1:
            again._offset = self._offset
        yield from again
        self._identity, self._offset = again._identity, again._offset


class Appended(NamedTuple):
    """What one look of a `Follower` found."""

    lines: list[bytes]
    is_new_file: bool = False
    """The look began near the end of a file that was not followed before, or that became shorter."""
    beginning: bytes = b""
    """Of the line in which such a look began: its end."""


class Follower:
    """One ledger's file: its last `first_bytes`, then what is appended, at most `round_bytes` at a time."""

    def __init__(self, path: str, first_bytes: int, round_bytes: int) -> None:
        self.path, self._first_bytes, self._round_bytes = path, first_bytes, round_bytes
        self.identity: tuple[int, int] | None = None
        """Which device and inode it is; None before the first look."""
        self.begin = 0
        """Where the first look began."""
        self.size_bytes = 0
        self._offset = 0
        self._is_inside_a_line = False

    def skip(self) -> None:
        """Begin where the file ends now, if it was never looked at."""
        if self.identity is None:
            try:
                status = os.lstat(self.path)
            except OSError:
                return
            self.identity = (status.st_dev, status.st_ino)
            self.size_bytes = self._offset = status.st_size

    def look(self, *, is_forced: bool = False) -> Appended | None:
        """
        Return the lines that were appended since the last look; None if nothing was, which costs one `lstat`.

        `is_forced`: open it in any case. Raises what opening it says (`LedgerError`), or the `OSError`.
        """
        status = os.lstat(self.path)
        is_known = (status.st_dev, status.st_ino) == self.identity and status.st_size == self.size_bytes
        if is_known and not is_forced:
            return None
        opened, identity = open_ledger(self.path, FOR_READING)
        with closing(opened) as descriptor:
            size = os.fstat(descriptor).st_size
            is_new_file = identity != self.identity or size < self._offset
            if is_new_file:
                self.identity, self._offset = identity, max(0, size - self._first_bytes)
                self.begin, self._is_inside_a_line = self._offset, self._offset > 0
            data = os.pread(descriptor, self._round_bytes, self._offset)
        end = data.rfind(b"\n") + 1
        if not end and len(data) == self._round_bytes:
            end = len(data)  # Longer than any entry: it is passed over in pieces.
        # What has no end yet is looked at again when the file has grown.
        self.size_bytes = size if self._offset + len(data) >= size else self._offset + end
        self._offset += end
        lines, beginning = data[:end].split(b"\n"), b""
        if self._is_inside_a_line and end:
            self._is_inside_a_line, beginning = False, lines.pop(0)
        return Appended([line for line in lines if line], is_new_file, beginning)
