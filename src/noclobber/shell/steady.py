"""
Files that stay as they are for a command while others change them: the base of a merge.

The lower layer of a private view is the real tree. What a command reads there is whatever others have written
by then, half a save included, and nobody knows afterwards what it was. A merge needs to know it. So the files
that the agent has seen are copied when the command begins, and the copies lie above the real tree: for these
files the command reads one version from beginning to end, and that version is the base.

The copies are in `steady/` of the command's folder, for the landing to read. The kernel wants no layer inside
another one. So the view has them once more, in a small filesystem in memory that only its namespace sees.

Not copied, so what others change in them meanwhile is refused as ever: files over `MOST_FILE_BYTES`, those
beyond `MOST_FILES` or `MOST_BYTES`, hard links, files of other owners, files with attributes, and what
changes in the moment of copying.

Loaded by guarded commands in projects that merge.
"""

from __future__ import annotations

import os
import stat

from noclobber.shell.runs import STEADY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from noclobber.shell.runs import RunFolder

IN_MEMORY = "steady-view"
MOST_FILES, MOST_FILE_BYTES, MOST_BYTES = 64, 256 << 10, 8 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_HARMLESS = ("security.selinux", "user.overlay.", "trusted.overlay.")


def hold(folder: RunFolder, paths: Sequence[str], cwd: str, text: str) -> None:
    """
    Copy files of the root for the command that is about to run there: the likeliest first.

    `paths` begin with what the agent saw last; a file that the command's text names goes before the others.
    Never raises: what is not copied is not merged.
    """
    root = folder.root
    full = dict.fromkeys(path if path.startswith("/") else _joined(cwd, path) for path in paths)
    below = [path[len(root) + 1 :] for path in full if path.startswith(f"{root}/")]
    below.sort(key=lambda path: path.rpartition("/")[2] not in text)
    if not below:
        return
    left, steady = MOST_BYTES, f"{folder.path}/{STEADY}"
    try:
        os.mkdir(f"{folder.path}/{IN_MEMORY}", 0o700)
        os.mkdir(steady, 0o700)
        root_fd = os.open(root, _FOLDER)
    except OSError:
        return
    try:
        for path in below[:MOST_FILES]:
            try:
                left -= _copied(root_fd, steady, path, left)
            except OSError:
                continue  # It is gone, or the disk is full.
    finally:
        os.close(root_fd)


def _joined(cwd: str, path: str) -> str:
    folder, name = os.path.split(os.path.join(cwd, path))
    return os.path.join(os.path.realpath(folder), name)


def held(run_folder: str, path: str) -> bytes | None:
    """Return what a command has read of a file, by its path below the root; None if that is not known."""
    try:
        descriptor = os.open(f"{run_folder}/{STEADY}/{path}", _READ)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        data = os.read(descriptor, MOST_FILE_BYTES + 1)
        return data if len(data) <= MOST_FILE_BYTES else None
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _copied(root_fd: int, steady: str, path: str, most: int) -> int:
    """Copy one file; return how many bytes that took, 0 if it is not copied."""
    *folders, name = path.split("/")
    opened = [root_fd]
    try:
        for part in folders:  # One by one: where a link has come since, the overlay would hide it.
            opened.append(os.open(part, _FOLDER, dir_fd=opened[-1]))
            if not _is_ours(os.fstat(opened[-1])) or part == "":
                return 0
        descriptor = os.open(name, _READ, dir_fd=opened[-1])
        opened.append(descriptor)
        before = os.fstat(descriptor)
        if (
            not stat.S_ISREG(before.st_mode)
            or before.st_nlink != 1
            or before.st_size > min(MOST_FILE_BYTES, most)
            or not _is_ours(before)
            or not all(name.startswith(_HARMLESS) for name in os.listxattr(descriptor))
        ):
            return 0
        data = os.read(descriptor, before.st_size + 1)
        after = os.fstat(descriptor)
        if len(data) != before.st_size or _stamp(before) != _stamp(after):
            return 0  # Somebody is saving it.
        place = steady
        for part, folder_fd in zip(folders, opened[1:], strict=False):
            place = f"{place}/{part}"
            _make_folder(place, os.fstat(folder_fd))
        _write(f"{place}/{name}", data, before)
        return len(data)
    finally:
        for descriptor in opened[1:]:
            os.close(descriptor)


def _is_ours(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and status.st_gid == os.getegid()


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _make_folder(path: str, status: os.stat_result) -> None:
    """Make a folder that is found in the view with this mode. Its owner can always write here, for now."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return
    os.chmod(path, stat.S_IMODE(status.st_mode) | 0o700)


def _write(path: str, data: bytes, status: os.stat_result) -> None:
    descriptor = os.open(path, _NEW, 0o600)
    try:
        if os.write(descriptor, data) != len(data):
            raise OSError(f"{path} could not be written whole")
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
        os.utime(descriptor, ns=(status.st_atime_ns, status.st_mtime_ns))
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)


# In the child, which is about to make the view.


def fill(run_folder: str, root: str) -> None:
    """Copy what is steady to the filesystem in memory, which is mounted now. `OSError`: it is of no use."""
    _fill(f"{run_folder}/{STEADY}", f"{run_folder}/{IN_MEMORY}", root)


def _fill(source: str, goal: str, real: str) -> None:
    for name in os.listdir(source):
        here, there = f"{source}/{name}", f"{goal}/{name}"
        status = os.lstat(here)
        if stat.S_ISDIR(status.st_mode):
            os.mkdir(there, 0o700)
            _fill(here, there, f"{real}/{name}")
            status = os.lstat(f"{real}/{name}")  # Its own mode and times, in the view as outside of it.
            os.chmod(there, stat.S_IMODE(status.st_mode))
            os.utime(there, ns=(status.st_atime_ns, status.st_mtime_ns))
            continue
        descriptor = os.open(here, _READ)
        try:
            _write(there, os.read(descriptor, MOST_FILE_BYTES), status)
        finally:
            os.close(descriptor)


def give_up(run_folder: str) -> None:
    """The view is made without them: so nothing of them may be taken for what the command has read."""
    os.rename(f"{run_folder}/{STEADY}", f"{run_folder}/un{STEADY}")
