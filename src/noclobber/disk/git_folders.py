"""
Which paths belong to git: a `.git`, a bare repository's folder, and all that is in them.

What is in there is nobody's file. Versions of it are not kept, nobody is named as its author, and it is never
taken back file by file: an object may be part of a commit that somebody has made since.
"""

from __future__ import annotations

import os
from collections.abc import Iterable


def is_repository(folder: str) -> bool:
    """True if a folder is a repository's own, by what git itself looks for in it."""
    return (
        os.path.isfile(f"{folder}/HEAD")
        and os.path.isdir(f"{folder}/objects")
        and os.path.isdir(f"{folder}/refs")
    )


class GitFolders:
    """Remembers what it was asked about each folder. Make a new one for each walk through a history."""

    def __init__(self, root: str, gone: Iterable[str] = ()) -> None:
        """`gone`: paths of files that may be gone, among which repositories are to be found, too."""
        # A workspace may be a work tree that somebody put into a `.git`: what counts is below its root.
        self._root = root.rstrip("/")
        self._known = {"": False, self._root: is_repository(root)}
        names = set(gone)
        above = {name.removesuffix("/HEAD") for name in names if name.endswith("/HEAD")}
        self._known |= {folder: True for folder in above if f"{folder}/config" in names}

    def has(self, path: str) -> bool:
        """True if a path is git's."""
        start = len(self._root) if path.startswith(f"{self._root}/") else 0
        return "/.git/" in f"{path[start:]}/" or self._is_in_bare(path.rpartition("/")[0])

    def _is_in_bare(self, folder: str) -> bool:
        known = self._known.get(folder)
        if known is None:
            known = is_repository(folder) or self._is_in_bare(folder.rpartition("/")[0])
            self._known[folder] = known
        return known
