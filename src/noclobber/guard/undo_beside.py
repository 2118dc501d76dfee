"""
What an undo does beside the contents of files: folders that come back or go, links, and modes.

A folder is made before its files come, and is removed again if they cannot; one that came with an agent's
files goes after them, if nobody has put anything into it. Links and modes follow in a commit of their own,
each compared with what was looked at. Nothing outside the workspace can be reached: no link is followed.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from noclobber.core.values import WriteResult
from noclobber.disk import hashing
from noclobber.disk.commit.rows import PRIVATE, TreeRow
from noclobber.disk.paths import open_below
from noclobber.disk.version_keeper import LINK
from noclobber.errors import ABSENT, DELETED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from noclobber.guard.turn import Turn
    from noclobber.guard.undo import FileUndo

_EMPTY = hashing.of_bytes(b"folder\0")  # Folders have no content; what is on record is that there was one.
OPEN_FOLDER_MODE = 0o777  # Less the umask. What is in it and has no mode on record is for its owner only.


class LinkText(bytes):
    """A link, as its print has it; what is not one of these is the content of a file."""

    @property
    def target(self) -> str:
        """Where it leads to."""
        return os.fsdecode(self[len(LINK) :])


def make_folders(root: str, folders: Iterable[str], modes: Mapping[str, int]) -> list[str]:
    """Make the folders that are missing, and those above them; return which were made."""
    made: list[str] = []
    try:
        for folder in folders:
            missing = []
            while folder.startswith(f"{root}/") and not os.path.lexists(folder):
                missing.append(folder)
                folder = os.path.dirname(folder)
            for each in reversed(missing):
                above, name = os.path.split(each)
                folder_fd = open_below(root, above[len(root) + 1 :])
                try:
                    os.mkdir(name, stat.S_IMODE(modes.get(each, 0)) or OPEN_FOLDER_MODE, dir_fd=folder_fd)
                    made.append(each)
                except FileExistsError:
                    pass  # Somebody else was faster.
                finally:
                    os.close(folder_fd)
    except BaseException:
        remove_folders(root, made)
        raise
    return made


def remove_folders(root: str, folders: Iterable[str]) -> list[tuple[str, int]]:
    """Remove those that are empty, the inner ones first; return which, and the modes that they had."""
    gone = []
    for folder in sorted(set(folders), key=len, reverse=True):
        above, name = os.path.split(folder)
        try:
            folder_fd = open_below(root, above[len(root) + 1 :])
        except OSError:
            continue
        try:
            mode = mode_of(folder)
            os.rmdir(name, dir_fd=folder_fd)
            gone.append((folder, mode))
        except OSError:
            pass  # Somebody has put something there, or removed it.
        finally:
            os.close(folder_fd)
    return gone


def folder_result(path: str, before: int, after: int) -> tuple[WriteResult, dict[str, str]]:
    """Return what goes on record of a folder that came (it had no mode before) or went."""
    if after:
        return WriteResult(path, _EMPTY, "exchange", ABSENT), {"after_mode": f"{after:o}"}
    return WriteResult(path, DELETED, "exchange", _EMPTY), {"before_mode": f"{before:o}"}


def mode_of(path: str) -> int:
    """Return `st_mode` of what is at a path, 0 if there is nothing."""
    try:
        return os.lstat(path).st_mode
    except OSError:
        return 0


def set_links_and_modes(turn: Turn, files: Iterable[FileUndo]) -> list[tuple[WriteResult, dict[str, str]]]:
    """
    Commit what becomes of links, and which modes files get back: all of it or none.

    Each result comes with what goes on record beside it, for an undo of the undo.
    """
    rows: list[TreeRow] = []
    for each in files:
        if isinstance(each.before, LinkText) or isinstance(each.after, LinkText):
            rows += _link_rows(each)
        elif (row := _mode_row(each)) is not None:
            rows.append(row)
    if not rows:
        return []
    turn.guard.keep_landed(
        (row.path, row.expected or "") for row in rows if (row.action, row.kind) == ("delete", "link")
    )
    more = [_on_record(row) for row in rows]
    return list(zip(turn.guard.commit(rows, fence=turn.fence), more, strict=True))


def _on_record(row: TreeRow) -> dict[str, str]:
    now = mode_of(row.path)
    if row.action == "delete":
        return {"before_mode": f"{now:o}"}
    if row.action == "create":
        return {"after_mode": f"{stat.S_IFLNK | 0o777:o}"} if row.kind == "link" else {}
    return {"before_mode": f"{now:o}", "after_mode": f"{stat.S_IFMT(now) | row.mode:o}"}


def _link_rows(each: FileUndo) -> list[TreeRow]:
    rows = []
    if each.before is not None:
        kind = "link" if isinstance(each.before, LinkText) else "file"
        rows.append(TreeRow("delete", kind, each.path, hashing.of_bytes(each.before)))
    if isinstance(each.after, LinkText):
        rows.append(TreeRow("create", "link", each.path, data=each.after[len(LINK) :]))
    elif each.after is not None:
        mode = PRIVATE if each.mode is None else each.mode
        rows.append(TreeRow("create", "file", each.path, mode=mode, data=each.after))
    return rows


def _mode_row(each: FileUndo) -> TreeRow | None:
    if each.mode is None or (each.after is None and not each.is_folder):
        return None
    now = mode_of(each.path)
    if not now or stat.S_ISDIR(now) != each.is_folder or stat.S_IMODE(now) == each.mode:
        return None  # Somebody has replaced it since, or set it.
    expected = None if each.after is None else hashing.of_bytes(each.after)
    kind = "folder" if each.is_folder else "file"
    return TreeRow("mode", kind, each.path, expected, "", each.mode, stat.S_IMODE(now))
