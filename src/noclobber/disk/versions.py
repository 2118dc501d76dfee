"""
Past versions of files, by the hash of their content: what a guarded write replaced, and what an agent saw.

They make four things possible: a merge in a process that did not make the read, `noclobber diff`, taking back
what an agent wrote, and having back what was overwritten unread.

A version is one file, `versions.<user>/a/bcdef…` in the state folder, named by its SHA-256. What a commit
displaces is moved there instead of being deleted, which costs no more; bytes in memory are written to a new
file and moved. So a version is complete or absent. Nothing is flushed: after a power cut one may be empty, or
hold anything. There are 16 folders below: making one costs as much as a small write, and with 256 of them
every other write of a young project made one. Versions from that time are at `ab/cdef…`, and are used there.

Nobody is trusted about that name. A version is used only if its content has that hash, so a forged, torn or
changed one is as good as none. The folder is for its owner only, and one that belongs to somebody else, or is
a link, is not used. Bounds are on age, number and the sum of sizes, and the oldest go first.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from noclobber.core.project import STATE_FOLDER, VERSIONS_PREFIX
from noclobber.disk import hashing, small_file

Result = TypeVar("Result")

_HEX = frozenset("0123456789abcdef")
_TEMPORARY = "new-"
DAY_S = 86_400.0
MAX_VERSIONS = 16_384
"""Small files add up to few bytes, and a folder with too many names is slow for everybody."""


class PastVersion(NamedTuple):
    """One version that is kept."""

    sha256: str
    size_bytes: int
    kept_at_s: float


class Pruned(NamedTuple):
    """What was removed, and what is left."""

    removed: int
    removed_bytes: int
    left: int
    left_bytes: int


class VersionsUnusableError(OSError):
    """The folder for versions belongs to somebody else, or is not a folder."""


class Versions:
    """The versions of one workspace that belong to this user. Opening makes the folder if it may."""

    def __init__(self, root: str, *, make: bool = True) -> None:
        """Raises `FileNotFoundError` without `make` if there is none, or another `OSError`."""
        self.path = f"{root}/{STATE_FOLDER}/{VERSIONS_PREFIX}{os.geteuid()}"
        self._held: dict[str, int] | None = None
        try:
            self._folder_fd = small_file.open_folder(self.path, make=make)
        except NotADirectoryError:
            raise VersionsUnusableError(f"{self.path} is not a folder. Remove it.") from None
        status = os.fstat(self._folder_fd)
        if not small_file.is_private(status):
            self.close()
            raise VersionsUnusableError(
                f"{self.path} must belong to you and be closed to others. Remove it, or chmod it to 700."
            )
        self._status = status

    def is_in_place(self) -> bool:
        """False if somebody removed or replaced the folder."""
        try:
            status = os.stat(self.path, follow_symlinks=False)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == (self._status.st_dev, self._status.st_ino)

    def __enter__(self) -> Versions:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it; may be called twice."""
        self.let_go_of_parts()
        if self._folder_fd >= 0:
            os.close(self._folder_fd)
            self._folder_fd = -1

    # -- keeping --------------------------------------------------------------------------------------

    def put(self, data: bytes, sha256: str | None = None) -> str:
        """Keep some bytes; return their hash. `OSError` if that fails, and then nothing is kept."""
        sha256 = sha256 or hashing.of_bytes(data)
        if not self._is_there(sha256, data):
            self.add(data, sha256)
        return sha256

    def add(self, data: bytes, sha256: str) -> None:
        """Keep some bytes, without a look whether they are kept already."""
        name = f"{_TEMPORARY}{os.urandom(8).hex()}"
        small_file.create(name, data, self._folder_fd)
        try:
            self.take(name, self._folder_fd, sha256)
        except BaseException:
            small_file.remove(name, self._folder_fd)
            raise

    def take(self, name: str, folder_fd: int, sha256: str) -> None:
        """
        Move a file here that has this content; nothing in this process may have it open for writing.

        `OSError` if it cannot be moved (another filesystem, not ours), and then it is where it was.
        """
        part, rest = _place(sha256)
        held = self._held
        part_fd = held.get(part, -1) if held is not None else -1
        if part_fd < 0:
            part_fd = small_file.open_folder(part, self._folder_fd, make=True)
            if held is not None:
                held[part] = part_fd
        try:
            os.rename(name, rest, src_dir_fd=folder_fd, dst_dir_fd=part_fd)
        finally:
            if held is None:
                os.close(part_fd)

    def hold_parts(self) -> None:
        """Before many calls of `take()`: open each folder below once, and not for each version."""
        if self._held is None:
            self._held = {}

    def let_go_of_parts(self) -> None:
        """After them."""
        held, self._held = self._held, None
        for part_fd in (held or {}).values():
            os.close(part_fd)

    def _part(self, part: str) -> int:
        """Open a folder of versions: no link, which may have come with the project and lead out of it."""
        return small_file.open_folder(part, self._folder_fd)

    def _at_its_places(self, sha256: str, ask: Callable[[int, str], Result | None]) -> Result | None:
        """Ask about a version, by folder and name, where it is kept and then where it used to be."""
        for part, rest in (_place(sha256), _older_place(sha256)):
            try:
                part_fd = self._part(part)
            except OSError:
                continue
            try:
                answer = ask(part_fd, rest)
            finally:
                os.close(part_fd)
            if answer is not None:
                return answer
        return None

    def _is_there(self, sha256: str, data: bytes) -> bool:
        """True if it is kept already, and sound; then it counts as kept now, and expires later."""

        def renewed(part_fd: int, name: str) -> bool | None:
            try:
                status = os.stat(name, dir_fd=part_fd, follow_symlinks=False)
                if not stat.S_ISREG(status.st_mode) or status.st_size != len(data):
                    return None
                if _read(name, part_fd, sha256, None) != data:
                    return None  # Torn by a power cut, or forged: it is replaced.
                os.utime(name, dir_fd=part_fd, follow_symlinks=False)
                return True
            except OSError:
                return None

        return bool(self._at_its_places(sha256, renewed))

    # -- using ----------------------------------------------------------------------------------------

    def read(self, sha256: str, most_bytes: int | None = None) -> bytes | None:
        """Return the bytes with this hash; None if they are not kept, or not sound, or too many."""
        if not hashing.is_hash(sha256):
            return None
        return self._at_its_places(sha256, lambda part_fd, name: _read(name, part_fd, sha256, most_bytes))

    def unusable_parts(self) -> list[str]:
        """Return the folders of versions that are none: links or files, in which nothing is kept or found."""
        found = []
        for part in sorted(os.listdir(self._folder_fd)):
            if len(part) in (1, 2) and _HEX.issuperset(part):
                status = os.stat(part, dir_fd=self._folder_fd, follow_symlinks=False)
                if not stat.S_ISDIR(status.st_mode):
                    found.append(part)
        return found

    def find(self, beginning: str) -> list[str]:
        """Return the hashes that begin so: two digits at least."""
        if not 2 <= len(beginning) <= 64 or not _HEX.issuperset(beginning):
            return []
        parts = (beginning[:1], beginning[:2])
        found = {each.sha256 for part in parts for each in self._in_part(part)}
        return sorted(sha256 for sha256 in found if sha256.startswith(beginning))

    def __iter__(self) -> Iterator[PastVersion]:
        """Every version, in no order. What is not one of ours is passed over."""
        for part in sorted(os.listdir(self._folder_fd)):
            if len(part) in (1, 2) and _HEX.issuperset(part):
                yield from self._in_part(part)

    def _in_part(self, part: str) -> Iterator[PastVersion]:
        try:
            folder_fd = self._part(part)
        except OSError:
            return
        try:
            for name in os.listdir(folder_fd):
                if len(part + name) != 64 or not _HEX.issuperset(name):
                    continue
                try:
                    status = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
                except OSError:
                    continue
                if not stat.S_ISREG(status.st_mode):
                    continue
                is_older = len(part) == 2
                other = self._kept_at_s(_place(part + name) if is_older else _older_place(part + name))
                if is_older and other is not None:
                    continue  # It is at the other place as well, and counted there.
                # Which of the two is sound is seen only by reading them: the younger time counts.
                yield PastVersion(part + name, status.st_size, max(status.st_mtime, other or 0.0))
        finally:
            os.close(folder_fd)

    def _kept_at_s(self, place: tuple[str, str]) -> float | None:
        try:
            part_fd = self._part(place[0])
        except OSError:
            return None
        try:
            status = os.stat(place[1], dir_fd=part_fd, follow_symlinks=False)
            return status.st_mtime if stat.S_ISREG(status.st_mode) else None
        except OSError:
            return None
        finally:
            os.close(part_fd)

    # -- bounds ---------------------------------------------------------------------------------------

    def prune(
        self,
        now_s: float,
        most_days: float,
        most_bytes: int,
        share: Callable[[int, int], None] | None = None,
        max_versions: int = MAX_VERSIONS,
    ) -> Pruned:
        """
        Remove what is too old, then the oldest until the rest fits, and what a crash left half-written.

        `share` is told how many versions were looked at, and how many there are.
        """
        self._drop_temporary(now_s)
        removed = removed_bytes = left = left_bytes = 0
        newest_first = sorted(self, key=lambda version: version.kept_at_s, reverse=True)
        for number, each in enumerate(newest_first):
            if share is not None:
                share(number, len(newest_first))
            is_old = now_s - each.kept_at_s > most_days * DAY_S
            if not is_old and left < max_versions and left_bytes + each.size_bytes <= most_bytes:
                left, left_bytes = left + 1, left_bytes + each.size_bytes
            elif self._remove(each.sha256):
                removed, removed_bytes = removed + 1, removed_bytes + each.size_bytes
        return Pruned(removed, removed_bytes, left, left_bytes)

    def _remove(self, sha256: str) -> bool:
        removed = []

        def remove(part_fd: int, name: str) -> None:
            try:
                os.unlink(name, dir_fd=part_fd)
                removed.append(name)
            except OSError:
                pass  # It is at the other place, or another process removed it.

        self._at_its_places(sha256, remove)
        return bool(removed)

    def _drop_temporary(self, now_s: float) -> None:
        for name in os.listdir(self._folder_fd):
            if name.startswith(_TEMPORARY):
                try:
                    status = os.stat(name, dir_fd=self._folder_fd, follow_symlinks=False)
                    if now_s - status.st_mtime > 60.0:  # Younger, and its writer may be at work.
                        os.unlink(name, dir_fd=self._folder_fd)
                except OSError:
                    pass


def _read(name: str, folder_fd: int, sha256: str, most_bytes: int | None) -> bytes | None:
    try:
        data = small_file.read(name, folder_fd, most_bytes=sys.maxsize if most_bytes is None else most_bytes)
    except OSError:
        return None
    return data if hashing.of_bytes(data) == sha256 else None


def _place(sha256: str) -> tuple[str, str]:
    """Return where a version is kept: a folder, and a name in it."""
    return sha256[:1], sha256[1:]


def _older_place(sha256: str) -> tuple[str, str]:
    """Return where a version was kept when there were 256 folders."""
    return sha256[:2], sha256[2:]
