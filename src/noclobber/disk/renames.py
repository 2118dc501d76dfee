"""
The two renames that the standard library lacks: exchange two names, and rename without replacing.

File watchers are told of an exchange as of two moves, that of the name which the call gives first before the
other. A watcher that hears of a file that it came and then went thinks that nothing is new: @parcel/watcher,
which VS Code uses, drops both, and nsfw says "deleted". So the call gives the name that people watch first:
it went, then it came. (finding G9; tests/test_watchers.py)

Linux has `renameat2`, macOS has `renameatx_np`.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable

from noclobber.disk.c_library import function, get_errno

LINUX_NOREPLACE, LINUX_EXCHANGE = 1, 2
MACOS_SWAP, MACOS_EXCL = 2, 4

# What a kernel or filesystem answers that has no such rename.
UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)

_renameat2 = function("renameatx_np" if sys.platform == "darwin" else "renameat2")


def _call() -> Callable[..., int]:
    if _renameat2 is None:  # An old C library; the caller falls to the next level.
        raise OSError(errno.ENOSYS, "this C library has no exchange-rename")
    return _renameat2


def _rename(from_fd: int, source: str, to_fd: int, destination: str, flags: int) -> None:
    if _call()(from_fd, os.fsencode(source), to_fd, os.fsencode(destination), flags) != 0:
        code = get_errno()
        raise OSError(code, os.strerror(code), source, None, destination)


def exchange(from_fd: int, source: str, to_fd: int, destination: str) -> None:
    """Swap two names in one atomic step. Both must exist, on one mount. People watch `destination`."""
    _rename(to_fd, destination, from_fd, source, MACOS_SWAP if sys.platform == "darwin" else LINUX_EXCHANGE)


class Flip:
    """An `exchange()` made ready, so that between a look and the exchange there is next to nothing."""

    __slots__ = ("_arguments", "_call")

    def __init__(self, from_fd: int, source: str, to_fd: int, destination: str) -> None:
        self._call = _call()
        flags = MACOS_SWAP if sys.platform == "darwin" else LINUX_EXCHANGE
        # Names are valid UTF-8 (see `paths`), which fsencode() would take three times as long to make.
        self._arguments = (to_fd, destination.encode(), from_fd, source.encode(), flags)

    def __call__(self) -> bool:
        """Swap the two names; False if one of them does not exist."""
        if self._call(*self._arguments) == 0:
            return True
        code = get_errno()
        if code == errno.ENOENT:
            return False
        raise OSError(code, os.strerror(code))


def move_without_replacing(from_fd: int, source: str, to_fd: int, destination: str) -> None:
    """Rename; FileExistsError if the destination exists, also if it was created a moment ago."""
    try:
        _rename(
            from_fd, source, to_fd, destination, MACOS_EXCL if sys.platform == "darwin" else LINUX_NOREPLACE
        )
    except PermissionError:
        with WritableFolder(source, from_fd) as is_read_only:
            if not is_read_only:
                raise
            move_without_replacing(from_fd, source, to_fd, destination)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        # link() refuses an existing name too; for a moment the file has both names.
        os.link(source, destination, src_dir_fd=from_fd, dst_dir_fd=to_fd, follow_symlinks=False)
        os.unlink(source, dir_fd=from_fd)


class WritableFolder:
    """
    While it lasts, a folder of ours can be moved although its owner may not write to it.

    Moving changes its `..`, so it needs that right, which `rename()` within one folder does not. As a context
    manager: True if the permissions were changed. Killed in between, they stay so, and nothing else differs.
    """

    def __init__(self, name: str, folder_fd: int | None = None) -> None:
        self._name, self._folder_fd, self._descriptor = name, folder_fd, -1

    def __enter__(self) -> bool:
        status = os.stat(self._name, dir_fd=self._folder_fd, follow_symlinks=False)
        self._mode = stat.S_IMODE(status.st_mode)
        if not stat.S_ISDIR(status.st_mode) or self._mode & stat.S_IWUSR or status.st_uid != os.geteuid():
            return False
        # By a descriptor: it has another name by the time it gets its permissions back.
        flags = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(self._name, flags, dir_fd=self._folder_fd)
        self._set(self._mode | stat.S_IWUSR)
        return True

    def _set(self, mode: int) -> None:
        if hasattr(os, "O_PATH"):
            os.chmod(f"/proc/self/fd/{self._descriptor}", mode)
        else:
            os.fchmod(self._descriptor, mode)

    def __exit__(self, *exc: object) -> None:
        if self._descriptor >= 0:
            try:
                self._set(self._mode)
            finally:
                os.close(self._descriptor)
                self._descriptor = -1
