"""
What a command did to a tree: the upper layer of its private view, compared with the real tree.

The upper layer has a file for each that was written, a whiteout (a device 0:0) for each that was removed, and
a folder for each folder with a change in it. An opaque folder replaces the real one.

Only what differs is a change. A file that was opened for writing and left alone was copied up, and is none.
A folder that is new is one change, with everything in it: it lands by one rename. So is one that is gone.

Folders of build outputs and installed packages are *unchecked* (`UNCHECKED`, and the option `unchecked`):
nobody edits them by hand, their files are many, and the last writer wins. A file of such a name (a script
called `build`) is a file as any other. What is in `.git` is checked as everything else, also a branch called
`dist`: a refused `git checkout` must not leave HEAD on a branch whose files are not there.
"""

from __future__ import annotations

import os
import stat

from noclobber.core.project import STATE_FOLDER, UNCHECKED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import NamedTuple
else:
    from noclobber.core.light.named_tuples import NamedTuple

WRITE, CREATE, DELETE, MODE, TIMES = "write", "create", "delete", "mode", "times"
ATTRIBUTES = "attributes"
AFTERWARDS = (TIMES, ATTRIBUTES)
FILE, LINK, FOLDER, SPECIAL = "file", "link", "folder", "special"

UNCHECKED_FILES = frozenset((".coverage",))
MOST_LEVELS = 400
PIECE = 1 << 20
SEPARATE_SUFFIX = ".noclobber-own"


class TooDeepError(Exception):
    """More folders inside of each other than can be looked at. The text is where they begin."""


class TreeChange(NamedTuple):
    """One change. `path` is relative to the root."""

    action: str
    """`write` (a file that exists gets new content), `create`, `delete`, `mode`, `times`; `attributes`: owner
    and extended attributes of a folder or link that exists."""
    kind: str
    """`file`, `link`, `folder` (with all that is in it), `special` (a FIFO, a socket, a device)."""
    path: str
    upper: str = ""
    """Where the new version is; empty for a delete."""
    old: os.stat_result | None = None
    """What the real tree has at that path; None: nothing."""
    mode: int = 0
    is_checked: bool = True
    size: int = 0
    """Of the new version, in bytes."""
    names: int = 0
    """How many hard links the new version has; 0: not known."""


class ChangeSet(NamedTuple):
    """Everything that a command changed below a root, in the order in which it has to happen."""

    root: str
    changes: tuple[TreeChange, ...]
    gone: tuple[str, ...] = ()
    """What the command removed, or moved away, and somebody else did so, too; without what is in `.git`."""

    @property
    def checked(self) -> list[TreeChange]:
        """Those that land together or not at all."""
        return [change for change in self.changes if change.is_checked and change.action not in AFTERWARDS]

    @property
    def unchecked(self) -> list[TreeChange]:
        """Those in folders of build outputs, and what is set afterwards."""
        return [change for change in self.changes if not change.is_checked or change.action in AFTERWARDS]

    def files(self) -> Iterator[TreeChange]:
        """Yield the checked changes file by file: what is in a folder that came or went, too."""
        for change in self.checked:
            if change.kind != FOLDER or change.action == MODE:
                yield change
            elif change.action == DELETE:
                yield from _inside(change, f"{self.root}/{change.path}")
            else:
                yield from _inside(change, change.upper)


def unchecked_names(given: Iterable[str]) -> frozenset[str]:
    """Return the names of unchecked folders: the built-in ones, with what the option `unchecked` says."""
    if not given:
        return UNCHECKED
    names = set(UNCHECKED)
    for name in given:  # In this order: the last word about a name counts.
        if name.startswith("!"):
            names.discard(name[1:])
        else:
            names.add(name)
    return frozenset(names)


def changes(root: str, upper: str, unchecked: frozenset[str] = UNCHECKED) -> ChangeSet:
    """Return what the upper layer changes in the real tree as it is now."""
    scan = _Scan(root, unchecked, [])
    scan.folder(upper, "", is_checked=True, is_hidden=False)
    return ChangeSet(root, tuple(scan.found), tuple(scan.gone))


class _Scan:
    def __init__(self, root: str, unchecked: frozenset[str], found: list[TreeChange]) -> None:
        self.root, self._unchecked, self.found = root, unchecked, found
        self.gone: list[str] = []

    def folder(self, upper: str, below: str, *, is_checked: bool, is_hidden: bool) -> None:
        """`is_hidden`: a folder above replaces the real one, so nothing of that shows in here either."""
        if below.count("/") > MOST_LEVELS:
            raise TooDeepError(below[:-1])
        with os.scandir(upper) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
        for entry in listed:
            path = f"{below}{entry.name}"
            if path == STATE_FOLDER:
                continue
            self._entry(entry.path, path, entry.stat(follow_symlinks=False), is_checked, is_hidden)

    def _is_unchecked(self, path: str, new: os.stat_result | None, old: os.stat_result | None) -> bool:
        """True for a folder of build outputs, or a link to one, that comes, goes or has a change in it."""
        name = path.rpartition("/")[2]
        if name not in self._unchecked or "/.git/" in f"/{path}":
            return False
        kinds = {kind_of(each) for each in (new, old) if each is not None and not is_whiteout(each)}
        return kinds <= {FOLDER, LINK} or name in UNCHECKED_FILES

    def _entry(self, upper: str, path: str, new: os.stat_result, is_checked: bool, is_hidden: bool) -> None:
        old = lstat(f"{self.root}/{path}")
        is_checked = is_checked and not self._is_unchecked(path, new, old)
        mode = stat.S_IMODE(new.st_mode)
        if is_whiteout(new):
            if old is not None:
                self._add(DELETE, kind_of(old), path, "", old, 0, is_checked)
            elif is_checked and not f"/{path}".count("/.git/"):
                self.gone.append(path)  # A whiteout: it was there when the command removed it.
        elif stat.S_ISDIR(new.st_mode):
            if old is not None and not stat.S_ISDIR(old.st_mode):
                self._add(DELETE, kind_of(old), path, "", old, 0, is_checked)
                old = None
            if old is None:
                self._add(CREATE, FOLDER, path, upper, None, mode, is_checked)
                return
            is_hidden = is_hidden or is_opaque(upper)
            if is_hidden:
                self._removed_from(upper, path, is_checked)
            has_other_mode = stat.S_IMODE(old.st_mode) != mode
            is_closed = mode & stat.S_IRWXU != stat.S_IRWXU
            if has_other_mode and not is_closed:
                self._add(MODE, FOLDER, path, upper, old, mode, is_checked)
            if self._has_other_attributes(upper, path, new, old):
                self._add(ATTRIBUTES, FOLDER, path, upper, old, mode, is_checked)
            if is_closed and os.geteuid() != 0:
                # What is in it is read here, and renamed from here. Its mode is a change of its own.
                os.chmod(upper, mode | stat.S_IRWXU)
            self.folder(upper, f"{path}/", is_checked=is_checked, is_hidden=is_hidden)
            if has_other_mode and is_closed:  # After everything in it, which could not land any more.
                self._add(MODE, FOLDER, path, upper, old, mode, is_checked)
        else:
            self._file(upper, path, new, old, is_checked)

    def _file(
        self, upper: str, path: str, new: os.stat_result, old: os.stat_result | None, is_checked: bool
    ) -> None:
        kind, mode = kind_of(new), stat.S_IMODE(new.st_mode)
        if old is not None and kind_of(old) == kind:
            if is_same(upper, new, f"{self.root}/{path}", old):
                if kind == FILE and self._has_other_attributes(upper, path, new, old):
                    self._add(WRITE, FILE, path, upper, old, mode, is_checked, new)
                elif kind == LINK and (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
                    self._add(ATTRIBUTES, LINK, path, upper, old, mode, is_checked)
                elif mode != stat.S_IMODE(old.st_mode) and kind != LINK:
                    self._add(MODE, kind, path, upper, old, mode, is_checked)
                elif new.st_mtime_ns != old.st_mtime_ns:
                    self._add(TIMES, kind, path, upper, old, mode, is_checked)
                return
            if kind == FILE:
                self._add(WRITE, FILE, path, upper, old, mode, is_checked, new)
                return
        if old is not None:
            self._add(DELETE, kind_of(old), path, "", old, 0, is_checked)
        self._add(CREATE, kind, path, upper, None, mode, is_checked)

    def _has_other_attributes(self, upper: str, path: str, new: os.stat_result, old: os.stat_result) -> bool:
        """True if the command gave something that was there another owner, attribute or ACL."""
        if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
            return True
        return attributes(upper) != attributes(f"{self.root}/{path}")

    def _removed_from(self, upper: str, path: str, is_checked: bool) -> None:
        """An opaque folder: what it does not name is gone."""
        here = set(os.listdir(upper))
        for name in sorted(set(os.listdir(f"{self.root}/{path}")) - here):
            old = lstat(f"{self.root}/{path}/{name}")
            if old is not None:
                inner = is_checked and not self._is_unchecked(f"{path}/{name}", None, old)
                self._add(DELETE, kind_of(old), f"{path}/{name}", "", old, 0, inner)

    def _add(
        self,
        action: str,
        kind: str,
        path: str,
        upper: str,
        old: os.stat_result | None,
        mode: int,
        is_checked: bool,
        new: os.stat_result | None = None,
    ) -> None:
        size, names = (0, 0) if new is None else (new.st_size, new.st_nlink)
        self.found.append(TreeChange(action, kind, path, upper, old, mode, is_checked, size, names))


def undecodable(found: ChangeSet) -> str:
    """Return a path of a checked change that is not UTF-8, with all that is in its folders; "" for none."""
    for change in found.checked:
        if not _is_text(change.path):
            return change.path
        if change.kind == FOLDER and change.action != MODE:
            folder = f"{found.root}/{change.path}" if change.action == DELETE else change.upper
            try:
                inner = _undecodable_below(folder, MOST_LEVELS - change.path.count("/"))
            except TooDeepError:
                raise TooDeepError(change.path) from None
            if inner:
                return f"{change.path}/{inner}"
    return ""


def _undecodable_below(folder: str, levels: int) -> str:
    if levels < 0:
        raise TooDeepError
    with os.scandir(folder) as entries:
        listed = list(entries)
    for entry in listed:
        if not _is_text(entry.name) and not is_whiteout(entry.stat(follow_symlinks=False)):
            return entry.name
        if entry.is_dir(follow_symlinks=False) and (inner := _undecodable_below(entry.path, levels - 1)):
            return f"{entry.name}/{inner}"
    return ""


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _inside(change: TreeChange, folder: str) -> Iterator[TreeChange]:
    """Yield the files of a folder that came or went; the folder itself, if it is empty."""
    is_empty, is_gone = True, change.action == DELETE
    for name in sorted(os.listdir(folder)):
        is_empty = False
        full = f"{folder}/{name}"
        status = lstat(full)
        if status is None or is_whiteout(status):
            continue
        inner = TreeChange(
            change.action,
            kind_of(status),
            f"{change.path}/{name}",
            "" if is_gone else full,
            status if is_gone else None,
            stat.S_IMODE(status.st_mode),
            change.is_checked,
            status.st_size,
        )
        if stat.S_ISDIR(status.st_mode):
            yield from _inside(inner, full)
        else:
            yield inner
    if is_empty:
        yield change


def kind_of(status: os.stat_result) -> str:
    """Return what sort of thing that is."""
    if stat.S_ISREG(status.st_mode):
        return FILE
    if stat.S_ISDIR(status.st_mode):
        return FOLDER
    return LINK if stat.S_ISLNK(status.st_mode) else SPECIAL


def is_whiteout(status: os.stat_result) -> bool:
    """True for what an overlay puts in the place of something removed."""
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def is_opaque(folder: str) -> bool:
    """True if a folder of the upper layer hides the one below it."""
    for space in ("user", "trusted"):
        try:
            if os.getxattr(folder, f"{space}.overlay.opaque", follow_symlinks=False) == b"y":
                return True
        except OSError:
            continue
    return False


def lstat(path: str) -> os.stat_result | None:
    """Return what is at a path, links not followed; None if nothing is."""
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def separate(path: str, names: int = 0) -> None:
    """
    Make a file of the upper layer that has several names one that has this name only.

    A commit that exchanges a file has it to itself, and could not have it for two of its rows. `names`: how
    many it had when the command's changes were gathered. It has not got more since.
    """
    if names == 1:
        return
    status = os.lstat(path)
    if status.st_nlink < 2:
        return
    import shutil

    copy = f"{path}{SEPARATE_SUFFIX}"
    shutil.copy2(path, copy, follow_symlinks=False)
    if os.geteuid() == 0:
        os.chown(copy, status.st_uid, status.st_gid)
    os.rename(copy, path)


def attributes(path: str) -> dict[str, bytes]:
    """Return a file's extended attributes and ACLs, without those of the overlay and of the system."""
    try:
        names = os.listxattr(path, follow_symlinks=False)
        return {
            name: os.getxattr(path, name, follow_symlinks=False)
            for name in names
            if name.startswith(("user.", "system.posix_acl")) and ".overlay." not in name
        }
    except OSError:
        return {}  # There are none on this filesystem.


def is_same(one: str, one_status: os.stat_result, other: str, other_status: os.stat_result) -> bool:
    """True if two things of one kind hold the same."""
    if stat.S_ISLNK(one_status.st_mode):
        return os.readlink(one) == os.readlink(other)
    if not stat.S_ISREG(one_status.st_mode):
        return one_status.st_mode == other_status.st_mode and one_status.st_rdev == other_status.st_rdev
    if one_status.st_size != other_status.st_size:
        return False
    try:
        with open(one, "rb", buffering=0) as first, open(other, "rb", buffering=0) as second:
            while piece := first.read(PIECE):
                if piece != second.read(len(piece)):
                    return False
            return not second.read(1)
    except OSError:
        return False
