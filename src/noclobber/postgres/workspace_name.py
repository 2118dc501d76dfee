"""
Which workspace a folder belongs to, on every machine: a name, and the folder's path from the root.

Two ways to share work:

- One volume, mounted on several machines. The name is made once and kept on the volume, in the state folder:
  whoever mounts it reads the same one. A copy of the volume makes a name of its own. A lock makes none: it
  writes nothing outside its deliverable (REQ-LOCK-008). Before the first guarded write it uses the name that
  this machine would make. Other machines find the lock's file, which has the name of its row.
- A checkout on each machine. There is nothing that all of them read, so a person names the workspace
  (`NOCLOBBER_WORKSPACE`), and the same name means the same work.

On file systems whose inode numbers change between mounts the first way could give two machines two names for
one volume, and so two holders for one lock. There the name must be given.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import NamedTuple

from noclobber.core.project import STATE_FOLDER, find_project, is_marked
from noclobber.disk.filesystems import keeps_inodes
from noclobber.errors import ConfigError, MissingFileError, NotAFileError, StorageError
from noclobber.ledger.root import first_id, workspace_id

VARIABLE = "NOCLOBBER_WORKSPACE"
_MAX_CHARS = 100


class SharedFolder(NamedTuple):
    """A deliverable folder, as all machines name it."""

    workspace: str
    path: str
    """From the root, without a slash at the end; empty for the root."""
    root: str


def place_of(folder: str, *, make: bool = False) -> SharedFolder:
    """
    Return where a canonical folder is; `ConfigError` if nobody could say so on another machine.

    `make`: give the workspace a name that stays, if it has none.
    """
    try:
        root = find_project(folder)
    except (MissingFileError, NotAFileError):
        root = find_project(_existing(folder))
    if folder != root and not folder.startswith(root.rstrip("/") + "/"):
        raise ConfigError(folder, f"it is not inside the project {root}, so other machines cannot name it")
    if not make and os.environ.get(VARIABLE) and not _is_project(root):
        # Its path from the root would be empty, as that of every other such folder: one lock for all of them.
        raise ConfigError(
            folder,
            f"it is in no project, so {VARIABLE} does not say which folder of that workspace it is. Make its"
            " project's root known, on each machine: an empty noclobber.toml there is enough",
        )
    return SharedFolder(_name_of(root, make), folder[len(root) :].strip("/"), root)


def _is_project(root: str) -> bool:
    return is_marked(root) or os.path.lexists(f"{root}/.git")


def _existing(folder: str) -> str:
    """A deliverable that was deleted is still named by its path."""
    while not os.path.isdir(folder) and folder != "/":
        folder = os.path.dirname(folder)
    return folder


def _name_of(root: str, make: bool) -> str:
    given = os.environ.get(VARIABLE)
    if given:
        if len(given) > _MAX_CHARS or not given.isprintable() or given != given.strip():
            raise ConfigError(
                VARIABLE, f"a workspace's name is up to {_MAX_CHARS} printable characters, and this is not"
            )
        return given
    if not _keeps_inodes(root, os.stat(root).st_dev):
        raise ConfigError(
            VARIABLE,
            f"{root} is on a file system whose inode numbers change, so machines could not agree on its "
            f"name. Set {VARIABLE} to the same name on each of them",
        )
    name = workspace_id(root, make=make)
    if name is None and make:
        try:
            os.makedirs(f"{root}/{STATE_FOLDER}", exist_ok=True)
            name = workspace_id(root)
        except OSError as error:
            raise StorageError(root, f"its state folder cannot be made: {error.strerror}") from error
    if name is None and make:
        raise StorageError(root, f"the name of this workspace can be neither read nor made in {STATE_FOLDER}")
    return name or first_id(root)


@lru_cache(64)
def _keeps_inodes(root: str, device: int) -> bool:
    """Asked once for each file system: it reads the table of mounts, which took a tenth of a lock's time."""
    return keeps_inodes(root)
