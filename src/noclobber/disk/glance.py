"""
One look at a file: where the path leads, what stands there, and its bytes if somebody needs them.

For whoever judges without committing (a hook): no folder is locked and nothing is created. The hash and the
bytes come from the same single read. Never blocks on a FIFO, never follows a link in the last place after
the path was resolved, and waits a moment where a commit holds its new version back.
"""

from __future__ import annotations

import errno
import os
import stat

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.disk import hashing, paths
from noclobber.errors import (
    DELETED,
    NOT_A_FILE,
    UNREADABLE,
    AccessDeniedError,
    MissingFileError,
    NotAFileError,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    from noclobber.core.clock import Clock
else:
    from noclobber.core.light.named_tuples import NamedTuple

LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
KEPT_BYTES = 64 << 20  # Larger content is hashed and not held.
PATIENCE_S = 2.0
NAP_S = 0.002


class Glance(NamedTuple):
    """What stood there: a hash or the word for why there is none; bytes if they were asked for."""

    path: str
    sha256: str
    content: bytes | None = None
    changed_at_s: float = 0.0
    """When the file's bytes, mode or name last changed, by the filesystem's clock."""


def locate(path: str) -> str:
    """Return the canonical path for an absolute, normalised one, whether a file stands there or not."""
    try:
        target = paths.pin(None, path)
    except MissingFileError:
        here, below = os.path.split(path)
        while here != "/" and not os.path.isdir(here):
            here, part = os.path.split(here)
            below = f"{part}/{below}"
        return os.path.join(os.path.realpath(here), below)
    target.close()
    return target.path


def glance(path: str, *, keep: bool = False, clock: Clock = SYSTEM_CLOCK) -> Glance:
    """Look at what an absolute, normalised path leads to. `BadPathError` for what can lead nowhere."""
    try:
        target = paths.pin(None, path)
    except MissingFileError:
        return Glance(locate(path), DELETED)
    except NotAFileError:
        return Glance(path, NOT_A_FILE)
    except AccessDeniedError:
        return Glance(path, UNREADABLE)
    try:
        descriptor = _open(target, clock)
    except FileNotFoundError:
        return Glance(target.path, DELETED)
    except OSError as error:
        return Glance(target.path, NOT_A_FILE if error.errno in (errno.ELOOP, errno.ENXIO) else UNREADABLE)
    finally:
        target.close()
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return Glance(target.path, NOT_A_FILE)
        changed_at_s = max(status.st_mtime, status.st_ctime)
        if keep and status.st_size <= KEPT_BYTES:
            content = _read_all(descriptor, status.st_size)
            return Glance(target.path, hashing.of_bytes(content), content, changed_at_s)
        sha256 = hashing.of_descriptor(descriptor, size_hint=status.st_size)
        return Glance(target.path, sha256, None, changed_at_s)
    except OSError:
        return Glance(target.path, UNREADABLE)
    finally:
        os.close(descriptor)


def _open(target: paths.Target, clock: Clock) -> int:
    deadline_s = clock.monotonic_s() + PATIENCE_S
    while True:
        try:
            return os.open(target.name, LOOK, dir_fd=target.folder_fd)
        except BlockingIOError:
            # A commit holds a lease on its new version until it is verified.
            if clock.monotonic_s() >= deadline_s:
                raise
            clock.sleep(NAP_S)


def _read_all(descriptor: int, size_hint: int) -> bytes:
    content = os.read(descriptor, size_hint + 1)
    if len(content) == size_hint:
        return content
    pieces = [content]
    while piece := os.read(descriptor, hashing.CHUNK_BYTES):
        pieces.append(piece)
    return b"".join(pieces)
