"""
What a commit writes down while it runs, so that the next one can finish it if its process dies.

The note of a folder is written only by the holder of that folder's mutex. Its first byte says how
far the commit is:

| byte | meaning |
|---|---|
| `-` | no commit is running |
| `P` | preparing: swap files are being written; nothing has been touched |
| `S` | swapping: exchanges may have happened; the record says what was expected |
| `L` | landed: every exchange is verified; only removing our own files is left |
| `R` | restoring: a conflict was found, and the displaced bytes are being put back |
| `M` | one of several folders; the record is in the note of the folder named here |

A note is a mapped file: writing it is a store to memory, with no system call and no journal entry of
the filesystem, and `kill -9` cannot take back what is in the page cache. The body goes in before the
state byte, so a note that was cut off in the middle still says what it said before. The exchange of one
file needs no more: a power cut leaves it done or not done, and an old note causes no more than an unneeded
recovery. What takes several steps (several files, a delete, a rewrite in place, restoring) has its note
written before the first of them, and keeps it until the last is on the disk.

The record of several files, or of one with a very long name, goes to a file of its own, named in the note.
"""

from __future__ import annotations

import json
import mmap
import os
from typing import NamedTuple

from noclobber.disk import ordering

IDLE, PREPARING, SWAPPING, LANDED, RESTORING, MEMBER = b"-", b"P", b"S", b"L", b"R", b"M"
NOTE_BYTES = 4096
RECORD_AT = 1024  # Apart from what PREPARING says, so that neither overwrites the other half way.
BOOK_PREFIX = "book-"

_encoded = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode


class Planned(NamedTuple):
    """One file of a commit: what another process needs to finish or undo it."""

    kind: str  # "exchange", "create", "delete", "inplace"
    folder: str
    name: str
    expected: str | None  # None: whatever was there
    new: str
    swap: str
    inode: int  # of the swap file as created: if it is still there, nothing was exchanged
    undo: str = ""


class NoteContent(NamedTuple):
    """What a note says."""

    state: bytes
    files: tuple[Planned, ...] = ()
    prefix: str = ""  # PREPARING, MEMBER: how the names of the swap files begin
    leader: str = ""  # MEMBER: the folder with the record


NOTHING = NoteContent(IDLE)


def _is_sound(planned: Planned) -> bool:
    """True for a row as this library writes it: a note by somebody else must not misdirect a recovery."""
    texts = (planned.kind, planned.folder, planned.name, planned.expected or "", planned.new, planned.swap)
    try:
        text = "\n".join((*texts, planned.undo))  # TypeError: not all of it is text.
        text.encode()
    except (TypeError, UnicodeEncodeError):
        return False
    names = (planned.name, planned.swap, planned.undo)
    return (
        "\0" not in text
        and not any("/" in name for name in names)
        and type(planned.inode) is int
        and planned.folder.startswith("/")
        and bool(planned.name and planned.swap)
    )


def _give_to_owner(note_fd: int, folder_fd: int) -> None:
    """Give a note that root makes to the folder's owner, who could not commit there otherwise."""
    owner = os.fstat(folder_fd)
    try:
        os.fchown(note_fd, owner.st_uid, owner.st_gid)
    except OSError:
        pass


class Note:
    """The note of one folder, mapped."""

    def __init__(self, name: str, folder_fd: int) -> None:
        self.name, self._folder_fd = name, folder_fd
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(name, flags, 0o666, dir_fd=folder_fd)
        try:
            if os.fstat(self._fd).st_size < NOTE_BYTES:
                # Real blocks, not a hole: a full disk must show here, as an error. A store to mapped
                # memory would fail with SIGBUS.
                os.pwrite(self._fd, b"-".ljust(NOTE_BYTES, b"\0"), 0)
                if os.geteuid() == 0:
                    _give_to_owner(self._fd, folder_fd)
            self._memory = mmap.mmap(self._fd, NOTE_BYTES)
        except BaseException:
            os.close(self._fd)
            raise

    def is_sound(self) -> bool:
        """False if somebody removed or truncated the file: then others do not see what is written."""
        status = os.fstat(self._fd)
        return status.st_nlink > 0 and status.st_size >= NOTE_BYTES

    def close(self) -> None:
        """Unmap it."""
        self._memory.close()
        os.close(self._fd)

    @property
    def is_idle(self) -> bool:
        """True if no commit is running."""
        return self._memory[0] in b"-\0"

    def mark(self, state: bytes) -> None:
        """Change the state, and nothing else."""
        self._memory[0:1] = state

    def prepare(self, swap_prefix: str) -> None:
        """Name the swap files, before the first byte is written to them."""
        self._put(1, swap_prefix)
        self.mark(PREPARING)

    def join(self, leader: str) -> None:
        """Point to the folder whose note has the record."""
        self._put(RECORD_AT, _encoded(leader))
        self.mark(MEMBER)

    def swap(self, *files: Planned) -> None:
        """Record what is about to happen to some files, before it happens to the first."""
        record = _encoded(files)
        if len(files) > 1 or len(record) >= NOTE_BYTES - RECORD_AT:
            record = _encoded({"book": self._write_book(record)})
        self._put(RECORD_AT, record)
        self.mark(SWAPPING)

    def _write_book(self, record: str) -> str:
        """Write a record to a file of its own; return the file's name."""
        book = f"{self.name}.{BOOK_PREFIX}{os.urandom(6).hex()}"
        book_fd = os.open(
            book, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self._folder_fd
        )
        try:
            rest = memoryview(record.encode())
            while rest:
                rest = rest[os.write(book_fd, rest) :]
        except BaseException:
            os.unlink(book, dir_fd=self._folder_fd)  # No note names it yet.
            raise
        finally:
            os.close(book_fd)
        return book

    def await_bytes(self, filesystem: str) -> None:
        """Wait until it is written, with its record: what is renamed after this never lasts without it."""
        book = self.book if self._memory[0:1] == SWAPPING else None
        if book:
            book_fd = os.open(book, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=self._folder_fd)
            try:
                ordering.wait(book_fd, filesystem)
            finally:
                os.close(book_fd)
        ordering.wait(self._fd, filesystem)

    def flush(self) -> None:
        """Flush it to the disk, with its name: for what a journal of the filesystem does not order."""
        os.fsync(self._fd)
        os.fsync(self._folder_fd)

    def clear(self) -> None:
        """The commit is over."""
        book = self.book if self._memory[0:1] in (SWAPPING, LANDED, RESTORING) else None
        self.mark(IDLE)
        if book:
            try:
                os.unlink(book, dir_fd=self._folder_fd)
            except OSError:
                pass  # Its commit is over, so it does no harm; a later sweep removes it.

    def _put(self, offset: int, text: str) -> None:
        body = text.encode() + b"\n"
        self._memory[offset : offset + len(body)] = body

    def _line_at(self, offset: int) -> bytes:
        end = self._memory.find(b"\n", offset)
        return self._memory[offset:end] if end >= 0 else b""

    @property
    def book(self) -> str | None:
        """The name of the file with the record, if it is in one of its own."""
        body = self._line_at(RECORD_AT)
        try:
            return str(json.loads(body)["book"]) if body.startswith(b'{"book"') else None
        except (ValueError, KeyError, TypeError, RecursionError):
            return None

    def read(self) -> NoteContent:
        """Return what it says; a note that cannot be parsed counts as idle."""
        state = self._memory[0:1]
        try:
            if state == PREPARING:
                return NoteContent(state, prefix=self._line_at(1).decode())
            if state == MEMBER:
                prefix = self._line_at(1).decode()  # Its own swap files are not orphans.
                return NoteContent(state, prefix=prefix, leader=str(json.loads(self._line_at(RECORD_AT))))
            if state in (SWAPPING, LANDED, RESTORING):
                rows = json.loads(self._record())
                files = tuple(Planned(*row) for row in rows)
                return NoteContent(state, files=files) if all(map(_is_sound, files)) else NOTHING
        except (ValueError, TypeError, KeyError, OSError, RecursionError):
            pass
        return NOTHING

    def _record(self) -> bytes:
        book = self.book
        if book is None:
            return self._line_at(RECORD_AT)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        book_fd = os.open(book, flags, dir_fd=self._folder_fd)
        try:
            return os.read(book_fd, os.fstat(book_fd).st_size)
        finally:
            os.close(book_fd)
