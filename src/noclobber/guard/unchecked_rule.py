"""
What of unchecked folders may land: nobody compares what is in them, and what the project forbids it forbids.

A folder of build outputs is where the last writer wins (`shell/changes`). That says nothing about who may
write there: `write_scope`, `reserved` and a lock on the folder, or on one around it, hold as everywhere.

Not asked here: claims on single files, which only say that somebody is about to write, and whether a file is
noclobber's own code: every Python that runs in a project with noclobber in its `.venv` writes caches there.
Nor is a file called `.lock` ours for its name: package managers have such files in their folders.
"""

from __future__ import annotations

import os

from noclobber.core.actions import MOVE
from noclobber.errors import NoclobberError
from noclobber.guard.facts import Facts
from noclobber.guard.policies import switches, write_scope
from noclobber.lock.names import LOCK_NAME
from noclobber.shell.changes import FOLDER, TreeChange, unchecked_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from noclobber.guard.command_turn import CommandTurn
    from noclobber.guard.turn import Turn


def refusal_of(turn: Turn | CommandTurn, root: str, changes: Sequence[TreeChange]) -> NoclobberError | None:
    """Return why one of the changes in unchecked folders may not land; None: all of them may."""
    if turn.write_scope is not None or turn.options.reserved:
        for change in changes:
            if (refusal := _by_options(turn, root, change)) is not None:
                return refusal
    names = unchecked_names(turn.options.unchecked)
    for folder in sorted({_outermost(change.path, names) for change in changes}):
        try:
            turn.fence.check(_place(f"{root}/{folder}"))
        except NoclobberError as error:
            return error
    return None


def _by_options(turn: Turn | CommandTurn, root: str, change: TreeChange) -> NoclobberError | None:
    path = f"{root}/{change.path}"
    # As a move: what is reserved in a folder that comes or goes counts, too.
    facts = Facts(
        MOVE, path, path, root, turn.options._replace(switches="open"), write_scope=turn.write_scope
    )
    reserved = switches(facts)
    if not reserved.allowed:
        refusal: NoclobberError = reserved.error
        return refusal
    inside = f"{path}/" if change.kind == FOLDER else path  # A folder may be the scope itself.
    if write_scope(facts._replace(path=inside)).allowed:
        return None
    outside: NoclobberError = write_scope(facts).error
    return outside


def _outermost(path: str, names: frozenset[str]) -> str:
    """Return the folder that makes a path unchecked."""
    parts = path.split("/")
    count = next((number for number, part in enumerate(parts, 1) if part in names), len(parts))
    return "/".join(parts[:count])


def _place(folder: str) -> str:
    """Return the path to ask locks about: one in the folder, if that is locked; otherwise its own."""
    inside = f"{folder}/{LOCK_NAME}"
    if not os.path.lexists(inside):
        return folder
    from noclobber.lock.status import status_of  # Here: few have such a file.

    try:
        found = status_of(folder)
        return inside if found.is_locked and found.holder is not None else folder
    except (NoclobberError, OSError):
        return folder  # Another program's file.
