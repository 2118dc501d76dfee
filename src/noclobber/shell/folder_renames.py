"""
Renaming a folder inside a private view.

An overlay cannot rename a folder that is in its lower layer: `rename()` fails with EXDEV. `mv` copes, by
copying; `git mv`, `os.rename()` and most build tools do not. So the process that waits for the command is
asked about every `rename()` in the view (`supervisor`), and lets each of them go on. Before it does, a folder
that is still in the lower layer is made one of the upper layer, if that is what is to be renamed: everything
in it is moved into a new folder, which takes its place. That costs what `mv` would cost, and is done by a
child that enters the view for it.

The command must not reach that child: it has come from outside. So it enters the view's own namespaces and
no others, is not dumpable (no ptrace, no `/proc/PID/fd`), and holds no descriptor but two pipes, through
which it asks what is in the real tree. Nothing is imported inside, where a name may lead to a file of the
command's.

A folder at which something is mounted, or below which, is left alone: the rename says what is wrong.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from noclobber.core.project import BESIDE_PREFIX
from noclobber.disk.c_library import LONG, function, get_errno
from noclobber.shell.changes import attributes, is_opaque
from noclobber.shell.namespace import PR_SET_DUMPABLE, mounts_below
from noclobber.shell.process import close_all_but

YES, NO = b"+", b"-"
SPARE = [LONG(0)] * 4


class FolderRename(NamedTuple):
    """A rename that a process waits for."""

    pid: int
    path: str
    is_still_asking: Callable[[], bool]


def prepare(asked: FolderRename, root: str, upper: str, space_fds: list[int]) -> None:
    """If a folder of the lower layer is about to be renamed by a process, make it one of the upper layer."""
    # A folder of the lower layer is one in the real tree, which is what we see. Almost always it is a
    # file, or a folder that the command made itself, and nobody has to enter the view.
    if not is_folder(asked.path) and not _is_behind_a_new_link(asked.path, root, upper):
        return
    top = os.stat(f"/proc/{asked.pid}/root")
    enter, control = function("setns"), function("prctl")
    if enter is None or control is None or not asked.is_still_asking():  # It may be another one with its pid.
        return
    question_fd, ask_fd = os.pipe()
    answer_fd, reply_fd = os.pipe()
    try:
        if os.fork() == 0:
            try:
                control(PR_SET_DUMPABLE, *SPARE)
                close_all_but({ask_fd, answer_fd, *space_fds})
                child = _Inside(root, ask_fd, answer_fd)
                child.enter(enter, space_fds)
                child.bring_up(asked.path, top)
            finally:
                os._exit(0)
        os.close(ask_fd)
        ask_fd = -1
        path = os.fsdecode(os.read(question_fd, 1 << 16))  # Whole: it fits into a pipe at once.
        if path:
            os.write(reply_fd, YES if _is_in_lower(path, root, upper) else NO)
            os.read(question_fd, 1)  # Until it has ended.
    finally:
        for descriptor in (question_fd, ask_fd, answer_fd, reply_fd):
            if descriptor >= 0:
                os.close(descriptor)


def _is_in_lower(path: str, root: str, upper: str) -> bool:
    """False if a folder is in the upper layer only. In doubt True, which costs time and does no harm."""
    if not is_folder(f"{root}/{path}"):
        return False
    parts = path.split("/")
    return not any(is_opaque("/".join((upper, *parts[:count]))) for count in range(1, len(parts) + 1))


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
    return path in mounts_below(os.path.dirname(path)) or bool(mounts_below(path))


class _Inside:
    """In the child that enters the view."""

    def __init__(self, root: str, ask_fd: int, answer_fd: int) -> None:
        self._root, self._ask_fd, self._answer_fd = root, ask_fd, answer_fd

    def enter(self, enter: Any, space_fds: list[int]) -> None:
        """Enter the view. From here on names are those of the view: an import could load what is in it."""
        sys.meta_path.clear()
        for space_fd, own in zip(space_fds, ("user", "mnt"), strict=True):
            is_own = os.path.samestat(os.fstat(space_fd), os.stat(f"/proc/self/ns/{own}"))
            if not is_own and enter(space_fd, 0) != 0:
                raise OSError(get_errno(), "setns")
            os.close(space_fd)

    def bring_up(self, path: str, top: os.stat_result) -> None:
        """Make a folder one of the upper layer, for a process whose root is `top`."""
        if not os.path.samestat(top, os.stat("/")) or not is_folder(path):
            return
        path = f"{os.path.realpath(os.path.dirname(path))}/{os.path.basename(path)}"
        if not path.startswith(f"{self._root}/") or _holds_mount(path):
            return
        os.write(self._ask_fd, os.fsencode(path[len(self._root) + 1 :]))
        if os.read(self._answer_fd, 1) == YES:
            self._replace(path)

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
