"""
Rewrite a file in place, for files with several names and filesystems without exchange-rename.

Keeps the inode, and with it every hard link. A write lease keeps everyone out while it lasts, so no
reader sees a mixture. Not crash-atomic: a process that dies in the middle leaves a mixture behind,
which the next commit in that folder, or `noclobber doctor`, undoes from the copy made first.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from noclobber.disk import filesystems, forks, hashing, leases, mappings, metadata
from noclobber.disk.commit import journal
from noclobber.disk.commit.restore import copy_all, copy_under_lease, refuse_if_seen
from noclobber.disk.small_file import write_all
from noclobber.disk.steps import reached
from noclobber.errors import AccessDeniedError, FileBusyError, StaleFileError

if TYPE_CHECKING:
    from noclobber.core.clock import Patience
    from noclobber.core.values import Level
    from noclobber.disk.commit.journal import Note
    from noclobber.disk.commit.store import Store
    from noclobber.disk.paths import PinnedPath

OPEN_BOTH_WAYS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def rewrite(
    target: PinnedPath,
    expected: str | None,
    data: bytes,
    *,
    store: Store,
    note: Note,
    patience: Patience,
) -> tuple[str, Level]:
    """
    Replace the content; return the hash of what was there, and the level. LeasesUnavailableError: not here.

    The level is `plain` where a mapping that the lease does not see could have written meanwhile.
    """
    try:
        file_fd = forks.open_tracked(target.name, OPEN_BOTH_WAYS, dir_fd=target.folder_fd)
    except PermissionError:
        raise AccessDeniedError(
            target.path, "it is read-only for this user; change its mode first."
        ) from None
    staged: list[tuple[str, int]] = []
    is_torn = landed = False
    since_s = time.monotonic()
    try:
        if not leases.lease(file_fd, leases.WRITE, patience):
            raise FileBusyError(target.path, "another process has it open; try again when it has closed it.")
        is_mapped: bool | None = False
        if filesystems.kind_of(file_fd) == filesystems.LAYERED:
            is_mapped = mappings.is_mapped_for_writing(file_fd)
        if is_mapped:
            raise FileBusyError(target.path, "another process has it mapped; try again when it has finished.")
        previous = hashing.of_descriptor(file_fd)
        if expected is not None and previous != expected:
            raise StaleFileError(target.path, expected, previous)
        prefix = store.new_prefix()
        note.prepare(prefix)
        for part in ("00", "01"):
            staged.append(store.create_swap(prefix + part, target.name, previous, 0o600))
        (new_name, new_fd), (undo_name, undo_fd) = staged
        write_all(new_fd, data)
        copy_all(file_fd, undo_fd)
        size = os.fstat(undo_fd).st_size
        metadata.give(undo_fd, metadata.of(file_fd), path=target.path)
        folder = target.folder
        planned = journal.Planned(
            "inplace",
            folder,
            target.name,
            previous,
            hashing.of_bytes(data),
            new_name,
            os.fstat(file_fd).st_ino,
            undo_name,
        )
        note.swap(planned)
        # Flushed in every mode: no journal orders what is written in place, and a power cut in the middle of
        # it leaves a mixture.
        for descriptor in (new_fd, undo_fd, store.swap_fd):
            os.fsync(descriptor)
        note.flush()
        is_torn = True
        try:
            _overwrite(file_fd, new_fd, len(data), since_s)
        except leases.LeaseEndedError:
            raise _was_stopped(target) from None  # Whose bytes these are, recovery sees.
        except BaseException:
            # If this fails as well, the next call finishes it; all of the new bytes may be there by then, and
            # they were refused.
            note.mark(journal.RESTORING)
            try:
                copy_under_lease(undo_fd, file_fd, since_s)
            except leases.LeaseEndedError:
                raise _was_stopped(target) from None
            except leases.LeasesUnavailableError as error:
                # The caller takes that for "not here", and clears the note, which the next call needs.
                raise OSError(error.errno, error.strerror) from error
            os.fsync(file_fd)
            is_torn = False
            raise
        is_torn = False
        landed = True
        return previous, "plain" if is_mapped is None else "lease+inplace"
    finally:
        leases.release(file_fd)
        forks.close(file_fd)
        for name, descriptor in staged:
            forks.close(descriptor)
            if not is_torn and not (landed and name == undo_name):
                store.remove_swap(name)
        # Torn, recovery needs both: the copy and the note are all that is left of the old version.
        if not is_torn:
            note.clear()
        # No version was displaced here; the copy is all that there is of it. Until the note is clear it is
        # recovery's.
        if landed and not (store.keeper and store.keeper.take(store, undo_name, target.path, previous, size)):
            store.remove_swap(undo_name)


def _was_stopped(target: PinnedPath) -> FileBusyError:
    return FileBusyError(
        target.path,
        "this process was stopped in the middle of the write, and others have had the file since;"
        " read it again.",
    )


def _overwrite(file_fd: int, new_fd: int, size: int, since_s: float) -> None:
    # Space first: a full disk must be noticed before the first old byte is overwritten.
    if size:
        os.posix_fallocate(file_fd, 0, size)
    reached("inplace-begin")
    copy_all(new_fd, file_fd, hidden_since_s=since_s)
    reached("inplace-written")
    refuse_if_seen(file_fd, since_s)
    os.ftruncate(file_fd, size)
    os.fsync(file_fd)  # In every mode: the copies are removed next.
