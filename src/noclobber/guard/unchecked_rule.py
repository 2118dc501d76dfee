"""
What of unchecked folders may land: nobody compares what is in them, and what the project forbids it forbids.

Somebody works on what an agent has read there, on what is expected and on what git tracks: that is compared
as everything else is (`WorkedOn`). Only build outputs that git does not know are unchecked.

A folder of build outputs is where the last writer wins (`shell/changes`). That says nothing about who may
write there: `write_scope`, `reserved` and a lock on the folder, or on one around it, hold as everywhere.

What tools put aside for themselves (`CACHES`) is an exception: whoever runs the tests of a project writes
`__pycache__` all over it, and means nothing by that. It does not land where it is forbidden, and the command
is not refused for it.

Of the guard's own switches only noclobber's code is asked about here, where it is in the project's `.venv`:
it is not replaced, and what a Python that runs there puts into its `__pycache__` does not land.

Not asked here: claims on single files, which only say that somebody is about to write. Nor is a file called
`.lock` ours for its name: package managers have such files in their folders.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from noclobber.core.switches import touches_code
from noclobber.errors import NoclobberError
from noclobber.guard import judge
from noclobber.lock.names import LOCK_NAME
from noclobber.shell.changes import AFTERWARDS, FOLDER, MODE, TreeChange, unchecked_names

if TYPE_CHECKING:
    from noclobber.guard.command_turn import CommandTurn
    from noclobber.guard.turn import Turn
    from noclobber.shell.changes import TreeChanges


CACHES = frozenset(
    (
        *("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".cache", ".coverage"),
        *(".turbo", ".parcel-cache", ".gradle"),
    )
)


class WorkedOn:
    """Says which files of an unchecked folder are checked: what was read, is expected, or is tracked."""

    def __init__(self, turn: Turn | CommandTurn, root: str, expected: Iterable[str]) -> None:
        self._turn, self._root, self._expected = turn, root, expected
        self._known: list[str] | None = None

    def __call__(self, folder: str) -> list[str]:
        """Return their paths below the root; `folder` is below the root, too."""
        from noclobber.guard.git.tracked import tracked_below

        if self._known is None:
            with self._turn.memory as memory:
                self._known = [*self._expected, *memory.paths()]
        place = f"{self._root}/{folder}"
        found = [path for path in self._known if path.startswith(f"{place}/")]
        return [path[len(self._root) + 1 :] for path in (*found, *tracked_below(place))]


def refusal_of(turn: Turn | CommandTurn, root: str, changes: Sequence[TreeChange]) -> NoclobberError | None:
    """Return why one of the changes in unchecked folders may not land; None: all of them may."""
    is_ruled = turn.write_scope is not None or turn.options.reserved
    for change in changes:
        is_code = change.action not in AFTERWARDS and touches_code(f"{root}/{change.path}")
        if not is_ruled and not is_code:
            continue
        refusal = judge.refusal_of_place(
            f"{root}/{change.path}",
            root,
            turn.options,
            turn.write_scope,
            is_folder=change.kind == FOLDER,
            is_code=is_code and change.action != MODE,
        )
        if refusal is not None:
            return refusal
    names = unchecked_names(turn.options.unchecked)
    for folder in sorted({_outermost(change.path, names) for change in changes}):
        if (refusal := judge.refusal_by_fence(_place(f"{root}/{folder}"), turn.fence)) is not None:
            return refusal
    return None


def without_forbidden_caches(turn: Turn | CommandTurn, changes: TreeChanges) -> TreeChanges:
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
    from noclobber.lock.backend import status_of  # Here: few have such a file.

    try:
        found = status_of(folder)
        return inside if found.is_locked and found.holder is not None else folder
    except (NoclobberError, OSError):
        return folder  # Another program's file.
