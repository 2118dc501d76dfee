"""
What is kept of a refused command's work, and how much of all such work.

It is kept to be looked at; to run the command again needs none of it. So build outputs and installed packages
are not kept, nor files with the names of secrets. All that is kept in a project has at most
`MOST_KEPT_BYTES`, the newest aside: the oldest goes first.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection

from noclobber.core.secret_names import is_secret
from noclobber.disk.removing import remove_tree
from noclobber.shell import runs

MOST_KEPT_BYTES = 64 << 20
BLOCK_BYTES = 512


def trim(upper: str, unchecked: Collection[str]) -> int:
    """Remove what is not kept; return how many bytes are left."""
    kept_bytes, left = 0, [(upper, False)]
    while left:
        folder, is_git = left.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue  # It has become one that its owner may not read.
        for entry in entries:
            path = entry.path
            if entry.is_dir(follow_symlinks=False):
                if entry.name in unchecked and not is_git:
                    remove_tree(path)
                else:
                    left.append((path, is_git or entry.name == ".git"))
                continue
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) and not is_git and is_secret(path[len(upper) + 1 :]):
                os.unlink(path)
            else:
                kept_bytes += status.st_blocks * BLOCK_BYTES
    return kept_bytes


def make_room(root: str, newest_bytes: int) -> None:
    """Remove the oldest refused commands, if all together have too much. The newest is held, and stays."""
    total = newest_bytes
    for run_id in reversed(runs.all_ids(root)):
        folder = runs.found(root, run_id)
        if folder is None:
            continue  # Held: somebody works in it.
        try:
            size = (folder.noted("refused") or {}).get("bytes") if folder.is_refused else None
            if isinstance(size, int):
                total += size
                if total > MOST_KEPT_BYTES:
                    folder.remove()
        except OSError:
            pass  # Removed meanwhile.
        finally:
            folder.close()
