"""
Remove a folder with all that is in it, whatever modes it has, and however deep it is. No link is followed.

By descriptors: nobody can put a link in the place of a folder on the way. There is one for each level, so
what is deeper than `MOST_LEVELS` is moved up, beside the folder that is being removed. Light to import.
"""

from __future__ import annotations

import os
import stat

MOST_LEVELS = 100
MOST_NAME = 200  # Of a name that may have 255, with room for what is appended.
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW


def remove_tree(path: str) -> None:
    """Remove what is at a path, if it is there."""
    folder_fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        remove_all(folder_fd, os.path.basename(path))
    except FileNotFoundError:
        pass
    finally:
        os.close(folder_fd)


def remove_all(folder_fd: int, name: str) -> None:
    """Remove what is at a name: a file, a link, or a folder with all that is in it. No link is followed."""
    try:
        os.unlink(name, dir_fd=folder_fd)
        return
    except (IsADirectoryError, PermissionError):
        if not stat.S_ISDIR(os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_mode):
            raise
    deeper = [name]
    while deeper:
        _remove_folder(folder_fd, deeper.pop(), _Above(folder_fd, name, deeper), 0)


class _Above:
    """Where folders go that are too deep."""

    def __init__(self, folder_fd: int, name: str, moved: list[str]) -> None:
        self._folder_fd, self._name, self._moved = folder_fd, name, moved

    def take(self, below_fd: int, name: str) -> None:
        new = f"{self._name[:MOST_NAME]}.{os.urandom(6).hex()}"
        os.chmod(name, 0o700, dir_fd=below_fd)  # Moving a folder writes to it.
        os.rename(name, new, src_dir_fd=below_fd, dst_dir_fd=self._folder_fd)
        self._moved.append(new)


def _remove_folder(folder_fd: int, name: str, above: _Above, level: int) -> None:
    try:
        below_fd = os.open(name, _FLAGS, dir_fd=folder_fd)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=folder_fd)  # An overlay makes its `work/work` with mode 0.
        below_fd = os.open(name, _FLAGS, dir_fd=folder_fd)
    try:
        with os.scandir(below_fd) as entries:
            listed = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        if listed and os.fstat(below_fd).st_mode & 0o300 != 0o300:
            os.fchmod(below_fd, 0o700)
        for inner, is_folder in listed:
            if is_folder and level > MOST_LEVELS:
                above.take(below_fd, inner)
            elif is_folder:
                _remove_folder(below_fd, inner, above, level + 1)
            else:
                os.unlink(inner, dir_fd=below_fd)
    finally:
        os.close(below_fd)
    os.rmdir(name, dir_fd=folder_fd)
