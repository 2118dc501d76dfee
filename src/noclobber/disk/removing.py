"""
Remove a folder with all that is in it, whatever modes it has. No link is followed.

By descriptors: nobody can put a link in the place of a folder on the way. Light to import.
"""

from __future__ import annotations

import os
import stat

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
    _remove_folder(folder_fd, name)


def _remove_folder(folder_fd: int, name: str) -> None:
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
            if is_folder:
                _remove_folder(below_fd, inner)
            else:
                os.unlink(inner, dir_fd=below_fd)
    finally:
        os.close(below_fd)
    os.rmdir(name, dir_fd=folder_fd)
