"""
The guard of a workspace on a shared volume: the same calls as `FileGuard`, landed in sections (`sections`).

Used where a coordinator is set and the workspace is on a network or FUSE file system. There leases and
mutexes say nothing about other machines, and the server does.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from noclobber.core.values import WriteResult
from noclobber.disk import filesystems, paths, signals
from noclobber.disk.commit.rows import Change, TreeRow
from noclobber.disk.file_guard import FileGuard, FileRead
from noclobber.errors import (
    ABSENT,
    DELETED,
    BadRequestError,
    FileBusyError,
    LockContention,
    LockLost,
    MissingFileError,
    NoclobberError,
    ShellUnavailableError,
    StaleFileError,
)
from noclobber.ledger.root import relative
from noclobber.lock.backend import locked_write
from noclobber.lock.locked_folder import locked_here
from noclobber.postgres.coordinator import shared_connection
from noclobber.postgres.sections import CarriedLock, SectionFile, Sections
from noclobber.postgres.volume import Volume
from noclobber.postgres.workspace_name import place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    from noclobber.core.values import Reach, Recovered
    from noclobber.disk.commit.change_set import ReliedOn
    from noclobber.disk.commit.section import Fence
    from noclobber.lock.lock import DeliverableLock
    from noclobber.postgres.sections import LandedFile

    Result = TypeVar("Result")


class LockFence(Protocol):
    """What a section asks of a fence: the server decides about locks and claims, in its own transaction."""

    @property
    def owner(self) -> str | None:
        """The agent whose own claims do not stop it."""

    def carried(self, path: str) -> DeliverableLock | None:
        """Return the lock that the writer works under; raise if the path is claimed or outside of it."""


class SectionGuard(FileGuard):
    """Guarded access to the files below a root that several machines have mounted."""

    def __init__(self, root: str, **options: Any) -> None:
        super().__init__(root, **options)
        self._made: Sections | None = None
        self._volume = Volume(self.root, self.committer.clock)

    @property
    def _sections(self) -> Sections:
        if self._made is None:
            place = place_of(self.root, make=True)
            committer = self.committer
            self._made = Sections(
                shared_connection(),
                place,
                self._volume,
                committer.clock,
                committer.mutex_wait_s,
                committer.wait_s,
            )
        return self._made

    def reach(self) -> Reach:
        """Whoever asks the server, on any machine."""
        return "volume"

    def scan(
        self, path: str | os.PathLike[str], consume: Callable[[int, str], Result]
    ) -> tuple[str, Result, tuple[Recovered, ...]]:
        """Open a file as `FileGuard` does, past what this mount remembers of its folder."""
        filesystems.refresh(os.path.dirname(self.lexical(path)))
        self._bring_back(path)
        return super().scan(path, consume)

    def read(self, path: str | os.PathLike[str]) -> FileRead:
        """Read a whole file once, as it is on the other side."""
        found = paths.locate(self.lexical(path), self.root)
        seen = self._volume.look(found)
        if seen.sha256 == ABSENT:
            self._bring_back(path)
            seen = self._volume.look(found)
        if seen.content is None:
            return super().read(path)  # Says what is wrong with it.
        return FileRead(found, seen.content, seen.sha256)

    def digest(self, path: str | os.PathLike[str]) -> str:
        """Return the hash of what is there now, or `DELETED`, `NOT_A_FILE`, `UNREADABLE`."""
        seen = self._volume.look(paths.locate(self.lexical(path), self.root)).sha256
        return DELETED if seen == ABSENT else seen

    @signals.whole
    def write(
        self,
        path: str | os.PathLike[str],
        data: bytes,
        *,
        expected: str | None,
        at: str | None = None,
        fence: Fence | None = None,
        mode: int | None = None,
    ) -> WriteResult:
        """Replace or create, if the file is still `expected`."""
        file = SectionFile(self._target(path, at, expected), data, expected, mode)
        return self._land([file], fence)[0]

    @signals.whole
    def commit(
        self,
        changes: Sequence[Change | TreeRow],
        *,
        fence: Fence | None = None,
        relied_on: ReliedOn | None = None,
    ) -> list[WriteResult]:
        """Replace, create and delete several files: all of them or none."""
        files = [self._file(change) for change in changes]
        if len({file.path for file in files}) < len(files):
            raise BadRequestError(
                "", "Two of the paths lead to one file; which content it should get is a guess."
            )
        return self._land(files, fence) if files else []

    def _file(self, change: Change | TreeRow) -> SectionFile:
        if isinstance(change, TreeRow):  # What a command did to a tree does not land in one section.
            raise ShellUnavailableError(
                self.root, "commands are not guarded on a volume that machines share through a coordinator"
            )
        target = self._target(change.path, change.at, change.expected)
        return SectionFile(target, change.data, change.expected, change.mode, like=change.like)

    @signals.whole
    def delete(
        self,
        path: str | os.PathLike[str],
        *,
        expected: str | None,
        at: str | None = None,
        fence: Fence | None = None,
    ) -> WriteResult:
        """Delete, if the file is still `expected`."""
        target = self._target(path, at, expected)
        if self._volume.look(target).sha256 == ABSENT:
            raise self._gone(target, expected)
        return self._land([SectionFile(target, None, expected)], fence)[0]

    @signals.whole
    def move(
        self,
        source: str | os.PathLike[str],
        destination: str | os.PathLike[str],
        *,
        expected: str | None,
        at: tuple[str, str] | None = None,
        fence: Fence | None = None,
    ) -> WriteResult:
        """Move to a free name, if the file is still `expected`: one section deletes it and creates it."""
        here, there = at if at is not None else (None, None)
        origin, goal = self._target(source, here, expected), self._target(destination, there, ABSENT)
        seen = self._volume.look(origin)
        if seen.content is None:
            raise self._gone(origin, expected)
        if expected is not None and seen.sha256 != expected:
            raise StaleFileError(origin, expected, seen.sha256)
        rows = [
            SectionFile(origin, None, seen.sha256),
            SectionFile(goal, seen.content, ABSENT, like=origin),
        ]
        gone, came = self._land(rows, fence)
        return came._replace(previous_sha256=gone.previous_sha256, recovered=gone.recovered)

    def sweep(self) -> list[str]:
        """Remove what killed writers have left in the folder of staged files."""
        if os.path.isdir(self._volume.folder):
            self._sections.sweep()
        return super().sweep()

    def _bring_back(self, path: str | os.PathLike[str]) -> None:
        """A file that is not there may have lost its name to a machine that was cut off (`second_names`)."""
        if self._volume.second_names.are_needed:
            found = paths.locate(self.lexical(path), self.root)
            if not os.path.lexists(found):
                self._sections.bring_back(found)

    # -- parts ---------------------------------------------------------------------------------------------

    def _target(self, path: str | os.PathLike[str], at: str | None, expected: str | None) -> str:
        target = paths.locate(self.lexical(path), self.root)
        if at is None or target == at:
            return target
        if expected is not None:
            actual = self.digest(target)
            if actual != expected:
                raise StaleFileError(target, expected, actual)
        raise FileBusyError(target, f"{path} led to {at} a moment ago, and leads here now; try again.")

    def _land(self, files: Sequence[SectionFile], fence: Fence | None) -> list[WriteResult]:
        locks: list[DeliverableLock] = []
        owner = None
        if fence is not None:
            carried: LockFence = fence  # type: ignore[assignment]
            owner = carried.owner
            for file in files:
                lock = carried.carried(file.path)
                self._pass_lock_file(file.path, lock)
                if lock is not None:
                    if (lost := lock.lost) is not None:
                        raise lost
                    locks.append(lock)
        try:
            landed, recovered = self._sections.land(files, self._carried(locks), owner)
        except LockLost:
            for lock in locks:  # It lost its row, and finds that out: its file must not keep others out.
                with suppress(NoclobberError):
                    lock.assert_held()
            raise
        keeper = self.committer.keeper
        for file, done in zip(files, landed, strict=True):
            if keeper is not None and done.content_before is not None:
                keeper.keep(file.path, done.content_before, done.previous)
        results = [_result(file, done) for file, done in zip(files, landed, strict=True)]
        return [results[0]._replace(recovered=tuple(recovered)), *results[1:]]

    def _pass_lock_file(self, path: str, lock: DeliverableLock | None) -> None:
        """Raise if a program without the coordinator has locked a folder above: the server does not know."""
        clock = self.committer.clock
        folder = locked_here(path, self.root, clock)
        if folder is not None and (lock is None or lock.folder != folder):
            try:
                with locked_write(folder, None, (), clock):
                    pass
            except LockContention as error:
                raise LockContention(path, error.message, **error.details) from None

    def _carried(self, locks: Sequence[DeliverableLock]) -> list[CarriedLock]:
        found = [(relative(self.root, lock.folder), lock.lock_id) for lock in locks]
        return [CarriedLock("" if folder == "." else folder, id_) for folder, id_ in found if id_]

    def _gone(self, path: str, expected: str | None) -> Exception:
        if expected is None or expected == ABSENT:
            return MissingFileError(path, "there is no such file.")
        return StaleFileError(path, expected, DELETED)


def _result(file: SectionFile, done: LandedFile) -> WriteResult:
    return WriteResult(file.path, done.sha256, "section", done.previous, not_kept=done.not_kept)
