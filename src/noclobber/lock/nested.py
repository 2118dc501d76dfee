"""
Locks above and below a folder: whose live lock is in the way of taking this one (ruling 24)?

A lock covers everything below its folder. So nobody may lock inside a folder that somebody else has locked,
nor above one: it would give one file two holders. Who holds the other lock may: it shows the id.

Two that lock a folder and its parent at the same moment look in different folders, so no single mutex orders
them. The order is: look, publish the own record, look again. Whoever publishes second finds the first. If
both have published before either looks again, both find each other, and then the outer one waits for the
inner one's mutex: the inner one has withdrawn its record when it lets go, and the outer one wins. The inner
one never waits for the outer's mutex, so they cannot wait for each other. Never both win;
docs/lock/protocol.md has the interleavings.

Not promised: folders that this user may not list are not looked into.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from noclobber.lock.liveness import FolderIdentity
from noclobber.lock.lock_file import LockFile
from noclobber.lock.names import LOCK_NAME
from noclobber.lock.os_errors import explain
from noclobber.lock.record import read

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from noclobber.core.clock import Clock
    from noclobber.lock.liveness import Liveness
    from noclobber.lock.record import LockContent

    Judge = Callable[[LockContent, FolderIdentity], Liveness]


class Obstacle(NamedTuple):
    """Somebody else's live lock, above or below the folder that was asked for."""

    folder: str
    found: LockContent
    verdict: Liveness


def find_obstacle(
    folder: str, own_hashes: Collection[str], judge: Judge, clock: Clock, *, is_published: bool
) -> Obstacle | None:
    """
    Return a live lock above or below a canonical path whose secret's hash is not one of `own_hashes`.

    `is_published`: our own record is in place, so what is still below when its holder has left its section
    stays.
    """
    for above in _locked_above(folder):
        obstacle = _look_at(above, own_hashes, judge)
        if obstacle is not None and _counts_above(above):
            return obstacle
    for below in _locked_below(folder):
        obstacle = _look_at(below, own_hashes, judge)
        if obstacle is not None and is_published:
            obstacle = _look_in_section(below, own_hashes, judge, clock)
        if obstacle is not None:
            return obstacle
    return None


def _locked_above(folder: str) -> Iterator[str]:
    while folder and folder != "/":
        folder = folder.rpartition("/")[0]
        if os.access(f"{folder}/{LOCK_NAME}", os.F_OK):
            yield folder or "/"


def _counts_above(folder: str) -> bool:
    """False for another user's lock in a folder that everybody may write to: it would lock all below."""
    try:
        lock, there = os.lstat(f"{folder}/{LOCK_NAME}"), os.stat(folder)
    except OSError:
        return True
    return lock.st_uid == os.geteuid() or not there.st_mode & stat.S_IWOTH


def _locked_below(folder: str) -> Iterator[str]:
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        try:
            with os.scandir(here) as entries:
                for entry in entries:
                    if entry.name == LOCK_NAME:
                        if here != folder:
                            yield here
                    elif entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue
        except OSError as error:  # Too many open files, and the like: nobody knows what is locked in there.
            explain(error, here, "look for locks below")


def _look_at(folder: str, own_hashes: Collection[str], judge: Judge) -> Obstacle | None:
    try:
        found = read(f"{folder}/{LOCK_NAME}")
        there = os.stat(folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if not _counts_above(folder):
            return None
        explain(error, f"{folder}/{LOCK_NAME}", "read the lock")
    # What is no record may be any program's file of that name. It locks nothing but its own folder.
    if found is None or found.record is None or found.record.secret_sha256 in own_hashes:
        return None
    verdict = judge(found, FolderIdentity(there.st_dev, there.st_ino, folder))
    return Obstacle(folder, found, verdict) if verdict.state == "live" else None


def _look_in_section(folder: str, own_hashes: Collection[str], judge: Judge, clock: Clock) -> Obstacle | None:
    """Look when nobody is in the middle of taking or withdrawing that lock."""
    lock_file = LockFile(folder)
    try:
        with lock_file.section(clock=clock):
            return _look_at(folder, own_hashes, judge)
    finally:
        lock_file.close()
