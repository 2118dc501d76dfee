"""
Delete or move a file, if it is still what the caller saw.

Deleting: the file is first exchanged with an empty placeholder that is hidden by a write lease, so that
the displaced file can be verified as in any commit; then the placeholder is moved away. A process that
opens the name meanwhile waits, and finds either the old file or none. Unlinking the name directly would
delete what an editor renamed into place since our last check.

Moving: the file gets its new name by a link, and then its old name is taken away. The inode moves, with all
its bytes, its metadata and the processes that have it open, so nothing can be lost; only what is moved has to
be what was seen. Where there are no links it is one rename that refuses to replace.
"""

from __future__ import annotations

import errno
import os

from noclobber.disk import leases, paths, renames, signals
from noclobber.disk.commit import journal
from noclobber.disk.commit.committer import Committer
from noclobber.disk.commit.flushing import flush_name, flush_names
from noclobber.disk.commit.journal import Planned
from noclobber.disk.commit.link_appeared import LinkAppearedError, retry_while_links_appear
from noclobber.disk.commit.recovery import GONE
from noclobber.disk.commit.restore import copy_under_lease
from noclobber.disk.commit.swap import Swap
from noclobber.disk.commit.sweep import mark_if, mark_verified
from noclobber.disk.filesystems import KEEPS_INODES
from noclobber.disk.reading import hash_of
from noclobber.disk.steps import reached
from noclobber.disk.system_errors import commit_failed
from noclobber.errors import (
    ABSENT,
    DELETED,
    NOT_A_FILE,
    BadRequestError,
    FileExistsAlreadyError,
    MissingFileError,
    NotAFileError,
    StaleFileError,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    from noclobber.core.clock import Patience
    from noclobber.core.values import WriteResult
    from noclobber.disk.commit.flushing import UnflushedError
    from noclobber.disk.commit.section import Fence, Section
    from noclobber.disk.paths import PinnedPath
else:
    from noclobber.core.light.named_tuples import NamedTuple

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
def delete(
    committer: Committer,
    path: str | os.PathLike[str],
    expected: str | None,
    *,
    at: str | None = None,
    fence: Fence | None = None,
) -> WriteResult:
    """Delete the file; `sha256` of the result is `DELETED`."""
    committer.tidy()
    return retry_while_links_appear(lambda: _delete(committer, path, expected, at, fence), str(path))


def _refuse_link(
    committer: Committer, path: str | os.PathLike[str], target: PinnedPath, expected: str | None
) -> None:
    """Refuse a link: deleting or moving what it leads to would leave a broken link behind."""
    name = paths.lexical(committer.root or os.getcwd(), path)
    if not target.via or not os.path.islink(name):
        return
    if expected is not None and (actual := hash_of(target)) != expected:
        raise StaleFileError(target.path, expected, actual)  # It was not a link when it was read.
    raise BadRequestError(name, f"this is a link; name the file itself ({target.path}).")


def _refuse_absent(target: PinnedPath, expected: str | None) -> None:
    """The caller knows that there is no such file: it is missing still, or somebody has created one since."""
    if expected != ABSENT:
        return
    if (actual := hash_of(target)) != DELETED:
        raise StaleFileError(target.path, ABSENT, actual)
    raise MissingFileError(target.path, "there is no such file.")


def _without_baseline(error: StaleFileError) -> MissingFileError | NotAFileError:
    """Return the refusal of a file that nobody had read: it is missing, or is not a file, but not stale."""
    if error.actual == DELETED:
        return MissingFileError(error.path, "there is no such file.")
    return NotAFileError(error.path, "this is not a regular file; name a file instead.")


def _delete(
    committer: Committer,
    path: str | os.PathLike[str],
    expected: str | None,
    at: str | None,
    fence: Fence | None,
) -> WriteResult:
    target = committer.pin(path, expected=expected, at=at)
    try:
        _refuse_link(committer, path, target, expected)
        with committer.section([target], fence) as section:
            reached("entered")
            result, trouble = _delete_in(committer, section, target, expected)
    except StaleFileError as error:
        if error.expected:
            raise
        raise _without_baseline(error) from None
    except OSError as error:
        raise committer.failed(error, target.path, begin_again=True) from error
    finally:
        committer.unpin(target)
    return committer.reporting([result], trouble)[0]


def _delete_in(
    committer: Committer, section: Section, target: PinnedPath, expected: str | None
) -> tuple[WriteResult, UnflushedError | None]:
    _refuse_absent(target, expected)
    patience = committer.patience()
    while True:
        folder = target.folder
        store, note = section.store(folder), section.note(folder)
        with_leases = committer.ceiling == "lease+exchange" and leases.SUPPORTED
        swap = Swap(
            target,
            expected,
            b"",
            store,
            leases=with_leases,
            durable=committer.durable,
            root=committer.root,
            busy=committer.busy,
        )
        landed, gone = False, ""
        try:
            swap.open_old()
            if not committer.can_exchange(store) or not section.is_exclusive:
                swap.verify(patience)
                _move_to_swap(swap)
                trouble = flush_name(target, DELETED) if committer.durable else None
                return section.landed(target.path, DELETED, "plain", swap.previous), trouble
            prefix = store.new_prefix()
            note.prepare(prefix)
            swap.begin_staging(prefix)
            gone = swap.swap_name + GONE
            swap.stage()
            swap.verify(patience)
            note.swap(swap.planned("delete"))
            note.await_bytes(store.filesystem)  # A power cut may leave the placeholder at the name.
            section.look_again()
            swap.exchange(patience)
            swap.settle(patience, note)
            if take_placeholder_away(swap):
                landed = True
                # Not the exchange without this: the note, which is what undoes it, ends after it.
                unflushed = flush_names(target, DELETED, (target.folder_fd,), store.filesystem)
                trouble = swap.finish(DELETED)
                trouble = trouble or (unflushed if committer.durable else None)
                return section.landed(target.path, DELETED, swap.level, swap.previous), trouble
            # Somebody waits inside open() for the placeholder. Give them the file instead.
            swap.undo(patience, note)
            swap.finish()
            if not patience.nap():
                raise swap.busy("other processes keep opening it")
        except OSError:
            # The placeholder may be away, and the error in what came after. To recovery that would look like
            # a delete that is done; and the caller hears that it was refused.
            if swap.is_settled and not landed:
                note.mark(journal.RESTORING)
            raise
        finally:
            section.conclude([swap], [note], landed=landed)
            committer.report_later(target.path, swap.kept)
            if gone:
                store.leave_marked(gone, target.path)


def _move_to_swap(swap: Swap) -> None:
    """
    Delete without an exchange: move the file among the swap files, and see what was moved.

    Unlinking the name would take what an editor renamed there since the check. No note is written: if we are
    killed, a sweep deletes the file if it still has the hash in its name, and keeps it otherwise.
    """
    store, target = swap.store, swap.target
    name = store.swap_name(store.new_prefix(), target.name, swap.previous)
    try:
        os.rename(target.name, name, src_dir_fd=target.folder_fd, dst_dir_fd=store.swap_fd)
    except FileNotFoundError:
        raise swap.stale(DELETED) from None
    moved = os.stat(name, dir_fd=store.swap_fd, follow_symlinks=False)
    if moved.st_ino == swap.old_status.st_ino:
        swap.leave_linked_aside(name)
        return
    try:
        renames.move_without_replacing(store.swap_fd, name, target.folder_fd, target.name)
    except FileExistsError:
        swap.kept.append(store.keep(name))  # Two saves in a row: the later one is there.
    raise swap.stale(hash_of(target))


def take_placeholder_away(swap: Swap) -> bool:
    """Move the placeholder off the name; False, with it back in place, if somebody is opening it."""
    store, target, gone = swap.store, swap.target, swap.swap_name + GONE
    try:
        renames.move_without_replacing(target.folder_fd, target.name, store.swap_fd, gone)
    except FileNotFoundError:
        return True  # Somebody deleted it at the same moment.
    reached("placeholder-away")
    try:
        moved = os.stat(gone, dir_fd=store.swap_fd, follow_symlinks=False)
        theirs = moved.st_ino != swap.new_inode
        is_awaited = swap.leases and not leases.is_quiet(swap.new_fd, leases.WRITE)
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
                swap.kept.append(store.keep(gone))
                return True
            # A process that waits for the placeholder asked for the old version.
            try:
                copy_under_lease(swap.old_fd, swap.new_fd, swap.hidden_since_s)
                mark_verified(swap.new_fd)
            except OSError:
                pass
            return True
        # `theirs`: somebody saved after the delete, which has happened. Not theirs: try again.
        return theirs
    if swap.leases:
        mark_verified(swap.new_fd)  # Empty, and hidden: a later write to it changes the mark.
    else:
        mark_if(swap.new_fd, swap.new_hash)
    return True


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
    origin = committer.pin(source, expected=expected, at=at and at[0])
    try:
        _refuse_link(committer, source, origin, expected)
        goal = committer.pin(destination, at=at and at[1], make_folders=True)
    except BaseException:
        committer.unpin(origin)
        raise
    try:
        with committer.section([origin, goal], fence) as section:
            result, trouble = _move_in(committer, section, origin, goal, expected)
    except StaleFileError as error:
        if error.expected:
            raise
        raise _without_baseline(error) from None
    except OSError as error:
        raise commit_failed(error, origin.path) from error
    finally:
        committer.unpin(origin)
        committer.unpin(goal)
    return committer.reporting([result], trouble)[0]


def _move_in(
    committer: Committer, section: Section, origin: PinnedPath, goal: PinnedPath, expected: str | None
) -> tuple[WriteResult, UnflushedError | None]:
    if origin.path == goal.path:
        raise BadRequestError(origin.path, "source and destination are the same file.")
    _refuse_absent(origin, expected)
    swap = Swap(
        origin,
        expected,
        b"",
        section.store(os.path.dirname(origin.path)),
        leases=committer.ceiling == "lease+exchange" and leases.SUPPORTED,
        durable=committer.durable,
        root=committer.root,
        busy=committer.busy,
    )
    try:
        try:
            swap.open_old()
        except LinkAppearedError:
            raise swap.stale(NOT_A_FILE) from None
        patience = committer.patience()
        swap.verify(patience)
        section.look_again()
        # Not on an overlay: a link copies a file of the lower layer up, and gives it another inode number.
        by_link = section.is_exclusive and section.store(goal.folder) is swap.store
        if by_link and swap.store.filesystem in KEEPS_INODES:
            linked = _move_by_link(section, swap, goal, patience)
            if linked is not None:
                landed = section.landed(goal.path, swap.previous, "create", swap.previous)
                return landed, linked.trouble if committer.durable else None
        # Without links: one rename, and no note. Killed after it, a save that came before it has moved along.
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
        if is_other and expected is not None and (now := hash_of(goal)) != expected:
            # Another file was put there between our check and the rename: move it back.
            try:
                renames.move_without_replacing(goal.folder_fd, goal.name, origin.folder_fd, origin.name)
            except FileExistsError:
                pass  # And yet another one there; both stay, under the two names, and nothing is lost.
            raise swap.stale(now)
        trouble = None
        if committer.durable:  # Both at once: half of it would leave the file under both names, or none.
            folders = (goal.folder_fd, origin.folder_fd)
            trouble = flush_names(goal, swap.previous, folders, swap.store.filesystem)
        return section.landed(goal.path, swap.previous, "create", swap.previous), trouble
    finally:
        swap.close()


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


class MovedByLink(NamedTuple):
    """A move that has landed; and what went wrong when its names were flushed."""

    trouble: UnflushedError | None


def _move_by_link(section: Section, swap: Swap, goal: PinnedPath, patience: Patience) -> MovedByLink | None:
    """
    Move what was verified, with a note; None where there are no links.

    The new name first, then the old one away: whenever we are killed, the file has one of them, and recovery
    sees by the inodes what is ours (`move_recovery`).
    """
    while True:
        swap.check_name(patience)
        try:
            return _try_to_link(section, swap, goal)
        except BlockingIOError:  # Somebody has put another file there. Verify that one, or refuse.
            if not patience.nap():
                raise swap.busy("other programs keep replacing it") from None


def _try_to_link(section: Section, swap: Swap, goal: PinnedPath) -> MovedByLink | None:
    store, origin, inode = swap.store, swap.target, swap.old_status.st_ino
    folders = section.distinct_folders()
    leader, members = section.note(folders[0]), [section.note(folder) for folder in folders[1:]]
    prefix = store.new_prefix()
    aside = store.swap_name(prefix, origin.name, swap.previous)
    inodes = {folder: section.status(folder).st_ino for folder in section.folders}
    is_linked = False
    try:
        for note in (leader, *members):
            note.prepare(prefix)
        leader.swap(
            Planned("move", origin.folder, origin.name, swap.previous, swap.previous, aside, inode),
            Planned("moved", goal.folder, goal.name, ABSENT, swap.previous, aside, inode),
            inodes=inodes,
        )
        for member in members:
            member.join(folders[0], inodes[folders[0]])
        for note in (leader, *members):  # A power cut may leave both names, and this is what undoes one.
            note.await_bytes(store.filesystem)
        reached("move-noted")
        is_linked = True  # Set before it is true: after an interrupt in between it must be set.
        if not _link(swap, goal):
            is_linked = False
            return None
        reached("move-linked")
        if _inode_of(goal.name, goal.folder_fd) not in (inode, None):
            raise BlockingIOError(errno.EAGAIN, "another file was linked")
        try:
            renames.move_without_replacing(origin.folder_fd, origin.name, store.swap_fd, aside)
        except FileNotFoundError:
            pass  # Deleted by somebody, after the file had its new name.
        reached("moved")
        if _inode_of(aside, store.swap_fd) not in (inode, None):
            raise BlockingIOError(errno.EAGAIN, "another file was taken away")
        leader.mark(journal.LANDED)
        # Both names before the end of the note: half of it would leave the file under both.
        trouble = flush_names(goal, swap.previous, section.folders.values(), store.filesystem)
        reached("move-committed")
        try:
            section.finish_own(folders[0])
        except OSError:
            pass  # Only our own second name is left; the next call removes it as well.
        return MovedByLink(trouble)
    except BaseException:
        if is_linked and leader.state != journal.LANDED:
            leader.mark(journal.RESTORING)  # Whatever is done, it was refused.
            section.finish_own(folders[0])
        raise
    finally:
        if not is_linked or leader.is_idle:
            for note in (leader, *members):
                note.clear()


def _link(swap: Swap, goal: PinnedPath) -> bool:
    """Give the verified file its new name, too; False where there are no links."""
    origin, inode = swap.target, swap.old_status.st_ino
    try:
        # By its descriptor where that is possible: what somebody puts at the old name now is never linked.
        os.link(f"/proc/self/fd/{swap.old_fd}", goal.name, dst_dir_fd=goal.folder_fd, follow_symlinks=True)
        return True
    except FileNotFoundError:
        pass  # It has no name any more; or there is no /proc.
    except OSError as error:
        if error.errno not in (*NO_LINKS, errno.EXDEV):
            raise _cannot_move(error, origin, goal) from None
    if _inode_of(origin.name, origin.folder_fd) != inode:
        raise BlockingIOError(errno.EAGAIN, "another file is there")
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


def _inode_of(name: str, folder_fd: int) -> int | None:
    try:
        return os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_ino
    except FileNotFoundError:
        return None
