"""
Finish or undo a move that was cut off.

A move gives the file its new name by `link()`, looks whether it is the one that was verified, and takes the
old name away by a rename among the swap files, where it looks again. So the file always has one of its names,
and at every moment the inodes say who made what: two names of one file are our link; what is among the swap
files was at the old name. What somebody has saved since, under either name, stays there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from noclobber.core.values import Recovered
from noclobber.disk import forks, hashing, renames
from noclobber.disk.commit.found_files import inode_of
from noclobber.disk.commit.sweep import mark_if
from noclobber.disk.reading import LOOK, NOT_READABLE

if TYPE_CHECKING:
    from noclobber.disk.commit.journal import Planned
    from noclobber.disk.commit.store import Store

MOVE_KINDS = ("move", "moved")  # The row of the old name, and that of the new one.


def recover_move(
    rows: list[Planned], folders: Mapping[str, int], store: Store, *, is_refused: bool
) -> list[Recovered]:
    """Finish it if the old name was taken away, rightly; otherwise take the new name away again."""
    if [row.kind for row in rows] != list(MOVE_KINDS):
        return []  # One of the two folders is gone.
    origin, goal = rows
    origin_fd, goal_fd, aside = folders[origin.folder], folders[goal.folder], origin.swap
    path, kept = f"{origin.folder}/{origin.name}", ""
    taken, at_origin = inode_of(store.swap_fd, aside), inode_of(origin_fd, origin.name)
    if taken is not None and taken != at_origin:
        if taken == origin.inode and not (is_refused and at_origin is None):
            let_go(store, aside, origin.new, path)
            return [Recovered(f"{goal.folder}/{goal.name}", "landed")]
        try:  # Refused; or a save that came between the last look and the rename.
            renames.move_without_replacing(store.swap_fd, aside, origin_fd, origin.name)
        except FileExistsError:  # And another one, which is later.
            kept = store.keep(aside)
    elif taken is not None:
        store.remove_swap(aside)  # It was the new name: we were undoing this already.
    at_origin, at_goal = inode_of(origin_fd, origin.name), inode_of(goal_fd, goal.name)
    if at_goal == origin.inode and at_origin is None and not kept:
        return [Recovered(f"{goal.folder}/{goal.name}", "landed")]  # Somebody has deleted the old name.
    if at_goal is not None and _is_our_link(goal_fd, goal, at_goal, at_origin):
        _take_link_away(goal_fd, goal, at_goal, store, aside)
    return [Recovered(path, "kept" if kept else "discarded", kept)]


def _is_our_link(goal_fd: int, goal: Planned, at_goal: int, at_origin: int | None) -> bool:
    """True if the new name is ours, and nobody has written to the file since then under that name."""
    if at_goal not in (goal.inode, at_origin):
        return False  # Somebody else's file.
    try:
        descriptor = os.open(goal.name, LOOK, dir_fd=goal_fd)
    except OSError as error:
        if error.errno not in NOT_READABLE:
            raise
        return False
    try:
        status = os.fstat(descriptor)
        if status.st_ino == goal.inode:
            return hashing.of_descriptor(descriptor) == goal.new
        # A save that we had linked. `link()` has changed the one time, and a later write would change both.
        return status.st_ino == at_origin and status.st_mtime_ns < status.st_ctime_ns
    finally:
        os.close(descriptor)


def _take_link_away(goal_fd: int, goal: Planned, inode: int, store: Store, aside: str) -> None:
    try:
        renames.move_without_replacing(goal_fd, goal.name, store.swap_fd, aside)
    except FileNotFoundError:
        return
    if inode_of(store.swap_fd, aside) == inode:
        let_go(store, aside, goal.new, f"{goal.folder}/{goal.name}")
        return
    try:  # Somebody has saved there a moment ago.
        renames.move_without_replacing(store.swap_fd, aside, goal_fd, goal.name)
    except FileExistsError:
        store.keep(aside)


def let_go(store: Store, name: str, sha256: str, path: str) -> None:
    """Remove a second name, if it is there. If it is the only one by now, the sweep looks what is in it."""
    try:
        if os.stat(name, dir_fd=store.swap_fd, follow_symlinks=False).st_nlink > 1:
            store.remove_swap(name)
            return
        descriptor = forks.open_tracked(name, LOOK, dir_fd=store.swap_fd)
    except OSError as error:
        if error.errno not in NOT_READABLE:
            raise
        return
    try:
        mark_if(descriptor, sha256)
    except OSError:
        forks.close(descriptor)  # Without a mark it is an orphan for a while, and its name has its hash.
        return
    store.set_aside(name, path, descriptor)
