"""
Whether a guarded command has anything to do with git: asked of every command, so nothing is loaded for it.

What is asked then is in `others_work`.
"""

from __future__ import annotations

import os

from noclobber.shell.changes import DELETE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from noclobber.errors import NoclobberError
    from noclobber.guard.command_turn import CommandTurn
    from noclobber.guard.landing import CommandRun
    from noclobber.guard.turn import Turn
    from noclobber.shell.changes import ChangeSet


def git_rule(command: CommandRun, changes: ChangeSet, turn: Turn | CommandTurn) -> NoclobberError | None:
    """Refuse a git command that reaches for others' uncommitted work; None: it may land."""
    is_git = any(change.path == ".git" or change.path.startswith(".git/") for change in changes.checked)
    # `git clean` changes nothing in the repository; it only removes files.
    if not is_git:
        if not any(change.action == DELETE for change in changes.checked):
            return None
        if "GIT_DIR" not in os.environ and not _is_in_repository(changes.root):
            return None
    from noclobber.guard.git.others_work import rule

    return rule(command, changes, turn)


def _is_in_repository(folder: str) -> bool:
    while not os.path.lexists(f"{folder}/.git"):
        above = folder.rpartition("/")[0]
        if not folder or above == folder:
            return False
        folder = above
    return True
