"""
One file on its way through a commit: staged, verified, exchanged, and put back if it must be.

The sequence, and what each step prevents:

1. `open_old()`    the file as it is now, without following links and without blocking.
2. `stage()`       the new bytes, complete and with the old file's owner, mode and attributes, under
                   another name. A reader never sees half of them.
3. `verify()`      a read lease on the old file, *then* its hash. Another process that opens it for
                   writing from now on waits, so the hash stays true.
4. `exchange()`    a write lease on the new file, so that nobody can open it before it is verified; one
                   more check that nobody is opening the old one; then both names swap in one step.
5. `settle()`      the decisive check, of what was displaced. Another file (somebody renamed theirs into
                   place), or a writer inside `open()`: let it finish and hash again. Not what was
                   expected: `restore`, in a file of its own.
6. `finish()`      end the leases. The displaced file waits for the sweep.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from typing import TYPE_CHECKING

from noclobber.disk import filesystems, forks, hashing, leases, mappings, metadata, ordering, paths, renames
from noclobber.disk.commit.flushing import UnflushedError, flush_name
from noclobber.disk.commit.journal import Planned
from noclobber.disk.commit.link_appeared import LinkAppearedError
from noclobber.disk.commit.restore import copy_under_lease, restore
from noclobber.disk.commit.reuse import detach_pages, reuse
from noclobber.disk.commit.sweep import MARK_FROM_BYTES, mark_if, mark_verified
from noclobber.disk.hashing_thread import LARGE_BYTES, HashOf
from noclobber.disk.processes import writers_of
from noclobber.disk.reading import LOOK, open_name, status_of
from noclobber.disk.small_file import write_all
from noclobber.disk.steps import reached
from noclobber.errors import (
    DELETED,
    NOT_A_FILE,
    UNREADABLE,
    AccessDeniedError,
    FileBusyError,
    NoclobberError,
    NotAFileError,
    StaleFileError,
)

if TYPE_CHECKING:
    from noclobber.core.clock import Patience
    from noclobber.core.values import Level
    from noclobber.disk.commit.journal import Note
    from noclobber.disk.commit.store import Store
    from noclobber.disk.paths import PinnedPath

NO_FD = -1
ANY_MAY_WRITE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
PRIVILEGED = stat.S_ISUID | stat.S_ISGID


class Swap:
    """One file of a commit. `expected` is a hash, or None for "whatever is there"."""

    spares_read_only = True
    """If a file that this user may not write to is refused. A command's own rename or `rm` asks nobody."""

    def __init__(
        self,
        target: PinnedPath,
        expected: str | None,
        data: bytes,
        store: Store,
        *,
        leases: bool,
        durable: bool,
        root: str | None,
        busy: str = "refuse",
        reuse: bool = True,
    ) -> None:
        self.root, self._when_busy = root, busy
        self._may_reuse = durable and reuse
        self.target, self.expected, self.data = target, expected, data
        self.store, self.leases, self.durable = store, leases, durable
        self.previous = ""  # The hash of what was replaced.
        self._new_hash: HashOf | None = None
        self.old_fd, self.new_fd = NO_FD, NO_FD
        self.first_fd = NO_FD  # The file that was there before somebody put another one in its place.
        self.swap_name, self.new_inode = "", 0
        self.is_swapped, self.is_settled = False, False
        self.hidden_since_s = (
            0.0  # Before this, nobody can have waited for the lease that hides the new version.
        )
        self.is_reused = False  # The swap file is an older version, and has had its lease from the start.
        self.kept: list[str] = []
        self.not_kept: tuple[str, ...] = ()  # Of the old file's metadata.
        self.sees_writers = True  # Of the filesystem: False where a lease would be blind.
        self._is_layered, self._is_proved = False, True
        self.old_status: os.stat_result
        self._new_status: os.stat_result
        self._old_metadata: metadata.Metadata

    @property
    def level(self) -> Level:
        """What this commit promises."""
        return "lease+exchange" if self.leases and self._is_proved else "exchange"

    @property
    def new_hash(self) -> str:
        """The hash of the bytes that are being written; "" before `begin_staging()`."""
        return self._new_hash.result() if self._new_hash else ""

    @property
    def links(self) -> int:
        """How many names the old file has."""
        return self.old_status.st_nlink

    # 1

    def open_old(self) -> None:
        """Open what is there now. Nothing blocks: not a FIFO, not a device, not a lease."""
        path = self.target.path
        try:
            self.old_fd = open_name(self.target)
        except FileNotFoundError:
            raise self.stale(DELETED) from None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise LinkAppearedError(path) from None
            if error.errno == errno.ENXIO:  # A socket.
                raise self._not_a_file() from None
            if error.errno == errno.EWOULDBLOCK:
                raise self.busy("another program has a lease on it") from None
            if error.errno in (errno.EACCES, errno.EPERM):
                if self.expected is not None:
                    raise self.stale(UNREADABLE) from None
                raise AccessDeniedError(
                    path, "it cannot be read by this user; check its permissions."
                ) from None
            raise
        kind = filesystems.kind_of(self.old_fd)
        self._is_layered = kind == filesystems.LAYERED
        self.sees_writers = filesystems.sees_writers(kind)
        self.leases = self.leases and self.sees_writers
        if not self.sees_writers:
            filesystems.forget_cached(self.old_fd)  # FUSE goes on counting a name that is gone.
        self.old_status = os.fstat(self.old_fd)
        if not stat.S_ISREG(self.old_status.st_mode):
            raise self._not_a_file()
        # Replacing needs only the folder's permission, but a read-only file is meant to stay as it is.
        if self.spares_read_only and not self._is_writable():
            raise self._read_only()

    def refuse_read_only(self) -> None:
        """Refuse new content for a file that nobody may write to: root could, but it is meant to stay."""
        if not self.old_status.st_mode & ANY_MAY_WRITE:
            raise self._read_only()

    def _read_only(self) -> AccessDeniedError:
        return AccessDeniedError(
            self.target.path, "it is read-only for this user; change its mode first (chmod u+w)."
        )

    def _is_writable(self) -> bool:
        user = os.geteuid()
        if user == 0:
            return True
        if self.old_status.st_uid == user:
            return bool(self.old_status.st_mode & stat.S_IWUSR)
        effective = os.access in os.supports_effective_ids
        return os.access(self.target.name, os.W_OK, dir_fd=self.target.folder_fd, effective_ids=effective)

    def _not_a_file(self) -> StaleFileError | NotAFileError:
        if self.expected is not None:
            return self.stale(NOT_A_FILE)
        return NotAFileError(self.target.path, "this is not a regular file; name a file instead.")

    def stale(self, actual: str) -> StaleFileError:
        """Return the refusal of a file that is not what was expected."""
        return StaleFileError(self.target.path, self.expected or "", actual)

    def busy(self, why: str) -> FileBusyError:
        """Return the refusal of a file that cannot be committed to at the moment."""
        return FileBusyError(self.target.path, f"{why}; try again when it has finished.")

    def _open_elsewhere(self) -> FileBusyError:
        who = ", ".join(f"{name} (process {pid})" for pid, name in writers_of(self.old_status))
        return self.busy(f"{who or 'another process'} has it open for writing")

    # 2

    def begin_staging(self, prefix: str) -> None:
        """Create the swap file; the caller has announced the prefix of its name."""
        self.hidden_since_s = time.monotonic()
        self._new_hash = HashOf(self.data)  # A large one is being made while we write and verify.
        if not (self._may_reuse and self.leases and self.data and self._write_over(prefix)):
            # Beside the target others can see it, and must not read it before it is complete.
            mode = 0o600 if self.store.is_beside else stat.S_IMODE(self.old_status.st_mode)
            self.swap_name, self.new_fd = self.store.create_swap(
                prefix, self.target.name, self.expected, mode
            )
            self._new_status = os.fstat(self.new_fd)
        self.new_inode = self._new_status.st_ino

    def _write_over(self, prefix: str) -> bool:
        """Stage in the version before the present one, if that is about to be deleted anyway."""
        name = self.store.swap_name(prefix, self.target.name, self.expected)
        self._old_metadata = metadata.of(self.old_fd, self.old_status)
        reused = reuse(self.store, self.target.path, name, self._old_metadata)
        if reused is not None:
            self.new_fd, self._new_status = reused
            self.swap_name, self.is_reused = name, True
        return self.is_reused

    def stage(self) -> None:
        """Write the new bytes and give them the old file's metadata."""
        reached("staging")
        if self.is_reused:
            detach_pages(self.new_fd, self._new_status)
        write_all(self.new_fd, self.data)
        if self._new_status.st_size > len(self.data):
            os.ftruncate(self.new_fd, len(self.data))
        is_privileged = self._new_status.st_mode & PRIVILEGED
        if not self.is_reused or is_privileged:  # Otherwise it has the same metadata already.
            self._old_metadata = metadata.of(self.old_fd, self.old_status)
            self.not_kept = metadata.give(
                self.new_fd,
                self._old_metadata,
                path=self.target.path,
                source=self.old_fd,
                # The kernel takes set-user-id bits away from what is written to.
                status=None if is_privileged else self._new_status,
                is_bare=not (self.is_reused or self.store.gives_acl),
            )
        if self.durable:
            os.fsync(self.new_fd)
        elif self.data:
            ordering.start(self.new_fd)
        if len(self.data) < LARGE_BYTES:
            self.new_hash  # noqa: B018 - Now: from `verify()` on others wait for us.
        reached("staged")

    def await_bytes(self) -> None:
        """Wait until the new bytes have been written: a power cut must not leave a name without them."""
        if self.data and not self.durable:
            ordering.wait(self.new_fd, self.store.filesystem)

    def planned(self, kind: str = "exchange") -> Planned:
        """Return what the note says of this file, before it is exchanged."""
        return Planned(
            kind,
            self.target.folder,
            self.target.name,
            self.expected if self.expected is not None else self.previous,
            self.new_hash,
            self.swap_name,
            self.new_inode,
        )

    # 3

    def verify(self, patience: Patience) -> None:
        """Make sure that nobody is writing, then compare the content with what was expected."""
        if self.leases:
            try:
                if not self._lease_old(patience):
                    if self._when_busy != "exchange":
                        raise self._open_elsewhere()
                    self.leases = False  # What they write to the displaced file, the sweep keeps.
            except leases.LeasesUnavailableError:
                self.leases = False
        reached("leased")
        if not self.sees_writers:
            filesystems.forget_cached(self.old_fd)
        self.previous = hashing.of_descriptor(self.old_fd, size_hint=self.old_status.st_size)
        if self.expected is not None and self.previous != self.expected:
            raise self.stale(self.previous)
        reached("verified")

    def _lease_old(self, patience: Patience) -> bool:
        """Take a read lease on the old file; False if somebody keeps it open, or mapped, for writing."""
        while leases.lease(self.old_fd, leases.READ, patience):
            if not self._is_layered:
                return True
            is_mapped = mappings.is_mapped_for_writing(self.old_fd)
            if not is_mapped:
                self._is_proved = self._is_proved and is_mapped is not None
                return True
            leases.release(self.old_fd)
            if not patience.nap():
                return False
        return False

    # 4

    def exchange(self, patience: Patience) -> None:
        """Swap the names, with the new bytes hidden until `finish()`."""
        self.await_bytes()
        if self.leases:
            if not (self.is_reused or leases.lease(self.new_fd, leases.WRITE, patience)):
                raise self.busy("another program keeps opening noclobber's own files")
            while not leases.is_quiet(self.old_fd, leases.READ):
                self._let_writers_finish(patience)
        store, target = self.store, self.target
        flip = renames.Flip(store.swap_fd, self.swap_name, target.folder_fd, target.name)
        self.check_name(patience)
        reached("before-exchange")
        self.is_swapped = True  # Set before it is true: after an interrupt in between it must be set.
        try:
            is_done = flip()
        except OSError as error:
            self.is_swapped = error.errno != errno.EBUSY  # Refused: the name is a mount point.
            raise
        if not is_done:
            self.is_swapped = False
            os.stat(self.swap_name, dir_fd=store.swap_fd)  # Raises if it is our own file that is missing.
            raise self.stale(DELETED)
        reached("exchanged")

    def check_name(self, patience: Patience) -> None:
        """
        Make sure that the name still leads to the file that was verified; if not, verify what is there.

        Not decisive, since the file can be replaced right after it. But the less time there is between the
        two, the less often somebody else's file is displaced.
        """
        while self._inode_at_target() != self.old_status.st_ino:
            self._start_over(patience)

    def link_aside(self, prefix: str, patience: Patience) -> str:
        """
        Give the old file a second name among the swap files; return that, or "" where there are no links.

        For a rename that would delete it. Who has it open, or saves in place between the final check and the
        rename, writes to it; with a name it is left to the sweep, which keeps what was changed.
        """
        while True:
            self.check_name(patience)
            name = self.store.swap_name(prefix, self.target.name, self.previous)
            try:
                os.link(
                    self.target.name,
                    name,
                    src_dir_fd=self.target.folder_fd,
                    dst_dir_fd=self.store.swap_fd,
                    follow_symlinks=False,
                )
            except OSError:
                return ""  # No links on this filesystem, or not to files of other users.
            is_it = False
            try:
                aside = os.stat(name, dir_fd=self.store.swap_fd, follow_symlinks=False)
                is_it = aside.st_ino == self.old_status.st_ino == self._inode_at_target()
            finally:
                if not is_it:
                    self.store.remove_swap(name)
            if is_it:
                return name

    def leave_linked_aside(self, name: str) -> None:
        """Leave the old file, which has only this name now, and its descriptor to the sweep."""
        descriptor, self.old_fd = self.old_fd, NO_FD
        self.store.set_aside(name, self.target.path, descriptor, size=self.old_status.st_size)

    def _inode_at_target(self) -> int:
        try:
            return status_of(self.target).st_ino
        except FileNotFoundError:
            raise self.stale(DELETED) from None

    def _start_over(self, patience: Patience) -> None:
        """Verify what is there now: it is not the file that was verified before."""
        self.close_one(self.old_fd)
        self.old_fd = NO_FD
        self.open_old()
        if self.links > 1:
            raise self.busy("it has just been given another hard link")
        self.verify(patience)

    def _let_writers_finish(self, patience: Patience) -> None:
        """Somebody opens the old file for writing: let them, and hash again when they have closed it."""
        leases.release(self.old_fd)
        if not self._lease_old(patience):
            raise self._open_elsewhere()
        self.previous = hashing.of_descriptor(self.old_fd)
        if self.expected is not None and self.previous != self.expected:
            raise self.stale(self.previous)

    # 5

    def settle(self, patience: Patience, note: Note) -> None:
        """Check what was displaced; put it back and refuse if it is not what was expected."""
        try:
            displaced = os.stat(self.swap_name, dir_fd=self.store.swap_fd, follow_symlinks=False)
            if not os.path.samestat(displaced, self.old_status):
                self._take_the_other(displaced, patience)
            if self.leases:
                while not leases.is_quiet(self.old_fd, leases.READ):
                    self._let_writers_finish(patience)
            else:
                self._hash_again()
            if not paths.still_leads_to(self.root, self.target):
                raise LinkAppearedError(self.target.path)  # The link that led here leads elsewhere now.
            # A chmod or chown between our copy and the exchange went to the displaced file.
            latest = metadata.of(self.old_fd)
            if latest != self._old_metadata and metadata.of(self.new_fd) == self._old_metadata:
                # (If ours is not as we made it, somebody has changed it since, and that change is later.)
                metadata.give(self.new_fd, latest, path=self.target.path, source=self.old_fd)
        except (NoclobberError, OSError):  # If the disk fails here, the commit is refused, too.
            reached("conflict")
            restore(self, patience, note)
            raise
        self.is_settled = True
        reached("settled")

    def _hash_again(self) -> None:
        """Without leases, only the content shows who wrote to it before it was displaced."""
        if not self.sees_writers:
            filesystems.forget_cached(self.old_fd)
        now = hashing.of_descriptor(self.old_fd)
        if now != self.previous:
            self.previous = now
            if self.expected is not None and now != self.expected:
                raise self.stale(now)

    def _take_the_other(self, displaced: os.stat_result, patience: Patience) -> None:
        """Somebody put another file in place between our check and the exchange. Verify that one."""
        if self.leases:
            leases.release(self.old_fd)
        self.first_fd, self.old_fd = self.old_fd, NO_FD
        if stat.S_ISLNK(displaced.st_mode):
            raise LinkAppearedError(self.target.path)
        if not stat.S_ISREG(displaced.st_mode):
            raise self._not_a_file()
        try:
            self.old_fd = forks.open_tracked(self.swap_name, LOOK, dir_fd=self.store.swap_fd)
        except OSError:
            raise self.stale(UNREADABLE) if self.expected else self.busy("it cannot be read") from None
        self.old_status = os.fstat(self.old_fd)
        if self.leases:
            try:
                if not self._lease_old(patience):
                    raise self.busy("another process has just replaced it and is still writing")
            except leases.LeasesUnavailableError:
                raise self.busy("a file of another user was put in its place") from None
        self.previous = hashing.of_descriptor(self.old_fd)
        if self.expected is not None and self.previous != self.expected:
            raise self.stale(self.previous)
        if self.old_status.st_nlink > 1:  # Its other names would keep the old bytes.
            raise self.busy("it has just been given another hard link")

    def undo(self, patience: Patience, note: Note) -> None:
        """Take back a settled exchange, because another file of the same commit was refused."""
        restore(self, patience, note)

    def leave_aside(self, descriptor: int, *, is_past: bool = False) -> None:
        """Leave the swap file and its descriptor to the sweep."""
        # Only the displaced file has that hash; after a restore, the file aside is our own.
        is_old = descriptor == self.old_fd
        size = self.old_status.st_size
        has_hash_in_name = self.is_settled and self.previous == self.expected
        # A mark costs less than hashing again, and past versions are checked before the next flush.
        if is_old and (is_past or size >= MARK_FROM_BYTES or not has_hash_in_name):
            if self.leases:
                mark_verified(descriptor)
            else:
                try:
                    mark_if(descriptor, self.previous)
                except OSError:
                    pass  # It has landed. Without a mark it will be kept.
        if self.leases:
            leases.release(descriptor)
        name, self.swap_name, self.is_swapped = self.swap_name, "", False  # Not left aside twice.
        if is_old:
            self.old_fd = NO_FD
        self.store.set_aside(
            name,
            self.target.path,
            descriptor,
            size=size,
            sha256=self.previous if is_old else "",
            is_past=is_past,
        )

    # 6

    def finish(self, landed: str | None = None) -> UnflushedError | None:
        """
        End the leases, and leave the displaced file to the sweep. `landed`: the hash of what is there now.

        Returns the error of the flush, if there was one.
        """
        if self.leases and self.new_fd != NO_FD:
            # Forgotten first: closed twice after an interrupt, the number may belong to another file by then.
            new_fd, self.new_fd = self.new_fd, NO_FD
            self.close_one(new_fd)
        reached("released")
        trouble = flush_name(self.target, landed or self.new_hash) if self.durable else None
        if self.is_settled and self.is_swapped:
            self.leave_aside(self.old_fd, is_past=self.durable and self.leases and trouble is None)
        return trouble

    def close_one(self, descriptor: int) -> None:
        """Release a descriptor's lease, and close it."""
        if self.leases:
            leases.release(descriptor)
        forks.close(descriptor)

    def close(self, *, landed: bool = False) -> None:
        """Close what is open; remove a file that was staged and never exchanged."""
        if landed and self.is_swapped and self.old_fd != NO_FD:
            self.leave_aside(self.old_fd)  # Interrupted between settle() and finish().
        name, is_dropped = self.swap_name, self.is_reused and not self.is_swapped
        if is_dropped and self.new_fd != NO_FD:
            self._copy_for_late_openers()
        for descriptor in (self.new_fd, self.old_fd, self.first_fd):
            if descriptor != NO_FD:
                self.close_one(descriptor)
        self.new_fd = self.old_fd = self.first_fd = NO_FD
        if name and is_dropped:
            self.store.leave_marked(name, self.target.path)  # A late opener may write, too.
            self.swap_name = ""
        elif self.swap_name and not self.is_swapped:
            self.store.remove_swap(self.swap_name)
            self.swap_name = ""

    def _copy_for_late_openers(self) -> None:
        """
        Refused, with a swap file that a process may have looked up while it still had the target's name.

        Suspended inside `open()` since then, that process waits for our lease by now, or has yet to come to
        it. Or it holds the file by other means, as a bind mount does. It must find the present version there,
        not one that was never committed.
        """
        try:
            if self.old_fd != NO_FD:
                copy_under_lease(self.old_fd, self.new_fd, self.hidden_since_s)
        except leases.LeaseEndedError:
            return  # Somebody has it already, and may have written to it: then the sweep keeps it.
        except OSError:
            pass  # It will be removed anyway.
        mark_verified(self.new_fd)
