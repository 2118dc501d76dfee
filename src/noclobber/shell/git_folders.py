"""
git folders outside of the root: a linked work tree's, or that of a clone in which the project is a folder.

There git would move HEAD, branches and the index while the command runs. If the command is refused then, the
work tree stays as it was and the index does not, and the next commit of anybody reverts what was refused. So
such a folder has an overlay of its own beside that of the root, `<run>/git/<number>/`:

| name | |
|---|---|
| `of` | a link to the folder |
| `upper/`, `work/` | the layers: what the command changed there |

What is in it lands under git's own locks, after the commit of everything else, which makes it owed (`owed`).

Known before the command starts: the folders around where it starts, and around the folders that its words
name. One that only a script knows, and one on another filesystem, is changed at once; a refusal says so.

Light to import: every guarded command loads it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from noclobber.shell.changes import DELETE, TreeChanges, changes, lstat
from noclobber.shell.named_links import names_in

if TYPE_CHECKING:
    from noclobber.shell.changes import TreeChange

LAYERS = "git"
MOST_BYTES = 8192
LONGEST_PATH = 3000
_MOVED = ("HEAD", "index", "logs/HEAD")


def top_around(folder: str) -> str:
    """Return the nearest folder, from this one upward, that has a `.git`; empty if none has."""
    while folder and lstat(f"{folder}/.git") is None:
        folder = folder.rpartition("/")[0]
    return folder


def git_folder_of(top: str) -> str:
    """Return the git folder of a work tree, with its own HEAD and index: `.git`, or where that file leads."""
    git = f"{top}/.git"
    if os.path.isfile(git):
        return os.path.normpath(os.path.join(top, _text(git).removeprefix("gitdir:").strip()))
    return git


def common_folder(git: str) -> str:
    """Return the git folder that a `.git` leads to, with branches and objects in it; empty if it is none."""
    git = git_folder_of(os.path.dirname(git))
    if not os.path.lexists(f"{git}/HEAD"):
        return ""
    return os.path.realpath(os.path.join(git, _text(f"{git}/commondir").strip()))


def lay_out(
    root: str, run_folder: str, cwd: str, argv: Sequence[str], environment: Mapping[str, str]
) -> None:
    """Make the layers for every git folder outside of the root that a command may use."""
    starts = [cwd]
    for word in names_in(argv):
        if "\0" not in word and os.path.lexists(f"{os.path.join(cwd, word)}/.git"):
            starts.append(os.path.realpath(os.path.join(cwd, word)))
    found = {common_folder(f"{top}/.git") for top in map(top_around, starts) if top}
    if "GIT_DIR" in environment:
        found.add(common_folder(os.path.join(cwd, environment["GIT_DIR"])))
    for number, folder in enumerate(sorted(filter(None, found))):
        if f"{folder}/".startswith(f"{root}/") or f"{root}/".startswith(f"{folder}/"):
            continue
        # A lock is a second name of a file of ours, and what lands is renamed.
        if os.stat(folder).st_dev != os.stat(run_folder).st_dev or not os.access(folder, os.W_OK):
            continue
        layer = f"{run_folder}/{LAYERS}/{number}"
        os.makedirs(f"{layer}/work", 0o700)
        os.mkdir(f"{layer}/upper", os.stat(folder).st_mode & 0o7777)
        os.symlink(folder, f"{layer}/of")


def layers(run_folder: str) -> list[tuple[str, str]]:
    """Return the git folders that have layers, each with where those are."""
    try:
        names = sorted(os.listdir(f"{run_folder}/{LAYERS}"))
    except FileNotFoundError:
        return []
    found = [f"{run_folder}/{LAYERS}/{name}" for name in names]
    return [(os.readlink(f"{layer}/of"), layer) for layer in found if os.path.lexists(f"{layer}/of")]


def has_written(run_folder: str) -> bool:
    """True if a command has changed anything, in the project or in a git folder."""
    uppers = [run_folder, *(layer for _, layer in layers(run_folder))]
    return any(os.listdir(f"{upper}/upper") for upper in uppers)


def changes_beside(run_folder: str, began_ns: int) -> tuple[TreeChanges, ...]:
    """Return what a command changed in git folders outside of the root, and what others changed there."""
    found = []
    for folder, layer in layers(run_folder):
        changed = changes(folder, f"{layer}/upper", frozenset(), began_ns)
        if changed.changes or changed.same or changed.overtaken:
            # Objects come before what names them, and go after it: others read without any lock.
            found.append(changed._replace(changes=tuple(sorted(changed.changes, key=_turn))))
    return tuple(found)


def _turn(change: TreeChange) -> int:
    is_gone = change.action == DELETE
    return (2 if is_gone else 0) if change.path.startswith("objects") else 1


def changed_since(found: TreeChanges, began_ns: int) -> Iterator[str]:
    """Yield what others have changed since the command began, of what it changed in a git folder."""
    # An object's name says what it holds; a log is written under the lock of its branch.
    for change in (*found.files(), *found.same):
        if not change.path.startswith(("objects/", "logs/")):
            path = f"{found.root}/{change.path}"
            status = lstat(path)
            if status is not None and status.st_ctime_ns >= began_ns:
                yield path
    for name, _ in found.overtaken:  # Made or removed by the command, and by somebody else.
        if not name.startswith(("objects/", "logs/")) and name not in ("objects", "logs"):
            yield f"{found.root}/{name}"


def moved_at_once(root: str, run_folder: str, cwd: str, began_ns: int) -> list[str]:
    """Return what has changed since a command began in its git folders that have no layers."""
    laid = [root, *(folder for folder, _ in layers(run_folder))]
    upper = f"{run_folder}/upper"
    tops, to_look = {top_around(cwd)}, [upper]
    while to_look:
        folder = to_look.pop()
        real = f"{root}{folder[len(upper) :]}"
        if os.path.isfile(f"{real}/.git"):
            tops.add(real)
        if len(folder) < LONGEST_PATH:
            to_look += [each.path for each in os.scandir(folder) if each.is_dir(follow_symlinks=False)]
    found = set()
    for top in tops - {""}:
        git = git_folder_of(top)
        if not f"{os.path.realpath(git)}/".startswith(tuple(f"{each}/" for each in laid)):
            for name in _MOVED:
                status = lstat(f"{git}/{name}")
                if status is not None and status.st_ctime_ns >= began_ns:
                    found.add(f"{git}/{name}")
    return sorted(found)


def _text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return os.fsdecode(file.read(MOST_BYTES))
    except OSError:
        return ""
