"""
Open stores: the workspace's own, or one beside a target, which is left after the commit.

A workspace's store stays open. One beside a target is opened for a commit and closed after it, or when what
that commit displaced has been swept.
"""

from __future__ import annotations

import atexit
import errno
import os
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from noclobber.core.project import BESIDE_PREFIX, KEPT_FOLDER, NOTES_FOLDER, STATE_FOLDER, SWAP_FOLDER
from noclobber.disk import after_fork, forks
from noclobber.disk.apart import make_folder_apart
from noclobber.disk.commit import departed, journal
from noclobber.disk.commit.store import CREATE, Store, beside_note_name
from noclobber.disk.commit.sweep import adopt_orphans, sweep
from noclobber.disk.paths import OPEN_FOLDER
from noclobber.disk.reading import NOT_READABLE
from noclobber.disk.small_file import closing

if TYPE_CHECKING:
    from noclobber.core.clock import Clock


def for_workspace(root: str) -> Store:
    """
    Open (and create, the first time) a workspace's own store.

    PermissionError: its state folder is another user's, or others may write to it. What is in there is theirs
    to say, so it is not used; our files go beside the target then.
    """
    state = f"{root}/{STATE_FOLDER}"
    opened: list[int] = []
    try:
        is_new = True
        try:
            os.mkdir(state, 0o755)
        except FileExistsError:
            is_new = False
        # No-follow at each step: a link here would send our records, and every staged byte, elsewhere.
        opened.append(os.open(state, OPEN_FOLDER | os.O_NOFOLLOW))
        _make_private(opened[0], root)
        _ignore_in_git(opened[0])
        # Swap files have the target's mode from the start; the folder's mode keeps other users out.
        for part, mode in ((SWAP_FOLDER, 0o700), (NOTES_FOLDER, 0o755), (KEPT_FOLDER, 0o700)):
            try:
                if is_new and part == SWAP_FOLDER:
                    make_folder_apart(part, mode, opened[0])
                else:
                    os.mkdir(part, mode, dir_fd=opened[0])
            except FileExistsError:
                pass
            opened.append(os.open(part, OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=opened[0]))
            _make_private(opened[-1], root)
    except BaseException:
        for descriptor in opened:
            os.close(descriptor)
        raise
    os.close(opened.pop(0))
    swap_fd, notes_fd, kept_fd = opened
    try:
        return Store(state, swap_fd, notes_fd, kept_fd, prefix="", base=root)
    except BaseException:
        for descriptor in opened:
            os.close(descriptor)
        raise


def _make_private(folder_fd: int, root: str) -> None:
    """Make sure that one of our folders is ours and nobody else may write there."""
    status = os.fstat(folder_fd)
    if not is_private(status, root):
        if status.st_uid not in journal.trusted_owners(os.stat(root).st_uid):
            state = f"{root}/{STATE_FOLDER}"
            raise PermissionError(errno.EACCES, "the state folder belongs to another user", state)
        # A umask of 002 does that, as in projects of a group, or an older version of this library. The folder
        # is ours to close; the notes in it are judged one by one.
        os.fchmod(folder_fd, status.st_mode & 0o7755)


def is_private(status: os.stat_result, root: str) -> bool:
    """True if a folder of ours in a project belongs to a user that we believe, and nobody else may write."""
    if status.st_mode & 0o022:
        return False
    user = os.geteuid()
    return status.st_uid == user or (user == 0 and status.st_uid == os.stat(root).st_uid)


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


def beside(folder_fd: int, folder: str, now_s: float, base: str | None = None) -> Store:
    """
    Open a store in a target's own folder; `leave()` it after the commit.

    `base`: the workspace that the folder is in, if the commit belongs to one.
    """
    copies: list[int] = []
    opened: Store | None = None
    try:
        while len(copies) < 3:
            # Tracked: a copy shares the folder's mutex, and a forked child's would keep it after our death.
            with forks.undivided():
                copies.append(forks.track(os.dup(folder_fd)))
        opened = Store(folder, copies[0], copies[1], copies[2], prefix=BESIDE_PREFIX, base=base or folder)
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


def cut_off_elsewhere(
    folder: str, status: os.stat_result, own: Store | None, clock: Clock
) -> tuple[Callable[[int, str, int], Store], Store | None] | None:
    """
    Find a note in use for this folder in a store that is not `own`.

    A folder can be in several: its own, beside its files; the workspace's; those of workspaces around it.
    All of them use the folder's one mutex, so whoever holds that may, and must, finish what any of them
    left. Returns where such a commit keeps its files, and what to close afterwards.
    """
    own_path, is_beside = (own.path, own.is_beside) if own is not None else ("", False)
    # Folders around this one on the same volume are named in the same way; others have another number anyway.
    tag = f".{own.tag}" if own is not None and own.tag else ""
    name = f"{status.st_ino:x}{tag}"
    note = f"{BESIDE_PREFIX}{beside_note_name(status)}{tag}"
    # `access`, because it does not raise: most of the time there is nothing, at every level.
    if not is_beside and os.access(f"{folder}/{note}", os.F_OK):
        with closing(os.open(folder, OPEN_FOLDER | os.O_NOFOLLOW)) as folder_fd:
            if journal.is_in_use(note, folder_fd, journal.trusted_owners(status.st_uid)):
                return (lambda fd, path, _: beside(fd, path, clock.now_s())), None
    around = folder
    while True:
        state = f"{around.rstrip('/')}/{STATE_FOLDER}"
        if state != own_path and os.access(f"{state}/{NOTES_FOLDER}/{name}", os.F_OK):
            found = _open_elsewhere(around, status, name)
            if found is not None:
                return _stores_of(found, clock), found
        if around in ("", "/"):
            return None
        around = os.path.dirname(around)


def _stores_of(own: Store, clock: Clock) -> Callable[[int, str, int], Store]:
    def store_of(folder_fd: int, folder: str, device: int) -> Store:
        return own if device == own.device else beside(folder_fd, folder, clock.now_s(), own.base)

    return store_of


def _open_elsewhere(root: str, folder: os.stat_result, name: str) -> Store | None:
    state = f"{root.rstrip('/')}/{STATE_FOLDER}"
    try:
        if not is_private(os.lstat(state), root):
            return None  # Not ours: it says nothing to us, and we do not change it.
        owners = journal.trusted_owners(os.stat(f"{state}/{NOTES_FOLDER}").st_uid)
        if not journal.is_in_use(f"{state}/{NOTES_FOLDER}/{name}", None, owners):
            return None
        store = for_workspace(root)
    except OSError as error:
        if error.errno not in NOT_READABLE:
            raise
        return None
    try:
        if store.device == folder.st_dev and store.is_under_way(folder):
            return store
    except BaseException:
        store.close()
        raise
    store.close()
    return None


def leave(store: Store) -> None:
    """Close a store beside a target, now or when its displaced files have been swept."""
    store.drop_notes()
    if store.waiting or store.departed:
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
        kept += departed.look_after(store, at_once=True)  # Its descriptors are of somebody's folder.
        leave(store)
    return kept


atexit.register(sweep_lingering)  # A program that writes once must not leave a dot file behind.
