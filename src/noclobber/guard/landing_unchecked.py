"""
Land what needs no check: folders of build outputs, times, and the owner and attributes of folders.

After the commit of everything else, by rename, and the last writer wins. So a folder that somebody else has
made meanwhile is not in the way: what is in ours goes into it. What cannot be landed (a full disk, a folder
that is gone) is returned, for whoever ran the command to hear of it: its exit code says that all went well.
"""

from __future__ import annotations

import errno
import os
import stat

from noclobber.disk.commit.staged_things import strip, strip_folders
from noclobber.disk.removing import remove_all
from noclobber.disk.renames import WritableFolder
from noclobber.shell import changes as tree
from noclobber.shell.changes import FILE, FOLDER, ChangeSet, TreeChange, attributes

_IN_THE_WAY = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR)


def land_unchecked(changes: ChangeSet, began_ns: int) -> list[str]:
    """Land it; return what could not be, with the reason."""
    troubles: list[str] = []
    for change in changes.unchecked:
        path = f"{changes.root}/{change.path}"
        try:
            _land(change, path, began_ns, troubles)
        except OSError as error:
            troubles.append(_told(path, error))
    return troubles


def _told(path: str, error: OSError) -> str:
    return f"{path}: {error.strerror}"


def _land(change: TreeChange, path: str, began_ns: int, troubles: list[str]) -> None:
    if change.action == tree.TIMES:
        _set_times(change, path)
    elif change.action == tree.ATTRIBUTES:
        _set_attributes(change, path, began_ns)
    elif change.action == tree.MODE:
        os.chmod(path, change.mode)
    elif change.action == tree.DELETE:
        _remove(path)
    else:
        if change.kind == FOLDER:
            strip_folders(change.upper)
        elif change.kind == FILE:
            strip(change.upper)
        _put(change.upper, path, troubles)


def _set_times(change: TreeChange, path: str) -> None:
    """Set the times of a file, if nobody has changed it since it was looked at."""
    status = os.lstat(change.upper)
    try:
        now = os.lstat(path)
    except FileNotFoundError:
        return  # Somebody has removed it. What it held was theirs, and no time can be lost.
    if change.old is not None and now.st_ctime_ns == change.old.st_ctime_ns:
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


def _put(upper: str, path: str, troubles: list[str]) -> None:
    """Put something in its place, over what is there. Two folders become one, file by file."""
    is_folder = stat.S_ISDIR(os.lstat(upper).st_mode)
    try:
        _move(upper, path)
        return
    except OSError as error:
        if error.errno not in _IN_THE_WAY:
            raise
    if not (is_folder and stat.S_ISDIR(os.lstat(path).st_mode)):
        _remove(path)
        _move(upper, path)
        return
    for name in sorted(os.listdir(upper)):
        try:
            _put(f"{upper}/{name}", f"{path}/{name}", troubles)
        except OSError as error:
            troubles.append(_told(f"{path}/{name}", error))


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
