"""
What commits have left in a workspace's store, listed without changing any of it.

Opening a store creates folders, and a recovery takes mutexes; that is for commits and for `doctor`. A
command that only shows things (`status`) must do neither, nor need permission to write. So this module only
lists and reads.

A swap file or a note in use means one of three things: a commit is running at this moment, a turn that is
open has not swept yet, or a process died. Only the folder's mutex can tell which, and `doctor` takes it.
"""

from __future__ import annotations

import os
import re
import stat
from typing import NamedTuple

from noclobber.core.clock import iso8601
from noclobber.core.project import KEPT_FOLDER, NOTES_FOLDER, SWAP_FOLDER
from noclobber.disk.commit import journal
from noclobber.disk.commit.journal import BOOK_PREFIX, IGNORED_PREFIX
from noclobber.disk.commit.sweep import YOUNG_S
from noclobber.disk.reading import LOOK

_KEPT_NAME = re.compile(r"(?:\.noclobber-)?kept-[0-9a-f]+-([0-9a-f]{64}|None)~(.*)", re.DOTALL)
_SWAP_NAME = re.compile(r"swap-[0-9a-f]+-([0-9a-f]{64})~.*", re.DOTALL)


class NotPutAway(NamedTuple):
    """A version that a commit has replaced; when its turn ends, it comes among the past versions."""

    path: str
    sha256: str
    """What it held when it was replaced; whoever reads it compares."""
    size_bytes: int
    displaced_at_s: float


class Kept(NamedTuple):
    """A version that somebody wrote to after it had been replaced. A person decides what to do with it."""

    path: str
    name: str
    """The file's own name; its folder is not on record here."""
    replaced_sha256: str | None
    """What it held when it was replaced."""
    size_bytes: int
    changed: str


class Leftovers(NamedTuple):
    """What is in a store besides its folders."""

    notes: tuple[str, ...] = ()
    """Notes in use: commits that run, or were cut off."""
    swaps: tuple[str, ...] = ()
    """Swap files older than a minute: a turn that is still open sweeps its own, `doctor` the others."""
    kept: tuple[Kept, ...] = ()


def found_in(state_folder: str, now_s: float) -> Leftovers:
    """List what is there. What cannot be listed counts as empty: `doctor` says why it cannot."""
    return Leftovers(
        tuple(
            name
            for name in _names(f"{state_folder}/{NOTES_FOLDER}")
            if _is_in_use(f"{state_folder}/{NOTES_FOLDER}/{name}")
        ),
        tuple(
            name
            for name in _names(f"{state_folder}/{SWAP_FOLDER}")
            if (status := _status(f"{state_folder}/{SWAP_FOLDER}/{name}"))
            and now_s - status.st_ctime >= YOUNG_S
        ),
        kept_in(f"{state_folder}/{KEPT_FOLDER}"),
    )


def displaced_in(state_folder: str) -> tuple[NotPutAway, ...]:
    """List what open turns have replaced and not yet put away."""
    folder = f"{state_folder}/{SWAP_FOLDER}"
    found = []
    for name in _names(folder):
        match, status = _SWAP_NAME.fullmatch(name), _status(f"{folder}/{name}")
        if match and status and stat.S_ISREG(status.st_mode):
            found.append(NotPutAway(f"{folder}/{name}", match[1], status.st_size, status.st_ctime))
    return tuple(found)


def ignored_in(state_folder: str) -> list[str]:
    """
    List what has, or had, the name of a note and is not one of ours.

    Another user's notes, too, and those that came with a repository or a copy. No commit believes them.
    """
    folder = f"{state_folder}/{NOTES_FOLDER}"
    return [
        f"{NOTES_FOLDER}/{name}"
        for name in _names(folder)
        if name.startswith(IGNORED_PREFIX) or (BOOK_PREFIX not in name and _is_foreign(f"{folder}/{name}"))
    ]


def kept_in(folder: str) -> tuple[Kept, ...]:
    """List the kept files of one folder."""
    found = []
    for name in _names(folder):
        match, status = _KEPT_NAME.fullmatch(name), _status(f"{folder}/{name}")
        if match and status and stat.S_ISREG(status.st_mode):  # A link or a FIFO was made by others.
            sha256 = None if match[1] == "None" else match[1]
            path = f"{folder}/{name}"
            found.append(Kept(path, match[2], sha256, status.st_size, iso8601(status.st_mtime)))
    return tuple(found)


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _is_in_use(path: str) -> bool:
    if BOOK_PREFIX in path.rpartition("/")[2]:
        return False
    state, is_ours = _look(path)
    return is_ours and state in journal.SOME_STATE


def _is_foreign(path: str) -> bool:
    """True for what is no note of ours, and says something all the same."""
    state, is_ours = _look(path)
    return not is_ours and state not in (b"", journal.IDLE)


def _look(path: str) -> tuple[bytes, bool]:
    """Return the first byte, and whether it is a note of ours; another byte for what cannot be read."""
    folder = path.rpartition("/")[0]
    try:
        descriptor = os.open(path, LOOK)
    except FileNotFoundError:
        return b"", False
    except OSError:
        return b"?", False
    try:
        is_ours = journal.is_ours(descriptor, journal.trusted_owners(os.stat(folder).st_uid))
        return os.pread(descriptor, 1, 0), is_ours
    except OSError:
        return b"?", False
    finally:
        os.close(descriptor)
