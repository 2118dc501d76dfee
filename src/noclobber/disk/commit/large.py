"""
Replace more files, in more folders, than a process may have open: all of them, or none.

What differs from `many` is what is kept meanwhile. Only the leader's mutex is held. The note of each other
folder points to the leader, from before the first file is staged until after the last has landed; and who
finds a note in use needs the leader's mutex first, whether its writer is dead or alive. The leader is the
folder whose mutex comes first in the order in which everybody takes them, so nobody who holds another one
waits for it.

Files are opened one after another: staged and verified, then, with the record written, verified once more
and exchanged. A version is visible as soon as it is exchanged, before the last one is. If a later file is
refused, the exchanges are taken back from the record, as after a crash: a version that somebody has built on
since then stays, and what it had displaced is kept and reported. A commit that lands is ended in the same
way, so there is one way for all three.

Not promised, in contrast to `many`: that nobody sees a new version of a commit that is refused in the end.
And all of the files must be on the mount of the workspace.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from noclobber.disk import forks, mutex, paths
from noclobber.disk.commit import journal, open_stores, sweep
from noclobber.disk.commit.flushing import UnflushedError
from noclobber.disk.commit.many_files import begin, level_of, pinned, refuse_double
from noclobber.disk.commit.open_folders import OpenFolders
from noclobber.disk.commit.section import MOST_HELD, MOST_RECOVERIES, Section
from noclobber.disk.commit.swap import Swap
from noclobber.disk.steps import reached
from noclobber.errors import BadRequestError, FileBusyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from noclobber.core.values import Recovered, WriteResult
    from noclobber.disk.commit.committer import Committer
    from noclobber.disk.commit.journal import Note
    from noclobber.disk.commit.many_files import Change, Creation
    from noclobber.disk.commit.section import Fence
    from noclobber.disk.commit.store import Store
    from noclobber.disk.paths import PinnedPath


class Place(NamedTuple):
    """Where one file of the commit is."""

    path: str
    folder: str
    inode: int  # of the folder


class UnfinishedError(Exception):
    """A folder's note is in use, or another process commits there. Then what we hold is given up first."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.folder = folder


def replace_in_turn(
    committer: Committer, changes: Sequence[Change], fence: Fence | None
) -> list[WriteResult]:
    """Write all of the changes, or none."""
    for _ in range(MOST_RECOVERIES):
        try:
            places, first = _places(committer, changes)
            try:
                return LargeCommit(committer, changes, places, first, fence).commit()
            except UnfinishedError as unfinished:
                _wait_and_recover(committer, unfinished.folder)
        except OSError as error:
            raise committer.failed(error, changes[0].path) from error
    raise FileBusyError(
        changes[0].path,
        f"other processes were committing in its folders in each of {MOST_RECOVERIES} attempts; gave up.",
    )


def _places(committer: Committer, changes: Sequence[Change]) -> tuple[list[Place], int]:
    """Say where each file is, and which of them is in the folder that leads."""
    places, order = [], []
    seen: set[tuple[int, int, str]] = set()
    for number, change in enumerate(changes):
        target = pinned(committer, change)
        try:
            refuse_double(seen, target)
            status = os.fstat(target.folder_fd)
            order.append((status.st_dev, status.st_ino, number))
            places.append(Place(target.path, target.folder, status.st_ino))
        finally:
            committer.unpin(target)
    if len({device for device, _, _ in order}) > 1:
        raise _elsewhere(changes[0].path)
    return places, min(order)[2]


def _elsewhere(path: str) -> BadRequestError:
    return BadRequestError(
        path,
        "so many files can be committed together only inside one workspace and on its mount; split them into"
        f" commits of {MOST_HELD} folders at most.",
        most=MOST_HELD,
    )


def _wait_and_recover(committer: Committer, folder: str) -> None:
    """Have the mutex that was missing for a moment. Entering finishes what a dead process has left."""
    folder_fd = forks.open_tracked(folder, paths.OPEN_FOLDER)
    try:
        with Section(
            {folder: folder_fd},
            committer.store_of,
            patience_s=committer.mutex_wait_s,
            clock=committer.clock,
        ):
            pass
    finally:
        forks.close(folder_fd)


class LargeCommit:
    """One commit, from the first folder to the last."""

    def __init__(
        self,
        committer: Committer,
        changes: Sequence[Change],
        places: list[Place],
        first: int,
        fence: Fence | None,
    ) -> None:
        self._committer, self._changes, self._places, self._fence = committer, changes, places, fence
        self._first, self._leader = first, places[first]
        self._inodes = {place.folder: place.inode for place in places}
        self._joined: list[str] = []
        self._files: list[Swap | Creation] = []
        self._section: Section
        self._store: Store
        self._folders: OpenFolders

    def commit(self) -> list[WriteResult]:
        """Commit. After a refusal everything is as it was, but for what others have built on."""
        committer, folder = self._committer, self._leader.folder
        target = self._pinned(self._first)
        try:
            self._section = Section(
                {folder: target.folder_fd},
                committer.store_of,
                patience_s=committer.mutex_wait_s,
                clock=committer.clock,
            )
            if self._fence is not None:
                self._section.put_up(self._fence, [place.path for place in self._places])
            with self._section as section:
                self._store = section.store(folder)
                if self._store.is_beside or len(section.folders) > MOST_HELD or not section.is_exclusive:
                    raise _elsewhere(target.path)
                self._folders = OpenFolders(self._store.base, self._inodes, section.folders)
                try:
                    trouble = self._commit(section.note(folder))
                finally:
                    self._folders.close()
                results = [
                    section.landed(file.target.path, file.new_hash, level_of(file), file.previous)._replace(
                        not_kept=file.not_kept if isinstance(file, Swap) else ()
                    )
                    for file in self._files
                ]
        except OSError as error:
            raise committer.failed(error, target.path) from error
        finally:
            committer.unpin(target)
            self._tidy()
        return committer.reporting(results, trouble)

    def _tidy(self) -> None:
        """Sweep now: there are more displaced files than a later commit should have to deal with."""
        committer = self._committer
        committer.tidy(young=True)
        store = committer.store_if_open
        if store is None:
            return
        with suppress(OSError):
            for path, where in sweep.adopt_orphans(store, committer.clock.now_s()):
                committer.report_later(path, [where])

    def _pinned(self, number: int) -> PinnedPath:
        """Open a file's folder once more. It must be the same one."""
        return pinned(self._committer, self._changes[number]._replace(at=self._places[number].path))

    def _commit(self, leader: Note) -> UnflushedError | None:
        try:
            self._prepare(leader)
        except BaseException:
            for file in self._files:
                file.close(landed=False)
            leader.clear()
            self._release_members()
            raise
        try:
            for number, file in enumerate(self._files):
                self._exchange(number, file, leader)
                reached("many-exchanged")
            trouble = self._flush_names()  # Before the end of the record.
        except BaseException:
            leader.mark(journal.RESTORING)
            leader.flush()
            self._end()
            raise
        leader.mark(journal.LANDED)  # The commit point.
        reached("many-committed")
        with suppress(OSError):  # It has landed. What is left, the next call in one of its folders does.
            self._end()
        return trouble if self._committer.durable else None

    def _prepare(self, leader: Note) -> None:
        """Everything before the first exchange."""
        token = os.urandom(6).hex()
        leader.prepare(f"swap-{token}")
        for folder in self._inodes:
            if folder != self._leader.folder:
                self._join(folder, f"swap-{token}")
        for number in range(len(self._changes)):
            self._stage(number, f"{token}{number:06x}")
        for note in self._members():  # The disk has had time since.
            note.await_bytes(self._store.filesystem)
        leader.swap(*[file.planned() for file in self._files], inodes=self._inodes)
        leader.await_bytes(self._store.filesystem)
        reached("many-noted")
        self._section.look_again()

    def _end(self) -> None:
        """Have recovery conclude or undo every exchange, by the record; then let the folders go."""
        ended: list[Recovered] = self._section.finish_own(self._leader.folder)
        for each in ended:
            if each.kept:
                self._committer.report_later(each.path, [each.kept])
        for file in self._files:
            self._committer.report_later(file.target.path, file.kept)
        self._release_members()

    # The folders.

    def _join(self, folder: str, prefix: str) -> None:
        """Have a folder's note point to the leader; its mutex is needed for that moment only."""
        folder_fd = self._folders[folder]
        if not self._store.is_on_mount_of(folder_fd):
            raise _elsewhere(folder)
        # No patience: who has it may be waiting for a mutex of ours. We give up ours, and wait then.
        if not mutex.hold(folder_fd, patience_s=0.0, clock=self._committer.clock):
            raise UnfinishedError(folder)
        try:
            status = os.fstat(folder_fd)
            elsewhere = open_stores.cut_off_elsewhere(folder, status, self._store, self._committer.clock)
            if elsewhere is not None:
                if elsewhere[1] is not None:
                    elsewhere[1].close()
                raise UnfinishedError(folder)
            note = self._store.note(status)
            try:
                if not note.is_idle:
                    raise UnfinishedError(folder)
                self._joined.append(folder)
                note.prepare(prefix)
                note.join(self._leader.folder, self._leader.inode)
                note.start_bytes()
            finally:
                self._store.put_away(note)
        finally:
            mutex.release(folder_fd)
        reached("large-joined")

    def _release_members(self) -> None:
        """
        Clear the notes: after the leader's, and under its mutex.

        Left as they are they would do no harm. They point to a leader that is idle, and the next process
        clears them.
        """
        for note in self._members():
            note.clear()

    def _members(self) -> Iterator[Note]:
        """Yield the notes of folders that have joined and are still there, one open at a time."""
        for folder in self._joined:
            try:
                note = self._store.note(os.fstat(self._folders[folder]))
            except OSError:
                continue
            try:
                yield note
            finally:
                self._store.put_away(note)

    def _flush_names(self) -> UnflushedError | None:
        try:
            self._folders.flush_names(self._store.swap_fd, self._store.filesystem)
        except OSError as error:
            return UnflushedError(
                self._leader.path,
                f"the files were changed, but the disk failed to flush it ({os.strerror(error.errno or 0)});"
                " a power cut may bring old versions back.",
                landed=self._files[self._first].new_hash,
            )
        return None

    # The files.

    def _stage(self, number: int, token: str) -> None:
        target = self._pinned(number)
        try:
            file = begin(self._committer, self._store, target, self._changes[number], token, reuse=False)
            self._files.append(file)
            file.stage()
            if isinstance(file, Swap):
                file.verify(self._committer.patience())
            file.park()
        finally:
            self._committer.unpin(target)

    def _exchange(self, number: int, file: Swap | Creation, leader: Note) -> None:
        patience, target = self._committer.patience(), self._pinned(number)
        try:
            file.resume(target, patience)
            file.exchange(patience)
            if isinstance(file, Swap):
                file.settle(patience, leader)
        finally:
            file.park()
            self._committer.unpin(target)
