"""
Open stores: the workspace's own, or one beside a target, which is left after the commit.

A workspace's store stays open. One beside a target is opened for a commit and closed after it, or when what
that commit displaced has been swept.
"""

from __future__ import annotations

import atexit
import os
from collections import deque

from noclobber.core.project import BESIDE_PREFIX, KEPT_FOLDER, NOTES_FOLDER, STATE_FOLDER, SWAP_FOLDER
from noclobber.disk import after_fork, forks
from noclobber.disk.commit.store import CREATE, Store
from noclobber.disk.commit.sweep import adopt_orphans, sweep
from noclobber.disk.paths import OPEN_FOLDER


def for_workspace(root: str) -> Store:
    """Open (and create, the first time) a workspace's own store."""
    state = f"{root}/{STATE_FOLDER}"
    opened: list[int] = []
    try:
        try:
            os.mkdir(state)
        except FileExistsError:
            pass
        # No-follow at each step: a link here would send our records, and every staged byte, elsewhere.
        opened.append(os.open(state, OPEN_FOLDER | os.O_NOFOLLOW))
        _ignore_in_git(opened[0])
        # Swap files have the target's mode from the start; the folder's mode keeps other users out.
        for part, mode in ((SWAP_FOLDER, 0o700), (NOTES_FOLDER, 0o777), (KEPT_FOLDER, 0o700)):
            try:
                os.mkdir(part, mode, dir_fd=opened[0])
            except FileExistsError:
                pass
            opened.append(os.open(part, OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=opened[0]))
    except BaseException:
        for descriptor in opened:
            os.close(descriptor)
        raise
    os.close(opened.pop(0))
    swap_fd, notes_fd, kept_fd = opened
    return Store(state, swap_fd, notes_fd, kept_fd, prefix="")


def _ignore_in_git(state_fd: int) -> None:
    try:
        ignore_fd = os.open(".gitignore", CREATE, 0o644, dir_fd=state_fd)
    except FileExistsError:
        return
    try:
        os.write(ignore_fd, b"*\n")
    finally:
        os.close(ignore_fd)


_lingering: deque[Store] = deque()  # Stores beside a target that still have something to sweep.
_known_folders: set[tuple[int, int]] = set()


def beside(folder_fd: int, folder: str, now_s: float) -> Store:
    """Open a store in a target's own folder; `leave()` it after the commit."""
    copies: list[int] = []
    opened: Store | None = None
    try:
        while len(copies) < 3:
            # Tracked: a copy shares the folder's mutex, and a forked child's would keep it after our death.
            with forks.undivided():
                copies.append(forks.track(os.dup(folder_fd)))
        opened = Store(folder, copies[0], copies[1], copies[2], prefix=BESIDE_PREFIX)
        after_fork.renew(opened, "_is_closed", lambda: True)
        status = os.fstat(folder_fd)
        if (status.st_dev, status.st_ino) not in _known_folders:  # Once per process: it lists the folder.
            _known_folders.add((status.st_dev, status.st_ino))
            adopt_orphans(opened, now_s)
    except BaseException:
        # A copy shares the folder's mutex, and left open it would keep it.
        if opened is not None:
            opened.close()
        else:
            for descriptor in copies:
                forks.close(descriptor)
        raise
    return opened


def leave(store: Store) -> None:
    """Close a store beside a target, now or when its displaced files have been swept."""
    store.drop_notes()
    if store.waiting:
        _lingering.append(store)
    else:
        store.close()


def sweep_lingering() -> list[tuple[str, str]]:
    """Sweep every store that was left with something in it."""
    kept = []
    for _ in range(len(_lingering)):
        try:
            store = _lingering.popleft()
        except IndexError:
            break
        kept += sweep(store)
        leave(store)
    return kept


atexit.register(sweep_lingering)  # A program that writes once must not leave a dot file behind.
