"""
Keep a version that another program has replaced: its bytes go to the project's `kept` folder.

Beside what commits keep (`store`): a host's tool wrote over what a person had saved, and somebody held the
bytes. Small and quick to load, because hooks call it.
"""

from __future__ import annotations

import os

from noclobber.core.project import KEPT_FOLDER, STATE_FOLDER
from noclobber.disk import hashing

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
LONGEST_NAME = 120


def keep_bytes(root: str, path: str, data: bytes, key: str) -> str:
    """
    Write a version of `path` to the kept ones; return where it is. `OSError` if that cannot be.

    `key` makes the name: a version that is kept twice by two observers of one moment is one file.
    """
    sha256 = hashing.of_bytes(data)
    short = (
        path.rpartition("/")[2].encode("utf-8", "surrogateescape")[:LONGEST_NAME].decode("utf-8", "ignore")
    )
    name = f"kept-{hashing.of_bytes(key.encode('utf-8', 'surrogatepass'))[:16]}-{sha256}~{short}"
    folder = f"{root}/{STATE_FOLDER}/{KEPT_FOLDER}"
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    folder_fd = os.open(folder, _FOLDER)
    try:
        try:
            descriptor = os.open(name, _NEW, 0o600, dir_fd=folder_fd)
        except FileExistsError:
            return f"{folder}/{name}"
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left) :]
        finally:
            os.close(descriptor)
    finally:
        os.close(folder_fd)
    return f"{folder}/{name}"
