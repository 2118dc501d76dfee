"""
Flush a folder whose names have changed, and say what it means if that fails.

The write has landed by then: everyone sees it, and nothing is taken back.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from noclobber.disk import ordering
from noclobber.errors import StorageError

if TYPE_CHECKING:
    from noclobber.core.values import WriteResult
    from noclobber.disk.paths import PinnedPath


class UnflushedError(StorageError):
    """
    The write has landed and everyone sees it, but the disk failed to flush it. Nothing is taken back.

    `details["landed"]` is the hash of the content now, `commits` what would have been returned.
    """

    commits: tuple[WriteResult, ...] = ()


def flush_name(target: PinnedPath, landed: str, *more: int) -> UnflushedError | None:
    """
    Flush the folder whose name for a file has changed, and `more` of them.

    Returns what went wrong: it is raised when everything else is done.
    """
    return flush_names(target, landed, (target.folder_fd, *more), "")


def flush_names(
    target: PinnedPath, landed: str, folders: Iterable[int], filesystem: str
) -> UnflushedError | None:
    """The same for several changes of names that must not be lasting in part."""
    try:
        ordering.flush_names(folders, filesystem)
    except OSError as error:
        return UnflushedError(
            target.path,
            f"the file was changed, but the disk failed to flush it ({os.strerror(error.errno or 0)});"
            " a power cut may bring the old version back.",
            landed=landed,
        )
    return None
