"""
Where a commit keeps what it needs: staged files, displaced files, a note, and what must not be lost.

Inside a workspace that is `<root>/.noclobber/`, so that watchers, builds and `git status` see no
temporary files. For a target on another mount, or without a workspace, it is the target's own
folder, as dot files.

Three kinds of file:

- *swap files*: the new bytes before an exchange, the displaced old ones after it;
- *the note of a folder*: what the holder of that folder's mutex is doing. Whoever takes the mutex
  and finds a note knows that its writer died in the middle, because the kernel freed the mutex but
  nobody cleared the note. That is the whole crash detection: no pids, no clocks, no scan;
- *kept files*: versions that somebody wrote to after they had been replaced. Never deleted by us.

A displaced file that was verified gets the modification time `VERIFIED_NS`. Any later write changes
that, so the sweep can tell, exactly and without hashing again, whether it is still what was verified.
"""

from __future__ import annotations

import atexit
import errno
import os
import stat
import threading
from collections import deque
from typing import NamedTuple

from noclobber.disk import forks, openers
from noclobber.disk.paths import BESIDE_PREFIX, OPEN_FOLDER, STATE_FOLDER

VERIFIED_NS = 1_234_567_891  # A second and a bit after the epoch: no real file has it.
CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
MOST_OPEN_NOTES = 64
YOUNG_S = 60.0  # An empty swap file younger than this may belong to a commit that has just begun.


class Displaced(NamedTuple):
    """A swap file that waits for the sweep: the version that a commit replaced."""

    name: str
    path: str


class Store:
    """The files that commits to one mount need. Use `for_workspace()` or `beside()`."""

    def __init__(self, path: str, swap_fd: int, notes_fd: int, kept_fd: int, prefix: str) -> None:
        self.path, self.prefix = path, prefix
        self.swap_fd, self.notes_fd, self.kept_fd = swap_fd, notes_fd, kept_fd
        self.device = os.fstat(swap_fd).st_dev
        self.waiting: deque[Displaced] = deque()  # Its single steps are atomic between threads.
        self._notes: dict[str, int] = {}
        self._lock = threading.Lock()
        forks.on_fork_in_child(self, "_lock", threading.Lock)

    @property
    def is_beside(self) -> bool:
        """True if our files stand among the user's."""
        return bool(self.prefix)

    def close(self) -> None:
        """Close every descriptor."""
        for descriptor in {self.swap_fd, self.notes_fd, self.kept_fd, *self._notes.values()}:
            os.close(descriptor)
        self._notes.clear()

    def is_alive(self) -> bool:
        """False once somebody removed the folders (`git clean -fdx`): then a new store is needed."""
        return os.fstat(self.swap_fd).st_nlink > 0 and os.fstat(self.notes_fd).st_nlink > 0

    # Swap files.

    def create_swap(self, target_name: str, mode: int) -> tuple[str, int]:
        """Create an empty swap file; return its name and a descriptor for reading and writing."""
        # The target's name is in it for the person who finds it after a crash. 180 bytes of it,
        # because a name may have 255 and the rest needs room.
        # No line breaks: a note lists these names one a line.
        tail = target_name.encode()[:180].decode("utf-8", "ignore").replace("\n", "_")
        while True:
            name = f"{self.prefix}swap-{os.urandom(6).hex()}~{tail}"
            try:
                return name, os.open(name, CREATE, mode, dir_fd=self.swap_fd)
            except FileExistsError:
                continue

    def remove_swap(self, name: str) -> None:
        """Remove a swap file that nobody needs; harmless if it is gone."""
        try:
            os.unlink(name, dir_fd=self.swap_fd)
        except FileNotFoundError:
            pass

    def keep(self, name: str) -> str:
        """Move a swap file to the kept ones, for a person to look at; return where it is now."""
        kept = name.replace("swap-", "kept-", 1)
        os.rename(name, kept, src_dir_fd=self.swap_fd, dst_dir_fd=self.kept_fd)
        return f"{self.path}/kept/{kept}" if not self.is_beside else f"{self.path}/{kept}"

    # The note of a folder.

    def note(self, folder: os.stat_result) -> int:
        """Return a descriptor of a folder's note, creating it if need be. Only under the folder's mutex."""
        name = f"{self.prefix}note" if self.is_beside else f"{folder.st_dev:x}-{folder.st_ino:x}"
        with self._lock:
            note_fd = self._notes.get(name)
            if note_fd is not None:
                if os.fstat(note_fd).st_nlink:
                    return note_fd
                os.close(self._notes.pop(name))
            elif len(self._notes) >= MOST_OPEN_NOTES:
                os.close(self._notes.pop(next(iter(self._notes))))
            note_fd = os.open(
                name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666, dir_fd=self.notes_fd
            )
            self._notes[name] = note_fd
            return note_fd

    def read_note(self, folder: os.stat_result) -> bytes:
        """Return a folder's note, empty if nothing is under way. Creates nothing."""
        name = f"{self.prefix}note" if self.is_beside else f"{folder.st_dev:x}-{folder.st_ino:x}"
        try:
            note_fd = os.open(name, LOOK, dir_fd=self.notes_fd)
        except FileNotFoundError:
            return b""
        try:
            return os.pread(note_fd, os.fstat(note_fd).st_size, 0)
        finally:
            os.close(note_fd)

    def drop_note(self) -> None:
        """Beside a target, leave no note behind: an empty one there would puzzle its owner."""
        with self._lock:
            for name, note_fd in self._notes.items():
                os.close(note_fd)
                try:
                    os.unlink(name, dir_fd=self.notes_fd)
                except FileNotFoundError:
                    pass
            self._notes.clear()

    # Displaced files.

    def set_aside(self, name: str, path: str, displaced_fd: int) -> None:
        """Mark a verified displaced file and leave it for a later sweep."""
        os.utime(displaced_fd, ns=(VERIFIED_NS, VERIFIED_NS))
        self.waiting.append(Displaced(name, path))

    def is_waiting(self, name: str) -> bool:
        """True if a swap file is left for the sweep."""
        return any(displaced.name == name for displaced in tuple(self.waiting))

    def sweep(self) -> list[tuple[str, str]]:
        """
        Remove displaced files that are unopened and unchanged; keep those that somebody wrote to.

        Returns (original path, where it is kept) for each of the latter. A process that was suspended
        inside `open()` while the exchange happened may write to the displaced file much later; those
        bytes are what this is about.
        """
        kept: list[tuple[str, str]] = []
        for _ in range(len(self.waiting)):
            try:
                displaced = self.waiting.popleft()
            except IndexError:
                break  # Another thread sweeps too.
            where = self._sweep_one(displaced.name, displaced.path)
            if where is BUSY:
                self.waiting.append(displaced)
            elif where:
                kept.append((displaced.path, where))
        return kept

    def _sweep_one(self, name: str, path: str) -> str:
        """Return "" if it is gone, BUSY if somebody has it open for writing, else where it is kept."""
        try:
            swap_fd = os.open(name, LOOK, dir_fd=self.swap_fd)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return ""
            return BUSY
        try:
            try:
                if not openers.try_lease(swap_fd, openers.READ):
                    return BUSY
            except openers.LeasesUnavailableError:
                pass  # Then the modification time has to tell alone.
            if os.fstat(swap_fd).st_mtime_ns == VERIFIED_NS:
                self.remove_swap(name)
                return ""
            return self.keep(name)
        except FileNotFoundError:
            return ""  # Another process swept it between our look and our rename.
        finally:
            openers.release(swap_fd)
            os.close(swap_fd)

    def orphans(self, now_s: float) -> list[str]:
        """
        Return swap files of commits that are over, whoever made them.

        Everything but what is waiting here, what a folder's note speaks of, and empty ones so young
        that their note may not be written yet.
        """
        names = [name for name in os.listdir(self.swap_fd) if name.startswith(f"{self.prefix}swap-")]
        spoken_of = b"\n".join(self._every_note()) if names else b""
        waiting = {displaced.name for displaced in tuple(self.waiting)}
        found = []
        for name in names:
            if name in waiting or name.encode() in spoken_of:
                continue
            try:
                status = os.stat(name, dir_fd=self.swap_fd, follow_symlinks=False)
            except FileNotFoundError:
                continue
            if status.st_mtime_ns != VERIFIED_NS and now_s - status.st_ctime < YOUNG_S:
                continue
            found.append(name)
        return found

    def adopt_orphans(self, now_s: float) -> list[tuple[str, str]]:
        """Sweep what dead processes left; return (name, where) of what had to be kept."""
        kept = []
        for name in self.orphans(now_s):
            status = os.stat(name, dir_fd=self.swap_fd, follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) and status.st_size == 0 and status.st_mtime_ns != VERIFIED_NS:
                self.remove_swap(name)  # Created, and its process died before it wrote a byte.
                continue
            where = self._sweep_one(name, name)
            if where and where is not BUSY:
                kept.append((name, where))
        return kept

    def notes_in_use(self) -> list[str]:
        """Return the names of notes that say something: commits under way, or cut off."""
        return [
            name
            for name, note in zip(self._note_names(), self._every_note(), strict=True)
            if note.strip(b"\0")
        ]

    def _note_names(self) -> list[str]:
        if self.is_beside:
            return [f"{self.prefix}note"] if self._exists(f"{self.prefix}note") else []
        return sorted(os.listdir(self.notes_fd))

    def _exists(self, name: str) -> bool:
        try:
            os.stat(name, dir_fd=self.notes_fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def _every_note(self) -> list[bytes]:
        notes = []
        for name in self._note_names():
            try:
                note_fd = os.open(name, LOOK, dir_fd=self.notes_fd)
            except FileNotFoundError:
                notes.append(b"")
                continue
            try:
                notes.append(os.pread(note_fd, os.fstat(note_fd).st_size, 0))
            finally:
                os.close(note_fd)
        return notes


BUSY = "\0busy"  # Not a path: a NUL cannot be in one.


def for_workspace(root: str) -> Store:
    """Open (and create, the first time) a workspace's own store."""
    state = f"{root}/{STATE_FOLDER}"
    opened: list[int] = []
    try:
        try:
            os.mkdir(state)
        except FileExistsError:
            pass
        # No-follow all the way: a link here would send our records, and every staged byte, elsewhere.
        opened.append(os.open(state, OPEN_FOLDER | os.O_NOFOLLOW))
        _ignore_in_git(opened[0])
        for part in ("swap", "notes", "kept"):
            try:
                os.mkdir(part, dir_fd=opened[0])
            except FileExistsError:
                pass
            opened.append(os.open(part, OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=opened[0]))
    except BaseException:
        for descriptor in opened:
            os.close(descriptor)
        raise
    os.close(opened.pop(0))
    swap_fd, notes_fd, kept_fd = opened
    return Store(state, swap_fd, notes_fd, kept_fd, prefix="")


def _ignore_in_git(state_fd: int) -> None:
    try:
        ignore_fd = os.open(".gitignore", CREATE, 0o644, dir_fd=state_fd)
    except FileExistsError:
        return
    try:
        os.write(ignore_fd, b"*\n")
    finally:
        os.close(ignore_fd)


_lingering: deque[Store] = deque()  # Stores beside a target that still have something to sweep.
_known_folders: set[tuple[int, int]] = set()


def beside(folder_fd: int, folder: str, now_s: float) -> Store:
    """Open a store in a target's own folder; `leave()` it after the commit."""
    opened = Store(folder, os.dup(folder_fd), os.dup(folder_fd), os.dup(folder_fd), prefix=BESIDE_PREFIX)
    status = os.fstat(folder_fd)
    if (status.st_dev, status.st_ino) not in _known_folders:  # Once per process: it lists the folder.
        _known_folders.add((status.st_dev, status.st_ino))
        opened.adopt_orphans(now_s)
    return opened


def leave(store: Store) -> None:
    """Done with a store beside a target: close it now, or when its displaced files are swept."""
    store.drop_note()
    if store.waiting:
        _lingering.append(store)
    else:
        store.close()


def sweep_lingering() -> list[tuple[str, str]]:
    """Sweep every store that was left with something in it."""
    kept = []
    for _ in range(len(_lingering)):
        try:
            store = _lingering.popleft()
        except IndexError:
            break
        kept += store.sweep()
        leave(store)
    return kept


atexit.register(sweep_lingering)  # A program that writes once must not leave a dot file for ever.
