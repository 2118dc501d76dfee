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

A note is input from outside until it is proven to be ours: a plain file with one name, of this user and
writable by nobody else, with a token of this machine (`note_keys`). Anything else under a note's name is put
out of the way unread. What a note says is then read strictly (`_planned()`): names of one shape, and folders
relative to the folder that the store belongs to, so that a project that was moved is still understood and
nothing outside it can be named.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from collections.abc import Mapping
from typing import NamedTuple

from noclobber.core.json_text import parse, spell_in_ascii
from noclobber.core.project import BESIDE_PREFIX, OWED_FOLDER, STATE_FOLDER
from noclobber.disk import ordering, small_file
from noclobber.disk.commit import note_keys
from noclobber.disk.reading import LOOK, NOT_READABLE
from noclobber.disk.small_file import closing
from noclobber.errors import ABSENT

IDLE, PREPARING, SWAPPING, LANDED, RESTORING, MEMBER = b"-", b"P", b"S", b"L", b"R", b"M"
NOTE_BYTES = 4096
TOKEN_AT = 896
RECORD_AT = 1024  # Apart from what PREPARING says, so that neither overwrites the other half way.
MOST_TRIES = 8
BOOK_PREFIX = "book-"
IGNORED_PREFIX = "ignored-"


class Planned(NamedTuple):
    """One file of a commit: what another process needs to finish or undo it."""

    # "exchange", "create", "delete", "inplace"; "remove" (a link or a folder), "mode"; "move" with "moved".
    kind: str
    folder: str
    name: str
    expected: str | None  # None: whatever was there
    new: str
    swap: str
    inode: int  # of the swap file as created: if it is still there, nothing was exchanged
    undo: str = ""
    folder_inode: int = 0  # filled in by the note


class NoteContent(NamedTuple):
    """What a note says."""

    state: bytes
    files: tuple[Planned, ...] = ()
    prefix: str = ""  # PREPARING, MEMBER: how the names of the swap files begin
    leader: str = ""  # MEMBER: the folder with the record
    leader_inode: int = 0


NOTHING = NoteContent(IDLE)


MOST_BOOK_BYTES = 1 << 26
KINDS = ("exchange", "create", "delete", "inplace", "remove", "mode", "move", "moved")
NO_HASH = "0" * 64  # Where a hash has to be, and none is known.

_SWAP = "swap-"
_HEX = frozenset("0123456789abcdef")
HASH_DIGITS, MOST_NAME_SIGNS = 64, 142
OWED_FOLDERS = f"{STATE_FOLDER}/{OWED_FOLDER}/"
SOME_STATE = (PREPARING, SWAPPING, LANDED, RESTORING, MEMBER)


def is_swap_name(name: str, prefix: str) -> bool:
    """True for a name that a swap file of a store with this prefix can have."""
    beginning, tilde, rest = name.partition("~")
    start, dash, version = beginning[len(prefix) + len(_SWAP) :].partition("-")
    return (
        bool(tilde and dash)
        and is_swap_prefix(f"{beginning[: len(prefix) + len(_SWAP)]}{start}", prefix)
        and (_is_hash(version) or version in ("None", ABSENT))
        and len(rest) <= MOST_NAME_SIGNS
        and "/" not in rest
        and "\0" not in rest
    )


def is_swap_prefix(text: str, prefix: str) -> bool:
    """True for how the names of one commit's swap files can begin."""
    digits = text[len(prefix) + len(_SWAP) :]
    return text.startswith(f"{prefix}{_SWAP}") and 12 <= len(digits) <= 24 and _HEX.issuperset(digits)


def _is_hash(text: str) -> bool:
    return len(text) == HASH_DIGITS and _HEX.issuperset(text)


def is_relative_folder(folder: object) -> bool:
    """
    True for a folder below (or the same as) the one that it is relative to, and not one of our own.

    But for those where the commit of a command's changes says that it has landed (`shell.owed`).
    """
    if not isinstance(folder, str) or not _is_plain(folder):
        return False
    if folder.startswith(OWED_FOLDERS) and folder[len(OWED_FOLDERS) :] in _HEX:
        return True
    parts = folder.split("/") if folder else []
    return not any(part in ("", ".", "..") or _is_our_own(part) for part in parts)


def _is_our_own(name: str) -> bool:
    folded = name.casefold()
    return folded == STATE_FOLDER or folded.startswith(BESIDE_PREFIX)


def _is_plain(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 64


def _planned(row: object) -> Planned:
    """Return what one row of a record says; ValueError if this library does not write such rows."""
    if not isinstance(row, list) or len(row) != len(Planned._fields):
        raise ValueError("a row of another length")
    planned = Planned(*row)
    texts = (planned.kind, planned.folder, planned.name, planned.new, planned.swap, planned.undo)
    if not all(isinstance(text, str) and _is_plain(text) for text in texts):
        raise ValueError("not text")
    name, expected = planned.name, planned.expected
    is_sound = (
        planned.kind in KINDS
        and is_relative_folder(planned.folder)
        and "/" not in name
        and name not in ("", ".", "..")
        and not _is_our_own(name)
        and (expected in (None, ABSENT) or (isinstance(expected, str) and _is_hash(expected)))
        and _is_hash(planned.new)
        and _is_count(planned.inode)
        and _is_count(planned.folder_inode)
        and all(
            any(is_swap_name(swap, prefix) for prefix in ("", BESIDE_PREFIX))
            for swap in (planned.swap, *([planned.undo] if planned.undo else []))
        )
        and bool(planned.undo) == (planned.kind == "inplace")
    )
    if not is_sound:
        raise ValueError("not as this library writes it")
    return planned


def trusted_owners(owner: int) -> tuple[int, ...]:
    """
    Return whose notes and state folders are believed; `owner` is the user whose folder they are in.

    Our own only. Root works in the projects of others, too, and gives what it makes there to the project's
    owner: so to root that owner's are as good. (Not more: see `recovery`.)
    """
    user = os.geteuid()
    return (user,) if user else (0, owner)


def is_ours(descriptor: int, owners: tuple[int, ...]) -> bool:
    """True if an open file is a note that this library has made, on this machine, for this very file."""
    status = os.fstat(descriptor)
    return (
        stat.S_ISREG(status.st_mode)
        and status.st_nlink == 1
        and status.st_uid in owners
        and not status.st_mode & 0o022
        and status.st_size == NOTE_BYTES
        and _has_token(os.pread(descriptor, RECORD_AT - TOKEN_AT, TOKEN_AT), status.st_ino)
    )


def _has_token(text: bytes, inode: int) -> bool:
    carried = text.rstrip(b"\0").split(b" ")
    return any(token in carried for token in note_keys.tokens(inode))


def is_in_use(name: str, folder_fd: int | None, owners: tuple[int, ...]) -> bool:
    """
    True if a name is a note of ours that says that a commit is running, or was cut off.

    OSError: it cannot be told. "No" would let a caller read what nobody has verified.
    """
    try:
        note_fd = os.open(name, LOOK, dir_fd=folder_fd)
    except OSError as error:
        if error.errno not in NOT_READABLE:
            raise
        return False
    try:
        status = os.fstat(note_fd)
        return (
            stat.S_ISREG(status.st_mode)
            and os.pread(note_fd, 1, 0) in SOME_STATE
            and is_ours(note_fd, owners)
        )
    finally:
        os.close(note_fd)


class Note:
    """The note of one folder, mapped. `base`: what the folders in it are relative to."""

    def __init__(
        self,
        name: str,
        folder_fd: int,
        *,
        base: str,
        folder_inode: int,
        owner: int,
        make: bool = True,
    ) -> None:
        self.name, self.base, self._folder_fd = name, base, folder_fd
        self._folder_inode, self._owner = folder_inode, owner
        self.users = 0  # Critical sections that use it: see `Store.note()`.
        self._fd = self._open() if make else self._open_existing()
        try:
            status = os.fstat(self._fd)
            self._inode, self.written_by = status.st_ino, status.st_uid
            self._memory = mmap.mmap(self._fd, NOTE_BYTES)
        except BaseException:
            os.close(self._fd)
            raise

    def _open_existing(self) -> int:
        """Open our note without the mutex; FileNotFoundError if there is none of ours."""
        note_fd = os.open(self.name, os.O_RDWR | LOOK, dir_fd=self._folder_fd)
        try:
            if not is_ours(note_fd, trusted_owners(self._owner)):
                raise FileNotFoundError(errno.ENOENT, "no note of ours", self.name)
        except BaseException:
            os.close(note_fd)
            raise
        return note_fd

    def _open(self) -> int:
        """Open our note, or make one, with what is no note of ours out of the way. Under the mutex."""
        for _ in range(MOST_TRIES):
            try:
                note_fd = os.open(self.name, os.O_RDWR | LOOK, dir_fd=self._folder_fd)
            except FileNotFoundError:
                return self._make()
            except OSError as error:
                # A link, a folder, a socket; or not ours to write. With too many files open it may be a note
                # that is in use, which must stay where it is.
                if error.errno not in NOT_READABLE:
                    raise
                self._put_out_of_the_way(is_empty=False)
                continue
            try:
                if is_ours(note_fd, trusted_owners(self._owner)):
                    return note_fd
                # Less than a note is what a process leaves that was killed while it made one.
                is_empty = os.fstat(note_fd).st_size == 0 or os.pread(note_fd, 1, 0) == IDLE
            except BaseException:
                os.close(note_fd)
                raise
            os.close(note_fd)
            self._put_out_of_the_way(is_empty=is_empty)
        raise FileExistsError(
            errno.EEXIST, "something else keeps appearing under the name of a note", self.name
        )

    def _put_out_of_the_way(self, *, is_empty: bool) -> None:
        """Remove what says nothing; keep the rest under a name that `doctor` reports."""
        try:
            if is_empty:
                os.unlink(self.name, dir_fd=self._folder_fd)
            else:
                aside = f"{ignored_prefix(self.name)}{os.urandom(6).hex()}"
                os.rename(self.name, aside, src_dir_fd=self._folder_fd, dst_dir_fd=self._folder_fd)
        except FileNotFoundError:
            pass

    def _make(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        note_fd = os.open(self.name, flags, 0o600, dir_fd=self._folder_fd)
        try:
            # Real blocks, not a hole: a full disk must show here, as an error. A store to mapped memory
            # would fail with SIGBUS.
            token = b" ".join(note_keys.tokens(os.fstat(note_fd).st_ino))
            body = memoryview((IDLE.ljust(TOKEN_AT, b"\0") + token).ljust(NOTE_BYTES, b"\0"))
            written = 0
            while written < NOTE_BYTES:
                written += os.pwrite(note_fd, body[written:], written)
            if os.geteuid() == 0 and self._owner != 0:
                try:  # The project's owner could not commit there otherwise.
                    os.fchown(note_fd, self._owner, -1)
                except OSError:
                    pass
        except BaseException:
            os.close(note_fd)
            os.unlink(self.name, dir_fd=self._folder_fd)  # Half a note would be in everybody's way.
            raise
        return note_fd

    def is_sound(self) -> bool:
        """False if somebody removed or truncated the file: then others do not see what is written."""
        try:
            status = os.stat(self.name, dir_fd=self._folder_fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return status.st_ino == self._inode and status.st_size >= NOTE_BYTES

    def close(self) -> None:
        """Unmap it."""
        self._memory.close()
        os.close(self._fd)

    @property
    def is_idle(self) -> bool:
        """True if no commit is running."""
        return self._memory[0] in b"-\0"

    @property
    def state(self) -> bytes:
        """How far the commit is."""
        return self._memory[0:1]

    def mark(self, state: bytes) -> None:
        """Change the state, and nothing else."""
        self._memory[0:1] = state

    def prepare(self, swap_prefix: str) -> None:
        """Name the swap files, before the first byte is written to them."""
        self._put(1, swap_prefix)
        self.mark(PREPARING)

    def join(self, leader: str, leader_inode: int) -> None:
        """Point to the folder whose note has the record."""
        self._put_record([self._relative(leader), leader_inode])
        self.mark(MEMBER)

    def swap(self, *files: Planned, inodes: Mapping[str, int] | None = None) -> None:
        """
        Record what is about to happen to some files, before it happens to the first.

        `inodes`: those of the files' folders, if they are not all in the note's own.
        """
        rows = [
            planned._replace(
                folder=self._relative(planned.folder),
                folder_inode=inodes[planned.folder] if inodes else self._folder_inode,
            )
            for planned in files
        ]
        self._put_record(rows, is_long=len(files) > 1)
        self.mark(SWAPPING)

    def _relative(self, folder: str) -> str:
        base = self.base.rstrip("/")
        if folder == self.base:
            return ""
        # Outside is not a place that a record can name. The folder's inode number still can.
        return folder[len(base) + 1 :] if folder.startswith(f"{base}/") else ""

    def _put_record(self, rows: object, *, is_long: bool = False) -> None:
        record = spell_in_ascii(rows)
        if is_long or len(record) >= NOTE_BYTES - RECORD_AT:
            record = spell_in_ascii({"book": self._write_book(record)})
        self._put(RECORD_AT, record)

    def _write_book(self, record: str) -> str:
        """Write a record to a file of its own; return the file's name."""
        if len(record) > MOST_BOOK_BYTES:  # Nobody would read it: see `_record()`.
            raise OSError(errno.EFBIG, "the names of these files are too long for one commit", self.name)
        book = f"{self.name}.{BOOK_PREFIX}{os.urandom(6).hex()}"
        small_file.create(book, record.encode(), self._folder_fd)
        return book

    def await_bytes(self, filesystem: str) -> None:
        """Wait until it is written, with its record: what is renamed after this never lasts without it."""
        book = self.book if self._memory[0:1] == SWAPPING else None
        if book:
            with closing(
                os.open(book, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=self._folder_fd)
            ) as book_fd:
                ordering.wait(book_fd, filesystem)
        ordering.wait(self._fd, filesystem)

    def flush(self) -> None:
        """Flush it to the disk, with its name: for what a journal of the filesystem does not order."""
        os.fsync(self._fd)
        os.fsync(self._folder_fd)

    def clear(self) -> None:
        """The commit is over."""
        book = self.book if self._memory[0:1] in (SWAPPING, LANDED, RESTORING, MEMBER) else None
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
            book = parse(body)["book"] if body.startswith(b'{"book"') else None
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        if not isinstance(book, str):
            return None
        name, dot, rest = book.rpartition(f".{BOOK_PREFIX}")
        is_sound = name == self.name and dot and len(rest) == 12 and not rest.strip("0123456789abcdef")
        return book if is_sound else None

    def read(self) -> NoteContent:
        """
        Return what it says, folders as absolute paths; a note that cannot be parsed counts as idle.

        OSError: its record is in a file that cannot be read now. It is still in use.
        """
        state = self._memory[0:1]
        try:
            if state in (PREPARING, MEMBER):
                prefix = self._line_at(1).decode()
                if not any(is_swap_prefix(prefix, each) for each in ("", BESIDE_PREFIX)):
                    return NOTHING
                if state == PREPARING:
                    return NoteContent(state, prefix=prefix)
                leader, inode = parse(self._record())
                if not is_relative_folder(leader) or not _is_count(inode):
                    return NOTHING
                # Its own swap files are not orphans, so the prefix is needed here, too.
                return NoteContent(state, prefix=prefix, leader=self._absolute(leader), leader_inode=inode)
            if state in (SWAPPING, LANDED, RESTORING):
                rows = parse(self._record())
                if not isinstance(rows, list):
                    return NOTHING
                files = [_planned(row) for row in rows]
                return NoteContent(
                    state, tuple(file._replace(folder=self._absolute(file.folder)) for file in files)
                )
        except (ValueError, TypeError, KeyError, RecursionError):
            pass
        except OSError as error:
            if error.errno not in NOT_READABLE:
                raise
        return NOTHING

    def _absolute(self, folder: str) -> str:
        return f"{self.base.rstrip('/')}/{folder}" if folder else self.base

    def _record(self) -> bytes:
        if not self._line_at(RECORD_AT).startswith(b'{"book"'):
            return self._line_at(RECORD_AT)
        book = self.book
        if book is None:
            raise ValueError("not the name of a book")
        with closing(os.open(book, LOOK, dir_fd=self._folder_fd)) as book_fd:
            status = os.fstat(book_fd)
            is_trusted = (
                stat.S_ISREG(status.st_mode)
                and status.st_nlink == 1
                and status.st_uid in trusted_owners(self._owner)
                and not status.st_mode & 0o022
                and status.st_size <= MOST_BOOK_BYTES
            )
            parts = []
            while is_trusted and (part := os.read(book_fd, 1 << 20)):
                parts.append(part)
            return b"".join(parts)


def ignored_prefix(name: str) -> str:
    """Return how the names begin of what was found under a note's name and was no note of ours."""
    return f"{BESIDE_PREFIX if name.startswith(BESIDE_PREFIX) else ''}{IGNORED_PREFIX}"
