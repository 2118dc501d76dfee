"""
git's own locks, held while what a command did to a repository lands.

A git process that changes `index`, `HEAD`, a branch or `packed-refs` makes `<name>.lock` first, reads the
file, writes the new one and renames it into place. One that had read the index before a landing would put its
own over the landed one: HEAD would be the command's and the index the other's. So a landing takes the same
locks, in sorted order, and waits for a git that has one.

A lock is a second name of a file in the run's folder. So after `kill -9` it can be told from a lock of git's:
`release_left()` removes no other.
"""

from __future__ import annotations

import os
import stat
import time
from typing import TYPE_CHECKING

from noclobber.disk import small_file
from noclobber.shell.changes import FILE
from noclobber.shell.git_folders import layers

if TYPE_CHECKING:
    from noclobber.shell.changes import TreeChanges

LOCK_FILE, LIST_FILE = "git-lock", "git-locks"
ENDING = ".lock"
LOOK_AGAIN_S = 0.01
MOST_LISTED_BYTES = 1 << 22
_NAMES = frozenset(("index", "HEAD", "packed-refs", "config", "shallow"))


class GitBusyError(Exception):
    """A git process has a lock. The text is the lock's path."""


def locks_for(changes: TreeChanges) -> list[str]:
    """Return which locks git would take for these changes; none for a command that did not use it."""
    found = []
    for each in (changes, *changes.beside):
        for change in each.checked:
            inside = f"/{change.path}".rpartition("/.git/")[2] if each is changes else change.path
            if change.kind != FILE or (each is changes and ".git/" not in change.path):
                continue
            if inside.rpartition("/")[2] in _NAMES or "refs" in inside.split("/")[:-1]:
                found.append(f"{each.root}/{change.path}{ENDING}")
    return sorted(found)


class GitLocks:
    """Use it as a context manager. `GitBusyError` if git has one of them for longer than `wait_s`."""

    def __init__(self, run_folder: str, paths: list[str], wait_s: float) -> None:
        self._folder, self._paths, self._wait_s = run_folder, paths, wait_s
        self._held: list[str] = []

    def __enter__(self) -> GitLocks:
        if not self._paths:
            return self
        own = f"{self._folder}/{LOCK_FILE}"
        small_file.write_over(own, b"A command of noclobber run is landing here.\n")
        # Before the first of them is there: whoever cleans up must know where to look.
        small_file.write_over(f"{self._folder}/{LIST_FILE}", b"\0".join(map(os.fsencode, self._paths)))
        deadline_s = time.monotonic() + self._wait_s
        try:
            for path in self._paths:
                self._take(own, path, deadline_s)
        except BaseException:
            self._release()
            raise
        return self

    def _take(self, own: str, path: str, deadline_s: float) -> None:
        while True:
            try:
                os.link(own, path)
            except FileExistsError:
                if time.monotonic() > deadline_s:
                    raise GitBusyError(path) from None
                time.sleep(LOOK_AGAIN_S)
            except FileNotFoundError:
                return  # Its folder comes or goes with the command; the commit looks after that.
            else:
                self._held.append(path)
                return

    def _release(self) -> None:
        while self._held:
            try:
                os.unlink(self._held.pop())
            except FileNotFoundError:
                pass  # Somebody removed it by hand, as git tells people to.

    def __exit__(self, *_: object) -> None:
        self._release()


def release_left(root: str, run_folder: str) -> None:
    """
    Remove the locks of a killed landing, after it was finished or taken back.

    Both files may have come with a folder. So no link is followed, and only what can be a lock of a
    repository in this project, or of its git folder elsewhere, is removed: a second name of our own file.
    """
    try:
        paths = small_file.read(f"{run_folder}/{LIST_FILE}", most_bytes=MOST_LISTED_BYTES).split(b"\0")
        own = os.lstat(f"{run_folder}/{LOCK_FILE}")
    except OSError:
        return
    if not stat.S_ISREG(own.st_mode):
        return
    beside = [f"{folder}/" for folder, _ in layers(run_folder)]
    for path in paths:
        try:
            if _is_lock_below([f"{root}/", *beside], os.fsdecode(path)):
                status = os.lstat(path)
                if (status.st_ino, status.st_dev) == (own.st_ino, own.st_dev):
                    os.unlink(path)
        except (OSError, ValueError):
            continue


def _is_lock_below(folders: list[str], path: str) -> bool:
    is_below = path.startswith(tuple(folders[1:])) or (path.startswith(folders[0]) and "/.git/" in path)
    is_lock = is_below and path.endswith(ENDING)
    return is_lock and os.path.realpath(os.path.dirname(path)) == os.path.dirname(path)
