"""
Keep a version that another program has replaced: its bytes go to the project's `kept` folder.

Beside what commits keep (`store`): a host's tool wrote over what a person had saved, and somebody held the
bytes. Small and quick to load, because hooks call it.
"""

from __future__ import annotations

from noclobber.core.project import KEPT_FOLDER, STATE_FOLDER
from noclobber.disk import hashing, small_file

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
    with small_file.closing(small_file.open_folder(folder, make=True)) as folder_fd:
        try:
            small_file.create(name, data, folder_fd)
        except FileExistsError:
            pass
    return f"{folder}/{name}"
