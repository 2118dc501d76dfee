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
from noclobber.disk import hashing

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
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
        state_fd = os.open(f"{root}/{STATE_FOLDER}", _FOLDER)
    except OSError:
        return None
    try:
        name = f"{WORKSPACE_ID_PREFIX}{os.fstat(state_fd).st_ino}"
        return _read(state_fd, name) or (_make(state_fd, name, _new_id(root)) if make else None)
    except OSError:
        return None
    finally:
        os.close(state_fd)


def _read(state_fd: int, name: str) -> str | None:
    try:
        descriptor = os.open(name, _READ, dir_fd=state_fd)
    except FileNotFoundError:
        return None
    try:
        found = os.read(descriptor, 2 * _ID_CHARS).decode("ascii", "replace").strip()
    finally:
        os.close(descriptor)
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
    staged = f"{name}.{os.urandom(8).hex()}"
    descriptor = os.open(staged, _CREATE, 0o666, dir_fd=state_fd)
    try:
        try:
            os.write(descriptor, made.encode() + b"\n")
        finally:
            os.close(descriptor)
        try:
            os.link(staged, name, src_dir_fd=state_fd, dst_dir_fd=state_fd, follow_symlinks=False)
        except FileExistsError:
            if (found := _read(state_fd, name)) is not None:
                return found
            os.rename(staged, name, src_dir_fd=state_fd, dst_dir_fd=state_fd)  # What is there is no id.
        except OSError:  # No hard links here (FAT).
            os.rename(staged, name, src_dir_fd=state_fd, dst_dir_fd=state_fd)
        return _read(state_fd, name)
    finally:
        try:
            os.unlink(staged, dir_fd=state_fd)
        except FileNotFoundError:
            pass
