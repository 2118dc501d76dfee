"""
Keep lock files out of git (REQ-LOCK-010): a lock that is committed would lock every clone.

The patterns go to the repository's own `info/exclude`, not to a `.gitignore`: that is a file of the
project, which somebody would have to review and commit. Called when a workspace is set up and by the commands
of `noclobber lock`; never by the library's locks, which write nothing outside the deliverable folder
(REQ-LOCK-008). A repository of another user's is left alone.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import ExitStack
from typing import TYPE_CHECKING

from noclobber.disk.paths import OPEN_FOLDER
from noclobber.disk.small_file import open_folder
from noclobber.lock.names import GIT_PATTERNS

if TYPE_CHECKING:
    from collections.abc import Sequence

HEADING = "# noclobber: deliverable locks are local to this machine."
MOST_BYTES = 1 << 20
MOST_PATH = 4096
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def keep_lock_files_out_of_git(folder: str) -> None:
    """The same for a command that locks: a repository that cannot be written to is no reason not to lock."""
    try:
        keep_out_of_git(folder)
    except OSError:
        pass


def keep_out_of_git(root: str, patterns: Sequence[str] = GIT_PATTERNS, heading: str = HEADING) -> str | None:
    """
    Have the repository around `root` ignore lock files, or what other patterns match; return the file that
    says so, None if there is no repository, or none whose excludes are a plain file of this user's.
    """
    git = _git_folder(root)
    if git is None or os.stat(git).st_uid != os.geteuid():
        return None
    with ExitStack() as opened:
        exclude_fd = _open_exclude(git, opened)
        if exclude_fd is None:
            return None
        data = os.read(exclude_fd, MOST_BYTES)
        present = data.decode("utf-8", "surrogateescape").splitlines()
        missing = [pattern for pattern in patterns if pattern not in present]
        if missing:
            break_first = "\n" if data and not data.endswith(b"\n") else ""
            # One write at the end of the file: two that do this at once both add their lines, which harms
            # nothing.
            os.write(exclude_fd, (break_first + "\n".join([heading, *missing]) + "\n").encode())
    return os.path.join(git, "info", "exclude")


def exclude_file(root: str) -> str | None:
    """Return the excludes of the repository around `root`, if they are a plain file of this user's."""
    git = _git_folder(root)
    path = "" if git is None else os.path.join(git, "info", "exclude")
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return path if _is_plain(status) and os.path.realpath(path) == path else None


def _open_exclude(git: str, opened: ExitStack) -> int | None:
    """
    Open `info/exclude`, and create it if need be; None if it is not a plain file that belongs to this user.

    A `.git` that came in an archive may have a link there, which would lead our lines into another file (a
    shell's start-up script would run them), or a FIFO, on which an ordinary open() waits for ever.
    """
    git_fd = os.open(git, OPEN_FOLDER)
    opened.callback(os.close, git_fd)
    try:
        info_fd = open_folder("info", git_fd, make=True, mode=0o777)
        opened.callback(os.close, info_fd)
        exclude_fd = os.open("exclude", _APPEND, 0o666, dir_fd=info_fd)
        opened.callback(os.close, exclude_fd)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EISDIR):
            return None
        raise
    return exclude_fd if _is_plain(os.fstat(exclude_fd)) else None


def _is_plain(status: os.stat_result) -> bool:
    is_file = stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_size < MOST_BYTES
    return is_file and status.st_uid == os.geteuid()


def _git_folder(root: str) -> str | None:
    """Return the repository's folder: `.git`, or what it points to in a worktree or a submodule."""
    folder = os.path.realpath(root)
    while True:
        git = os.path.join(folder, ".git")
        if os.path.isdir(git):
            return None if os.path.islink(git) and not _is_repository(git) else git
        if os.path.isfile(git):
            return _pointed_to(git, folder)
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent


def _pointed_to(git: str, folder: str) -> str | None:
    try:
        with open(git, encoding="utf-8") as file:
            line = file.readline(MOST_PATH).strip()
        if not line.startswith("gitdir: "):
            return None
        target = os.path.join(folder, line.removeprefix("gitdir: "))
        common = os.path.join(target, "commondir")
        if os.path.isfile(common):  # A worktree: excludes are the main repository's.
            with open(common, encoding="utf-8") as file:
                target = os.path.join(target, file.readline(MOST_PATH).strip())
    except (OSError, ValueError):
        return None
    target = os.path.normpath(target)
    return target if _is_repository(target) else None


def _is_repository(folder: str) -> bool:
    """True if a folder is a repository's, as git itself tells: a pointer may lead anywhere."""
    return all(os.path.exists(f"{folder}/{name}") for name in ("HEAD", "objects", "refs"))
