"""
What a command has made, on its way into a commit: a file, link or folder that is renamed, not copied.

It goes among the swap files, loses what an overlay has put on it, and after a refusal goes back to where it
was.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from noclobber.disk import forks, ordering, renames
from noclobber.disk.paths import OPEN_FOLDER
from noclobber.disk.reading import LOOK
from noclobber.disk.removing import remove_all
from noclobber.disk.small_file import closing

if TYPE_CHECKING:
    from noclobber.disk.commit.store import Store

MOST_TRIES = 2
OVERLAY_ATTRIBUTES = ("user.overlay.", "trusted.overlay.")


def bring(staged: str, store: Store, name: str) -> None:
    """Rename a staged thing to a swap name. From here on only the record knows it."""
    try:
        os.rename(staged, name, dst_dir_fd=store.swap_fd)
    except PermissionError:
        with renames.WritableFolder(staged):
            os.rename(staged, name, dst_dir_fd=store.swap_fd)


def give_back(staged: str, store: Store, name: str) -> None:
    """After a refusal: to where it was, so that it can be shown; else it is removed."""
    for _ in range(MOST_TRIES):
        try:
            with renames.WritableFolder(name, store.swap_fd):
                os.rename(name, staged, src_dir_fd=store.swap_fd)
            return
        except OSError:
            pass  # For example, where it was is gone.
    try:
        remove_all(store.swap_fd, name)
    except OSError:
        pass  # It is gone; or it is found by `adopt_orphans()`.


def open_staged(store: Store, name: str) -> int:
    """Open a staged file for reading and writing, whatever its mode."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        return forks.open_tracked(name, flags, dir_fd=store.swap_fd)
    except PermissionError:
        mode = stat.S_IMODE(os.stat(name, dir_fd=store.swap_fd, follow_symlinks=False).st_mode)
        os.chmod(name, mode | 0o600, dir_fd=store.swap_fd)
        descriptor = forks.open_tracked(name, flags, dir_fd=store.swap_fd)
        os.fchmod(descriptor, mode)
        return descriptor


def strip(thing: int | str) -> None:
    """Take off what the overlay has put on a staged file or folder."""
    if sys.platform != "linux":
        return  # There is no overlay.
    try:
        names = os.listxattr(thing, follow_symlinks=False) if isinstance(thing, str) else os.listxattr(thing)
    except OSError:
        return
    for name in names:
        if name.startswith(OVERLAY_ATTRIBUTES):
            try:
                _take_off(thing, name)
            except OSError:
                pass  # It means nothing outside of an overlay.


def _take_off(thing: int | str, name: str) -> None:
    """Remove an attribute of the command's own file; of one that is read-only, too."""
    assert sys.platform == "linux"
    follow = isinstance(thing, int)  # A descriptor leads to what it is; a name is never followed.
    try:
        os.removexattr(thing, name, follow_symlinks=follow)
    except PermissionError:
        status = os.stat(thing, follow_symlinks=follow)
        if stat.S_ISLNK(status.st_mode):
            raise
        mode = stat.S_IMODE(status.st_mode)
        os.chmod(thing, mode | stat.S_IWUSR)
        try:
            os.removexattr(thing, name, follow_symlinks=follow)
        finally:
            os.chmod(thing, mode)


def make_ready(descriptor: int) -> None:
    """
    Take off what the overlay has put on a new file, and have its bytes written.

    By the descriptor that it is hashed with: of a thousand files, opening each once more takes as long.
    """
    strip(descriptor)
    ordering.start(descriptor)


def strip_folders(folder: str) -> None:
    """`strip_all` without the files in it: those are stripped one by one, or nothing was put on them."""
    strip(folder)
    with os.scandir(folder) as entries:
        listed = [entry for entry in entries if not entry.is_file(follow_symlinks=False)]
    for entry in listed:
        if entry.is_dir(follow_symlinks=False):
            strip_folders(entry.path)
        elif not entry.is_symlink():
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
                os.unlink(entry.path)


def strip_all(folder: str) -> None:
    """The same for a folder and everything in it; whiteouts in it stand for nothing and go."""
    strip(folder)
    with os.scandir(folder) as entries:
        listed = list(entries)
    for entry in listed:
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
            os.unlink(entry.path)
        elif stat.S_ISDIR(status.st_mode):
            strip_all(entry.path)
        elif stat.S_ISREG(status.st_mode):
            strip(entry.path)


def for_each_below(folder_fd: int, name: str, act: Callable[[int], object], *, folders: bool = False) -> None:
    """Do something with the descriptor of each file in a staged folder, and of each folder if asked to."""
    with closing(os.open(name, OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=folder_fd)) as below_fd:
        with os.scandir(below_fd) as entries:
            listed = list(entries)
        for entry in listed:
            if entry.is_dir(follow_symlinks=False):
                for_each_below(below_fd, entry.name, act, folders=folders)
            elif entry.is_file(follow_symlinks=False):
                with closing(_opened_to_read(below_fd, entry.name)) as file_fd:
                    act(file_fd)
        if folders:
            act(below_fd)


def _opened_to_read(folder_fd: int, name: str) -> int:
    try:
        return os.open(name, LOOK, dir_fd=folder_fd)
    except PermissionError:  # The command's own file, and its own mode.
        mode = stat.S_IMODE(os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_mode)
        os.chmod(name, mode | 0o400, dir_fd=folder_fd)
        try:
            return os.open(name, LOOK, dir_fd=folder_fd)
        finally:
            os.chmod(name, mode, dir_fd=folder_fd)
