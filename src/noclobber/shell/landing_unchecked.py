"""
Land what needs no check: folders of build outputs, times, and the owner and attributes of folders.

After the commit of everything else, by rename, and the last writer wins. So a folder that somebody else has
made meanwhile is not in the way: what is in ours goes into it. What cannot be landed (a full disk, a folder
that is gone) is returned, for whoever ran the command to hear of it: its exit code says that all went well.

If the process is killed in the middle, the next command does the rest (`owed`). So each step can be told from
what is on the disk: what was put is no longer in the upper layer, and a folder that goes is moved away first.
"""

from __future__ import annotations

import errno
import os
import stat

from noclobber.disk.commit.staged_things import strip, strip_folders
from noclobber.disk.removing import remove_all, remove_tree
from noclobber.disk.renames import WritableFolder
from noclobber.disk.steps import reached
from noclobber.shell import changes as tree
from noclobber.shell.changes import FILE, FOLDER, TreeChange, TreeChanges, attributes, kind_of, lstat

_IN_THE_WAY = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR)


def land_unchecked(
    changes: TreeChanges, began_ns: int, *, aside: str = "", decided_ns: int | None = None
) -> list[str]:
    """
    Land it; return what could not be, with the reason.

    `aside`: how the paths begin to which folders are moved that go. `decided_ns`: the process that decided
    it, at that ctime, was killed, and this does the rest. What somebody has changed since then stays.
    """
    troubles: list[str] = []
    for change in changes.unchecked:
        path = f"{changes.root}/{change.path}"
        try:
            if decided_ns is None or _is_left(change, path, decided_ns):
                _land(change, path, began_ns, troubles, aside, decided_ns)
        except OSError as error:
            troubles.append(_told(path, error))
        reached("unchecked-landed")
    return troubles


def _is_left(change: TreeChange, path: str, decided_ns: int) -> bool:
    """False for a change that a killed process has made already, or that is not ours to make any more."""
    if change.upper and lstat(change.upper) is None:
        return False
    folder = os.path.dirname(path)
    if lstat(folder) is None or os.path.realpath(folder) != folder:
        return False  # Somebody has removed it since, or a link is there by now.
    if change.action not in (tree.DELETE, tree.MODE):
        return True
    now = lstat(path)
    # Its kind as well: what is removed leaves its number to what is made next, and that may be a link.
    if now is None or change.old is None or (now.st_ino, kind_of(now)) != (change.old.st_ino, change.kind):
        return False
    return change.action == tree.MODE or now.st_ctime_ns <= decided_ns


def _told(path: str, error: OSError) -> str:
    return f"{path}: {error.strerror}"


def _land(
    change: TreeChange,
    path: str,
    began_ns: int,
    troubles: list[str],
    aside: str,
    decided_ns: int | None,
) -> None:
    if change.action == tree.TIMES:
        _set_times(change, path)
    elif change.action == tree.ATTRIBUTES:
        _set_attributes(change, path, began_ns)
    elif change.action == tree.MODE:
        os.chmod(path, change.mode)
    elif change.action == tree.DELETE:
        if change.kind == FOLDER and aside:
            _take_away(path, f"{aside}-{os.urandom(6).hex()}")
        else:
            _remove(path)
    else:
        if change.kind == FOLDER:
            strip_folders(change.upper)
        elif change.kind == FILE:
            strip(change.upper)
        _put(change.upper, path, troubles, decided_ns)


def _set_times(change: TreeChange, path: str) -> None:
    """
    Set the times of a file or folder, if nobody has changed it since it was looked at.

    By its inode and mtime: its mode may have landed since, and that sets the ctime.
    """
    status = os.lstat(change.upper)
    try:
        now = os.lstat(path)
    except FileNotFoundError:
        return  # Somebody has removed it. What it held was theirs, and no time can be lost.
    old = change.old
    if old is not None and (now.st_ino, now.st_mtime_ns) == (old.st_ino, old.st_mtime_ns):
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns), follow_symlinks=False)


def _set_attributes(change: TreeChange, path: str, began_ns: int) -> None:
    """
    Give a folder or a link the owner, attributes and ACL that the command gave it.

    Not if somebody else has changed those since it began: a save in a folder changes both of its times alike,
    a change of its attributes one of them.
    """
    assert change.old is not None
    if change.old.st_ctime_ns >= began_ns and change.old.st_ctime_ns != change.old.st_mtime_ns:
        return
    wanted, now = os.lstat(change.upper), os.lstat(path)
    if stat.S_IFMT(now.st_mode) != stat.S_IFMT(wanted.st_mode):
        return
    if (wanted.st_uid, wanted.st_gid) != (now.st_uid, now.st_gid):
        os.chown(path, wanted.st_uid, wanted.st_gid, follow_symlinks=False)
    if change.kind != FOLDER:
        return
    ours, theirs = attributes(change.upper), attributes(path)
    for name in theirs.keys() - ours.keys():
        os.removexattr(path, name, follow_symlinks=False)
    for name, value in ours.items():
        if theirs.get(name) != value:
            os.setxattr(path, name, value, follow_symlinks=False)


def _put(upper: str, path: str, troubles: list[str], decided_ns: int | None) -> None:
    """Put something in its place, over what is there. Two folders become one, file by file."""
    is_folder = stat.S_ISDIR(os.lstat(upper).st_mode)
    if decided_ns is not None and _is_newer(path, decided_ns, is_folder):
        return  # The last writer wins.
    try:
        _move(upper, path)
        return
    except OSError as error:
        if error.errno not in _IN_THE_WAY:
            raise
    if not (is_folder and stat.S_ISDIR(os.lstat(path).st_mode)):
        _remove(path)
        reached("unchecked-cleared")
        _move(upper, path)
        return
    for name in sorted(os.listdir(upper)):
        try:
            _put(f"{upper}/{name}", f"{path}/{name}", troubles, decided_ns)
        except OSError as error:
            troubles.append(_told(f"{path}/{name}", error))
        reached("unchecked-put")


def _is_newer(path: str, decided_ns: int, is_folder: bool) -> bool:
    """True if somebody has put something at a path since; for a folder, something that is none."""
    now = lstat(path)
    if now is None or (is_folder and stat.S_ISDIR(now.st_mode)):
        return False
    return now.st_ctime_ns > decided_ns


def _move(upper: str, path: str) -> None:
    with WritableFolder(upper):
        try:
            os.rename(upper, path)
        except PermissionError:
            # The command could: it made the folder writable, and read-only again.
            with (
                WritableFolder(os.path.dirname(upper)) as one,
                WritableFolder(os.path.dirname(path)) as other,
            ):
                if not one and not other:
                    raise
                os.rename(upper, path)


def _take_away(path: str, aside: str) -> None:
    """Remove a folder in one step: killed in the middle of another way, half of it would be left."""
    try:
        _move(path, aside)
    except FileNotFoundError:
        return
    except OSError:
        _remove(path)
        return
    reached("unchecked-aside")
    try:
        remove_tree(aside)
    except OSError:  # What is somebody else's in it stays where it was.
        _move(aside, path)
        raise


def _remove(path: str) -> None:
    folder, name = os.path.split(path)
    folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        remove_all(folder_fd, name)
    except FileNotFoundError:
        pass
    except PermissionError:
        with WritableFolder(folder) as is_read_only:  # As above.
            if not is_read_only:
                raise
            remove_all(folder_fd, name)
    finally:
        os.close(folder_fd)
