"""
Keep lock files out of git (REQ-LOCK-010): a lock that is committed would lock every clone.

The patterns go to the repository's own `info/exclude`, not to a `.gitignore`: that is a file of the
project, which somebody would have to review and commit. Called when a workspace is set up and by the commands
of `noclobber lock`; never by the library's locks, which write nothing outside the deliverable folder
(REQ-LOCK-008). A repository of another user's is left alone.
"""

from __future__ import annotations

import os

from noclobber.lock.names import GIT_PATTERNS

HEADING = "# noclobber: deliverable locks are local to this machine."


def keep_out_of_git(root: str) -> str | None:
    """
    Have the repository around `root` ignore lock files; return the file that says so, None without a
    repository.
    """
    git = _git_folder(root)
    if git is None or os.stat(git).st_uid != os.geteuid():
        return None
    path = os.path.join(git, "info", "exclude")
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            text = file.read()
    except FileNotFoundError:
        text = ""
    missing = [pattern for pattern in GIT_PATTERNS if pattern not in text.splitlines()]
    if missing:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        break_first = "\n" if text and not text.endswith("\n") else ""
        # One write at the end of the file: two that do this at once both add their lines, which harms
        # nothing.
        with open(path, "a", encoding="utf-8") as file:
            file.write(break_first + "\n".join([HEADING, *missing]) + "\n")
    return path


def _git_folder(root: str) -> str | None:
    """Return the repository's folder: `.git`, or what it points to in a worktree or a submodule."""
    folder = os.path.realpath(root)
    while True:
        git = os.path.join(folder, ".git")
        if os.path.isdir(git):
            return git
        if os.path.isfile(git):
            return _pointed_to(git, folder)
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent


def _pointed_to(git: str, folder: str) -> str | None:
    try:
        with open(git, encoding="utf-8") as file:
            line = file.readline().strip()
        if not line.startswith("gitdir: "):
            return None
        target = os.path.join(folder, line.removeprefix("gitdir: "))
        common = os.path.join(target, "commondir")
        if os.path.isfile(common):  # A worktree: excludes are the main repository's.
            with open(common, encoding="utf-8") as file:
                target = os.path.join(target, file.readline().strip())
    except (OSError, UnicodeDecodeError):
        return None
    return os.path.normpath(target) if os.path.isdir(target) else None
