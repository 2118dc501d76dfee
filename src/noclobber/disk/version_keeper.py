"""
Keeps versions of one workspace within its rules: which files, how many bytes, how long (ruling 19).

Commits ask it what to do with a version that they displaced. It moves it to the versions or says no, and it
never raises: a write must not fail because the version before it could not be kept. What went wrong is in
`trouble`, for `doctor`.

Bounds are looked at when a turn ends, and between its commits, after 16 MiB or 4096 versions; at the end of
a turn also if nobody has looked for an hour.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable
from fnmatch import translate
from threading import RLock
from typing import TYPE_CHECKING

from noclobber.core.secret_names import SECRET_NAMES, is_secret
from noclobber.disk import after_fork, small_file
from noclobber.disk.git_folders import GitFolders
from noclobber.disk.hashing import of_bytes
from noclobber.disk.ignored import GitIgnore
from noclobber.disk.reading import LOOK, read_all
from noclobber.disk.versions import Versions

if TYPE_CHECKING:
    from noclobber.core.clock import Clock
    from noclobber.core.options import Options
    from noclobber.disk.commit.store import Store

MOST_FILE_BYTES = 8 << 20
MOST_LANDED_BYTES = 64 << 20
TIDY_AFTER_BYTES = 16 << 20
TIDY_AFTER_S = 3600.0
BLOCK_BYTES = 4096  # What a small file takes on most disks.
LINK = b"link\0"
_STAMP = "tidied"
_ADDED = "added"
_COUNTED_BYTES = 1 << 16


def _any_of(patterns: list[str]) -> re.Pattern[str]:
    """Return one expression for all patterns: each is asked about every file that is written."""
    return re.compile("|".join(translate(pattern) for pattern in patterns) or "(?!)")


class VersionKeeper:
    """Decides which versions of a workspace are kept, and keeps them."""

    def __init__(
        self,
        root: str,
        options: Options,
        clock: Clock,
        origin: Callable[[str, str], str | None] = lambda name, sha256: None,
    ) -> None:
        """`origin` says which path a version was at, by the beginning of its name and its hash."""
        self.origin = origin
        self._root, self._options, self._clock = root, options, clock
        excluded = options.versions_exclude
        self._names = _any_of([pattern for pattern in excluded if "/" not in pattern])
        self._paths = _any_of([pattern for pattern in excluded if "/" in pattern])
        self._has_usual_names = (
            excluded == SECRET_NAMES
        )  # Then secrets by their folder, too, and in any case.
        self._ignored = GitIgnore(root) if options.versions_ignored == "skip" else None
        self._git = GitFolders(root)
        self._versions: Versions | None = None
        self._added_bytes = 0
        self._is_tidied = self._is_many = self._is_looked_at = False
        # One thread at a time: a folder that was replaced is closed, and another thread may be using it.
        self._lock = RLock()
        after_fork.renew(self, "_lock", RLock)
        self.trouble: str | None = None
        """Why nothing is kept, if that is so."""

    def wants(self, path: str, size_bytes: int) -> bool:
        """True if versions of this file are kept."""
        if size_bytes > MOST_FILE_BYTES or self._git.has(path):
            return False
        if self._names.match(path.rpartition("/")[2]):
            return False
        above = self._root.rstrip("/") + "/"
        relative = path[len(above) :] if path.startswith(above) else os.path.relpath(path, self._root)
        if self._paths.match(relative) or (self._has_usual_names and is_secret(relative)):
            return False
        return self._ignored is None or not self._ignored.ignores(path)

    def take(self, store: Store, name: str, path: str, sha256: str, size_bytes: int) -> bool:
        """Move a displaced swap file to the versions; False if it is to be removed as ever."""
        if not self.wants(path, size_bytes):
            return False
        with self._lock:
            versions = self._open()
            if versions is None:
                return False
            try:
                os.utime(name, dir_fd=store.swap_fd, follow_symlinks=False)  # It expires by this.
                versions.take(name, store.swap_fd, sha256)
            except OSError as error:
                self.trouble = str(error)
                return False
            self._count(size_bytes)
            return True

    def many(self) -> _Many:
        """Around many calls of `take()`: what is the same for all of them is done once."""
        return _Many(self)

    def keep(self, path: str, data: bytes, sha256: str | None = None) -> bool:
        """Keep bytes that an agent saw; False if they are not wanted, or it failed."""
        if not self.wants(path, len(data)):
            return False
        with self._lock:
            versions = self._open()
            if versions is None:
                return False
            try:
                versions.put(data, sha256)
            except OSError as error:
                self.trouble = str(error)
                return False
            self._count(len(data))
            return True

    def keep_landed(self, files: Iterable[tuple[str, str]]) -> None:
        """
        Keep what has just landed at these paths, by their hashes, before somebody overwrites it.

        Of a link, where it leads to, as its print has it (`prints`).

        Up to `MOST_LANDED_BYTES`: somebody waits for it.
        """
        left = MOST_LANDED_BYTES
        with self.many():
            for path, sha256 in files:
                data = self._landed_bytes(path, left)
                versions = None if data is None else self._open()
                if data is None or versions is None or of_bytes(data) != sha256:
                    continue
                try:
                    versions.add(data, sha256)
                except OSError as error:
                    self.trouble = str(error)
                    return
                left -= len(data)
                self._count(len(data))

    def _landed_bytes(self, path: str, most_bytes: int) -> bytes | None:
        try:
            descriptor = os.open(path, LOOK)
        except OSError as error:
            if error.errno != errno.ELOOP or not self.wants(path, 0):
                return None
            return link_text(path)
        try:
            size = os.fstat(descriptor).st_size
            return read_all(descriptor) if size <= most_bytes and self.wants(path, size) else None
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def _count(self, size_bytes: int) -> None:
        self._added_bytes += max(size_bytes, BLOCK_BYTES)

    def read(self, sha256: str) -> bytes | None:
        """Return the bytes with this hash, if they are kept and sound."""
        with self._lock:
            versions = self._open(make=False)
            return None if versions is None else versions.read(sha256)

    @property
    def is_full(self) -> bool:
        """True if so much was added that the bounds are looked at before the turn ends."""
        return self._added_bytes >= TIDY_AFTER_BYTES

    def tidy(self, *, is_alone: bool = True) -> None:
        """
        Keep within the bounds, if it is time to look.

        Not `is_alone`: a process for each write, which adds little, and another one the next. They count
        together: a letter in a file for each 64 KiB, appended, so that none is lost.
        """
        with self._lock:
            versions = self._versions
            if versions is None or not self._added_bytes:
                return
            now_s = self._clock.now_s()
            try:
                if not is_alone and _count_together(versions, self._added_bytes) >= TIDY_AFTER_BYTES:
                    self._added_bytes = TIDY_AFTER_BYTES
                    os.unlink(f"{versions.path}/{_ADDED}")
                if self._added_bytes < TIDY_AFTER_BYTES and (
                    self._is_tidied or now_s - _tidied_at_s(versions) < TIDY_AFTER_S
                ):
                    return
                self._added_bytes, self._is_tidied = 0, True
                _leave_stamp(versions, now_s)
                versions.prune(now_s, self._options.versions_days, self._options.versions_bytes)
            except OSError as error:
                self.trouble = str(error)

    def close(self) -> None:
        """Let go of the folder; may be called twice."""
        with self._lock:
            if self._versions is not None:
                self._versions.close()
                self._versions = None

    def _open(self, *, make: bool = True) -> Versions | None:
        if self._versions is not None and (self._is_looked_at or self._versions.is_in_place()):
            return self._held()
        self.close()
        try:
            self._versions = Versions(self._root, make=make)
            self.trouble = None
        except FileNotFoundError:
            pass  # Nothing is kept yet; or the state folder is gone, and the next commit makes it.
        except OSError as error:
            self.trouble = str(error)
        return self._held()

    def _held(self) -> Versions | None:
        if self._is_many and not self._is_looked_at and self._versions is not None:
            self._is_looked_at = True
            self._versions.hold_parts()
        return self._versions


def link_text(path: str) -> bytes | None:
    """Return what identifies a link: its hash is the link's print. None if there is none."""
    try:
        return LINK + os.fsencode(os.readlink(path))
    except OSError:
        return None


class _Many:
    """
    A thousand versions in a fifth less time: their folder is looked at once, each part of it opened once.

    Other threads wait for the end. If somebody removes the folder meanwhile, the rest is not kept either.
    """

    def __init__(self, keeper: VersionKeeper) -> None:
        self._keeper = keeper

    def __enter__(self) -> None:
        self._keeper._lock.acquire()
        self._keeper._is_many = True

    def __exit__(self, *_: object) -> None:
        keeper = self._keeper
        keeper._is_many = keeper._is_looked_at = False
        if keeper._versions is not None:
            keeper._versions.let_go_of_parts()
        keeper._lock.release()


def _count_together(versions: Versions, added_bytes: int) -> int:
    """Count what was added; return how much it is since the last look at the bounds."""
    dots = b"." * -(-added_bytes // _COUNTED_BYTES)
    return small_file.append(f"{versions.path}/{_ADDED}", dots) * _COUNTED_BYTES


def _tidied_at_s(versions: Versions) -> float:
    try:
        return os.stat(f"{versions.path}/{_STAMP}", follow_symlinks=False).st_mtime
    except FileNotFoundError:
        return 0.0


def _leave_stamp(versions: Versions, now_s: float) -> None:
    path = f"{versions.path}/{_STAMP}"
    small_file.append(path, b"")
    os.utime(path, (now_s, now_s), follow_symlinks=False)
