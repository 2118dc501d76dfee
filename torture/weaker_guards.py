"""
Guards that check less than ours does.

They answer two questions. What would happen without noclobber (the demo's plain writes)? And can the
accounting find a loss at all? A proof that cannot fail proves nothing, so the tests run these and require
that losses are found.

| name | how it writes | who loses updates |
|---|---|---|
| `unguarded` | in place, without looking | everybody |
| `check-inplace` | hash, compare, write in place | everybody, and readers see half-written files |
| `check-replace` | hash, compare, temp + `os.replace` | guards and outsiders alike |
| `check-flock` | the same under the directory mutex | outsiders only |

All have the two methods of the real guard that the agents use: `read` and `write`.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple, Protocol

from noclobber.disk import hashing, mutex
from noclobber.errors import ABSENT, DELETED, MissingFileError, NotAFileError, StaleFileError

NAMES = ("unguarded", "check-inplace", "check-replace", "check-flock")
REAL = "noclobber"
FLUSHING = "noclobber, flushing"  # The same with `durable`, which stages its bytes in another way.


class Seen(NamedTuple):
    """One read."""

    path: str
    content: bytes
    sha256: str


class Done(NamedTuple):
    """One write."""

    level: str
    kept: tuple[str, ...] = ()


class GuardLike(Protocol):
    """What an agent needs of a guard."""

    def read(self, path: str) -> Any:
        """Return content and its hash, from the same bytes."""

    def write(self, path: str, data: bytes, *, expected: str | None) -> Any:
        """Write, or raise."""


class WeakerGuard:
    """A guard that checks what its name says, and no more."""

    def __init__(self, name: str) -> None:
        assert name in NAMES, name
        self.name = name

    def read(self, path: str) -> Seen:
        try:
            with open(path, "rb") as file:
                content = file.read()
        except FileNotFoundError:
            raise MissingFileError(path, "There is no such file.") from None
        except IsADirectoryError:
            raise NotAFileError(path, "This is a directory.") from None
        return Seen(path, content, hashing.of_bytes(content))

    def write(self, path: str, data: bytes, *, expected: str | None) -> Done:
        if self.name == "check-flock":
            folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
            try:
                mutex.hold(folder)
                self._check(path, expected)
                self._replace(path, data)
            finally:
                mutex.release(folder)
                os.close(folder)
        elif self.name == "check-replace":
            self._check(path, expected)
            self._replace(path, data)
        else:
            if self.name == "check-inplace":
                self._check(path, expected)
            self._rewrite(path, data)
        return Done(self.name)

    def _check(self, path: str, expected: str | None) -> None:
        try:
            actual = self.read(path).sha256
        except MissingFileError:
            actual = DELETED
        if actual != expected and (actual, expected) != (DELETED, ABSENT):
            raise StaleFileError(path, expected or "", actual)

    def _rewrite(self, path: str, data: bytes) -> None:
        try:
            with open(path, "wb", buffering=0) as file:
                file.write(data)
        except IsADirectoryError:
            raise NotAFileError(path, "This is a directory.") from None

    def _replace(self, path: str, data: bytes) -> None:
        staged = f"{path}.staged-{os.getpid()}"
        with open(staged, "wb") as file:
            file.write(data)
        try:
            os.replace(staged, path)
        except IsADirectoryError:
            os.unlink(staged)
            raise NotAFileError(path, "This is a directory.") from None


def guard_named(name: str, root: str, *, wait_s: float) -> GuardLike:
    """Return the real guard of a workspace, or a weaker one."""
    if name not in (REAL, FLUSHING):
        return WeakerGuard(name)
    from noclobber.disk.file_guard import FileGuard

    return FileGuard(root, wait_s=wait_s, durable=name == FLUSHING)
