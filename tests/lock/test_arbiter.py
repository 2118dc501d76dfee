"""The seam itself: what is above an arbiter does not know where locks are kept."""

from __future__ import annotations

import ast
from pathlib import Path

import noclobber

PACKAGE = Path(noclobber.__file__).parent

# What the file arbiter is made of.
FILES = {"events", "file_arbiter", "liveness", "lock_file", "locked_folder", "names", "nested", "os_errors"}
FILES |= {"record"}

# What others may ask for: where to find the arbiter of today, names that agents may not touch, and the look that
# every guarded write begins with.
DOORS = {
    "aio": set(),
    "backend": {"file_arbiter"},
    "doctor": {"names"},
    "git_exclude": {"names"},
    "heartbeat": set(),
    "limits": set(),
    "loaded_early": set(),
    "lock": {"file_arbiter", "names"},
    "messages": set(),
    "release_at_exit": set(),
}


def imported(path: Path) -> set[str]:
    """The modules of the lock's folder that a file imports, anywhere in it."""
    found: set[str] = set()
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "noclobber.lock":
                found |= {alias.name for alias in node.names}
            elif node.module.startswith("noclobber.lock."):
                found.add(node.module.split(".")[2])
    return found


def test_nothing_above_the_arbiter_knows_of_lock_files() -> None:
    """N-architecture: a second arbiter changes nothing but the line that chooses one."""
    for path in (PACKAGE / "lock").glob("*.py"):
        if path.stem not in FILES | {"__init__", "arbiter"}:
            assert imported(path) & FILES <= DOORS[path.stem], path.name
    for path in PACKAGE.rglob("*.py"):
        if path == PACKAGE / "postgres/arbiter.py":  # Its locks are files, too.
            assert imported(path) & FILES <= {"events", "file_arbiter", "liveness", "names", "record"}, path
        elif path.parent == PACKAGE / "postgres":
            assert imported(path) & FILES <= {"locked_folder", "record"}, path
        elif path.parent != PACKAGE / "lock":
            assert imported(path) & FILES <= {"names", "locked_folder"}, path
