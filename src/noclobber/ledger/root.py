"""
Which workspace an event is about: paths from its root, and the root's id.

A path in an event is relative to the root of the workspace, with `/` between its parts, if the file is in
that workspace; any other path is absolute. So a ledger stays true when the project is moved, and an event
says nothing about the machine that it came from. Lines of earlier versions have absolute paths only;
`absolute()` reads both.

The id tells workspaces apart whose events are collected in one place. It is random (with a coordinator: of
this machine and this folder, so that a lock writes nothing outside its deliverable), made once and kept in
the state folder, in a file whose name has that folder's inode number. A project that is moved or renamed
keeps its id. A copy (`cp -r`, a container image) is another workspace: its state folder has another inode,
so it makes an id of its own. A git clone does, too, because the state folder is not in git. The price: a
project that is restored from a backup, or moved to another disk, gets a new id as well.

Not promised: on a filesystem that gives files new inode numbers at each mount (some FUSE filesystems), the
id is new after each mount.
"""

from __future__ import annotations

import os

from noclobber.core.project import COORDINATOR, STATE_FOLDER, WORKSPACE_ID_PREFIX
from noclobber.disk import hashing, small_file

_ID_CHARS = 32


def relative(root: str, path: str) -> str:
    """Return a path as events have it: from the root if it is inside, otherwise as it is."""
    if path == root:
        return "."
    inside = root if root.endswith("/") else f"{root}/"
    return path.removeprefix(inside)


def absolute(root: str, path: str) -> str:
    """Return the whole path of one that an event has, old or new. Nothing stays nothing."""
    if not path or path.startswith("/"):
        return path
    return root if path == "." else f"{root.rstrip('/')}/{path}"


def root_of_ledger(path: str) -> str | None:
    """Return the root whose ledger this is; None for a ledger that is not in a state folder."""
    folder = os.path.dirname(os.path.realpath(path))
    return os.path.dirname(folder) if os.path.basename(folder) == STATE_FOLDER else None


def workspace_id(root: str, *, make: bool = True) -> str | None:
    """
    Return the id of a workspace, made now if there is none; None if it can be neither read nor made.

    Whoever records goes on without one: an event without an id is better than no event.
    """
    try:
        with small_file.closing(small_file.open_folder(f"{root}/{STATE_FOLDER}")) as state_fd:
            name = f"{WORKSPACE_ID_PREFIX}{os.fstat(state_fd).st_ino}"
            return _read(state_fd, name) or (_make(state_fd, name, _new_id(root)) if make else None)
    except OSError:
        return None


def _read(state_fd: int, name: str) -> str | None:
    try:
        found = small_file.read(name, state_fd).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return None
    # A power cut may have left an empty file.
    return found if len(found) == _ID_CHARS and set(found) <= set("0123456789abcdef") else None


def first_id(root: str) -> str:
    """Return the id that a workspace gets with a coordinator: a lock names its row by it beforehand."""
    where = f"{os.uname().nodename}:{os.stat(root).st_ino}:{root}"
    return hashing.of_bytes(where.encode("utf-8", "surrogateescape"))[:_ID_CHARS]


def _new_id(root: str) -> str:
    return first_id(root) if os.environ.get(COORDINATOR) else os.urandom(_ID_CHARS // 2).hex()


def _make(state_fd: int, name: str, made: str) -> str | None:
    """Publish a new id, complete; of several processes that do so at once, one wins and all return its id."""
    data = made.encode() + b"\n"
    try:
        small_file.publish(name, data, state_fd, 0o664, once=True)
    except OSError as error:
        if isinstance(error, FileExistsError) and (found := _read(state_fd, name)) is not None:
            return found
        # What is there is no id; or there are no hard links here (FAT).
        small_file.publish(name, data, state_fd, 0o664)
    return _read(state_fd, name)
