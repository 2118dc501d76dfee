"""
A volume that other machines have mounted as well: look past old caches, and stage what is to be written.

Every kernel keeps names, sizes and pages of a network file system for seconds. So before each look the folder
is asked for anew, pages are dropped, and a name whose file was replaced elsewhere (ESTALE) is tried again.

A staged file has a name of its own in `.noclobber/sections/`. That name is what makes a write revocable:
take the source away, and its rename can never happen, however late it comes and wherever it was held up. A
deletion is a rename *into* a folder of its own; remove the folder, and it can never happen.

The server's word for a path is not believed: every folder is opened from the root, by names that are no
links, and files are read, renamed and removed in what was opened. Nothing outside of the root is reached.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from noclobber.core.project import SECTIONS_FOLDER, TREE_ID_NAME, state_folder
from noclobber.disk import filesystems, hashing, metadata, paths
from noclobber.disk.reading import read_all
from noclobber.disk.system_errors import EXHAUSTED, commit_failed, exhausted
from noclobber.errors import ABSENT, NOT_A_FILE, UNREADABLE, ConfigError, StorageError
from noclobber.postgres.second_names import SecondNames, is_put_aside

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from noclobber.core.clock import Clock

STALE_NAPS_S = (0.0, 0.01, 0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ID_CHARS = 32
_SERVERS_NUMBERS = ("nfs", "nfs4", "ceph")
UNREAD = "UNREAD"


class SeenFile(NamedTuple):
    """What stands under a name now."""

    sha256: str
    """A hash, `ABSENT`, `NOT_A_FILE` or `UNREADABLE`."""
    content: bytes | None = None
    links: int = 1
    is_there: bool = False
    """There is a file, read or not."""


class Volume:
    """The files of one workspace on a shared volume."""

    def __init__(self, root: str, clock: Clock) -> None:
        self.root, self._clock = root, clock
        self.folder = f"{state_folder(root)}/{SECTIONS_FOLDER}"
        self.second_names = SecondNames(self.folder, filesystems.filesystem_type(root))

    def opened(self, path: str, *, make: bool = False) -> AbstractContextManager[tuple[int, str]]:
        """A file's folder, opened from the root without following a link, and its name in there."""
        return paths.opened_below(self.root, path, make=make)

    def _staged(self, leaf: str) -> AbstractContextManager[tuple[int, str]]:
        return self.opened(f"{self.folder}/{leaf}")

    # -- look ----------------------------------------------------------------------------------------------

    def look(self, path: str) -> SeenFile:
        """Return what stands there, on the other side of every cache that can be told to look again."""
        return self._past_caches(path, self._look)

    def glance(self, path: str, sha256: str) -> SeenFile:
        """Return what kind of file stands there, unread; its hash is what the caller expects."""
        seen = self._past_caches(path, self._glance)
        return seen._replace(sha256=sha256) if seen.sha256 == UNREAD else seen

    def _past_caches(self, path: str, look: Callable[[str], SeenFile]) -> SeenFile:
        filesystems.refresh(os.path.dirname(path))
        for nap_s in STALE_NAPS_S:
            try:
                return look(path)
            except FileNotFoundError:
                return SeenFile(ABSENT)
            except OSError as error:
                if error.errno in EXHAUSTED:
                    raise exhausted(error, path) from error
                if error.errno != errno.ESTALE:
                    return SeenFile(NOT_A_FILE if error.errno in (errno.ELOOP, errno.ENXIO) else UNREADABLE)
            # The mount has the name of a file that was replaced elsewhere. It forgets it within seconds.
            self._clock.sleep(nap_s)
            filesystems.refresh(os.path.dirname(path))
        return SeenFile(UNREADABLE)

    def _look(self, path: str) -> SeenFile:
        with self.opened(path) as (folder_fd, name):
            descriptor = os.open(name, _READ, dir_fd=folder_fd)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return SeenFile(NOT_A_FILE)
            filesystems.forget_cached(descriptor)
            content = read_all(descriptor)
            digest, found = hashing.of_bytes(content), os.fstat(descriptor)
            links = found.st_nlink
            if links > 1:
                links -= self.second_names.count(path, digest, found)
            return SeenFile(digest, content, links, is_there=True)
        except FileNotFoundError as error:  # Of an open file: it was replaced, and is not absent.
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path) from error
        finally:
            os.close(descriptor)

    def _glance(self, path: str) -> SeenFile:
        """Second names cannot be told from others without reading it: whoever reads it counts them."""
        with self.opened(path) as (folder_fd, name):
            descriptor = os.open(name, _READ, dir_fd=folder_fd)
        try:
            is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
            return SeenFile(UNREAD, is_there=True) if is_file else SeenFile(NOT_A_FILE)
        finally:
            os.close(descriptor)

    # -- stage ---------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make the folder for staged files, and refuse a volume on which a rename is not one step."""
        if (store := filesystems.object_store(self.root)) is not None:
            raise StorageError(self.root, f"this ({store}) {filesystems.NO_RENAME}")
        try:
            self._make_folder()
            self._refuse_two_step_renames()
        except OSError as error:  # Another user's folder, a full disk.
            raise commit_failed(error, self.folder) from error

    def _make_folder(self) -> None:
        """
        The folder for staged files. Who may write in the root may write here: on a volume that people share,
        each has to take away what another's killed process has left.
        """
        os.makedirs(os.path.dirname(self.folder), exist_ok=True)
        try:
            os.mkdir(self.folder, 0o700)
        except FileExistsError:
            # No link: it would send every staged byte elsewhere.
            if not stat.S_ISDIR(os.lstat(self.folder).st_mode):
                raise StorageError(self.folder, "this is no folder. Delete it, and try again") from None
            return
        root = os.stat(self.root)
        shared = (0o2070 if root.st_mode & stat.S_IWGRP else 0) | (
            0o007 if root.st_mode & stat.S_IWOTH and not root.st_mode & stat.S_ISVTX else 0
        )
        if shared:
            with suppress(PermissionError):
                os.chown(self.folder, -1, root.st_gid)
            os.chmod(self.folder, 0o700 | shared)

    def _shared_mode(self) -> int:
        """What users besides the owner may do in the folder of staged files."""
        return os.stat(self.folder).st_mode & 0o077

    def _refuse_two_step_renames(self) -> None:
        """
        Replace a file that is open, and see whether it leaves a trace.

        Many FUSE file systems move an open file out of the way before they put another in its place. If the
        second step fails, because the source was revoked, the file is gone: nobody's write, and lost. An NFS
        client does so as well; there a second name keeps every version that may go (`second_names`).
        """
        probe = f"{self.folder}/probe-{os.urandom(8).hex()}"
        os.mkdir(probe, 0o700)
        try:
            target, source = f"{probe}/target", f"{probe}/source"
            for path in (target, source):
                os.close(os.open(path, _NEW, 0o600))
            held = os.open(target, _READ)
            try:
                os.rename(source, target)
                left = os.listdir(probe)
            finally:
                os.close(held)
        finally:
            shutil.rmtree(probe, ignore_errors=True)
        left = [name for name in left if not (self.second_names.are_needed and is_put_aside(name))]
        if left != ["target"]:
            raise ConfigError(
                self.root,
                "on this volume a rename over an open file is not one step, so a file could vanish. Mount it "
                "so that it is (FUSE: -o hard_remove), or work without a coordinator",
            )

    def tree_id(self) -> str:
        """Return this tree's own id: made once, and read by every machine that has mounted it."""
        path = f"{self.folder}/{TREE_ID_NAME}"
        try:
            for _ in range(2):
                try:
                    return self._read_tree_id(path)
                except FileNotFoundError:
                    self._make_tree_id(path)
        except OSError as error:
            if isinstance(error, StorageError):
                raise
            raise StorageError(path, f"the id of this tree cannot be read or made ({error})") from error
        raise StorageError(path, "the id of this tree can be neither read nor made")

    def _read_tree_id(self, path: str) -> str:
        descriptor = os.open(path, _READ)  # Without waiting: somebody may have put anything there.
        try:
            found = os.fstat(descriptor)
            said = os.read(descriptor, _ID_CHARS * 2) if stat.S_ISREG(found.st_mode) else b""
        finally:
            os.close(descriptor)
        tree_id, _, made_for = said.decode("ascii", "replace").strip().partition(" ")
        if len(tree_id) != _ID_CHARS or not tree_id.isalnum():
            raise ConfigError(path, "this is not the id of a tree. Delete it while nobody writes here")
        if made_for and self._numbers_last() and made_for != str(found.st_ino):
            # What is written in one would be taken for a version of the other's file.
            raise ConfigError(
                path,
                "this tree is a copy of another one, or was restored, and the coordinator knows that one. "
                "Give it a name of its own (NOCLOBBER_WORKSPACE), and delete this file",
            )
        return tree_id

    def _numbers_last(self) -> bool:
        """True where a file's inode number is the same on every machine, and for life."""
        return (
            filesystems.keeps_inodes(self.root) or filesystems.filesystem_type(self.root) in _SERVERS_NUMBERS
        )

    def _make_tree_id(self, path: str) -> None:
        self._make_folder()
        staged = f"{path}.{os.urandom(6).hex()}"
        descriptor = os.open(staged, _NEW, 0o600)
        try:
            # With its own number, so that a copy is known for one.
            own = f" {os.fstat(descriptor).st_ino}" if self._numbers_last() else ""
            os.write(descriptor, f"{os.urandom(_ID_CHARS // 2).hex()}{own}".encode())
            os.fchmod(descriptor, 0o600 | self._shared_mode() & 0o044)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        try:
            os.link(staged, path)  # Of two machines that make one at once, one wins.
        except FileExistsError:
            pass
        except OSError:  # No hard links here. Two ids at once: the second is refused, and nothing is lost.
            if not os.path.lexists(path):
                os.rename(staged, path)
                return
        os.unlink(staged)

    def stage(self, name: str, data: bytes, like: str | None, mode: int | None) -> tuple[str, ...]:
        """Write a new version under its own name, with the old one's metadata; return what was not kept."""
        kept_mode = 0o600 if like is not None else 0o666 if mode is None else mode
        with self._staged(name) as (folder_fd, leaf):
            descriptor = os.open(leaf, _NEW, kept_mode, dir_fd=folder_fd)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            not_kept: tuple[str, ...] = ()
            if like is not None:
                with self.opened(like) as (folder_fd, leaf):
                    source = os.open(leaf, _READ, dir_fd=folder_fd)
                try:
                    not_kept = metadata.give(descriptor, metadata.of(source), path=like, source=source)
                finally:
                    os.close(source)
            os.fsync(descriptor)  # A rename must not be on the disk before its bytes.
            return not_kept
        finally:
            os.close(descriptor)

    def stage_deletion(self, name: str) -> None:
        """Make the folder that a file will be moved into."""
        with self._staged(name) as (folder_fd, leaf):
            os.mkdir(leaf, 0o700, dir_fd=folder_fd)
            if shared := self._shared_mode():  # Who finds it overdue looks at what was moved into it.
                os.chmod(leaf, 0o700 | shared, dir_fd=folder_fd)

    def owner_of(self, name: str) -> os.stat_result:
        """Return whose a staged version or a staged deletion is."""
        with self._staged(name) as (folder_fd, leaf):
            return os.stat(leaf, dir_fd=folder_fd, follow_symlinks=False)

    # -- land and revoke -----------------------------------------------------------------------------------

    def put(self, name: str, path: str) -> None:
        """Replace or create a file by its staged version; `FileNotFoundError` if that was revoked."""
        with self._staged(name) as (staged_fd, staged), self.opened(path, make=True) as (folder_fd, leaf):
            os.rename(staged, leaf, src_dir_fd=staged_fd, dst_dir_fd=folder_fd)

    def take_away(self, path: str, name: str) -> None:
        """Delete a file, by moving it into its own folder; `FileNotFoundError` if that was revoked."""
        with self._staged(f"{name}/file") as (taken_fd, taken), self.opened(path) as (folder_fd, leaf):
            os.rename(leaf, taken, src_dir_fd=folder_fd, dst_dir_fd=taken_fd)

    def give_back(self, name: str, path: str) -> None:
        """Undo a deletion, if nothing is there by now."""
        with self._staged(f"{name}/file") as (taken_fd, taken), self.opened(path) as (folder_fd, leaf):
            os.link(taken, leaf, src_dir_fd=taken_fd, dst_dir_fd=folder_fd, follow_symlinks=False)

    def revoke(self, name: str) -> bool:
        """Make sure that a staged version never lands. False if it has landed."""
        filesystems.refresh(self.folder)
        with self._staged(name) as (folder_fd, leaf):
            revoked = f"{leaf}.revoked"
            try:
                os.rename(leaf, revoked, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
                return True
            except FileNotFoundError:
                # It landed; or somebody revoked it who was killed before saying so. Our own rename has just
                # looked that name up, so ask the other side and not the cache.
                filesystems.refresh(self.folder)
                try:
                    os.stat(revoked, dir_fd=folder_fd, follow_symlinks=False)
                except FileNotFoundError:
                    return False
                return True  # Any other error is raised: what the volume does not say is not known.

    def revoke_deletion(self, name: str) -> bool:
        """Make sure that a file is never moved into this folder. False if it was."""
        filesystems.refresh(self.folder)
        try:
            with self._staged(name) as (folder_fd, leaf):
                os.rmdir(leaf, dir_fd=folder_fd)
            return True
        except FileNotFoundError:
            return True  # Somebody else did, or tidied up after the end, and the server knows which.
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return False

    def read_taken(self, name: str) -> SeenFile:
        """Return what was moved away."""
        return self.look(f"{self.folder}/{name}/file")

    def drop(self, name: str) -> None:
        """Remove what is left of a staged name. Only after its section was settled, or can only land."""
        for remove, left in (
            (os.unlink, name),
            (os.unlink, f"{name}.revoked"),
            (os.unlink, f"{name}/file"),
            (os.rmdir, name),
        ):
            with suppress(OSError), self._staged(left) as (folder_fd, leaf):
                remove(leaf, dir_fd=folder_fd)
