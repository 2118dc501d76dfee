"""
What identifies a thing that is not a file: a link, a folder with all that is in it, a FIFO.

A file is identified by the hash of its bytes. A link by where it leads. A folder by the names, inodes, sizes
and times of everything in it: any write, save or removal in there changes one of these, and nothing has to be
read. Moving a folder changes none of them but its own ctime, which is left out.
"""

from __future__ import annotations

import os
import stat
import sys

from noclobber.disk import hashing
from noclobber.disk.paths import OPEN_FOLDER
from noclobber.disk.removing import remove_all
from noclobber.disk.small_file import closing

NOTHING = ""
_ENCODING, _ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()


def print_of(folder_fd: int, name: str) -> str:
    """Return what identifies the link, folder or special file at a name; "" for a file, or for nothing."""
    try:
        status = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return NOTHING
    if stat.S_ISREG(status.st_mode):
        return NOTHING
    if stat.S_ISLNK(status.st_mode):
        # As `VersionKeeper` keeps it, so that a link that went can be made again.
        return hashing.of_bytes(b"link\0" + os.fsencode(os.readlink(name, dir_fd=folder_fd)))
    if stat.S_ISDIR(status.st_mode):
        hash_ = hashing.sha256(b"folder\0")
        for row in _rows(folder_fd, name, b""):
            hash_.update(row)
        return str(hash_.hexdigest())
    return hashing.of_bytes(b"special\0%o\0%d" % (status.st_mode, status.st_rdev))


def _rows(folder_fd: int, name: str, below: bytes) -> list[bytes]:
    with closing(os.open(name, OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=folder_fd)) as below_fd:
        own = os.fstat(below_fd)
        rows = [b"%s\0%d\0%o\0%d\0" % (below, own.st_ino, own.st_mode, own.st_mtime_ns)]
        with os.scandir(below_fd) as entries:
            # Not `os.fsencode`: of a thousand files that takes as long as asking for their status.
            listed = sorted(
                (entry.name.encode(_ENCODING, _ERRORS), entry.stat(follow_symlinks=False))
                for entry in entries
            )
        for inner, status in listed:
            path = below + b"/" + inner
            if stat.S_ISDIR(status.st_mode):
                rows += _rows(below_fd, os.fsdecode(inner), path)
            else:
                facts = (
                    status.st_ino,
                    status.st_mode,
                    status.st_size,
                    status.st_mtime_ns,
                    status.st_ctime_ns,
                )
                rows.append(path + b"\0%d\0%o\0%d\0%d\0%d\0" % facts)
    return rows


def remove_under_another_name(folder_fd: int, name: str, other: str) -> None:
    """
    Rename what is at a name, and remove it.

    Half of a folder has another print than the whole: cut off in the middle, under its own name, it would be
    taken for one that somebody has written to.
    """
    try:
        os.rename(name, other, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
    except FileNotFoundError:
        pass  # Renamed by somebody who was cut off.
    try:
        remove_all(folder_fd, other)
    except FileNotFoundError:
        pass
