"""
What a commit of several changes consists of: everything that can happen to a name.

| row | what | how |
|---|---|---|
| `Swap`, `StagedSwap` | a file gets new content | exchanged, as in the commit of one file |
| `Creation` | a file, link, folder or FIFO that was not there | renamed to its name, if that is free |
| `Removal` | a file goes | exchanged with a placeholder, which is then moved away |
| `Departure` | a link or a folder goes | moved among the swap files, and looked at there |
| `ModeChange` | permissions | set, if they are what they were |

A `Change` has the bytes of its new version. The new version of a `TreeRow` is *staged*: it is a file of a
command's own, which is renamed, not copied. So it keeps its times, its mode and its holes, a folder comes
with all that is in it, and a large file costs nothing. After a refusal it goes back to where it was.
Attributes that an overlay has put on it are taken off.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from noclobber.disk import forks, hashing, leases, metadata, ordering, renames
from noclobber.disk.commit.flushing import flush_name
from noclobber.disk.commit.journal import NO_HASH, Planned
from noclobber.disk.commit.prints import print_of, remove_under_another_name
from noclobber.disk.commit.recovery import GONE, set_mode
from noclobber.disk.commit.restore import copy_under_lease
from noclobber.disk.commit.staged_things import (
    bring,
    for_each_below,
    give_back,
    open_staged,
    strip,
    strip_all,
)
from noclobber.disk.commit.swap import NO_FD, Swap
from noclobber.disk.commit.sweep import mark_if, mark_verified
from noclobber.disk.hashing_thread import HashOf
from noclobber.disk.paths import OPEN_FOLDER
from noclobber.disk.reading import LOOK, hash_of
from noclobber.disk.small_file import closing, write_all
from noclobber.disk.steps import reached
from noclobber.errors import (
    ABSENT,
    DELETED,
    UNKNOWN,
    UNREADABLE,
    FileBusyError,
    MetadataNotKeptError,
    StaleFileError,
)

if TYPE_CHECKING:
    from noclobber.core.clock import Patience
    from noclobber.core.values import Level
    from noclobber.disk.commit.flushing import UnflushedError
    from noclobber.disk.commit.journal import Note
    from noclobber.disk.commit.store import Store
    from noclobber.disk.paths import PinnedPath

MOST_REMOVALS = 3
NEW_FILE, PRIVATE = 0o666, 0o600


class Change(NamedTuple):
    """What one file is to hold. `expected` is a hash, `ABSENT`, or None for whatever is there."""

    path: str
    data: bytes | None
    """None: the file goes."""
    expected: str | None
    at: str | None = None
    """The canonical path that the caller has checked, if it did."""
    like: str | None = None
    """Of a file that comes: the canonical path of one whose owner, mode and attributes it gets."""
    mode: int | None = None
    """Of a file that comes and is like no other: its permissions. Without it the umask decides."""


class TreeRow(NamedTuple):
    """One change of a tree, as a command has made it."""

    action: str
    """`write`, `create`, `delete`, `mode`."""
    kind: str
    """`file`, `link`, `folder`, `special`."""
    path: str
    """Canonical: its folder is where it says, and its last part is not followed if it is a link."""
    expected: str | None = None
    """Of a file: a hash, or None for whatever is there. Of a link or folder that goes: its `print_of`."""
    staged: str = ""
    """The new version, on the same filesystem. It is renamed from there."""
    mode: int = 0
    old_mode: int = 0
    inside: tuple[tuple[str, str, int], ...] = ()
    """Of a folder that goes: its files, their hashes and sizes, for the versions."""
    is_stripped: bool = False
    """Of a folder that comes: `strip_folders` and, for each file, `make_ready` were called."""
    is_own: bool = False
    """A file in our own state folder: no fence is asked about it."""
    data: bytes | None = None
    """Of a file or link that comes and is not staged: its content."""


class _KnownHash(HashOf):
    """The hash of a file that is complete already."""

    def __init__(self, sha256: str) -> None:
        self._sha256 = sha256

    def result(self) -> str:
        return self._sha256


class StagedSwap(Swap):
    """A file that exists and gets new content."""

    # The kernel has judged: in the view the command could write to it, or put another one in its place.
    spares_read_only = False
    staged = ""

    def begin_staging(self, prefix: str) -> None:
        """Take the staged file among the swap files."""
        name = self.store.swap_name(prefix, self.target.name, self.expected)
        bring(self.staged, self.store, name)
        self.swap_name = name
        self.new_fd = open_staged(self.store, name)
        strip(self.new_fd)
        self._new_status = os.fstat(self.new_fd)
        self.new_inode = self._new_status.st_ino

    def stage(self) -> None:
        """Hash it. It is complete, and its metadata are what the command gave it."""
        reached("staging")
        self._new_hash = _KnownHash(hashing.of_descriptor(self.new_fd, size_hint=self._new_status.st_size))
        self._old_metadata = metadata.of(self.old_fd, self.old_status)
        if self.durable:
            os.fsync(self.new_fd)
        else:
            ordering.start(self.new_fd)
        reached("staged")

    def await_bytes(self) -> None:
        """Wait until the new bytes have been written."""
        if not self.durable:
            ordering.wait(self.new_fd, self.store.filesystem)

    def close(self, *, landed: bool = False) -> None:
        """Close it; give it back if it was never exchanged."""
        if self.swap_name and not self.is_swapped:
            give_back(self.staged, self.store, self.swap_name)
        super().close(landed=landed)


class Creation:
    """Something that was not there."""

    level: Level = "create"

    def __init__(
        self, target: PinnedPath, row: Change | TreeRow, store: Store, prefix: str, durable: bool
    ) -> None:
        self.target, self.row, self.store, self.durable = target, row, store, durable
        self.kind, self._staged = (row.kind, row.staged) if isinstance(row, TreeRow) else ("file", "")
        self.expected = self.previous = ABSENT
        self.is_swapped = self._was_at_its_name = False
        self.not_kept: tuple[str, ...] = ()
        self.kept: list[str] = []
        self.new_fd = NO_FD
        if isinstance(row, TreeRow) and self.kind == "folder" and not row.is_stripped:
            strip_all(row.staged)
        self.swap_name = store.swap_name(prefix, target.name, None)
        self._new_hash = HashOf(row.data or b"")
        if self._staged:
            bring(self._staged, store, self.swap_name)
        try:
            self._open(prefix)
            status = os.stat(self.swap_name, dir_fd=store.swap_fd, follow_symlinks=False)
            self.new_inode = status.st_ino
        except BaseException:
            self.close(landed=False)
            raise

    def _open(self, prefix: str) -> None:
        row, store = self.row, self.store
        if self._staged and self.kind == "file":
            self.new_fd = open_staged(store, self.swap_name)
            strip(self.new_fd)
        elif not self._staged and self.kind == "link":
            os.symlink(row.data or b"", self.swap_name, dir_fd=store.swap_fd)
        elif not self._staged:
            is_like = isinstance(row, Change) and row.like is not None
            mode = PRIVATE if is_like else NEW_FILE if row.mode is None else row.mode
            _, self.new_fd = store.create_swap(prefix, self.target.name, None, mode)

    @property
    def new_hash(self) -> str:
        """The hash of what comes; of other things than files its print."""
        return self._new_hash.result()

    def stage(self) -> None:
        """Write it, or hash it, or take its print."""
        # A folder with what is in it: after a cut, no name leads to an empty file. `exchange()` waits for it.
        if self.kind == "folder" and (self.durable or not getattr(self.row, "is_stripped", False)):
            flush = os.fsync if self.durable else ordering.start
            for_each_below(self.store.swap_fd, self.swap_name, flush, folders=self.durable)
        if self.kind != "file":
            self._new_hash = _KnownHash(print_of(self.store.swap_fd, self.swap_name))
            return
        if self._staged:
            self._new_hash = _KnownHash(hashing.of_descriptor(self.new_fd))
        else:
            self._write()
        if self.durable:
            os.fsync(self.new_fd)
        else:
            ordering.start(self.new_fd)

    def _write(self) -> None:
        row = self.row
        write_all(self.new_fd, row.data or b"")
        if not isinstance(row, Change) or row.like is None:
            metadata.inherit_group(self.new_fd, self.target.folder_fd)
            if row.mode is not None:  # The umask may have taken away from it.
                os.fchmod(self.new_fd, row.mode)
            return
        try:
            source = forks.open_tracked(row.like, LOOK)
        except FileNotFoundError:
            raise StaleFileError(row.like, ABSENT, DELETED) from None  # The commit would find that out, too.
        try:
            self.not_kept = metadata.give(self.new_fd, metadata.of(source), path=row.like, source=source)
        finally:
            forks.close(source)

    def planned(self) -> Planned:
        """Return what the note says of it, before it gets its name."""
        target = self.target
        return Planned(
            "create", target.folder, target.name, ABSENT, self.new_hash, self.swap_name, self.new_inode
        )

    def exchange(self, patience: Patience) -> None:
        """Give it its name; a file is hidden by a lease, if there are leases, until the others are done."""
        filesystem = self.store.filesystem
        if self.kind == "folder" and not self.durable:
            for_each_below(self.store.swap_fd, self.swap_name, lambda found: ordering.wait(found, filesystem))
        elif self.kind == "file":
            if not self.durable:
                ordering.wait(self.new_fd, filesystem)
            try:
                leases.lease(self.new_fd, leases.WRITE, patience)
            except leases.LeasesUnavailableError:
                pass
        try:
            renames.move_without_replacing(
                self.store.swap_fd, self.swap_name, self.target.folder_fd, self.target.name
            )
        except FileExistsError:
            raise StaleFileError(self.target.path, ABSENT, hash_of(self.target)) from None
        self.is_swapped = True

    def undo(self) -> None:
        """Take it away again, unless somebody has put something else there."""
        store, target = self.store, self.target
        try:
            renames.move_without_replacing(target.folder_fd, target.name, store.swap_fd, self.swap_name)
        except FileNotFoundError:
            self.is_swapped = False
            return
        if self._is_ours():
            if self.kind == "file":
                mark_if(self.new_fd, self.new_hash)
                self._was_at_its_name = True
        else:  # Somebody has written into it, or it is somebody else's. Put it back.
            try:
                renames.move_without_replacing(store.swap_fd, self.swap_name, target.folder_fd, target.name)
            except FileExistsError:  # Two saves in a row: the later one stays there.
                self.kept.append(store.keep(self.swap_name))
        self.is_swapped = False

    def _is_ours(self) -> bool:
        if self.kind != "file":
            return print_of(self.store.swap_fd, self.swap_name) == self.new_hash
        came = os.stat(self.swap_name, dir_fd=self.store.swap_fd, follow_symlinks=False)
        return came.st_ino == self.new_inode

    def finish(self) -> UnflushedError | None:
        """It has landed."""
        if self.new_fd != NO_FD:
            leases.release(self.new_fd)
        return flush_name(self.target, self.new_hash) if self.durable else None

    def close(self, *, landed: bool) -> None:
        """Close it; remove it, or give it back, if it did not get its name."""
        if self.new_fd != NO_FD:
            leases.release(self.new_fd)
            forks.close(self.new_fd)
            self.new_fd = NO_FD
        if self._was_at_its_name:  # Others could see it, and may have it open: the sweep looks.
            self.store.leave_marked(self.swap_name, self.target.path)
        elif not self.is_swapped and self._staged:
            give_back(self._staged, self.store, self.swap_name)
        elif not self.is_swapped:
            self.store.remove_swap(self.swap_name)


class BeginAgainError(FileBusyError):
    """Others opened or replaced a file in the wrong moment. They get it back, and the commit begins again."""


class Removal(Swap):
    """A file that goes: exchanged with a placeholder, which is moved away at once."""

    spares_read_only = False  # As `rm` does: the right to write in the folder is enough.
    is_away = False
    is_in_doubt = False  # An error, while the placeholder was or was not at the name. Recovery looks.
    _gone = ""

    def stage(self) -> None:
        """Make the placeholder. It is at the name for a moment, and hidden: its owner does not matter."""
        try:
            super().stage()
        except MetadataNotKeptError:
            os.fchmod(self.new_fd, 0o600)

    def take_away(self) -> None:
        """Move the placeholder off the name. Only then is the file gone."""
        self._gone = self.swap_name + GONE
        self.is_in_doubt = True
        is_away = self._take_placeholder_away()
        self.is_in_doubt = False
        if not is_away:
            raise BeginAgainError(
                self.target.path, "other processes keep opening it; try again when they have finished."
            )
        self.is_away = True

    def _take_placeholder_away(self) -> bool:
        """Move the placeholder off the name; False, with it back in place, if somebody is opening it."""
        store, target, gone = self.store, self.target, self._gone
        try:
            renames.move_without_replacing(target.folder_fd, target.name, store.swap_fd, gone)
        except FileNotFoundError:
            return True  # Somebody deleted it at the same moment.
        reached("placeholder-away")
        try:
            moved = os.stat(gone, dir_fd=store.swap_fd, follow_symlinks=False)
            theirs = moved.st_ino != self.new_inode
            is_awaited = self.leases and not leases.is_quiet(self.new_fd, leases.WRITE)
        except OSError:  # We do not know which. So refuse; and a refusal must leave everything as it was.
            try:
                renames.move_without_replacing(store.swap_fd, gone, target.folder_fd, target.name)
            except FileExistsError:
                return True  # Somebody has created a file since, after the delete, which has happened.
            raise
        if theirs or is_awaited:
            try:
                renames.move_without_replacing(store.swap_fd, gone, target.folder_fd, target.name)
            except FileExistsError:  # A file was created since, after the delete, which has happened.
                if theirs:  # And another one before it, which had replaced the placeholder.
                    self.kept.append(store.keep(gone))
                    return True
                # A process that waits for the placeholder asked for the old version.
                try:
                    copy_under_lease(self.old_fd, self.new_fd, self.hidden_since_s)
                    mark_verified(self.new_fd)
                except OSError:
                    pass
                return True
            # `theirs`: somebody saved after the delete, which has happened. Not theirs: try again.
            return theirs
        if self.leases:
            mark_verified(self.new_fd)  # Empty, and hidden: a later write to it changes the mark.
        else:
            mark_if(self.new_fd, self.new_hash)
        return True

    def move_aside(self) -> None:
        """
        Delete without an exchange: move the file among the swap files, and see what was moved.

        Unlinking the name would take what an editor renamed there since the check. No note is written: if we
        are killed, a sweep deletes the file if it still has the hash in its name, and keeps it otherwise.
        """
        store, target = self.store, self.target
        name = store.swap_name(store.new_prefix(), target.name, self.previous)
        try:
            os.rename(target.name, name, src_dir_fd=target.folder_fd, dst_dir_fd=store.swap_fd)
        except FileNotFoundError:
            raise self.stale(DELETED) from None
        moved = os.stat(name, dir_fd=store.swap_fd, follow_symlinks=False)
        if moved.st_ino == self.old_status.st_ino:
            self.leave_linked_aside(name)
            return
        try:
            renames.move_without_replacing(store.swap_fd, name, target.folder_fd, target.name)
        except FileExistsError:
            self.kept.append(store.keep(name))  # Two saves in a row: the later one is there.
        raise self.stale(hash_of(target))

    def planned(self, kind: str = "delete") -> Planned:
        """Return what the note says of this file."""
        return super().planned(kind)

    def undo(self, patience: Patience, note: Note) -> None:
        """Put the file back."""
        if not self.is_away:
            super().undo(patience, note)
            return
        store, target = self.store, self.target
        leases.release(self.old_fd)
        try:
            renames.move_without_replacing(store.swap_fd, self.swap_name, target.folder_fd, target.name)
        except FileExistsError:
            self.kept.append(store.keep(self.swap_name))
        self.is_swapped, self.swap_name = False, ""

    def close(self, *, landed: bool = False) -> None:
        """Close it, and leave the placeholder to the sweep."""
        super().close(landed=landed)
        if self._gone:
            self.store.leave_marked(self._gone, self.target.path)


class Departure:
    """A link, a folder or a FIFO that goes: moved among the swap files, and looked at there."""

    level: Level = "exchange"

    def __init__(self, target: PinnedPath, row: TreeRow, store: Store, prefix: str) -> None:
        self.target, self.row, self.store = target, row, store
        self.expected = row.expected or ""
        self.previous, self.new_hash = self.expected, DELETED
        self.is_swapped = self.is_settled = self._is_verified = False
        self.not_kept: tuple[str, ...] = ()
        self.kept: list[str] = []
        self.swap_name = store.swap_name(prefix, target.name, self.expected)
        try:
            status = os.stat(target.name, dir_fd=target.folder_fd, follow_symlinks=False)
        except FileNotFoundError:
            raise self._stale() from None
        self.inode = status.st_ino

    def _stale(self) -> StaleFileError:
        return StaleFileError(self.target.path, UNKNOWN, hash_of(self.target))

    def stage(self) -> None:
        """Nothing is staged."""

    def verify(self, patience: Patience) -> None:
        """Make sure that it is what was expected."""
        if print_of(self.target.folder_fd, self.target.name) != self.expected:
            raise self._stale()

    def planned(self) -> Planned:
        """Return what the note says of it."""
        target = self.target
        return Planned(
            "remove", target.folder, target.name, self.expected, NO_HASH, self.swap_name, self.inode
        )

    def exchange(self, patience: Patience) -> None:
        """Move it away."""
        self.is_swapped = True
        try:
            renames.move_without_replacing(
                self.target.folder_fd, self.target.name, self.store.swap_fd, self.swap_name
            )
        except FileNotFoundError:
            self.is_swapped = False
            raise self._stale() from None
        except OSError:
            self.is_swapped = False
            raise

    def settle(self, patience: Patience, note: Note) -> None:
        """The decisive look: nobody can reach it by its name any more."""
        try:
            if print_of(self.store.swap_fd, self.swap_name) != self.expected:
                raise self._stale()
            if self.row.kind == "folder" and (
                writer := _open_for_writing(self.store.swap_fd, self.swap_name)
            ):
                raise FileBusyError(
                    f"{self.target.path}/{writer}",
                    "another process has it open for writing; try again when it has finished.",
                )
        except BaseException:
            self.undo(patience, note)
            raise
        self.is_settled = True

    def undo(self, patience: Patience, note: Note) -> None:
        """Put it back."""
        store, target = self.store, self.target
        try:
            renames.move_without_replacing(store.swap_fd, self.swap_name, target.folder_fd, target.name)
        except FileExistsError:
            self.kept.append(store.keep(self.swap_name))
        self.is_swapped = False

    def finish(self) -> UnflushedError | None:
        """It has landed: give versions to the keeper, and remove it."""
        return None

    def close(self, *, landed: bool) -> None:
        """Remove it if it has gone."""
        if not (landed and self.is_swapped):
            return
        self.is_swapped = False
        for _ in range(MOST_REMOVALS):
            try:
                self._remove()
                return
            except OSError:
                pass  # What is left in the end is found by `adopt_orphans()`.

    def _remove(self) -> None:
        store = self.store
        if not self._is_verified and print_of(store.swap_fd, self.swap_name) != self.expected:
            self.kept.append(store.keep(self.swap_name))  # Somebody wrote to it since.
            return
        if store.keeper is not None and not self._is_verified:
            with store.keeper.many():
                for below, sha256, size in self.row.inside:
                    store.keeper.take(
                        store, f"{self.swap_name}/{below}", f"{self.target.path}/{below}", sha256, size
                    )
        self._is_verified = True
        remove_under_another_name(store.swap_fd, self.swap_name, self.swap_name + GONE)


def _open_for_writing(folder_fd: int, name: str) -> str:
    """Return a file below a folder that somebody has open for writing; "" if there is none."""
    with closing(os.open(name, OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=folder_fd)) as below_fd:
        with os.scandir(below_fd) as entries:
            listed = list(entries)
        for entry in listed:
            if entry.is_dir(follow_symlinks=False):
                if found := _open_for_writing(below_fd, entry.name):
                    return f"{entry.name}/{found}"
            elif entry.is_file(follow_symlinks=False):
                try:
                    file_fd = os.open(entry.name, LOOK, dir_fd=below_fd)
                except OSError:
                    continue
                try:
                    if not leases.try_lease(file_fd, leases.READ):
                        return entry.name
                    leases.release(file_fd)
                except leases.LeasesUnavailableError:
                    return ""
                finally:
                    os.close(file_fd)
    return ""


class ModeChange:
    """Permissions of a file or a folder."""

    level: Level = "exchange"

    def __init__(self, target: PinnedPath, row: TreeRow, store: Store, prefix: str) -> None:
        self.target, self.row, self.store = target, row, store
        self.expected = self.previous = self.new_hash = row.expected or NO_HASH
        self.is_swapped = self.is_settled = False
        self.not_kept: tuple[str, ...] = ()
        self.kept: list[str] = []
        self.swap_name = store.swap_name(prefix, target.name, None)  # For the record. There is no such file.
        self.inode = self._status().st_ino

    def _status(self) -> os.stat_result:
        try:
            return os.stat(self.target.name, dir_fd=self.target.folder_fd, follow_symlinks=False)
        except FileNotFoundError:
            raise StaleFileError(self.target.path, self.row.expected or UNKNOWN, DELETED) from None

    def stage(self) -> None:
        """Nothing is staged."""

    def verify(self, patience: Patience) -> None:
        """Make sure that it is what was expected: its content, and its permissions."""
        status = self._status()
        is_mode = stat.S_IMODE(status.st_mode) == self.row.old_mode and status.st_ino == self.inode
        if self.row.kind == "file" and self.row.expected:
            actual = hash_of(self.target)
            if actual == UNREADABLE:  # That says nothing about what is in it.
                raise FileBusyError(self.target.path, "it cannot be read at the moment; run it again.")
            if actual != self.row.expected:
                raise StaleFileError(self.target.path, self.row.expected, actual)
        if not is_mode or stat.S_ISLNK(status.st_mode):
            raise FileBusyError(self.target.path, "its permissions have just been changed; run it again.")

    def planned(self) -> Planned:
        """Return what the note says of it: the two modes, as numbers of 64 digits."""
        target, row = self.target, self.row
        return Planned(
            "mode",
            target.folder,
            target.name,
            f"{row.old_mode:064x}",
            f"{row.mode:064x}",
            self.swap_name,
            self.inode,
        )

    def exchange(self, patience: Patience) -> None:
        """Set it."""
        self.is_swapped = True
        self._set(self.row.mode)

    def settle(self, patience: Patience, note: Note) -> None:
        """There is nothing to settle."""
        self.is_settled = True

    def undo(self, patience: Patience, note: Note) -> None:
        """Set it back."""
        self._set(self.row.old_mode)
        self.is_swapped = False

    def _set(self, mode: int) -> None:
        set_mode(self.target.folder_fd, self.target.name, self.inode, mode)

    def finish(self) -> UnflushedError | None:
        """It has landed."""
        return None

    def close(self, *, landed: bool) -> None:
        """Nothing is open."""
        self.is_swapped = self.is_swapped and not landed
