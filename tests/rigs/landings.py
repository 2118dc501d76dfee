"""Every way in which a change reaches the disk, for tests of those who watch it: what it does, and to which files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from noclobber import Edit, Workspace
from tests.rigs.commands import run

ONE, TWO = b"one\n", b"two\n"
FILES = ("a.txt", "b.txt", "sub/c.txt")


class Landing(NamedTuple):
    """One way to land a change: the paths that it changes, and how to make ready for it and do it."""

    changes: tuple[str, ...]
    do: Callable[[Path], None]
    prepare: Callable[[Path], None] = lambda root: None


def lay_out(root: Path) -> None:
    """Make the files that the landings change, and a workspace that has been used before."""
    for name in FILES:
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(ONE)
    with Workspace(root) as ws, ws.turn() as turn:
        turn.write_file("first.txt", ONE)


def replace(root: Path) -> None:
    with Workspace(root) as ws, ws.turn() as turn:
        turn.read_file("a.txt")
        turn.write_file("a.txt", TWO)


def replace_durably(root: Path) -> None:
    """Twice: the second writes over the version before the first."""
    with Workspace(root, durable=True) as ws, ws.turn() as turn:
        turn.read_file("sub/c.txt")
        turn.write_file("sub/c.txt", TWO)
        turn.write_file("sub/c.txt", ONE + TWO)


def edit(root: Path) -> None:
    with Workspace(root) as ws, ws.turn() as turn:
        turn.read_file("a.txt")
        turn.edit_file("a.txt", [Edit(b"one", b"two")])


def create(root: Path) -> None:
    with Workspace(root) as ws, ws.turn() as turn:
        turn.write_file("new.txt", TWO)


def create_and_replace(root: Path) -> None:
    with Workspace(root) as ws, ws.turn() as turn:
        turn.write_file("new.txt", ONE)
        turn.write_file("new.txt", TWO)


def delete(root: Path) -> None:
    with Workspace(root) as ws, ws.turn() as turn:
        turn.read_file("a.txt")
        turn.delete_file("a.txt")


def move(root: Path) -> None:
    with Workspace(root) as ws, ws.turn() as turn:
        turn.read_file("a.txt")
        turn.move_file("a.txt", "sub/moved.txt")


def write_several(root: Path) -> None:
    with Workspace(root) as ws, ws.turn() as turn:
        turn.read_file("a.txt")
        turn.read_file("sub/c.txt")
        turn.write_files({"a.txt": TWO, "sub/c.txt": TWO, "new.txt": TWO})


def command(script: str) -> Callable[[Path], None]:
    """A guarded command, of a process of its own."""

    def do(root: Path) -> None:
        done = run("run", "--agent", "bot", "--", "sh", "-c", script, cwd=root)
        assert done.code == 0, done.err

    return do


def undo(root: Path) -> None:
    done = run("undo", "--agent", "bot", cwd=root)
    assert done.code == 0, done.err


ALL_AT_ONCE = "sed -i s/one/two/ a.txt; rm b.txt; mv sub/c.txt moved.txt; echo two > new.txt"

LANDINGS = {
    "replace": Landing(("a.txt",), replace),
    "replace durably": Landing(("sub/c.txt",), replace_durably),
    "edit": Landing(("a.txt",), edit),
    "create": Landing(("new.txt",), create),
    "create and replace": Landing(("new.txt",), create_and_replace),
    "delete": Landing(("a.txt",), delete),
    "move": Landing(("a.txt", "sub/moved.txt"), move),
    "several files": Landing(("a.txt", "sub/c.txt", "new.txt"), write_several),
    "command": Landing(("a.txt",), command("sed -i s/one/two/ a.txt")),
    "command, all at once": Landing(
        ("a.txt", "b.txt", "sub/c.txt", "moved.txt", "new.txt"), command(ALL_AT_ONCE)
    ),
    "undo of a write": Landing(("a.txt",), undo, command("echo two > a.txt")),
    "undo of all at once": Landing(
        ("a.txt", "b.txt", "sub/c.txt", "moved.txt", "new.txt"), undo, command(ALL_AT_ONCE)
    ),
}
