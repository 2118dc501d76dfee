"""
One name per file: canonical, inside the workspace, and pinned.

`pin()` opens the folder that holds the file and asks the *kernel* what that folder is called. Every
later step works relative to that descriptor, so a link that somebody swaps in afterwards has
no effect: there is no second look-up that it could redirect.

`lexical()` is the same name without touching the disk: what the agent called the file.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, Protocol

from noclobber.core.project import BESIDE_PREFIX, STATE_FOLDER
from noclobber.disk.small_file import closing
from noclobber.disk.system_errors import lookup_failed
from noclobber.errors import (
    BadPathError,
    MissingFileError,
    NotAFileError,
    OutsideWorkspaceError,
)


class FolderRecord(Protocol):
    """Is told of folders that are made on the way to a file."""

    def making(self, folder: str) -> None:
        """This one is about to be made."""

    def others_made(self, folder: str) -> None:
        """It was there already."""


MOST_LINKS = 40  # As many as the kernel follows.
NAMING_TRIES = 8
MOST_CONFIRMED = 10_000

_confirmed: dict[str, tuple[int, int]] = {}
"""Names of folders that were found to lead to them, with device and inode: the walk is made once for each."""
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class PinnedPath(NamedTuple):
    """A file's place: an open folder, a name in it, and the canonical path that the two make."""

    folder_fd: int
    name: str
    path: str
    via: str = ""
    """What was asked for, if links led from there to here: then it may lead elsewhere by now."""

    @property
    def folder(self) -> str:
        """The canonical path of the folder."""
        return self.path[: -len(self.name) - 1] or "/"

    def close(self) -> None:
        """Close the folder."""
        os.close(self.folder_fd)


def lexical(root: str, path: str | os.PathLike[str]) -> str:
    """Return the absolute, normalised name, without touching the disk."""
    text = _text(path)
    return os.path.normpath(text if text.startswith("/") else f"{root}/{text}")


def _text(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    if not isinstance(text, str):
        raise BadPathError(repr(text), "a path must be text, not bytes.")
    if not text:
        raise BadPathError("", "the path is empty.")
    if "\0" in text:
        raise BadPathError(text.replace("\0", "\\0"), "the path contains a NUL character.")
    try:
        text.encode()
    except UnicodeEncodeError:
        shown = text.encode("utf-8", "backslashreplace").decode()
        raise BadPathError(shown, "the path is not valid UTF-8; rename the file.") from None
    return text


def is_reserved(path: str, root: str | None) -> bool:
    """True for noclobber's own records: an agent must not read or edit its own trace."""
    below = path[len(root) :] if root and path.startswith(root) else path
    # Case is folded everywhere: macOS, FAT, SMB and folders of ext4 with the attribute +F do not tell cases
    # apart, and a mount of another kind may be anywhere in the project. It costs a name that nobody uses.
    below = below.casefold()
    if STATE_FOLDER not in below:
        return False
    return any(part == STATE_FOLDER or part.startswith(BESIDE_PREFIX) for part in below.split("/"))


def check_inside(path: str, root: str | None) -> None:
    """Refuse what is outside the workspace or inside noclobber's own records."""
    if root is None:
        return
    if path != root and not path.startswith(root if root == "/" else root + "/"):
        raise OutsideWorkspaceError(path, f"this is outside the workspace {root}.", root=root)
    if is_reserved(path, root):
        raise OutsideWorkspaceError(path, "these are noclobber's own records; tools do not touch them.")


def folder_name(folder_fd: int, fallback: str) -> str:
    """
    Ask the kernel what an open folder is called now, and make sure that this name leads to it.

    The name alone proves nothing: a folder that was reached through `/proc/PID/root` of a process in another
    mount namespace is named as that process sees it, and may be called like one in the workspace.
    """
    opened = os.fstat(folder_fd)
    identity = (opened.st_dev, opened.st_ino)
    for _ in range(NAMING_TRIES):  # Somebody may rename the folder between the two questions.
        name = _kernel_name(folder_fd, fallback)
        if _confirmed.get(name) == identity:
            return name
        try:
            # No link on the way: it may be the very link that leads into the other namespace.
            if os.path.samestat(os.lstat(name), opened) and not _has_link(name):
                if len(_confirmed) >= MOST_CONFIRMED:
                    _confirmed.clear()
                _confirmed[name] = identity
                return name
        except OSError:
            if name.endswith(" (deleted)") or not os.fstat(folder_fd).st_nlink:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), fallback) from None
    raise BadPathError(
        fallback,
        "the name of this folder leads to another one: it is being moved, or it is in another mount"
        " namespace. Use its path in this one.",
    )


def _has_link(name: str) -> bool:
    """True if a folder above an absolute path is a link."""
    above = name.rpartition("/")[0]
    while above:
        if os.path.islink(above):
            return True
        above = above.rpartition("/")[0]
    return False


def _kernel_name(folder_fd: int, fallback: str) -> str:
    try:
        if sys.platform == "darwin":
            import fcntl

            answer = fcntl.fcntl(folder_fd, 50, bytes(1024))  # F_GETPATH
            return os.fsdecode(answer.split(b"\0", 1)[0])
        return os.readlink(f"/proc/self/fd/{folder_fd}")
    except OSError:  # No /proc. What the path leads to now is the folder, if `stat` agrees.
        return os.path.realpath(fallback)


def pin(root: str | None, path: str, *, make_folders: FolderRecord | bool = False) -> PinnedPath:
    """
    Open the folder that really holds `path` (absolute, normalised) and name the file in it.

    Links are followed, also in the last place: the result is never a link at the time of looking.
    The caller closes the target. `make_folders`: make those that are missing, and tell the record of each.
    """
    asked = path
    for _ in range(MOST_LINKS):
        head, _, name = path.rpartition("/")
        if name in ("", ".", ".."):
            raise NotAFileError(path, "this names a folder, not a file.")
        folder_fd = _open_folder(root, head, path, make_folders)
        try:
            folder = folder_name(folder_fd, head)
            here = f"{folder}/{name}" if folder != "/" else f"/{name}"
            check_inside(here, root)
            try:
                status = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
            except FileNotFoundError:
                return PinnedPath(folder_fd, name, here, "" if here == asked else asked)
            if not stat.S_ISLNK(status.st_mode):
                if sys.platform == "darwin":
                    name = spelled_in(folder_fd, name)
                    here = f"{folder.rstrip('/')}/{name}"
                return PinnedPath(folder_fd, name, here, "" if here == asked else asked)
            # normpath is wrong after a link to a folder ("link/.."), so only join, and let the
            # next round's open() and folder_name() resolve it.
            path = os.path.join(folder, _read_link(folder_fd, name))
        except OSError as error:
            os.close(folder_fd)
            raise lookup_failed(error, path) from error
        except BaseException:
            os.close(folder_fd)
            raise
        os.close(folder_fd)
    raise BadPathError(path, "too many symbolic links lead to one another.")


def spelled_in(folder_fd: int, name: str) -> str:
    """
    Return a name as its folder has it.

    APFS takes `PLAN.md` for `plan.md`, and one Unicode normal form for another. A file that has two paths
    would be two files here: one was read, and the other one is written.
    """
    names = os.listdir(folder_fd)
    if name in names:
        return name
    wanted = _folded(name)
    return next((each for each in names if _folded(each) == wanted), name)


def _folded(name: str) -> str:
    return unicodedata.normalize("NFD", name.casefold())


def locate(path: str, root: str | None = None) -> str:
    """Return the canonical path for an absolute, normalised one, whether a file is there or not."""
    try:
        target = pin(root, path)
    except MissingFileError:
        # Its folder does not exist yet. The deepest one that does must be inside all the same.
        here, below = os.path.split(path)
        while here != "/" and not os.path.isdir(here):
            here, part = os.path.split(here)
            below = f"{part}/{below}"
            if not here:
                raise BadPathError(path, "the path is not absolute.") from None
        found = os.path.join(os.path.realpath(here), below)
        check_inside(found, root)
        return found
    target.close()
    return target.path


def open_below(base: str, relative: str, *, make: bool = False) -> int:
    """
    Open a folder below another by names that lead there without any link; "" is the folder itself.

    For names that somebody else has written down: nothing outside `base` can be reached this way. `make`:
    make the folders that are missing.
    """
    folder_fd = os.open(base, OPEN_FOLDER | os.O_NOFOLLOW)
    try:
        for name in filter(None, relative.split("/")):
            if name in (".", ".."):
                raise NotADirectoryError(errno.ENOTDIR, "not a name", relative)
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=folder_fd)
            below_fd = os.open(name, OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=folder_fd)
            os.close(folder_fd)
            folder_fd = below_fd
    except BaseException:
        os.close(folder_fd)
        raise
    return folder_fd


@contextmanager
def opened_below(root: str, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """Yield an absolute path's folder, opened from the root without following a link, and the name in it."""
    folder, name = os.path.split(path)
    base = root.rstrip("/")
    if not f"{folder}/".startswith(f"{base}/") or name in ("", ".", ".."):
        raise OSError(errno.EXDEV, "not inside the root", path)
    with closing(open_below(root, folder[len(base) :], make=make)) as folder_fd:
        yield folder_fd, name


def mount_of(descriptor: int) -> bytes:
    """
    Return which mount an open file was opened through; b"" where that cannot be known.

    Files of one device may be on two (a bind mount), and nothing can be renamed from one to the other.
    """
    try:
        with open(f"/proc/self/fdinfo/{descriptor}", "rb") as file:
            return next((line for line in file if line.startswith(b"mnt_id")), b"")
    except OSError:
        return b""


def _read_link(folder_fd: int, name: str) -> str:
    """Return where a link leads, or its own name again if it has just become something else."""
    try:
        return os.readlink(name, dir_fd=folder_fd)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return name
        raise


def still_leads_to(root: str | None, target: PinnedPath) -> bool:
    """False if the name that was asked for leads to another file by now, or to none."""
    if not target.via:
        return True
    try:
        again = pin(root, target.via)
    except Exception:
        return False
    try:
        return again.path == target.path and os.path.samestat(
            os.fstat(again.folder_fd), os.fstat(target.folder_fd)
        )
    finally:
        again.close()


def _open_folder(root: str | None, head: str, path: str, make_folders: FolderRecord | bool) -> int:
    try:
        return os.open(head or "/", OPEN_FOLDER)
    except FileNotFoundError as error:
        if not make_folders:
            raise lookup_failed(error, path) from error
    except OSError as error:
        raise lookup_failed(error, path) from error
    return _make_folders(root, head, path, None if make_folders is True else make_folders)


def _make_folders(root: str | None, head: str, path: str, record: FolderRecord | None) -> int:
    """Create the missing folders one by one below the deepest that exists, which must be inside."""
    existing, missing = head, []
    while not os.path.lexists(existing):
        existing, name = os.path.split(existing)
        missing.append(name)
    try:
        folder_fd = os.open(existing or "/", OPEN_FOLDER)
    except OSError as error:
        raise lookup_failed(error, path) from error
    try:
        here = folder_name(folder_fd, existing)
        for name in reversed(missing):
            here = f"{here}/{name}"
            check_inside(here, root)
            if record is not None:
                record.making(here)
            try:
                os.mkdir(name, dir_fd=folder_fd)
            except FileExistsError:  # Another process has just made it.
                if record is not None:
                    record.others_made(here)
            # No-follow: what we made a moment ago may be a link by now.
            below_fd = os.open(name, OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=folder_fd)
            os.close(folder_fd)
            folder_fd = below_fd
    except OSError as error:
        os.close(folder_fd)
        raise lookup_failed(error, path) from error
    except BaseException:
        os.close(folder_fd)
        raise
    return folder_fd
