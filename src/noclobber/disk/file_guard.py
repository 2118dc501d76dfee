"""
FileGuard: read, check and commit as one step, for one file or many.

The guard knows nothing of agents, turns or ledgers. The caller says what it expects, and the guard
answers with what happened. Who may write what is decided by the engine and its policies.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from noclobber.core.clock import SYSTEM_CLOCK, Patience
from noclobber.disk import forks, hashing, paths, signals
from noclobber.disk.commit import change_set
from noclobber.disk.commit.committer import DEFAULT_WAIT_S, LADDER, Committer
from noclobber.disk.reading import (
    DEFAULT_PATIENCE_S,
    NOT_READABLE,
    ask_again,
    is_replaced,
    look_at,
    open_to_read,
    read_all,
)
from noclobber.disk.system_errors import commit_failed
from noclobber.errors import (
    AccessDeniedError,
    BadRequestError,
    FileBusyError,
    MissingFileError,
    NotAFileError,
)

if TYPE_CHECKING:
    from noclobber.core.clock import Clock
    from noclobber.core.values import Level, Reach, Recovered, WriteResult
    from noclobber.disk.commit.change_set import Change, ReliedOn, TreeRow
    from noclobber.disk.commit.section import Fence
    from noclobber.disk.version_keeper import VersionKeeper


Result = TypeVar("Result")

__all__ = ["FileGuard", "FileRead"]


class FileRead(NamedTuple):
    """One read of a whole file: the hash is of these very bytes."""

    path: str
    content: bytes
    sha256: str
    recovered: tuple[Recovered, ...] = ()
    """What dead processes had left unfinished in the file's folder, and what became of it."""

    def __repr__(self) -> str:
        return f"<FileRead {self.path!r} sha256 {self.sha256[:12]}, {len(self.content)} bytes>"


class FileGuard:
    """Guarded access to the files below one root."""

    def __init__(
        self,
        root: str | os.PathLike[str] | None,
        *,
        durable: bool = False,
        wait_s: float = DEFAULT_WAIT_S,
        ceiling: Level | None = None,
        hard_links: bool = True,
        busy: str = "refuse",
        keeper: VersionKeeper | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`root`: None for files anywhere, each committed beside itself."""
        self.root = "/" if root is None else os.path.realpath(root)
        if not os.path.isdir(self.root):
            raise NotAFileError(self.root, "the workspace's root must be an existing folder.")
        # NOCLOBBER_LEVEL limits a process to a lower level, to see what that level protects.
        from_environment = os.environ.get("NOCLOBBER_LEVEL")
        if ceiling is None and from_environment and from_environment not in LADDER:
            raise BadRequestError(
                "",
                f"NOCLOBBER_LEVEL is {from_environment!r}; it must be one of {', '.join(LADDER)}, or unset.",
            )
        asked: Level = ceiling or from_environment or "lease+exchange"  # type: ignore[assignment]
        self.committer = Committer(
            None if root is None else self.root,
            durable=durable,
            wait_s=wait_s,
            ceiling=asked,
            hard_links=hard_links,
            busy=busy,
            keeper=keeper,
            clock=clock,
        )

    def lexical(self, path: str | os.PathLike[str]) -> str:
        """Return the absolute name that was meant, without touching the disk."""
        return paths.lexical(self.root, path)

    def locate(self, path: str | os.PathLike[str]) -> str:
        """Return the canonical path, links resolved; refuse what is outside the workspace."""
        return paths.locate(self.lexical(path), self.root)

    def read(self, path: str | os.PathLike[str]) -> FileRead:
        """Read a whole file once. Never blocks: a FIFO, a socket or a device is refused."""
        found, content, recovered = self.scan(path, lambda descriptor, _: read_all(descriptor))
        return FileRead(found, content, hashing.of_bytes(content), recovered)

    @signals.whole
    def scan(
        self, path: str | os.PathLike[str], consume: Callable[[int, str], Result]
    ) -> tuple[str, Result, tuple[Recovered, ...]]:
        """
        Open a file as `read()` does, for a caller that does not want all of it in memory.

        Returned are its path, what `consume(descriptor, path)` made of it, and what was recovered.

        `consume` runs again if a link on the way was changed meanwhile: what was read may then be older than
        what somebody else has already seen under that name.
        """
        name = self.lexical(path)
        for _ in range(paths.MOST_LINKS):
            target = paths.pin(self.root, name)
            try:
                recovered = tuple(self.committer.recover_folder(target))
                descriptor = self._open(target)
                try:
                    with signals.let_in():  # It may be a large file.
                        result = consume(descriptor, target.path)
                finally:
                    forks.close(descriptor)
                if paths.still_leads_to(self.root, target):
                    return target.path, result, recovered
            except OSError as error:
                if not is_replaced(error):
                    raise commit_failed(error, target.path) from error
                ask_again(target)
            finally:
                target.close()
        raise FileBusyError(
            target.path, "it, or a link that leads to it, keeps changing; gave up. Try again later."
        )

    def _open(self, target: paths.PinnedPath) -> int:
        try:
            descriptor = open_to_read(target, self._patience())
        except FileNotFoundError:
            raise MissingFileError(target.path, "there is no such file.") from None
        except BlockingIOError:
            raise FileBusyError(
                target.path,
                "a commit to it does not end; its process may be stopped. Continue or end it, then retry.",
            ) from None
        except PermissionError:
            raise AccessDeniedError(
                target.path, "it cannot be read by this user; check its permissions."
            ) from None
        except OSError as error:
            if error.errno not in NOT_READABLE:
                raise
            raise NotAFileError(target.path, f"it cannot be opened as a file ({error.strerror}).") from None
        try:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise NotAFileError(target.path, f"this is {_kind(mode)}, not a file.")
        except BaseException:
            forks.close(descriptor)
            raise
        return descriptor

    def _patience(self) -> Patience:
        return Patience(self.committer.mutex_wait_s, self.committer.clock)

    def digest(self, path: str | os.PathLike[str]) -> str:
        """Return the hash of what is on disk now, or `DELETED`, `NOT_A_FILE`, `UNREADABLE`."""
        return look_at(self.lexical(path), self.root, patience_s=DEFAULT_PATIENCE_S).sha256

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
        """
        Replace or create, if the file is still `expected` (a hash, `ABSENT`, or None: unchecked).

        `at` is the canonical path that the caller has judged; if the path leads elsewhere by the time of
        the commit, it is refused. `fence` is asked as well, inside the same critical section. `mode` are the
        permissions of a file that is created.
        """
        return self.committer.replace(path, expected, data, at=at, fence=fence, mode=mode)

    def commit(
        self,
        changes: Sequence[Change | TreeRow],
        *,
        fence: Fence | None = None,
        relied_on: ReliedOn | None = None,
    ) -> list[WriteResult]:
        """
        Make several changes, all of them or none: contents, deletions, and what a command did to a tree.

        `relied_on`: what must not change meanwhile, although it is not among the changes.
        """
        return change_set.commit_changes(self.committer, changes, fence=fence, relied_on=relied_on)

    def delete(
        self,
        path: str | os.PathLike[str],
        *,
        expected: str | None,
        at: str | None = None,
        fence: Fence | None = None,
    ) -> WriteResult:
        """Delete, if the file is still `expected`."""
        return change_set.delete(self.committer, path, expected, at=at, fence=fence)

    def move(
        self,
        source: str | os.PathLike[str],
        destination: str | os.PathLike[str],
        *,
        expected: str | None,
        at: tuple[str, str] | None = None,
        fence: Fence | None = None,
    ) -> WriteResult:
        """Move to a free name, if the file is still `expected`."""
        from noclobber.disk.commit.moving import move  # Here: a landing does without.

        return move(self.committer, source, destination, expected, at=at, fence=fence)

    def reach(self) -> Reach:
        """Return whom a write here excludes: this machine, all on the `volume`, or this `mount` only."""
        from noclobber.disk.reach import reach_of  # Here: a hook has no use for it.

        return reach_of(self.root)

    def close(self) -> None:
        """Close what is open; a later call opens it again."""
        self.committer.close()

    def sweep(self) -> list[str]:
        """Let go of displaced versions; return where those are kept that somebody wrote to."""
        kept = [where for _, where in self.committer.sweep()]
        if self.committer.keeper is not None:
            self.committer.keeper.tidy()
        return kept

    def keep_written(self, path: str, sha256: str, data: bytes | None) -> None:
        """
        Keep a version that is in place now, before somebody overwrites it who keeps nothing. Never fails.

        Without its bytes they are read again, if it is still there.
        """
        keeper = self.committer.keeper
        if keeper is None or not hashing.is_hash(sha256):
            return
        if data is None:
            found = look_at(path, self.root, keep=True)
            data = found.content if found.sha256 == sha256 else None
        if data is not None:
            keeper.keep(path, data, sha256)

    def keep_landed(self, files: Iterable[tuple[str, str]]) -> None:
        """Keep what a command has landed: paths and hashes. Never fails."""
        if self.committer.keeper is not None:
            self.committer.keeper.keep_landed(files)

    def keep_version(self, path: str, data: bytes, sha256: str | None = None) -> None:
        """Keep what an agent saw of a file, if versions are kept. Never fails."""
        if self.committer.keeper is not None:
            self.committer.keeper.keep(path, data, sha256)


def _kind(mode: int) -> str:
    for test, name in (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISLNK, "a broken link"),
    ):
        if test(mode):
            return name
    return "a device"
