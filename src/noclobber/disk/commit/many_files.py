"""
The files of a commit of several: what is asked for, and each one on its way.

A file that exists is a `Swap`; one that must not exist yet is a `Creation`, with the same steps.
"""

from __future__ import annotations

import os

from noclobber.disk import forks, leases, metadata, ordering, renames
from noclobber.disk.commit.flushing import flush_name
from noclobber.disk.commit.journal import Planned
from noclobber.disk.commit.swap import NO_FD, Swap, reopened, write_all
from noclobber.disk.commit.sweep import mark_if
from noclobber.disk.hashing_thread import HashOf
from noclobber.disk.reading import hash_of
from noclobber.errors import ABSENT, DELETED, BadRequestError, MissingFileError, StaleFileError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    from noclobber.core.clock import Patience
    from noclobber.core.values import Level
    from noclobber.disk.commit.committer import Committer
    from noclobber.disk.commit.flushing import UnflushedError
    from noclobber.disk.commit.store import Store
    from noclobber.disk.paths import PinnedPath
else:
    from noclobber.core.light.named_tuples import NamedTuple


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

    def park(self) -> None:
        """Close it for a while."""
        if self.new_fd != NO_FD:
            leases.release(self.new_fd)
            forks.close(self.new_fd)
            self.new_fd = NO_FD

    def resume(self, target: PinnedPath, patience: Patience) -> None:
        """Open it again."""
        self.target = target
        self.new_fd = reopened(self.store, self.swap_name, self.new_inode)

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
        if self.new_fd != NO_FD:
            leases.release(self.new_fd)
            forks.close(self.new_fd)
            self.new_fd = NO_FD
        if self._was_at_its_name:
            self.store.leave_marked(self.swap_name, self.target.path)
        elif not self.is_swapped:
            self.store.remove_swap(self.swap_name)


def pinned(committer: Committer, change: Change) -> PinnedPath:
    """Resolve a change's path, and hold its folder open."""
    try:
        return committer.pin(
            change.path,
            expected=change.expected,
            at=change.at,
            make_folders=change.expected in (None, ABSENT),
        )
    except MissingFileError as error:
        raise StaleFileError(error.path, change.expected or "", DELETED) from None


def refuse_doubles(targets: list[PinnedPath]) -> None:
    """Refuse a file that is named twice: which of the two would it be?"""
    seen: set[tuple[int, int, str]] = set()
    for target in targets:
        refuse_double(seen, target)


def refuse_double(seen: set[tuple[int, int, str]], target: PinnedPath) -> None:
    """The same, for one after another."""
    folder = os.fstat(target.folder_fd)  # Not its path: a folder may have two (a bind mount).
    file = (folder.st_dev, folder.st_ino, target.name)
    if file in seen:
        raise BadRequestError(target.path, "it is named twice in one commit; merge the two changes.")
    seen.add(file)


def begin(
    committer: Committer, store: Store, target: PinnedPath, change: Change, token: str, *, reuse: bool = True
) -> Swap | Creation:
    """Open the file and create its swap file. `reuse`: in an older version, if there is one."""
    prefix = f"{store.prefix}swap-{token}"
    expected = change.expected
    if expected is None and hash_of(target) == DELETED:
        expected = ABSENT
    if expected == ABSENT:
        return Creation(target, change.data, store, prefix, committer.durable)
    if not committer.has_exchange(store):
        raise BadRequestError(
            target.path,
            "this filesystem cannot exchange two names, so files that exist cannot be replaced together."
            " Write them one by one; on a network or FUSE volume a coordinator makes it possible"
            " (NOCLOBBER_COORDINATOR).",
        )
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
        reuse=reuse,
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


def level_of(file: Swap | Creation) -> Level:
    """What the commit of this file promises."""
    return file.level if isinstance(file, Swap) else "create"
