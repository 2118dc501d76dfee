"""
Which files below a folder git tracks: from its index, without git.

Asked of folders of build outputs in which a command has changed something (`unchecked_rule`). Most projects
track nothing in them, which one search in the index tells.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from noclobber.shell.git_folders import git_folder_of, top_around

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_BYTES = 256 << 20
HASH_LENGTHS = (20, 32)  # SHA-1, and the newer format of repositories.
_FIXED, _EXTENDED, _PADDED = 40, 0x4000, 8


def tracked_below(folder: str) -> list[str]:
    """Return the files below a folder, absolute, that the repository around it tracks."""
    top = top_around(folder)
    if not top:
        return []
    below = os.fsencode(folder[len(top) + 1 :])
    below = below + b"/" if below else b""
    found: set[bytes] = set()
    for data in _indexes(git_folder_of(top)):
        found.update(name for name in _names(data, below) if name.startswith(below))
    return [f"{top}/{os.fsdecode(name)}" for name in sorted(found)]


def _indexes(git_folder: str) -> Iterator[bytes]:
    """Yield an index, and those that it shares names with."""
    try:
        named = ["index", *(name for name in os.listdir(git_folder) if name.startswith("sharedindex."))]
    except OSError:
        return
    for name in named:
        try:
            with open(f"{git_folder}/{name}", "rb") as file:
                yield file.read(MOST_BYTES)
        except OSError:
            continue


def _names(data: bytes, below: bytes) -> list[bytes]:
    """Return the names in an index; none if it is damaged, or if none of them can be below a folder."""
    version = int.from_bytes(data[4:8], "big")
    if data[:4] != b"DIRC" or version not in (2, 3, 4) or (version < 4 and below not in data):
        return []
    for length in HASH_LENGTHS:
        try:
            return list(_parsed(data, version, length))
        except (ValueError, IndexError):
            continue
    return []


def _parsed(data: bytes, version: int, hash_length: int) -> Iterator[bytes]:
    at, name = 12, b""
    for _ in range(int.from_bytes(data[8:12], "big")):
        start = at
        at += _FIXED + hash_length
        flags = int.from_bytes(data[at : at + 2], "big")
        at += 4 if flags & _EXTENDED else 2
        kept = b""
        if version == 4:  # Each name begins as the one before it, less so many letters.
            dropped, at = _count(data, at)
            kept = name[: len(name) - dropped]
        end = data.index(0, at)
        name = kept + data[at:end]
        if not name or flags & 0xFFF != min(len(name), 0xFFF):
            raise ValueError("not an entry")
        at = end + 1 if version == 4 else start + (end - start) // _PADDED * _PADDED + _PADDED
        yield name


def _count(data: bytes, at: int) -> tuple[int, int]:
    """Read a number of variable length; return it, and where it ends."""
    byte = data[at]
    value = byte & 127
    while byte & 128:
        at += 1
        byte = data[at]
        value = ((value + 1) << 7) | (byte & 127)
    return value, at + 1
