"""
What a command did to a tree: the upper layer of its private view, compared with the real tree.

The upper layer has a file for each that was written, a whiteout (a device 0:0) for each that was removed, and
a folder for each folder with a change in it. An opaque folder replaces the real one.

Only what differs lands. But everything is judged that the command wrote, made or removed: that somebody else
has done the same meanwhile does not mean that the command's change is done (two agents that count from three
must not both get four). So a file that the command wrote and that holds what the real one does is in `same`,
and a name that somebody else has made or removed as well is in `overtaken`. A file that was opened for
writing and left alone was copied up, and is neither (`origins` tells those apart).

Git's objects are named by what they hold: who has made the same one has made it.

A folder that is new is one change, with everything in it: it lands by one rename. So is one that is gone.

Folders of build outputs and installed packages are *unchecked* (`UNCHECKED`, and the option `unchecked`):
nobody edits them by hand, their files are many, and the last writer wins. What an agent has read there, what
is expected and what git tracks is checked all the same (`worked_on`): somebody works on it. A file of such a
name (a script called `build`) is a file as any other. What is in `.git` is checked as everything else, also a
branch called `dist`: a refused `git checkout` must not leave HEAD on a branch whose files are not there.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from noclobber.core.project import STATE_FOLDER, UNCHECKED
from noclobber.shell.origins import handle_of, origin_of

WRITE, CREATE, DELETE, MODE, TIMES = "write", "create", "delete", "mode", "times"
ATTRIBUTES, SAME = "attributes", "same"
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
    and extended attributes of a folder or link that exists; `same`: written, and as it was."""
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


class TreeChanges(NamedTuple):
    """Everything that a command changed below a root, in the order in which it has to happen."""

    root: str
    changes: tuple[TreeChange, ...]
    same: tuple[TreeChange, ...] = ()
    """What the command wrote, and the real tree has it so already: to be judged. Nothing of it lands."""
    overtaken: tuple[tuple[str, bool], ...] = ()
    """Names that somebody else has made, removed or replaced since: each, and whether the command made it."""
    beside: tuple[TreeChanges, ...] = ()
    """What the command changed in git folders outside of the root (`git_folders`)."""

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


def changes(
    root: str,
    upper: str,
    unchecked: frozenset[str] = UNCHECKED,
    began_ns: int = 0,
    replaced: Collection[str] = (),
    worked_on: Callable[[str], Iterable[str]] | None = None,
) -> TreeChanges:
    """
    Return what the upper layer changes in the real tree as it is now.

    `began_ns`: the ctime that everything changed since the command's beginning has reached; 0: not known.
    `replaced`: names that were there, and that the command renamed, or renamed something to; folders that it
    removed. `worked_on`: asked for the files of an unchecked folder that are to be checked. Paths are below
    the root.
    """
    scan = _Scan(root, unchecked, began_ns, frozenset(replaced), worked_on)
    scan.folder(upper, "", is_checked=True, is_hidden=False)
    scan.find_originals()
    scan.find_vanished(upper)
    scan.spare_what_was_only_read(upper)
    return TreeChanges(root, tuple(scan.found), tuple(scan.same), tuple(scan.overtaken))


class _Scan:
    def __init__(
        self,
        root: str,
        unchecked: frozenset[str],
        began_ns: int,
        replaced: frozenset[str],
        worked_on: Callable[[str], Iterable[str]] | None,
    ) -> None:
        self.root, self._unchecked, self._began_ns, self._replaced = root, unchecked, began_ns, replaced
        self._ask_worked_on, self._worked_on = worked_on, set[str]()
        self.found: list[TreeChange] = []
        self.same: list[TreeChange] = []
        self.overtaken: list[tuple[str, bool]] = []
        self._copied: list[tuple[str, bytes, int]] = []
        self._met: list[str] = []

    def folder(self, upper: str, below: str, *, is_checked: bool, is_hidden: bool) -> None:
        """`is_hidden`: a folder above replaces the real one, so nothing of that shows in here either."""
        if below.count("/") > MOST_LEVELS:
            raise TooDeepError(below[:-1])
        if not is_checked and lstat(f"{self.root}/{below}.git") is not None:
            self._look_for_work(below[:-1])  # A repository of its own.
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
        if is_checked and self._is_unchecked(path, new, old):
            is_checked = False
            self._look_for_work(path)
        is_checked = is_checked or path in self._worked_on
        if is_whiteout(new):
            if old is not None:
                self._add(DELETE, kind_of(old), path, "", old, 0, is_checked)
            elif is_checked and not _is_named_by_content(path):
                self.overtaken.append((path, False))  # It was there when the command removed it.
        elif stat.S_ISDIR(new.st_mode):
            self._folder(upper, path, new, old, is_checked, is_hidden)
        else:
            self._file(upper, path, new, old, is_checked, is_hidden)

    def _folder(
        self,
        upper: str,
        path: str,
        new: os.stat_result,
        old: os.stat_result | None,
        is_checked: bool,
        is_hidden: bool,
    ) -> None:
        mode, origin = stat.S_IMODE(new.st_mode), origin_of(upper)
        is_made, was_there = origin is None, bool(origin)
        if was_there and (old is None or not stat.S_ISDIR(old.st_mode)) and is_checked:
            # Somebody has moved it away. Half of it, with what the command changed, would come back.
            self.overtaken.append((path, False))
            return
        if old is not None and not stat.S_ISDIR(old.st_mode):
            self._add(DELETE, kind_of(old), path, "", old, 0, is_checked)
            old = None
        elif old is None and is_checked and path in self._replaced:
            self.overtaken.append((path, False))  # It was there, and somebody has removed it.
            return
        if old is None:
            self._add(CREATE, FOLDER, path, upper, None, mode, is_checked)
            return
        if is_made and self._is_newer(old) and is_checked and not _is_named_by_content(path):
            self.overtaken.append((path, True))  # Of two who make a folder, one has made it.
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
        first = len(self.found)
        self.folder(upper, f"{path}/", is_checked=is_checked, is_hidden=is_hidden)
        if has_other_mode and is_closed:  # After everything in it, which could not land any more.
            self._add(MODE, FOLDER, path, upper, old, mode, is_checked)
        is_touched = new.st_mtime_ns != old.st_mtime_ns and was_there and not self._is_newer(old)
        # What lands in it sets its time anyway.
        if is_touched and not any(os.path.dirname(each.path) == path for each in self.found[first:]):
            self._add(TIMES, FOLDER, path, upper, old, mode, is_checked)

    def _file(
        self,
        upper: str,
        path: str,
        new: os.stat_result,
        old: os.stat_result | None,
        is_checked: bool,
        is_hidden: bool,
    ) -> None:
        kind, mode = kind_of(new), stat.S_IMODE(new.st_mode)
        if old is not None and stat.S_ISREG(old.st_mode):
            self._met.append(path)
        if old is not None and kind_of(old) == kind:
            if is_same(upper, new, f"{self.root}/{path}", old):
                self._same(upper, path, new, old, is_checked)
                return
            if kind == FILE:
                self._add(WRITE, FILE, path, upper, old, mode, is_checked, new)
                return
        if old is not None:
            self._add(DELETE, kind_of(old), path, "", old, 0, is_checked)
        elif is_checked and path in self._replaced:
            self.overtaken.append((path, False))  # `sed -i`: it was there, and somebody has removed it.
            return
        elif kind == FILE and is_checked and not is_hidden and (origin := origin_of(upper)) is not None:
            self._copied.append((path, origin, new.st_nlink))
        self._add(CREATE, kind, path, upper, None, mode, is_checked)

    def _same(
        self, upper: str, path: str, new: os.stat_result, old: os.stat_result, is_checked: bool
    ) -> None:
        """Something that holds what the real one does. Its mode, its times or its owner may differ."""
        kind, mode = kind_of(new), stat.S_IMODE(new.st_mode)
        has_other_times = new.st_mtime_ns != old.st_mtime_ns
        if kind == FILE and self._has_other_attributes(upper, path, new, old):
            self._add(WRITE, FILE, path, upper, old, mode, is_checked, new)
            return
        if mode != stat.S_IMODE(old.st_mode) and kind != LINK:
            self._add(MODE, kind, path, upper, old, mode, is_checked)
        elif is_checked and not self._is_left_alone(upper, path, new, old) and not _is_named_by_content(path):
            self.same.append(TreeChange(SAME, kind, path, upper, old, mode))
        if kind == LINK and (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
            self._add(ATTRIBUTES, LINK, path, upper, old, mode, is_checked)
        elif has_other_times:
            self._add(TIMES, kind, path, upper, old, mode, is_checked)

    def _is_left_alone(self, upper: str, path: str, new: os.stat_result, old: os.stat_result) -> bool:
        """
        True for a file that was opened for writing, and nothing was written to it.

        A copy has the time of its original, and is younger than that. If the original was changed since the
        command began it must be a copy of the changed one: of the very file, and not of one before. What has
        got a mode that others have given it afterwards was changed twice, too.
        """
        origin = origin_of(upper) if stat.S_ISREG(new.st_mode) else None
        if origin is None or new.st_mtime_ns != old.st_mtime_ns:
            return False
        is_younger = max(new.st_mtime_ns, old.st_ctime_ns) < new.st_ctime_ns
        is_copy_of_this = is_younger and origin == handle_of(f"{self.root}/{path}")
        return not self._is_newer(old) or is_copy_of_this

    def _is_newer(self, old: os.stat_result) -> bool:
        """True if something was changed, made or moved to its place since the command began."""
        return 0 < self._began_ns <= old.st_ctime_ns

    def find_originals(self) -> None:
        """
        Note as overtaken each copy of a file whose original is not in the real tree any more.

        A copy under a name where the real tree has nothing was moved there by the command, or somebody has
        removed what it is a copy of. In the first case the original is where the command took it from.
        """
        if not self._copied:
            return
        wanted = {origin for _, origin, _ in self._copied if origin}
        was_removed = any(change.action == DELETE for change in self.found)
        found: set[bytes] = set()
        for path in self._originals():
            if wanted <= found:
                break
            found.add(handle_of(path))
        is_known = found != {b""} or not was_removed
        for path, origin, names in self._copied:
            if origin not in found if origin and is_known else not was_removed and names < 2:
                self.overtaken.append((path, False))
                self.found = [change for change in self.found if change.path != path]

    def spare_what_was_only_read(self, upper: str) -> None:
        """Leave out a database that the command read, and that a server outside has open."""
        if not any(change.path.endswith("-shm") for change in self.found):
            return
        from noclobber.shell.sqlite_readers import only_read

        removed = {change.path: change.action == DELETE for change in self.found}
        spared = only_read(self.root, upper, removed, self._began_ns)
        self.found = [change for change in self.found if change.path not in spared]
        self.same = [change for change in self.same if change.path not in spared]

    def find_vanished(self, upper: str) -> None:
        """
        Note as overtaken what the command renamed or removed, if neither the tree nor the upper layer has it.

        An overlay leaves no trace of a folder that goes, if it is gone from the real tree by then.
        """
        for path in sorted(self._replaced):
            if lstat(f"{self.root}/{path}") is None and lstat(f"{upper}/{path}") is None:
                is_checked = path in self._worked_on or not self._is_in_unchecked(path)
                if is_checked and not _is_named_by_content(path):
                    self.overtaken.append((path, False))

    def _is_in_unchecked(self, path: str) -> bool:
        """True for a name in a folder of build outputs, or the name of one."""
        return "/.git/" not in f"/{path}" and not self._unchecked.isdisjoint(path.split("/"))

    def _originals(self) -> Iterator[str]:
        """Yield the real files that the command has removed, replaced or copied up."""
        yield from (f"{self.root}/{path}" for path in self._met)
        for change in self.found:
            if change.action == DELETE and change.kind == FILE:
                yield f"{self.root}/{change.path}"
            elif change.action == DELETE and change.kind == FOLDER:
                for folder, _, names in os.walk(f"{self.root}/{change.path}"):
                    yield from (f"{folder}/{name}" for name in names)

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
                if is_checked and not inner:
                    self._look_for_work(f"{path}/{name}")
                inner = inner or f"{path}/{name}" in self._worked_on
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
        if kind == FOLDER and not is_checked and self._worked_on and action in (CREATE, DELETE):
            self._add_work(action, path, upper)
        size, names = (0, 0) if new is None else (new.st_size, new.st_nlink)
        self.found.append(TreeChange(action, kind, path, upper, old, mode, is_checked, size, names))

    def _look_for_work(self, folder: str) -> None:
        """Find out which files of an unchecked folder are checked all the same."""
        if self._ask_worked_on is not None:
            self._worked_on.update(self._ask_worked_on(folder))

    def _add_work(self, action: str, folder: str, upper: str) -> None:
        """Of an unchecked folder that goes, the checked files go first; of a new one they are judged."""
        for path in sorted(self._worked_on):
            if path.startswith(f"{folder}/"):
                at = f"{self.root}/{path}" if action == DELETE else f"{upper}{path[len(folder) :]}"
                status = lstat(at)
                if status is None or stat.S_ISDIR(status.st_mode):
                    continue
                if action == DELETE:
                    self._add(DELETE, kind_of(status), path, "", status, 0, is_checked=True)
                else:
                    mode = stat.S_IMODE(status.st_mode)
                    self.same.append(TreeChange(SAME, kind_of(status), path, at, None, mode))


def _is_named_by_content(path: str) -> bool:
    """True for git's objects and their folders: everybody who makes one of that name makes the same."""
    _, is_git, below = f"/{path}".partition("/.git/")
    around, is_object, _ = f"/{below}".partition("/objects/")
    names = around.split("/")
    # Of the repository, or of a submodule's: not a branch that is called so.
    return bool(is_git and is_object) and (not around or (names[1] == "modules" and "refs" not in names))


def undecodable(found: TreeChanges) -> str:
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
