"""
The level `watched`: what can be done about a shell command where it cannot run in a view of its own.

Before the command every file that the agent knows is looked at, and copied aside if it is no longer what the
agent saw. Afterwards what has changed is told: of files that the agent knows, exactly; of other files, by
their dates, so without what they were before.

Weaker than the guarded shell, and it says so: nothing is stopped here, and what another program saved while
the command ran is taken for the command's. Deleted files that the agent did not know are not noticed. The
scan by dates ends after `MOST_ENTRIES`, and leaves out what tools make (`UNCHECKED`).

Calling sequence: `begin()`, run the command, `end()`. `end()` may be called in another process: a start can
be packed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from noclobber.core.project import STATE_FOLDER
from noclobber.disk import hashing
from noclobber.disk.reading import look_at
from noclobber.errors import DELETED, UNKNOWN

LEVEL = "watched"
UNCHECKED = (
    *(STATE_FOLDER, ".git", "node_modules", ".venv", "venv", "__pycache__", "target", "dist", "build"),
    *(".cache", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".tox", ".gradle", ".next"),
)
"""Folders whose files are made by tools: they are not scanned."""
MOST_ENTRIES = 20_000
MOST_CHANGES = 200
SAME_DATE_S = 2.0  # The coarsest clock of a filesystem.
TICK_NS = 20_000_000


class FileSeen(NamedTuple):
    """A file that the agent has seen: which version, and when that was noted."""

    path: str
    sha256: str
    noted_at_s: float = 0.0


class FileAtStart(NamedTuple):
    """A known file when the command began."""

    path: str
    expected: str
    """What the agent saw."""
    sha256: str
    """What was there."""
    stamp: str


class WatchedStart(NamedTuple):
    """What `end()` needs to know of the moment when the command began."""

    root: str
    since_ns: int
    files: tuple[FileAtStart, ...]

    def pack(self) -> list[Any]:
        """Return it as values that JSON has."""
        return [self.root, self.since_ns, [list(file) for file in self.files]]

    @staticmethod
    def unpack(packed: list[Any]) -> WatchedStart:
        """Return what `pack()` was called on; `ValueError` or `TypeError` if this is no such thing."""
        root, since_ns, files = packed
        return WatchedStart(str(root), int(since_ns), tuple(FileAtStart(*map(str, file)) for file in files))


class WatchedChange(NamedTuple):
    """A file that changed while the command ran."""

    path: str
    before: str
    """The hash, `DELETED`, or `UNKNOWN` for a file that the agent did not know."""
    after: str
    expected: str | None = None
    """What the agent had seen, None if nothing."""

    @property
    def is_overwritten(self) -> bool:
        """True if a version that the agent had not seen is gone."""
        return hashing.is_hash(self.before) and self.expected is not None and self.before != self.expected


class WatchedChanges(NamedTuple):
    """Everything that changed, as far as it was noticed."""

    files: tuple[WatchedChange, ...]
    is_complete: bool
    """False if there were more entries, or more changes, than are looked at."""


def begin(root: str, known: Iterable[FileSeen], copy: Callable[[str, bytes], object]) -> WatchedStart:
    """
    Look at what the agent knows; call `copy(path, content)` for each file that is not what the agent saw.

    The time is taken last: what changes while this looks is noticed as changed.
    """
    files = []
    for file in known:
        stamp, changed_at_s = _stamp(file.path)
        if changed_at_s and changed_at_s + SAME_DATE_S < file.noted_at_s:
            files.append(FileAtStart(file.path, file.sha256, file.sha256, stamp))
            continue
        state = look_at(file.path, keep=True)
        if state.sha256 != file.sha256 and state.content is not None:
            copy(file.path, state.content)
        files.append(FileAtStart(file.path, file.sha256, state.sha256, stamp))
    return WatchedStart(root, now_ns(root), tuple(files))


def end(start: WatchedStart) -> WatchedChanges:
    """Return what changed since `begin()`."""
    found: list[WatchedChange] = []
    known = set()
    for file in start.files:
        known.add(file.path)
        if _stamp(file.path)[0] == file.stamp:
            continue
        after = look_at(file.path).sha256
        if after != file.sha256:
            found.append(WatchedChange(file.path, file.sha256, after, file.expected))
    is_complete = True
    for count, (path, changed_at_ns) in enumerate(_files(start.root)):
        if count >= MOST_ENTRIES or len(found) >= MOST_CHANGES:
            is_complete = False
            break
        if changed_at_ns >= start.since_ns and path not in known:
            after = look_at(path).sha256
            if after != DELETED:
                found.append(WatchedChange(path, UNKNOWN, after))
    return WatchedChanges(tuple(found), is_complete)


def _files(root: str) -> Iterator[tuple[str, int]]:
    """Regular files below a folder, with the time of their last change; no link is followed."""
    folders = [root]
    while folders:
        try:
            entries = list(os.scandir(folders.pop()))
        except OSError:
            continue
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in UNCHECKED:
                        folders.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    yield entry.path, entry.stat(follow_symlinks=False).st_ctime_ns
            except OSError:
                continue  # Gone meanwhile.


def _stamp(path: str) -> tuple[str, float]:
    """Return what changes whenever a file does, and when it last did."""
    try:
        status = os.stat(path)
    except OSError:
        return "-", 0.0
    stamp = f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"
    return stamp, max(status.st_mtime, status.st_ctime)


def now_ns(root: str) -> int:
    """Return the time by the clock of the root's filesystem, a tick early where only ours is to be had."""
    try:
        descriptor = os.open(root, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except (OSError, AttributeError):
        return time.time_ns() - TICK_NS
    try:
        return os.fstat(descriptor).st_ctime_ns
    finally:
        os.close(descriptor)
