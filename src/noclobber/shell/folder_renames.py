"""
Renaming a folder inside a private view.

An overlay cannot rename a folder that is in its lower layer: `rename()` fails with EXDEV. `mv` copes, by
copying; `git mv`, `os.rename()` and most build tools do not. So the process that waits for the command is
asked about every `rename()` in the view (`supervisor`), and lets each of them go on. Before it does, a folder
that is still in the lower layer is made one of the upper layer, if that is what is to be renamed: everything
in it is moved into a new folder, which takes its place. That costs what `mv` would cost, and is done by a
child that enters the view for it.

A folder at which something is mounted, or below which, is left alone: the rename says what is wrong.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from noclobber.core.project import BESIDE_PREFIX
from noclobber.disk.c_library import function, get_errno


def prepare(pid: int, path: str, root: str, upper: str, is_still_asking: Callable[[], bool]) -> None:
    """If a folder of the lower layer is about to be renamed by a process, make it one of the upper layer."""
    # A folder of the lower layer is one in the real tree, which is what we see. Almost always it is a
    # file, or a folder that the command made itself, and nobody has to enter the view.
    if not is_folder(path) and not _is_behind_a_new_link(path, root, upper):
        return
    spaces = [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in ("user", "mnt")]
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    layers = [os.open(layer, flags) for layer in (root, upper)]
    done_fd, end_fd = os.pipe()
    try:
        if not is_still_asking():  # It may be another process that got its number.
            return
        child = os.fork()
        if child == 0:
            try:
                _Folder(root, *layers).bring_up(spaces, path)
            finally:
                os._exit(0)
        os.close(end_fd)
        end_fd = -1
        os.read(done_fd, 1)  # Until it has ended.
    finally:
        for descriptor in (*spaces, *layers, done_fd, end_fd):
            if descriptor >= 0:
                os.close(descriptor)


def _is_behind_a_new_link(path: str, root: str, upper: str) -> bool:
    """True if a path leads through a symbolic link that the command made: then the real tree lacks it."""
    if not path.startswith(f"{root}/"):
        return False
    parts = path[len(root) + 1 :].split("/")
    return any(os.path.islink("/".join((upper, *parts[:count]))) for count in range(1, len(parts)))


def is_folder(path: str) -> bool:
    """True if a folder is at a path, and no link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _holds_mount(path: str) -> bool:
    """
    True if something is mounted at a folder or below it, as it is at the project's own `.noclobber`.

    It cannot be moved (EBUSY), and half of what is around it would have been by then.
    """
    from noclobber.shell.namespace import mounts_below

    return path in mounts_below(os.path.dirname(path)) or bool(mounts_below(path))


class _Folder:
    """In the child that enters the view."""

    def __init__(self, root: str, lower_fd: int, upper_fd: int) -> None:
        self._root, self._lower_fd, self._upper_fd = root, lower_fd, upper_fd

    def bring_up(self, spaces: list[int], path: str) -> None:
        enter = function("setns")
        assert enter is not None
        for space_fd, own in zip(spaces, ("user", "mnt"), strict=True):
            is_own = os.path.samestat(os.fstat(space_fd), os.stat(f"/proc/self/ns/{own}"))
            if not is_own and enter(space_fd, 0) != 0:
                raise OSError(get_errno(), "setns")
        # From here on names are those of the view.
        if not is_folder(path):
            return
        path = f"{os.path.realpath(os.path.dirname(path))}/{os.path.basename(path)}"
        if not path.startswith(f"{self._root}/") or _holds_mount(path):
            return
        if self._is_in_lower(path[len(self._root) + 1 :]):
            self._replace(path)

    def _is_in_lower(self, path: str) -> bool:
        """False if a folder is in the upper layer only. In doubt True, which costs time and does no harm."""
        from noclobber.shell.changes import is_opaque

        try:
            if not stat.S_ISDIR(os.stat(path, dir_fd=self._lower_fd, follow_symlinks=False).st_mode):
                return False
        except OSError:
            return False
        parts = path.split("/")
        for count in range(1, len(parts) + 1):
            if is_opaque(f"/proc/self/fd/{self._upper_fd}/{'/'.join(parts[:count])}"):
                return False
        return True

    def _replace(self, path: str) -> None:
        """Move everything in a folder to a new one, and put that in its place."""
        status = os.lstat(path)  # Before: moving what is in it changes its times.
        new = f"{os.path.dirname(path)}/{BESIDE_PREFIX}moving-{os.urandom(6).hex()}"
        os.mkdir(new, 0o700)
        try:
            self._move_entries(path, new)
            self._give(new, path, status)
            os.rmdir(path)
        except OSError:
            # A file of another group or user, which cannot be copied up. Then the rename fails, with EXDEV,
            # and the folder is as it was: `mv` goes on to copy it.
            self._move_back(new, path)
            raise
        os.rename(new, path)

    def _move_entries(self, folder: str, new: str) -> None:
        for name in os.listdir(folder):
            source, goal = f"{folder}/{name}", f"{new}/{name}"
            status = os.lstat(source)
            if stat.S_ISDIR(status.st_mode):
                os.mkdir(goal, 0o700)
                self._move_entries(source, goal)
                self._give(goal, source, status)
                os.rmdir(source)
            else:
                os.rename(source, goal)

    def _move_back(self, new: str, folder: str) -> None:
        for name in os.listdir(new):
            goal, source = f"{new}/{name}", f"{folder}/{name}"
            if is_folder(source):  # Not all of it was moved.
                self._move_back(goal, source)
            else:
                os.rename(goal, source)
        os.rmdir(new)

    def _give(self, path: str, source: str, status: os.stat_result) -> None:
        """Make a new folder what the old one is: its owner, attributes, permissions and times."""
        from noclobber.shell.changes import attributes

        own = os.lstat(path)
        if (own.st_uid, own.st_gid) != (status.st_uid, status.st_gid):
            os.chown(path, status.st_uid, status.st_gid)
        wanted = attributes(source)
        for name in attributes(path).keys() - wanted.keys():
            os.removexattr(path, name)  # It has inherited an ACL.
        for name, value in wanted.items():
            os.setxattr(path, name, value)
        os.chmod(path, stat.S_IMODE(status.st_mode))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
