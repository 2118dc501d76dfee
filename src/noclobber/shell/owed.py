"""
What a landing still owes to unchecked folders after its commit.

What is in unchecked folders lands after everything else, by renames (`landing_unchecked`). A process that is
killed in between would leave HEAD new and `dist` old, or half of an installation. So all of it is written
down first, and the commit of everything else moves that list to where it counts (`runs.owed_path`), as one of
its rows: the list is there if and only if the checked part has landed. A command that changed nothing checked
has it moved there by a rename, before the first of the others.

The next command that finds the folder of a dead one, and its list, lands the rest (`pay()`). Nothing is
judged anew: what may land was decided before. What somebody has changed since stays: the last writer wins.

A list that came with a repository must not count: it carries a token that only this machine can make, and
only for this very file (`note_keys`). And it must be this user's own, in a folder of this user's.

Not promised: the times of files, if a command changed nothing else outside of what is checked.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from noclobber.disk import ordering, small_file
from noclobber.disk.commit import note_keys
from noclobber.disk.commit.rows import TreeRow
from noclobber.disk.paths import open_below
from noclobber.disk.reading import read_all
from noclobber.disk.steps import reached
from noclobber.shell.changes import DELETE, FILE, TreeChange, TreeChanges
from noclobber.shell.git_folders import layers
from noclobber.shell.landing_unchecked import land_unchecked
from noclobber.shell.runs import owed_path

if TYPE_CHECKING:
    from noclobber.shell.runs import RunFolder

DRAFT = "owed"
ASIDE = "gone"
FIELDS = 7  # Of a change.
END = b"end"


def drafted(run: RunFolder, changes: TreeChanges, began_ns: int) -> TreeRow:
    """Write down what is owed once the rest has landed; return the row of the commit that says that."""
    path, draft = owed_path(run.root, run.run_id), f"{run.path}/{DRAFT}"
    _make_place(os.path.dirname(path))
    with small_file.closing(os.open(draft, small_file.NEW, 0o600)) as descriptor:
        words = [note_keys.tokens(os.fstat(descriptor).st_ino)[0], b"%d" % began_ns]
        for change in changes.unchecked:
            words += _words(change)
        for each in changes.beside:
            for change in each.changes:
                words += _words(change._replace(path=f"{each.root}/{change.path}"))
        small_file.write_all(descriptor, b"\0".join((*words, END)))
        ordering.start(descriptor)
    run.owes = True
    return TreeRow("create", FILE, path, None, draft, 0o600, is_own=True)


def settle_beside(run: RunFolder, changes: TreeChanges, began_ns: int) -> None:
    """Land what git folders outside of the root are owed: after the commit, while git's locks are held."""
    _decide(run)
    for each in changes.beside:
        run.not_landed += land_unchecked(_unchecked(each), began_ns, aside=f"{run.path}/{ASIDE}")
        reached("unchecked-beside")


def _unchecked(changes: TreeChanges) -> TreeChanges:
    return changes._replace(changes=tuple(each._replace(is_checked=False) for each in changes.changes))


def settle(run: RunFolder, changes: TreeChanges, began_ns: int) -> list[str]:
    """Land what is owed, after the commit; return what could not be landed."""
    _decide(run)
    reached("unchecked-decided")
    troubles = land_unchecked(changes, began_ns, aside=f"{run.path}/{ASIDE}")
    reached("unchecked-done")
    try:
        _forget(run)
    except OSError:
        pass  # It has landed. The next command finds nothing left to do.
    return troubles


def pay(run: RunFolder) -> bool:
    """
    Land what a killed process still owed; False if not all of it could be, or somebody else has to.

    Killed in the middle, it is done again from the beginning: what has landed is passed over.
    """
    try:
        changes, began_ns, decided_ns = _read(run)
    except (OSError, ValueError):
        return False
    for each in (*changes.beside, changes):
        if land_unchecked(each, began_ns, aside=f"{run.path}/{ASIDE}", decided_ns=decided_ns):
            return False
    _forget(run)
    return True


def _words(change: TreeChange) -> list[bytes]:
    old = change.old
    numbers = (0, 0, 0) if old is None else (old.st_ino, old.st_ctime_ns, old.st_mtime_ns)
    names = [change.action.encode(), change.kind.encode(), os.fsencode(change.path)]
    return [*names, b"%d" % change.mode, *(b"%d" % number for number in numbers)]


def _decide(run: RunFolder) -> None:
    """Move the list to where it counts, if no commit has: there was nothing else to land."""
    draft, path = f"{run.path}/{DRAFT}", owed_path(run.root, run.run_id)
    try:
        descriptor = os.open(draft, small_file.READ)
    except FileNotFoundError:
        return
    try:
        kind = ordering.type_of(os.fstat(descriptor).st_dev, run.path)
        ordering.wait(descriptor, kind)
    finally:
        os.close(descriptor)
    folder_fd = _opened(run.root, os.path.dirname(path))
    try:
        os.rename(draft, run.run_id, dst_dir_fd=folder_fd)
        if kind not in ordering.ORDERED:  # There, a rename that comes later may last sooner.
            os.fsync(folder_fd)
    finally:
        os.close(folder_fd)


def _forget(run: RunFolder) -> None:
    """Nothing is owed any more."""
    folder_fd = _opened(run.root, os.path.dirname(owed_path(run.root, run.run_id)))
    try:
        os.unlink(run.run_id, dir_fd=folder_fd)
    finally:
        os.close(folder_fd)
    run.owes = False


def _read(run: RunFolder) -> tuple[TreeChanges, int, int]:
    """Return what a list says: the changes, when their command began, and when they were decided."""
    with small_file.closing(_opened(run.root, os.path.dirname(owed_path(run.root, run.run_id)))) as folder_fd:
        opened = os.open(run.run_id, small_file.READ, dir_fd=folder_fd)
    with small_file.closing(opened) as descriptor:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or {status.st_uid, os.lstat(run.path).st_uid} != {os.geteuid()}:
            raise ValueError("it is somebody else's")
        token, *words = read_all(descriptor).split(b"\0")
        if token not in note_keys.tokens(status.st_ino):
            raise ValueError("it was not made here")
    if len(words) % FIELDS != 2 or words[-1] != END:
        raise ValueError("it is not complete")
    began_ns, rows = int(words[0]), words[1:-1]
    roots = {"": (run.root, run.path), **{f"{folder}/": (folder, at) for folder, at in layers(run.path)}}
    found: dict[str, list[TreeChange]] = {above: [] for above in roots}
    for at in range(0, len(rows), FIELDS):
        name = os.fsdecode(rows[at + 2])
        above = max((each for each in roots if name.startswith(each)), key=len)
        fields = (*rows[at : at + 2], *rows[at + 3 : at + FIELDS])
        found[above].append(_change(roots[above][1], name[len(above) :], *fields))
    ours, *beside = (TreeChanges(folder, tuple(found[above])) for above, (folder, _) in roots.items())
    return ours._replace(beside=tuple(beside)), began_ns, status.st_ctime_ns


def _change(layer: str, path: str, action: bytes, kind: bytes, *numbers: bytes) -> TreeChange:
    if not path or {"", ".", ".."} & set(path.split("/")):
        raise ValueError("that is no path in the project")
    mode, inode, ctime_ns, mtime_ns = map(int, numbers)
    times = {"st_ctime_ns": ctime_ns, "st_mtime_ns": mtime_ns}
    old = os.stat_result((0, inode, *[0] * 8), times) if inode else None
    upper = "" if action.decode() == DELETE else f"{layer}/upper/{path}"
    return TreeChange(action.decode(), kind.decode(), path, upper, old, mode, is_checked=False)


def _make_place(folder: str) -> None:
    """Make the folder that a list moves to, once in the life of a project."""
    runs_folder, *names = folder.rsplit("/", 2)
    above_fd = os.open(runs_folder, small_file.FOLDER)
    for name in names:
        with small_file.closing(above_fd):
            made_fd = small_file.open_own_folder(name, above_fd)
            if os.geteuid() == 0:  # In the project of another user, who has to be able to use it as well.
                above = os.fstat(above_fd)
                os.fchown(made_fd, above.st_uid, above.st_gid)
        above_fd = made_fd
    os.close(above_fd)


def _opened(root: str, folder: str) -> int:
    """Open the folder of a list. No link is followed: the folder may have come with a repository."""
    return open_below(root, folder[len(root) :])
