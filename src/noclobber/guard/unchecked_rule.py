"""
What of unchecked folders may land: nobody compares what is in them, and what the project forbids it forbids.

A folder of build outputs is where the last writer wins (`shell/changes`). That says nothing about who may
write there: `write_scope`, `reserved` and a lock on the folder, or on one around it, hold as everywhere.

What tools put aside for themselves (`CACHES`) is an exception: whoever runs the tests of a project writes
`__pycache__` all over it, and means nothing by that. It does not land where it is forbidden, and the command
is not refused for it.

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
    from noclobber.shell.changes import ChangeSet


CACHES = frozenset(
    (
        *("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".cache", ".coverage"),
        *(".turbo", ".parcel-cache", ".gradle"),
    )
)


def refusal_of(turn: Turn | CommandTurn, root: str, changes: Sequence[TreeChange]) -> NoclobberError | None:
    """Return why one of the changes in unchecked folders may not land; None: all of them may."""
    is_ruled = turn.write_scope is not None or turn.options.reserved
    for change in changes if is_ruled else ():
        if (refusal := _by_options(turn, root, change)) is not None:
            return refusal
    names = unchecked_names(turn.options.unchecked)
    for folder in sorted({_outermost(change.path, names) for change in changes}):
        try:
            turn.fence.check(_place(f"{root}/{folder}"))
        except NoclobberError as error:
            return error
    return None


def without_forbidden_caches(turn: Turn | CommandTurn, changes: ChangeSet) -> ChangeSet:
    """Return a change set without the caches that may not land where they are."""
    by_folder: dict[str, list[TreeChange]] = {}
    for change in changes.changes:
        if not change.is_checked and (folder := _cache_of(change.path)):
            by_folder.setdefault(folder, []).append(change)
    dropped = {
        change.path
        for folder in by_folder.values()
        if refusal_of(turn, changes.root, folder) is not None
        for change in folder
    }
    if not dropped:
        return changes
    kept = (change for change in changes.changes if change.is_checked or change.path not in dropped)
    return changes._replace(changes=tuple(kept))


def _cache_of(path: str) -> str:
    """Return the cache that a path is in; "" if it is in none."""
    parts = path.split("/")
    count = next((number for number, part in enumerate(parts, 1) if part in CACHES), 0)
    return "/".join(parts[:count])


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
