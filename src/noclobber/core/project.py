"""
Which folder is the project, and what noclobber's own files in it are called.

The command line, hooks, MCP and `Workspace.find()` ask `find_project()`, so they always agree (ruling 16):

1. The nearest folder upward with a mark in it: `.noclobber/`, `noclobber.toml`, or `[tool.noclobber]` in
   `pyproject.toml`. A mark further up wins over a nearer `.git`: a nested repository or a submodule does
   not switch the rules of the project off.
2. Without a mark: the folder that the host names as the project, else the git top level, else the folder
   where the search began.

A mark counts only if it belongs to this user. Otherwise anybody who may write to a folder above the project,
such as `/tmp`, could choose the project, its rules and its crash notes for somebody else (git has
`safe.directory` for the same reason). A mark of root's counts too: root needs no such trick.

This module is loaded by every hook, so it imports almost nothing.
"""

from __future__ import annotations

import os
import stat

STATE_FOLDER = ".noclobber"  # In the project's root.
BESIDE_PREFIX = ".noclobber-"  # Beside a target that is on another mount than the state folder.

# In the state folder.
LEDGER_NAME = "agent_trace.jsonl"
WORKSPACE_ID_PREFIX = "workspace_id."  # And the folder's inode number: a copy makes an id of its own.
SWAP_FOLDER = "swap"  # Staged and displaced versions, while a commit runs.
NOTES_FOLDER = "notes"  # What a commit is about to do, for recovery after a crash.
MUTEX_NAME = "mutex"  # In that folder, on volumes that other machines may have mounted: see `disk.reach`.
LEASE_NAME = "lease"  # In the swap folder, where locks reach one mount only: see `disk.lease_file`.
KEPT_FOLDER = "kept"  # Versions that could neither be put back nor be dropped.
OWED_FOLDER = "run/landed"  # What commands still owe to unchecked folders: see `shell.owed`.
CLAIMS_FOLDER = "claims"  # Files that a coding agent's tool is about to write.
LOST_FOLDER = "lost"  # Sessions whose memory of what they read could not be kept.
SECTIONS_FOLDER = "sections"  # Staged versions on a volume that several machines share.
TREE_ID_NAME = "tree_id"  # In that folder.
TURNS_FOLDER = "turns"  # Open turns, for `noclobber status`.
VERSIONS_PREFIX = "versions."  # And the user id: past versions by hash, for their owner only.
DIGEST_PREFIX = "digest."  # And the user id: what `commit --mine` need not read in the ledger again.

OPTIONS_NAME = "noclobber.toml"
SHARED_OPTIONS_NAME = "pyproject.toml"  # Its table [tool.noclobber].

UNCHECKED = frozenset(
    (
        *("node_modules", ".venv", "venv", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"),
        *(".tox", ".nox", "target", "dist", "build", ".next", ".nuxt", ".turbo", ".parcel-cache", ".gradle"),
        *(".cache", "coverage", ".coverage", ".eggs", ".hypothesis"),
    )
)
"""Folders of build outputs and installed packages: see `shell.changes`. The option `unchecked` changes it."""

COORDINATOR = "NOCLOBBER_COORDINATOR"
"""The server that decides and keeps the record for several machines. Unset: files do."""

_ROOT_UID = 0
_ONLY_NAMED = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


def find_project(start: str | os.PathLike[str], *, host_folder: str | None = None) -> str:
    """
    Return the canonical path of the project that a folder belongs to; the module's text has the rule.

    `MissingFileError` or `NotAFileError` if `start` is not a folder. A `host_folder` that is not an existing
    absolute folder is ignored: hosts take it from their own settings, which may be out of date.
    """
    above = _folders_upward(existing_folder(start))
    named: list[str] = []
    if host_folder and host_folder.startswith("/") and "\0" not in host_folder and os.path.isdir(host_folder):
        named = _folders_upward(os.path.realpath(host_folder))
    for folder in (*above, *named):
        if is_marked(folder):
            return folder
    if named:
        return named[0]
    return next((folder for folder in above if os.path.lexists(f"{folder}/.git")), above[0])


def existing_folder(folder: str | os.PathLike[str]) -> str:
    """Return the canonical path of a folder; an error if there is none, or if it is something else."""
    path = os.fspath(folder)
    if "\0" not in path:
        if path.startswith("/") and _is_canonical(path):
            return path
        if os.path.isdir(path):
            return os.path.realpath(path)
    from noclobber.errors import MissingFileError, NotAFileError  # Here: it is most of what this would load.

    if "\0" in path or not os.path.lexists(path):
        raise MissingFileError(path.replace("\0", "\\0"), "there is no such folder.")
    raise NotAFileError(path, "this is not a folder.")


def _is_canonical(path: str) -> bool:
    """
    True if a path is a folder's, and the one that the kernel has for it. False: look for yourself.

    Most paths that come here are canonical already, and looking at each of their parts takes twice as long.
    """
    try:
        descriptor = os.open(path, _ONLY_NAMED)
    except OSError:
        return False
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}") == path
    except OSError:  # macOS, or nothing is mounted there.
        return False
    finally:
        os.close(descriptor)


def is_marked(folder: str) -> bool:
    """True if a folder holds a mark of noclobber's that belongs to this user."""
    state = _status(f"{folder}/{STATE_FOLDER}")
    # The state folder itself must be ours, whoever owns the folder around it: crash notes are read from it.
    if state is not None and stat.S_ISDIR(state.st_mode) and state.st_uid in (os.geteuid(), _ROOT_UID):
        return True
    own = _status(f"{folder}/{OPTIONS_NAME}")
    if own is not None and _belongs_to_user(own, folder):
        return True
    shared = _status(f"{folder}/{SHARED_OPTIONS_NAME}")
    if shared is None or not _belongs_to_user(shared, folder):
        return False
    from noclobber.core.options_file import is_in_pyproject

    return is_in_pyproject(folder)


def no_project(folder: str) -> str:
    """Return in words which folder this is that is hardly meant as a project; empty if it may well be one."""
    if os.path.lexists(f"{folder}/.git") or os.path.lexists(f"{folder}/{OPTIONS_NAME}"):
        return ""
    if folder == os.path.realpath(os.path.expanduser("~")):
        return "your home folder"
    return "the whole machine" if folder == "/" else ""


def state_folder(root: str) -> str:
    """Return where a project's state is kept."""
    return f"{root}/{STATE_FOLDER}"


def ledger_path(root: str) -> str:
    """Return where a project's ledger is."""
    return f"{root}/{STATE_FOLDER}/{LEDGER_NAME}"


def _folders_upward(folder: str) -> list[str]:
    """Return a canonical folder and those above it, the nearest first."""
    found = [folder]
    while (above := os.path.dirname(found[-1])) != found[-1]:
        found.append(above)
    return found


def _status(path: str) -> os.stat_result | None:
    """Return what is known of a name, links not followed; None if nothing is there, or nobody may look."""
    try:
        return os.lstat(path)
    except OSError:
        return None


def _belongs_to_user(status: os.stat_result, folder: str) -> bool:
    user = os.geteuid()
    if status.st_uid in (user, _ROOT_UID):
        return True
    around = _status(folder)
    return around is not None and around.st_uid == user
