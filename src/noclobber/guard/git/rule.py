"""
Whether a guarded command has anything to do with git: asked of every command, so nothing is loaded for it.

What is asked then is in `others_work`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from noclobber.shell.changes import DELETE
from noclobber.shell.git_folders import top_around

if TYPE_CHECKING:
    from noclobber.errors import NoclobberError
    from noclobber.guard.command_turn import CommandTurn
    from noclobber.guard.landing import CommandRun
    from noclobber.guard.turn import Turn
    from noclobber.shell.changes import TreeChanges


def git_rule(command: CommandRun, changes: TreeChanges, turn: Turn | CommandTurn) -> NoclobberError | None:
    """Refuse a git command that reaches for others' uncommitted work; None: it may land."""
    is_git = changes.beside or any("/.git/" in f"/{change.path}/" for change in changes.checked)
    # `git clean` changes nothing in the repository; it only removes files.
    if not is_git:
        gone = {f"{changes.root}/{change.path}" for change in changes.checked if change.action == DELETE}
        if not gone or ("GIT_DIR" not in os.environ and not any(map(top_around, gone))):
            return None
    from noclobber.guard.git.others_work import rule

    return rule(command, changes, turn)


def is_only_refreshed(old_fd: int, index: str) -> bool:
    """
    True if an index has what an older one had, open as `old_fd`: only the times of files are others.

    `git status` in another shell writes these into it, and changes nothing that anybody could miss. What git
    knows of whole trees must be the same, too: it forgets that when a name is added, and also when the name
    is taken out again. Not told apart: names added and taken out where a tree was not known before.
    """
    if old_fd < 0:
        return False
    from noclobber.guard.git.reading import quiet_git

    repository, words = os.path.dirname(index), ("ls-files", "--stage", "-v", "-z")
    old = f"/proc/{os.getpid()}/fd/{old_fd}"
    before = quiet_git(repository, *words, index=old)
    if before is None or before != quiet_git(repository, *words):
        return False
    return _known_trees(old) == _known_trees(index)


def _known_trees(index: str) -> bytes:
    """Return the part of an index with the hashes of trees (`TREE`); empty if there is none."""
    with open(index, "rb") as file:
        data = file.read()
    begin = -1
    while (begin := data.find(b"TREE", begin + 1)) >= 0:
        ends = [begin]  # The word can be part of a name. The last part ends where the file's own hash begins.
        while ends[-1] < len(data) - 32:
            ends.append(ends[-1] + 8 + int.from_bytes(data[ends[-1] + 4 : ends[-1] + 8], "big"))
        if ends[-1] in (len(data) - 20, len(data) - 32):
            return data[begin : ends[1]]
    return b""
