"""
Move a file to a free name, if it is still what the caller saw.

The file gets its new name by a link, and then its old name is taken away. The inode moves, with all its
bytes, its metadata and the processes that have it open, so nothing can be lost; only what is moved has to be
what was seen. It is a row of a commit like any other (`change_set.land`), with a record and a recovery, but
of its own kind: to delete the file and create it anew would give it another inode, and for a moment no name.

Where there are no links, on other mounts, and where a link changes the inode, it is one rename that refuses
to replace, and there is no record. Killed right after it, a save that came before it has moved along.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from noclobber.disk import renames, signals
from noclobber.disk.commit.change_set import (
    Committed,
    begin_again,
    land,
    refuse_absent,
    refuse_link,
    swap_options,
    without_baseline,
)
from noclobber.disk.commit.flushing import flush_names
from noclobber.disk.commit.found_files import inode_of
from noclobber.disk.commit.journal import Planned
from noclobber.disk.commit.link_appeared import LinkAppearedError
from noclobber.disk.commit.move_recovery import let_go
from noclobber.disk.commit.rows import MOST_REMOVALS, BeginAgainError
from noclobber.disk.commit.swap import Swap
from noclobber.disk.filesystems import KEEPS_INODES
from noclobber.disk.reading import hash_of
from noclobber.disk.steps import reached
from noclobber.errors import (
    ABSENT,
    NOT_A_FILE,
    BadRequestError,
    FileExistsAlreadyError,
    NoclobberError,
    StaleFileError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from noclobber.core.clock import Patience
    from noclobber.core.values import Level, WriteResult
    from noclobber.disk.commit.committer import Committer
    from noclobber.disk.commit.flushing import UnflushedError
    from noclobber.disk.commit.journal import Note
    from noclobber.disk.commit.made_folders import MadeFolders
    from noclobber.disk.commit.section import Fence, Section
    from noclobber.disk.paths import PinnedPath

NO_LINKS = (
    errno.EPERM,
    errno.EACCES,
    errno.EOPNOTSUPP,
    errno.ENOTSUP,
    errno.ENOSYS,
    errno.EMLINK,
    errno.EINVAL,
)


@signals.whole
def move(
    committer: Committer,
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    expected: str | None,
    *,
    at: tuple[str, str] | None = None,
    fence: Fence | None = None,
) -> WriteResult:
    """Move the file to a name that must be free. `path` of the result is the destination."""
    committer.tidy()

    def attempt() -> list[WriteResult]:
        with committer.made_folders() as made:
            return _move(committer, source, destination, expected, at, fence, made)

    return begin_again(committer, attempt, str(source))[0]


def _move(
    committer: Committer,
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    expected: str | None,
    at: tuple[str, str] | None,
    fence: Fence | None,
    made: MadeFolders,
) -> list[WriteResult]:
    origin = committer.pin(source, expected=expected, at=at and at[0])
    try:
        refuse_link(committer, source, origin, expected)
        goal = committer.pin(destination, at=at and at[1], make_folders=made)
    except BaseException:
        committer.unpin(origin)
        raise
    try:
        if origin.path == goal.path:
            raise BadRequestError(origin.path, "source and destination are the same file.")
        with committer.section([origin, goal], fence) as section:
            refuse_absent(origin, expected)
            done = _move_in(committer, section, origin, goal, expected)
    except StaleFileError as error:
        if error.expected:
            raise
        raise without_baseline(error) from None
    except OSError as error:
        raise committer.failed(error, origin.path) from error
    finally:
        committer.unpin(origin)
        committer.unpin(goal)
    results = [result._replace(path=goal.path) for result in done.results]
    return committer.reporting(results, *done.troubles)


def _move_in(
    committer: Committer, section: Section, origin: PinnedPath, goal: PinnedPath, expected: str | None
) -> Committed:
    store = section.store(origin.folder)
    # Not on an overlay: a link copies a file of the lower layer up, and gives it another inode number.
    by_link = section.is_exclusive and section.store(goal.folder) is store
    if by_link and store.filesystem in KEEPS_INODES:

        def begin(token: str) -> Iterable[Moving]:
            prefix = f"{store.prefix}swap-{token}"
            moving = Moving(goal, prefix, origin, expected, b"", store, **swap_options(committer))
            moving.open_origin()
            yield moving

        try:
            return land(committer, section, begin, 1)
        except NoLinksError:
            pass
    swap = Moving(goal, "", origin, expected, b"", store, **swap_options(committer))
    try:
        swap.open_origin()
        Swap.verify(swap, committer.patience())
        section.look_again()
        trouble = _rename(committer, swap)
        return Committed([section.landed(goal.path, swap.previous, "create", swap.previous)], [trouble])
    finally:
        swap.close()


class NoLinksError(NoclobberError):
    """The filesystem has no links, or not to this file."""


class Moving(Swap):
    """A file that gets another name. What takes the place of an exchange is a link and a rename."""

    def __init__(self, goal: PinnedPath, prefix: str, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.goal, self._prefix, self._aside = goal, prefix, ""

    @property
    def level(self) -> Level:
        """As of a file that is created: the new name was free."""
        return "create"

    @property
    def new_hash(self) -> str:
        """Its content does not change."""
        return self.previous

    def open_origin(self) -> None:
        """Open the file."""
        try:
            self.open_old()
        except LinkAppearedError:
            self.close()
            raise self.stale(NOT_A_FILE) from None
        except BaseException:
            self.close()
            raise

    def stage(self) -> None:
        """Nothing is staged."""

    def verify(self, patience: Patience) -> None:
        """Verify it, and say where its old name goes."""
        super().verify(patience)
        self._aside = self.store.swap_name(self._prefix, self.target.name, self.previous)

    def planned_names(self) -> list[Planned]:
        """Return what the note says of it: a row for the old name, and one for the new."""
        origin, goal, inode, now = self.target, self.goal, self.old_status.st_ino, self.previous
        return [
            Planned("move", origin.folder, origin.name, now, now, self._aside, inode),
            Planned("moved", goal.folder, goal.name, ABSENT, now, self._aside, inode),
        ]

    def exchange(self, patience: Patience) -> None:
        """
        Give it its new name, then take the old one away.

        In this order: whenever we are killed, the file has one of them, and recovery sees by the inodes what
        is ours (`move_recovery`).
        """
        origin, goal, store = self.target, self.goal, self.store
        if self.inode_at_origin() != self.old_status.st_ino:
            raise self._replaced()
        inode = self.old_status.st_ino
        self.is_swapped = True  # Set before it is true: after an interrupt in between it must be set.
        if not self._link():
            self.is_swapped = False
            raise NoLinksError(origin.path)
        reached("move-linked")
        if inode_of(goal.folder_fd, goal.name) not in (inode, None):
            raise self._replaced()
        try:
            renames.move_without_replacing(origin.folder_fd, origin.name, store.swap_fd, self._aside)
        except FileNotFoundError:
            pass  # Deleted by somebody, after the file had its new name.
        reached("moved")
        if inode_of(store.swap_fd, self._aside) not in (inode, None):
            raise self._replaced()

    def inode_at_origin(self) -> int | None:
        """Return which file has the old name now."""
        return inode_of(self.target.folder_fd, self.target.name)

    def _replaced(self) -> BeginAgainError:
        """Somebody has put another file there. Verify that one, or refuse."""
        return BeginAgainError(
            self.target.path, "other programs keep replacing it; try again when they have finished."
        )

    def _link(self) -> bool:
        """Give the verified file its new name, too; False where there are no links."""
        origin, goal = self.target, self.goal
        try:
            # By its descriptor where that is possible: what somebody puts at the old name is never linked.
            os.link(
                f"/proc/self/fd/{self.old_fd}", goal.name, dst_dir_fd=goal.folder_fd, follow_symlinks=True
            )
            return True
        except FileNotFoundError:
            pass  # It has no name any more; or there is no /proc.
        except OSError as error:
            if error.errno not in (*NO_LINKS, errno.EXDEV):
                raise _cannot_move(error, origin, goal) from None
        if self.inode_at_origin() != self.old_status.st_ino:
            raise self._replaced()
        try:
            os.link(
                origin.name,
                goal.name,
                src_dir_fd=origin.folder_fd,
                dst_dir_fd=goal.folder_fd,
                follow_symlinks=False,
            )
        except OSError as error:
            if error.errno in NO_LINKS:
                return False
            raise _cannot_move(error, origin, goal) from None
        return True

    def settle(self, patience: Patience, note: Note) -> None:
        """What was moved has been looked at. If the commit is refused, recovery takes it back."""

    def finish(self, landed: str | None = None) -> UnflushedError | None:
        """It has landed; both of its names were flushed."""
        return None

    def close(self, *, landed: bool = False) -> None:
        """Close it, and remove the old name, which is among the swap files."""
        if landed and self.is_swapped:
            self.is_swapped = False
            for _ in range(MOST_REMOVALS):
                try:
                    let_go(self.store, self._aside, self.previous, self.target.path)
                    break
                except OSError:
                    pass  # Only our own second name is left; `adopt_orphans()` finds it.
        super().close()


def _rename(committer: Committer, swap: Moving) -> UnflushedError | None:
    """Move without a link: one rename, and a look at what was moved."""
    origin, goal = swap.target, swap.goal
    status = os.fstat(swap.old_fd)
    try:
        renames.move_without_replacing(origin.folder_fd, origin.name, goal.folder_fd, goal.name)
    except OSError as error:
        raise _cannot_move(error, origin, goal) from None
    reached("moved")
    moved: os.stat_result | None
    try:
        moved = os.stat(goal.name, dir_fd=goal.folder_fd, follow_symlinks=False)
    except FileNotFoundError:
        moved = status  # Deleted since, by somebody who saw it at its new name.
    except OSError as unseen:
        # We do not know which. So refuse; and a refusal must leave everything as it was.
        moved = None
        try:
            renames.move_without_replacing(goal.folder_fd, goal.name, origin.folder_fd, origin.name)
        except FileExistsError:
            moved = status  # Somebody has created a file there since, after the move, which has happened.
        except OSError:
            pass  # It cannot go back either: it has been moved. Its content shows if it is the one.
        else:
            raise unseen
    is_other = not (moved and os.path.samestat(moved, status))
    if is_other and swap.expected is not None and (now := hash_of(goal)) != swap.expected:
        # Another file was put there between our check and the rename: move it back.
        try:
            renames.move_without_replacing(goal.folder_fd, goal.name, origin.folder_fd, origin.name)
        except FileExistsError:
            pass  # And yet another one there; both stay, under the two names, and nothing is lost.
        raise swap.stale(now)
    if not committer.durable:
        return None
    # Both at once: half of it would leave the file under both names, or none.
    return flush_names(goal, swap.previous, (goal.folder_fd, origin.folder_fd), swap.store.filesystem)


def _cannot_move(error: OSError, origin: PinnedPath, goal: PinnedPath) -> Exception:
    if isinstance(error, FileExistsError):
        return FileExistsAlreadyError(
            goal.path, "the destination exists; delete it first, or choose another name."
        )
    if error.errno == errno.EXDEV:
        return BadRequestError(
            origin.path, f"{goal.path} is on another filesystem; write it there and delete this one."
        )
    return error
