"""
Where a commit keeps its files: staged ones, displaced ones, a note, and what must not be lost.

Inside a workspace that is `<root>/.noclobber/`, so that watchers, builds and `git status` see no
temporary files. For a target on another mount, or without a workspace, it is the target's own
folder, as dot files.

Three kinds of file:

- *swap files*: the new bytes before an exchange, the displaced old ones after it;
- *the note of a folder*: what the holder of that folder's mutex is doing. A process that takes the
  mutex and finds a note in use knows that its writer died in the middle, because the kernel freed the
  mutex but nobody cleared the note. That is the whole crash detection: no pids, no clocks, no scan;
- *kept files*: versions that somebody wrote to after they had been replaced. Never deleted by us.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from noclobber.core.project import KEPT_FOLDER, SWAP_FOLDER
from noclobber.disk import after_fork, filesystems, forks, ordering, paths
from noclobber.disk.commit import journal, note_keys
from noclobber.disk.commit.journal import BOOK_PREFIX, IGNORED_PREFIX, Note
from noclobber.disk.reading import LOOK
from noclobber.disk.removing import remove_all

if TYPE_CHECKING:
    from noclobber.disk.commit.departed import Departed
    from noclobber.disk.version_keeper import VersionKeeper


CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
MOST_OPEN_NOTES = 32  # Each is two descriptors.
MOST_WAITING_OPEN = 64
MOST_NAMES_LEFT = 4096
MOST_LEFT_CLOSED = 20_000


class Displaced(NamedTuple):
    """A swap file that waits for the sweep: a version that a commit replaced, still open here."""

    name: str
    path: str
    descriptor: int
    size: int = 0
    sha256: str = ""
    """What it held when it was replaced; "" if it is not a version that was at its name."""
    is_past: bool = False
    """Its replacement is on the disk: no power cut brings this version back to its name."""
    since_s: float = 0.0
    """When it was displaced, on the clock of `time.monotonic`."""


class Store:
    """The files that commits to one mount need. `open_stores` opens them."""

    def __init__(
        self, path: str, swap_fd: int, notes_fd: int, kept_fd: int, *, prefix: str, base: str
    ) -> None:
        self.path, self.prefix = path, prefix
        self.base = base  # What it is for: no note in it is believed about anything outside this folder.
        self.swap_fd, self.notes_fd, self.kept_fd = swap_fd, notes_fd, kept_fd
        self._swap_path = f"{path}/{SWAP_FOLDER}"
        self._is_closed = True  # Until it is whole.
        self._status = os.fstat(swap_fd)
        self.device = self._status.st_dev
        self.kind = filesystems.kind_of(swap_fd)
        self.is_remote = filesystems.is_remote(self.kind)  # Then other machines may have it mounted, too.
        self.is_alone = self.is_remote and _is_this_mount_only(notes_fd)
        """Of other mounts nothing can be told there, so what is theirs stays as it is."""
        self.tag = (
            note_keys.mount_tag(self.device)
            if self.is_alone
            else (note_keys.machine_tag() if self.is_remote else "")
        )
        self._owner = os.fstat(notes_fd).st_uid
        self.gives_acl = gives_acl(swap_fd)  # Then every file made here has attributes to begin with.
        self.keeper: VersionKeeper | None = None  # Takes what the sweep would remove, if it wants it.
        self.waiting: deque[Displaced] = deque()  # Its single steps are atomic between threads.
        self._left: set[str] = set()  # Every name in `waiting`, and some that were: saves looking through it.
        self.most_waiting = MOST_WAITING_OPEN
        """How many of them stay open. A commit of many files, which has room for them, raises it."""
        self.left_closed: dict[str, tuple[str, str]] = {}
        """Versions beyond that number, with their paths and hashes: for the versions, which want to know."""
        self.departed: deque[Departed] = deque()  # What the sweep has removed, for a moment longer.
        self._notes: dict[tuple[int, int], Note] = {}  # By their folder's device and inode.
        self._lock = Lock()
        after_fork.renew(self, "_lock", Lock)
        after_fork.renew(self, "waiting", deque)  # The parent sweeps its own.
        after_fork.renew(self, "departed", deque)
        after_fork.renew(self, "left_closed", dict)
        self._is_closed = False

    def is_in_place(self) -> bool:
        """False if somebody removed or moved our folders: other processes would not find our notes."""
        try:
            status = os.stat(self._swap_path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return status.st_ino == self._status.st_ino and status.st_dev == self._status.st_dev

    def is_on_mount_of(self, folder_fd: int) -> bool:
        """True if swap files can be renamed to a folder, as far as the way goes by which it was opened."""
        return self.is_beside or paths.mount_of(folder_fd) == paths.mount_of(self.swap_fd)

    @property
    def filesystem(self) -> str:
        """The kind of filesystem that it is on: what a power cut can do there."""
        return ordering.type_of(self.device, self.path)

    @property
    def is_beside(self) -> bool:
        """True if our files are among the user's, in the target's folder."""
        return bool(self.prefix)

    def close(self) -> None:
        """Close every descriptor; may be called twice. Displaced files not swept yet become orphans."""
        if self._is_closed:
            return
        self._is_closed = True
        for note in self._notes.values():
            note.close()
        self._notes.clear()
        while self.waiting:
            forks.close(self.waiting.pop().descriptor)
        while self.departed:
            forks.close(self.departed.pop().descriptor)
        for descriptor in {self.swap_fd, self.notes_fd, self.kept_fd}:
            forks.close(descriptor)

    def __del__(self) -> None:
        # A store whose folders were removed is replaced while another thread may still be using it. So it
        # is not closed then; it closes itself when the last thread is done.
        self.close()

    # Swap files.

    def new_prefix(self) -> str:
        """Return how the names of one commit's swap files begin."""
        return f"{self.prefix}swap-{self.new_token()}"

    def new_token(self) -> str:
        """Return what tells the swap files of one commit from those of all others."""
        return f"{self.tag}{os.urandom(4).hex()}" if self.is_alone else os.urandom(6).hex()

    def may_tidy(self, swap_name: str) -> bool:
        """False for what may belong to a commit that runs on another mount."""
        return not self.is_alone or swap_name.startswith(f"{self.prefix}swap-{self.tag}")

    def swap_name(self, prefix: str, target_name: str, expected: str | None) -> str:
        """Return what the swap file of one target is called."""
        # The target's name is in it for the person who finds it after a crash. 140 bytes of it,
        # because a name may have 255 and the rest of ours takes 100.
        return f"{prefix}-{expected}~{os.fsencode(target_name)[:140].decode('utf-8', 'ignore')}"

    def create_swap(self, prefix: str, target_name: str, expected: str | None, mode: int) -> tuple[str, int]:
        """
        Create an empty swap file; return its name and a tracked descriptor for reading and writing.

        FileNotFoundError: somebody removed our folder (`git clean -fdx`).
        """
        name = self.swap_name(prefix, target_name, expected)
        return name, forks.open_tracked(name, CREATE, mode, dir_fd=self.swap_fd)

    def remove_swap(self, name: str) -> None:
        """
        Remove a swap file that nobody needs; harmless if it is gone.

        If it cannot be removed it stays for `adopt_orphans()`. An error here would skip what has yet to be
        closed and released, and report a commit as failed that has landed.
        """
        try:
            remove_all(self.swap_fd, name)
        except OSError:
            pass

    def remove_swaps(self, prefix: str) -> None:
        """Remove every swap file of a commit that never began."""
        if not journal.is_swap_prefix(prefix, self.prefix):
            return  # Those are in another store.
        for name in os.listdir(self.swap_fd):
            if name.startswith(prefix) and journal.is_swap_name(name, self.prefix):
                self.remove_swap(name)

    def remove_second_names(self, inode: int) -> bool:
        """
        Remove swap files that are the very file at a target; True if there was one.

        A commit at `plain` gives the old file a second name for a moment. After a power cut it may still have
        both, and no note says why. The caller holds the mutex of the target's folder, and nobody is at it.
        """
        found = False
        for entry in os.scandir(self.swap_fd):
            if (
                entry.inode() == inode
                and self.may_tidy(entry.name)
                and journal.is_swap_name(entry.name, self.prefix)
            ):
                self.remove_swap(entry.name)
                found = True
        return found

    def second_names(self, inode: int) -> int:
        """How many swap files, of commits of other mounts, are the very file at a target."""
        if not self.is_alone:
            return 0
        found = 0
        for name in os.listdir(self.swap_fd):
            try:
                found += os.stat(name, dir_fd=self.swap_fd, follow_symlinks=False).st_ino == inode
            except FileNotFoundError:
                continue
        return found

    def keep(self, name: str) -> str:
        """Move a swap file to the kept ones, for a person to look at; return where it is now."""
        kept = name.replace("swap-", "kept-", 1)
        try:
            os.rename(name, kept, src_dir_fd=self.swap_fd, dst_dir_fd=self.kept_fd)
        except FileNotFoundError:
            # A process that was killed between this and the end of its note has kept it: the note still says
            # that it is to be done, to everybody who comes to the folder. Names are never used twice.
            os.stat(kept, dir_fd=self.kept_fd, follow_symlinks=False)
        return f"{self.path}/{kept}" if self.is_beside else f"{self.path}/{KEPT_FOLDER}/{kept}"

    # The note of a folder.

    def note(self, folder: os.stat_result) -> Note:
        """
        Return a folder's note, creating it if need be. Only under the folder's mutex.

        It stays open until it is `put_away()`, and a while longer: the next commit there needs it again.
        """
        key = (folder.st_dev, folder.st_ino)
        with self._lock:
            note = self._notes.get(key)
            if note is not None:
                if note.is_sound():
                    note.users += 1
                    return note
                del self._notes[key]
                if not note.users:
                    note.close()
            elif len(self._notes) >= MOST_OPEN_NOTES:
                self._close_unused()
            note = Note(
                self._note_name(folder),
                self.notes_fd,
                base=self.base,
                folder_inode=folder.st_ino,
                owner=self._owner,
            )
            note.users = 1
            self._notes[key] = note
            return note

    def _close_unused(self) -> None:
        """Close the notes that no critical section uses at the moment; one in use is never closed."""
        for key, note in list(self._notes.items()):
            if not note.users:
                self._notes.pop(key).close()

    def put_away(self, note: Note) -> None:
        """The section that asked for a note is over."""
        with self._lock:
            note.users -= 1

    def _note_name(self, folder: os.stat_result) -> str:
        # Not the device: its number may be another one after a reboot, and a store is for one device.
        name = f"{self.prefix}{beside_note_name(folder)}" if self.is_beside else f"{folder.st_ino:x}"
        return f"{name}.{self.tag}" if self.tag else name

    def is_under_way(self, folder: os.stat_result) -> bool:
        """True if a folder's note is in use: a commit is running there, or was cut off."""
        owners = journal.trusted_owners(self._owner)
        return journal.is_in_use(self._note_name(folder), self.notes_fd, owners)

    def drop_notes(self) -> None:
        """Beside a target, leave no note behind: an idle one there would confuse the folder's owner."""
        with self._lock:
            for note in self._notes.values():
                if note.users:
                    continue
                if note.is_idle:
                    try:
                        os.unlink(note.name, dir_fd=self.notes_fd)
                    except OSError:
                        pass  # It stays, idle, and does no harm.
            self._close_unused()

    def notes_in_use(self) -> Iterator[Note]:
        """Yield every note in use: commits that run, or were cut off. Each is open until the next one is."""
        owners = journal.trusted_owners(self._owner)
        folder = os.fstat(self.notes_fd)
        for name in [self._note_name(folder)] if self.is_beside else os.listdir(self.notes_fd):
            if not self.is_beside and (BOOK_PREFIX in name or name.startswith(IGNORED_PREFIX)):
                continue
            if not journal.is_in_use(name, self.notes_fd, owners):
                continue
            try:  # We do not hold the mutex. So nothing is made, and nothing is put out of the way.
                inode = folder.st_ino if self.is_beside else int(name.partition(".")[0], 16)
                note = Note(
                    name, self.notes_fd, base=self.base, folder_inode=inode, owner=self._owner, make=False
                )
            except (OSError, ValueError):
                continue
            try:
                yield note
            finally:
                note.close()

    # Displaced files.

    def set_aside(
        self,
        name: str,
        path: str,
        descriptor: int,
        *,
        size: int = 0,
        sha256: str = "",
        is_past: bool = False,
    ) -> None:
        """
        Leave a displaced file, and its descriptor (for reading only), for a later sweep.

        If neither the hash in its name nor its mark shows that it is unchanged, the sweep keeps it.
        `sha256` and `is_past`: see `Displaced`.
        """
        if len(self.waiting) >= self.most_waiting:
            # It is found again by its name: as one that nobody waits for, by `adopt_orphans()`.
            forks.close(descriptor)
            if sha256 and self.keeper is not None and len(self.left_closed) < MOST_LEFT_CLOSED:
                self.left_closed[name] = (path, sha256)
            return
        if len(self._left) > 2 * len(self.waiting) + MOST_NAMES_LEFT:
            self._left = {each.name for each in tuple(self.waiting)}
        if name in self._left and any(each.name == name for each in tuple(self.waiting)):
            forks.close(descriptor)  # Two of them would keep each other from the sweep's lease for ever.
            return
        displaced = Displaced(name, path, descriptor, size, sha256, is_past, time.monotonic())
        self._left.add(name)
        self.waiting.append(displaced)

    def leave_marked(self, name: str, path: str) -> None:
        """
        Leave a swap file that has its mark to a later sweep, if it is there.

        For files of ours that were at a target's name and were taken away again. Not deleted at once: a
        process that had looked that name up, and was suspended inside `open()` before the kernel counted it,
        holds this very file. What it writes is kept.
        """
        try:
            descriptor = forks.open_tracked(name, LOOK, dir_fd=self.swap_fd)
        except OSError:
            return  # It is back at its name, or never left it; or it is an orphan now, and is swept as one.
        self.set_aside(name, path, descriptor)

    def leave_all_marked(self, prefix: str, folder: str) -> None:
        """The same for every swap file of a commit that is over."""
        if not journal.is_swap_prefix(prefix, self.prefix):
            return
        waiting = {displaced.name for displaced in tuple(self.waiting)}
        for name in os.listdir(self.swap_fd):
            if name.startswith(prefix) and journal.is_swap_name(name, self.prefix) and name not in waiting:
                self.leave_marked(name, f"{folder}/{name.partition('~')[2]}")


def _is_this_mount_only(folder_fd: int) -> bool:
    from noclobber.disk.reach import is_this_mount_only  # Here: on a local disk nobody asks.

    return is_this_mount_only(folder_fd)


def beside_note_name(folder: os.stat_result) -> str:
    """
    Return what the note beside a target is called, after its prefix.

    One for each user: nobody may write to another user's note, and all of them may work in one folder.
    """
    user = os.geteuid()
    return f"note-{user or folder.st_uid}"


def gives_acl(folder_fd: int) -> bool:
    """True if files made in this folder get an ACL from it."""
    if not hasattr(os, "getxattr"):
        return False
    try:
        os.getxattr(folder_fd, "system.posix_acl_default")
        return True
    except OSError:
        return False
