"""
Folders that a commit makes for its new files, and that go again if it does not land.

They must be there before the commit begins: a folder's mutex and note belong to the folder. So a record in
the swap folder names each of them before it is made. The process holds a lock on its record, which the kernel
frees when the process dies; a process that finds a record without a lock removes what it names (`recover`). A
folder goes only if it is empty: others may have put files there meanwhile, or the commit may have landed.

Without a workspace there is no record, nor where other machines use the volume: no lock tells there which
process is alive. Then a process that is killed leaves its empty folders.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from noclobber.disk import forks, mutex, paths
from noclobber.disk.reading import LOOK
from noclobber.errors import OutsideWorkspaceError

if TYPE_CHECKING:
    from noclobber.disk.commit.store import Store

RECORD_PREFIX = "made-"
MOST_BYTES = 1 << 24
_NEW_RECORD = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class MadeFolders:
    """Use as a context manager around a commit, and pass `making` on to `paths.pin`."""

    def __init__(self, root: str | None, open_store: Callable[[], Store | None]) -> None:
        self._root, self._open_store = root, open_store
        self._folders: list[str] = []
        self._store: Store | None = None
        self._record, self._record_fd = "", -1

    def __enter__(self) -> MadeFolders:
        return self

    def making(self, folder: str) -> None:
        """A folder is about to be made: put it on record. Its path is canonical."""
        if not self._folders and self._root is not None:
            self._open_record()
        self._folders.append(folder)
        if self._record:
            os.write(self._record_fd, os.fsencode(folder) + b"\0")

    def others_made(self, folder: str) -> None:
        """Another process was faster: the folder is not ours to remove."""
        self._folders.remove(folder)

    def __exit__(self, kind: object, *raised: object) -> None:
        if kind is not None:
            _remove(self._root, self._folders)
        if self._record and self._store is not None:
            _unlink(self._store, self._record)
        if self._record_fd >= 0:
            mutex.release(self._record_fd)
            forks.close(self._record_fd)

    def _open_record(self) -> None:
        self._store = store = self._open_store()
        if store is None or store.is_remote:
            return
        while not self._record:
            record = f"{RECORD_PREFIX}{os.urandom(8).hex()}"
            self._record_fd = forks.open_tracked(record, _NEW_RECORD, 0o600, dir_fd=store.swap_fd)
            # Before we had the lock, a process that recovers may have found the record, and removed it.
            if mutex.hold(self._record_fd, patience_s=0.0) and os.fstat(self._record_fd).st_nlink:
                self._record = record
            else:
                forks.close(self._record_fd)


def has_records(store: Store) -> bool:
    """True if there is a record of any process."""
    return any(name.startswith(RECORD_PREFIX) for name in os.listdir(store.swap_fd))


def recover(store: Store, root: str, finish: Callable[[str], object]) -> None:
    """
    Remove what dead processes have made and not used. `finish(folder)` finishes a commit that was cut off.

    That comes first: a file which such a commit had created goes before its folder.
    """
    for name in os.listdir(store.swap_fd):
        if not name.startswith(RECORD_PREFIX):
            continue
        try:
            record_fd = forks.open_tracked(name, LOOK, dir_fd=store.swap_fd)
        except OSError:
            continue
        try:
            if not mutex.hold(record_fd, patience_s=0.0):
                continue  # Its process lives.
            folders = [os.fsdecode(each) for each in os.read(record_fd, MOST_BYTES).split(b"\0") if each]
            if any(_is_under_way(store, folder, finish) for folder in folders):
                continue  # Another process recovers it at the moment.
            _remove(root, folders)
            _unlink(store, name)
        except OSError:
            pass  # The next process tries again.
        finally:
            mutex.release(record_fd)
            forks.close(record_fd)


def _is_under_way(store: Store, folder: str, finish: Callable[[str], object]) -> bool:
    finish(folder)
    try:
        return store.is_under_way(os.lstat(folder))
    except OSError:
        return False  # It was never made, or is gone.


def _remove(root: str | None, folders: list[str]) -> None:
    """Remove those that are empty, the deepest first, and nothing that is not below the root."""
    for folder in reversed(folders):
        above, name = os.path.split(folder)
        try:
            paths.check_inside(folder, root)
            above_fd = paths.open_below(root or "/", above[len(root or "/") :])
        except (OSError, OutsideWorkspaceError):
            continue
        try:
            os.rmdir(name, dir_fd=above_fd)
        except OSError:
            pass  # It is in use, or gone.
        finally:
            os.close(above_fd)


def _unlink(store: Store, record: str) -> None:
    try:
        os.unlink(record, dir_fd=store.swap_fd)
    except OSError:
        pass  # It names folders that are in use, or gone.
