"""
Replace several files: all of them, or none.

Every mutex in sorted order, every file staged, verified and leased, the record in the leader's note,
then exchange after exchange. The new versions stay hidden by their leases until the last one is
settled; a refusal anywhere takes back every exchange before anyone has seen it.

The commit point is the moment the leader's note says `L`. A process killed before that is rolled
back by the next call in any of the folders, unless every exchange had happened already and displaced
what was expected: then nothing is missing, and it counts as landed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from noclobber.disk import forks, leases, metadata, ordering, renames
from noclobber.disk.commit import journal
from noclobber.disk.commit.committer import Committer
from noclobber.disk.commit.flushing import flush_name, flush_names
from noclobber.disk.commit.journal import Planned
from noclobber.disk.commit.link_appeared import retry_while_links_appear
from noclobber.disk.commit.swap import Swap, write_all
from noclobber.disk.commit.sweep import mark_if
from noclobber.disk.hashing_thread import HashOf
from noclobber.disk.reading import hash_of
from noclobber.disk.steps import reached
from noclobber.errors import (
    ABSENT,
    DELETED,
    BadRequestError,
    MissingFileError,
    NoclobberError,
    StaleFileError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noclobber.core.clock import Patience
    from noclobber.core.values import Level, WriteResult
    from noclobber.disk.commit.flushing import UnflushedError
    from noclobber.disk.commit.journal import Note
    from noclobber.disk.commit.section import Fence, Section
    from noclobber.disk.commit.store import Store
    from noclobber.disk.paths import PinnedPath

MOST_FILES = 200  # Each keeps up to three descriptors open until the end; 1024 is a common limit.


class Change(NamedTuple):
    """One file of many. `expected` is a hash, `ABSENT`, or None for whatever is there."""

    path: str
    data: bytes
    expected: str | None
    at: str | None = None
    """The canonical path that the caller has checked, if it did."""


class Creation:
    """A file that must not exist yet, with the same steps as a `Swap`."""

    def __init__(self, target: PinnedPath, data: bytes, store: Store, prefix: str, durable: bool) -> None:
        self.target, self.data, self.store, self.durable = target, data, store, durable
        self.expected, self.previous, self.level = ABSENT, ABSENT, "create"
        self.is_swapped = False
        self._was_at_its_name = False
        self.kept: list[str] = []
        self._new_hash = HashOf(data)
        self.swap_name, self.new_fd = store.create_swap(prefix, target.name, None, 0o666)
        try:
            self.new_inode = os.fstat(self.new_fd).st_ino
        except BaseException:
            self.close(landed=False)
            raise

    @property
    def new_hash(self) -> str:
        """The hash of the bytes that are being written."""
        return self._new_hash.result()

    def stage(self) -> None:
        write_all(self.new_fd, self.data)
        metadata.inherit_group(self.new_fd, self.target.folder_fd)
        if self.durable:
            os.fsync(self.new_fd)
        else:
            ordering.start(self.new_fd)

    def planned(self) -> Planned:
        """Return what the note says of this file, before it gets its name."""
        target = self.target
        return Planned(
            "create", target.folder, target.name, ABSENT, self.new_hash, self.swap_name, self.new_inode
        )

    def exchange(self, patience: Patience) -> None:
        """Give it its name; hidden by a lease, where there are leases, until the other files are done."""
        if not self.durable:
            ordering.wait(self.new_fd, self.store.filesystem)
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
        """Take it away again, unless somebody has put another file there."""
        try:
            renames.move_without_replacing(
                self.target.folder_fd, self.target.name, self.store.swap_fd, self.swap_name
            )
        except FileNotFoundError:
            self.is_swapped = False
            return
        came = os.stat(self.swap_name, dir_fd=self.store.swap_fd, follow_symlinks=False)
        if came.st_ino != self.new_inode:  # Somebody else's. Put it back.
            try:
                renames.move_without_replacing(
                    self.store.swap_fd, self.swap_name, self.target.folder_fd, self.target.name
                )
            except FileExistsError:  # Two saves in a row: the later one stays there.
                self.kept.append(self.store.keep(self.swap_name))
        else:
            mark_if(self.new_fd, self.new_hash)
            self._was_at_its_name = True
        self.is_swapped = False

    def finish(self) -> UnflushedError | None:
        leases.release(self.new_fd)
        return flush_name(self.target, self.new_hash) if self.durable else None

    def close(self, *, landed: bool) -> None:
        """Close it; remove it if it did not get its name."""
        leases.release(self.new_fd)
        forks.close(self.new_fd)
        if self._was_at_its_name:
            self.store.leave_marked(self.swap_name, self.target.path)
        elif not self.is_swapped:
            self.store.remove_swap(self.swap_name)


def replace_many(
    committer: Committer, changes: Sequence[Change], *, fence: Fence | None = None
) -> list[WriteResult]:
    """Write all of the changes, or none; the results come back in the order of the changes."""
    if not changes:
        return []
    if len(changes) == 1:
        only = changes[0]
        return [committer.replace(only.path, only.expected, only.data, at=only.at, fence=fence)]
    if len(changes) > MOST_FILES:
        raise BadRequestError(
            "",
            f"{len(changes)} files are too many for one commit; the most is {MOST_FILES}. Split it.",
            most=MOST_FILES,
        )
    committer.tidy()
    return retry_while_links_appear(lambda: _replace_many(committer, changes, fence), changes[0].path)


def _replace_many(committer: Committer, changes: Sequence[Change], fence: Fence | None) -> list[WriteResult]:
    targets: list[PinnedPath] = []
    try:
        for change in changes:
            targets.append(_pin(committer, change))
        _refuse_doubles(targets)
        with committer.section(targets, fence) as section:
            results, troubles = _replace_in(committer, section, targets, changes)
    except OSError as error:
        raise committer.failed(error, targets[-1].path if targets else changes[0].path) from error
    finally:
        for target in targets:
            committer.unpin(target)
    return committer.reporting(results, *troubles)


def _pin(committer: Committer, change: Change) -> PinnedPath:
    try:
        return committer.pin(
            change.path,
            expected=change.expected,
            at=change.at,
            make_folders=change.expected in (None, ABSENT),
        )
    except MissingFileError as error:
        raise StaleFileError(error.path, change.expected or "", DELETED) from None


def _refuse_doubles(targets: list[PinnedPath]) -> None:
    seen: set[tuple[int, int, str]] = set()
    for target in targets:
        folder = os.fstat(target.folder_fd)  # Not its path: a folder may have two (a bind mount).
        file = (folder.st_dev, folder.st_ino, target.name)
        if file in seen:
            raise BadRequestError(target.path, "it is named twice in one commit; merge the two changes.")
        seen.add(file)


def _replace_in(
    committer: Committer, section: Section, targets: list[PinnedPath], changes: Sequence[Change]
) -> tuple[list[WriteResult], list[UnflushedError | None]]:
    files: list[Swap | Creation] = []
    folders = section.distinct_folders()
    leader, members = section.note(folders[0]), [section.note(folder) for folder in folders[1:]]
    patience = committer.patience()
    landed = False
    try:
        token = os.urandom(6).hex()
        for folder in folders:
            section.note(folder).prepare(f"{section.store(folder).prefix}swap-{token}")
        for number, (target, change) in enumerate(zip(targets, changes, strict=True)):
            files.append(_begin(committer, section, target, change, f"{token}{number:04x}"))
        for file in files:
            file.stage()
        for file in files:
            if isinstance(file, Swap):
                file.verify(patience)
        # The leader first: a member that still says "preparing" removes its own staged files, and
        # nothing has been exchanged yet.
        inodes = {folder: section.status(folder).st_ino for folder in section.folders}
        leader.swap(*[file.planned() for file in files], inodes=inodes)
        for member in members:
            member.join(folders[0], inodes[folders[0]])
        # The record before the exchanges: after a power cut between two of them it is what undoes the first.
        kind = section.store(folders[0]).filesystem
        for note in (leader, *members):
            note.await_bytes(kind)
        reached("many-noted")
        section.look_again()
        try:
            for file in files:
                file.exchange(patience)
                if isinstance(file, Swap):
                    file.settle(patience, leader)
                reached("many-exchanged")
        except (NoclobberError, OSError):
            _take_back(files, patience, leader)
            raise
        # The exchanges before the end of the record, for the same reason.
        unflushed = flush_names(files[0].target, files[0].new_hash, section.folders.values(), kind)
        leader.mark(journal.LANDED)  # The commit point.
        landed = True
        reached("many-committed")
        troubles = [file.finish() for file in files]
        if committer.durable:
            troubles.append(unflushed)
        results = [
            section.landed(file.target.path, file.new_hash, _level(file), file.previous)._replace(
                not_kept=file.not_kept if isinstance(file, Swap) else ()
            )
            for file in files
        ]
        return results, troubles
    finally:
        section.conclude(files, [leader, *members], landed=landed)
        for file in files:
            committer.report_later(file.target.path, file.kept)


def _begin(
    committer: Committer, section: Section, target: PinnedPath, change: Change, token: str
) -> Swap | Creation:
    store = section.store(target.folder)
    prefix = f"{store.prefix}swap-{token}"
    expected = change.expected
    if expected is None and hash_of(target) == DELETED:
        expected = ABSENT
    if expected == ABSENT:
        return Creation(target, change.data, store, prefix, committer.durable)
    with_leases = committer.ceiling == "lease+exchange" and leases.SUPPORTED
    swap = Swap(
        target,
        expected,
        change.data,
        store,
        leases=with_leases,
        durable=committer.durable,
        root=committer.root,
        busy=committer.busy,
    )
    try:
        swap.open_old()
        swap.refuse_read_only()
        if swap.links > 1:
            raise BadRequestError(
                target.path,
                "it has several hard links, so it cannot be replaced together with others; write it alone.",
            )
        swap.begin_staging(prefix)
    except BaseException:
        swap.close()
        raise
    return swap


def _take_back(files: list[Swap | Creation], patience: Patience, leader: Note) -> None:
    for file in reversed(files):
        if not file.is_swapped:
            continue
        if isinstance(file, Creation):
            file.undo()
        elif file.is_settled:
            file.undo(patience, leader)


def _level(file: Swap | Creation) -> Level:
    return file.level if isinstance(file, Swap) else "create"
