"""
Land new contents of several files, with files that come and files that go, all together or not at all.

For callers that hold the bytes. The commit itself is that of a tree (`trees`), which renames staged files to
their names; here they are written first, into a folder of their own in the state folder. A file that is
changed, or that is moved, keeps its owner, mode and attributes.

A process that is killed leaves that folder. Its lock is free then, so the next call and `doctor` remove it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from noclobber.core.project import state_folder
from noclobber.disk import forks, metadata
from noclobber.disk.commit import open_stores
from noclobber.disk.commit.tree_files import TreeRow
from noclobber.disk.commit.trees import land_tree
from noclobber.disk.reading import LOOK
from noclobber.errors import ABSENT, DELETED, StaleFileError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from noclobber.core.values import WriteResult
    from noclobber.disk.commit.committer import Committer
    from noclobber.disk.commit.section import Fence

PREFIX = "staged-"
PRIVATE = 0o600
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


class WholeFile(NamedTuple):
    """What a file shall hold."""

    path: str
    """Canonical."""
    expected: str
    """The hash of what is there, or `ABSENT`."""
    data: bytes | None
    """None: no file."""
    like: str | None = None
    """Of a file that comes: one that is there, whose owner, mode and attributes it gets. None: private."""


def land_contents(
    committer: Committer, files: Sequence[WholeFile], *, fence: Fence | None = None
) -> list[WriteResult]:
    """
    Give every file its content, or none; the results come back in the order of the files.

    `BadRequestError` where a filesystem cannot exchange two names.
    """
    assert committer.root is not None
    with _staging(committer.root) as folder:
        rows = {file.path: _row(file, f"{folder}/{number}") for number, file in enumerate(files)}
        # What goes makes room for what comes.
        order = sorted(rows, key=lambda path: ("delete", "write", "create").index(rows[path].action))
        results = land_tree(committer, [rows[path] for path in order], fence=fence)
    by_path = dict(zip(order, results, strict=True))
    return [by_path[file.path] for file in files]


def _row(file: WholeFile, staged: str) -> TreeRow:
    if file.data is None:
        return TreeRow("delete", "file", file.path, file.expected)
    is_new = file.expected == ABSENT
    _write(staged, file.data, file.like if is_new else file.path)
    if is_new:
        return TreeRow("create", "file", file.path, None, staged)
    return TreeRow("write", "file", file.path, file.expected, staged)


def _write(staged: str, data: bytes, like: str | None) -> None:
    descriptor = os.open(staged, _NEW, PRIVATE)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        if like is None:
            return
        try:
            source = forks.open_tracked(like, LOOK)
        except OSError:
            raise StaleFileError(like, ABSENT, DELETED) from None  # The commit would find that out, too.
        try:
            metadata.give(descriptor, metadata.of(source), path=like, source=source)
        finally:
            forks.close(source)
    finally:
        os.close(descriptor)


@contextmanager
def _staging(root: str) -> Iterator[str]:
    open_stores.for_workspace(root).close()  # Makes the state folder as it must be.
    remove_left_behind(root)
    folder = f"{state_folder(root)}/{PREFIX}{os.urandom(6).hex()}"
    os.mkdir(folder, 0o700)
    lock_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock_fd)


def left_behind(root: str) -> list[str]:
    """Return the staging folders of processes that were killed."""
    found = []
    try:
        names = [name for name in os.listdir(state_folder(root)) if name.startswith(PREFIX)]
    except OSError:
        return []
    for name in names:
        folder = f"{state_folder(root)}/{name}"
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            if os.fstat(descriptor).st_uid == os.geteuid():
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found.append(folder)
        except OSError:
            pass  # Somebody is at work in it.
        finally:
            os.close(descriptor)
    return found


def remove_left_behind(root: str) -> int:
    """Remove what killed processes had staged; return how many folders there were."""
    folders = left_behind(root)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    return len(folders)
