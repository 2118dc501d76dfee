"""
System calls that fail on demand: the n-th one, or the n-th and the m-th, each with the error asked for.

Calls are counted from the moment the plan is set. A failing call has not happened. `SHORT` is no error: a
write takes half of the bytes, as a disk that is nearly full does. `access` is left out, because it tells no
error, and `close`, because a closed descriptor is closed whatever it says.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import BuiltinFunctionType
from typing import Any

from noclobber.disk import c_library, renames

CALLS = (
    *("open", "fstat", "stat", "lstat", "pread", "preadv", "pwrite", "write", "read", "ftruncate", "fsync"),
    *("fdatasync", "fchmod", "fchown", "rename", "unlink", "mkdir", "rmdir", "listdir", "scandir", "utime"),
    *("listxattr", "getxattr", "setxattr", "removexattr", "posix_fallocate", "readlink", "dup", "link"),
)
WRITES = ("write", "pwrite")
SHORT = -1
CODES = {
    "EIO": errno.EIO,
    "ENOSPC": errno.ENOSPC,
    "EMFILE": errno.EMFILE,
    "EINTR": errno.EINTR,
    "EROFS": errno.EROFS,
    "SHORT": SHORT,
}


class Faults:
    """Counts system calls, and has those fail that the plan names: number to error."""

    def __init__(self) -> None:
        self.count = 0
        self.plan: Mapping[int, int] = {}
        self.struck: list[str] = []
        self._code, self._only = 0, ""

    def set(self, plan: Mapping[int, int], *, only: str = "") -> None:
        """Count from one again; `only` counts the calls of one kind."""
        self.count, self.plan, self.struck, self._only = 0, plan, [], only

    def stop(self) -> None:
        """Nothing fails from now on; what failed stays known."""
        self.plan = {}

    def strikes(self, name: str) -> int:
        """Count a call; return the error that it must end with, or 0."""
        if self._only and name != self._only:
            return 0
        self.count += 1
        code = self.plan.get(self.count, 0)
        if code:
            if code == SHORT and name not in WRITES:
                code = errno.ENOSPC
            self.struck.append(name)
        return code

    def _breakable(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            if args[-1:] == (fcntl.LOCK_UN,) and name == "flock":
                return original(*args)  # To let go never fails.
            code = self.strikes(name)
            if code == SHORT:
                data = bytes(args[1])
                return original(args[0], data[: max(1, len(data) // 2)], *args[2:], **more)
            if code:
                raise OSError(code, os.strerror(code))
            return original(*args, **more)

        return call

    def _rename(self, original: Callable[..., int]) -> Callable[..., int]:
        def call(*args: Any) -> int:
            self._code = self.strikes("rename")
            return -1 if self._code else original(*args)

        return call

    @contextmanager
    def installed(self) -> Iterator[Faults]:
        """Have every call of the package go through here."""
        rename, get_errno = renames._renameat2, c_library.get_errno
        assert rename is not None
        replaced: list[tuple[object, str, object]] = []

        def replace(module: object, name: str, new: object) -> None:
            replaced.append((module, name, getattr(module, name)))
            setattr(module, name, new)

        made = {
            getattr(os, name): self._breakable(getattr(os, name), name) for name in CALLS if hasattr(os, name)
        }
        made |= {
            getattr(fcntl, name): self._breakable(getattr(fcntl, name), name)
            for name in ("fcntl", "flock", "ioctl")
        }
        # Where a module has taken a function out of its own, too: `from fcntl import flock`.
        loaded = [module for name, module in sys.modules.items() if name.startswith("noclobber.")]
        for module in (os, fcntl, *loaded):
            for name, value in list(vars(module).items()):
                if isinstance(value, BuiltinFunctionType) and value in made:
                    replace(module, name, made[value])
        replace(renames, "_renameat2", self._rename(rename))
        replace(renames, "get_errno", lambda: self._code or get_errno())
        try:
            yield self
        finally:
            self.stop()
            for where, name, before in reversed(replaced):
                setattr(where, name, before)
