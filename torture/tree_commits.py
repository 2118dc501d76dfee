"""
The commit of a command's changes (`disk/commit/change_set`), with every kind of row, for faults and
exploration.

A file gets new content, one goes, one comes, one gets other permissions; a link goes and one comes; a folder
goes, one comes, and a file makes room for a folder of its name. What they become is staged beforehand, as the
guarded shell stages it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from noclobber.disk.commit.change_set import expected_of
from noclobber.disk.commit.rows import TreeRow
from noclobber.disk.file_guard import FileGuard

MODES = (0o644, 0o755)

_rows: dict[str, list[TreeRow]] = {}  # By root: asked for before calls fail.


def prepare(root: Path, old: bytes, new: bytes) -> None:
    """Make what goes and what is staged. `a.md` and `sub/b.md` are there already."""
    upper = root / ".noclobber/run/1/upper"
    for folder in (root / "going/deep", upper / "coming/deep", upper / "turns"):
        folder.mkdir(parents=True)
    for path in (root / "mode.md", root / "turns", root / "going/deep/f.md"):
        path.write_bytes(old)
        path.chmod(MODES[0])
    for name in ("a.md", "c.md", "coming/deep/f.md", "turns/f.md"):
        (upper / name).write_bytes(new)
    os.symlink("a.md", root / "link-gone")
    os.symlink("nowhere", upper / "link-new")

    def row(action: str, kind: str, name: str, staged: str = "", mode: int = 0, old_mode: int = 0) -> TreeRow:
        path = str(root / name)
        expected = None if action == "create" else expected_of(path)
        return TreeRow(action, kind, path, expected, str(upper / staged) if staged else "", mode, old_mode)

    _rows[str(root)] = [
        row("write", "file", "a.md", "a.md"),
        row("create", "folder", "sub/coming", "coming"),
        row("delete", "folder", "going"),
        row("create", "file", "c.md", "c.md"),
        row("delete", "link", "link-gone"),
        row("create", "link", "link-new", "link-new"),
        row("mode", "file", "mode.md", "", MODES[1], MODES[0]),
        row("delete", "file", "sub/b.md"),
        row("delete", "file", "turns"),
        row("create", "folder", "turns", "turns"),
    ]


def land(guard: FileGuard) -> None:
    """Land them."""
    guard.commit(_rows[guard.root])


def picture(root: Path) -> dict[str, bytes]:
    """Return where links lead, which folders there are, and the permissions of these and of `mode.md`."""
    found = {}
    for folder, names, files in os.walk(root):
        if folder == str(root) and ".noclobber" in names:
            names.remove(".noclobber")
        for name in (*names, *files):
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                found[f"{os.path.relpath(path, root)}@"] = os.fsencode(os.readlink(path))
            elif stat.S_ISDIR(mode):
                found[f"{os.path.relpath(path, root)}/"] = b"%o" % stat.S_IMODE(mode)
            elif name == "mode.md":
                found["mode.md mode"] = b"%o" % stat.S_IMODE(mode)
    return found
