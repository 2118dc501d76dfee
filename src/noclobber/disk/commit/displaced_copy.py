"""
Keeps a copy of what a recovery puts back at its name.

Others could see our version since the crash. A process that has read it will save over what is put back,
without having seen it: the copy is what is left of it then.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from noclobber.disk import forks
from noclobber.disk.commit.restore import copy_all
from noclobber.disk.commit.store import CREATE
from noclobber.disk.paths import OPEN_FOLDER
from noclobber.disk.reading import LOOK
from noclobber.disk.small_file import closing

if TYPE_CHECKING:
    from noclobber.disk.commit.recovery import CutOffFile

MOST_COPIED = 100  # Files and folders.


def keep_copy(file: CutOffFile, *, only_of_link: bool = False) -> str:
    """Keep a copy of what was displaced, if it is a save that only its writer has seen."""
    if file.displaced_hash == file.planned.expected:
        return ""
    store, planned = file.store, file.planned
    try:
        status = os.stat(planned.swap, dir_fd=store.swap_fd, follow_symlinks=False)
        if only_of_link and not stat.S_ISLNK(status.st_mode):
            return ""  # It will be kept itself.
        if stat.S_ISDIR(status.st_mode):
            return _keep_folder(file)
        if stat.S_ISLNK(status.st_mode):  # It holds no bytes itself, and what it leads to may be gone soon.
            led_to = os.path.join(planned.folder, os.readlink(planned.swap, dir_fd=store.swap_fd))
            led_to = os.path.realpath(led_to)
            if not led_to.startswith(f"{store.base.rstrip('/')}/"):
                return ""  # Outside: not ours to read for somebody else.
            source_fd = os.open(led_to, LOOK)
        else:
            source_fd = os.open(planned.swap, LOOK, dir_fd=store.swap_fd)
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(source_fd).st_mode):
            return ""
        name, copy_fd = store.create_swap(
            store.new_prefix(), planned.name, file.displaced_hash or None, 0o600
        )
        try:
            copy_all(source_fd, copy_fd)
        finally:
            forks.close(copy_fd)
        return store.keep(name)
    except OSError:
        return ""  # For example, the disk is full. The file is put back all the same.
    finally:
        os.close(source_fd)


def _keep_folder(file: CutOffFile) -> str:
    """The same for a folder that was put in the file's place, if it is a small one."""
    store, planned = file.store, file.planned
    name = store.swap_name(store.new_prefix(), planned.name, None)
    try:
        _copy_folder(store.swap_fd, planned.swap, store.swap_fd, name, MOST_COPIED)
        return store.keep(name)
    except OSError:
        return ""


def _copy_folder(from_fd: int, source: str, to_fd: int, copy: str, most: int) -> int:
    """Copy a folder; return how many more entries may be copied. OSError: there are too many."""
    # Not `shutil`: it is slow to load, and nothing is imported within a commit.
    with closing(os.open(source, OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=from_fd)) as source_fd:
        names = os.listdir(source_fd)
        most -= 1 + len(names)
        if most < 0:
            raise OSError(errno.E2BIG, "too many files to copy", source)
        os.mkdir(copy, 0o700, dir_fd=to_fd)
        with closing(os.open(copy, OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=to_fd)) as copy_fd:
            for name in names:
                most = _copy_entry(source_fd, copy_fd, name, most)
    return most


def _copy_entry(source_fd: int, copy_fd: int, name: str, most: int) -> int:
    mode = os.stat(name, dir_fd=source_fd, follow_symlinks=False).st_mode
    if stat.S_ISDIR(mode):
        return _copy_folder(source_fd, name, copy_fd, name, most)
    if stat.S_ISLNK(mode):
        os.symlink(os.readlink(name, dir_fd=source_fd), name, dir_fd=copy_fd)
    elif stat.S_ISREG(mode):
        with (
            closing(os.open(name, LOOK, dir_fd=source_fd)) as file_fd,
            closing(os.open(name, CREATE, stat.S_IMODE(mode) & 0o700, dir_fd=copy_fd)) as new_fd,
        ):
            copy_all(file_fd, new_fd)
    return most
