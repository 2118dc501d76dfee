"""
Land what a command did to a tree: all of it, or nothing.

The same commit as that of several files (`many`): every mutex, every row staged and verified, the record in
the leader's note, then row after row, and the commit point when the leader's note says `L`. The rows are of
more kinds (`tree_files`), and they happen in the order in which they are given: a file that goes makes room
for a folder of that name.

Every mutex is held, however many folders there are. The process raises its limit of open files for that;
where that is not enough the commit is refused before anything has happened.
"""

from __future__ import annotations

import errno
import os
import stat

from noclobber.disk import forks, hashing, leases, paths, signals
from noclobber.disk.commit import journal
from noclobber.disk.commit.flushing import flush_names
from noclobber.disk.commit.link_appeared import LinkAppearedError
from noclobber.disk.commit.prints import print_of
from noclobber.disk.commit.swap import Swap
from noclobber.disk.commit.tree_files import (
    Departure,
    ModeChange,
    Removal,
    StagedCreation,
    StagedSwap,
    TreeRow,
)
from noclobber.disk.paths import PinnedPath
from noclobber.disk.reading import LOOK, hash_of
from noclobber.disk.steps import reached
from noclobber.errors import (
    DELETED,
    NOT_A_FILE,
    UNKNOWN,
    BadRequestError,
    NoclobberError,
    StaleFileError,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NamedTuple

    from noclobber.core.clock import Patience
    from noclobber.core.values import Level, WriteResult
    from noclobber.disk.commit.committer import Committer
    from noclobber.disk.commit.flushing import UnflushedError
    from noclobber.disk.commit.journal import Note
    from noclobber.disk.commit.section import Fence, Section
    from noclobber.disk.commit.store import Store

    Row = StagedSwap | StagedCreation | Removal | Departure | ModeChange
else:
    from noclobber.core.light.named_tuples import NamedTuple

MOST_ROWS = 20_000
FILES_EACH = 3
SPARE_FILES = 128

__all__ = ["ReliedOn", "TreeRow", "land_tree"]


class ReliedOn(NamedTuple):
    """What must stay as it is until the rows have landed, although none of them changes it."""

    folders: Sequence[str]
    """Where it is, below the root: nobody else may commit there meanwhile."""
    look_again: Callable[[], None]
    """Raises if it has changed."""


@signals.whole
def land_tree(
    committer: Committer,
    rows: Sequence[TreeRow],
    *,
    fence: Fence | None = None,
    relied_on: ReliedOn | None = None,
) -> list[WriteResult]:
    """
    Do all of the rows, or none; the results come back in their order.

    A folder that comes or goes is one row and one result; what is in it was checked by the caller.
    """
    if not rows:
        return []
    committer.tidy()
    targets: list[PinnedPath] = []
    opened: dict[str, int] = {}
    try:
        _make_room(rows)
        for row in rows:
            targets.append(_pinned(committer, row, opened))
        beside = {}
        for folder in relied_on.folders if relied_on is not None else ():
            path = f"{folder}/."
            beside[folder] = _pinned(committer, TreeRow("", "", path, None), opened).folder_fd
        theirs = []
        for target, row in zip(targets, rows, strict=True):
            if row.is_own:
                beside[target.folder] = target.folder_fd
            else:
                theirs.append(target)
        with committer.section(theirs, fence, beside=beside) as section:
            results, troubles = _land_in(committer, section, targets, rows, relied_on)
    except OSError as error:
        raise committer.failed(error, targets[-1].path if targets else rows[0].path) from error
    except LinkAppearedError as error:
        # A command's file is not what its link leads to. So a link is a change like any other.
        raise StaleFileError(str(error), UNKNOWN, NOT_A_FILE) from None
    finally:
        for folder_fd in opened.values():
            forks.close(folder_fd)
    return committer.reporting(results, *troubles)


def _make_room(rows: Sequence[TreeRow]) -> None:
    """Raise the limit of open files to what this commit needs; refuse if that is not possible."""
    folders = len({os.path.dirname(row.path) for row in rows})
    needed = FILES_EACH * len(rows) + 3 * folders + SPARE_FILES + len(os.listdir("/dev/fd"))
    if len(rows) <= MOST_ROWS and os.sysconf("SC_OPEN_MAX") >= needed:  # The soft limit.
        return
    import resource  # Here: nearly every command has room, and it takes a quarter of a millisecond.

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < needed and (hard < 0 or hard >= needed):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard >= 0 else needed, hard))
    elif 0 <= soft < needed or len(rows) > MOST_ROWS:
        most = min(MOST_ROWS, max(1, (hard - SPARE_FILES) // (FILES_EACH + 3)) if hard >= 0 else MOST_ROWS)
        raise BadRequestError(
            "",
            f"{len(rows)} changed files are too many for one commit here; {most} are possible. Raise the"
            " limit of open files (ulimit -n), or let several commands change fewer.",
            most=most,
        )


def _pinned(committer: Committer, row: TreeRow, opened: dict[str, int]) -> PinnedPath:
    """Hold the folder of a row open, once for all of its rows. No link is followed on the way."""
    root = committer.root
    assert root is not None
    folder, name = os.path.split(row.path)
    if folder in opened:
        return PinnedPath(opened[folder], name, row.path)
    try:
        with forks.undivided():
            folder_fd = forks.track(paths.open_below(root, folder[len(root.rstrip("/")) + 1 :]))
            opened[folder] = folder_fd
    except (FileNotFoundError, NotADirectoryError):
        raise StaleFileError(row.path, row.expected or UNKNOWN, DELETED) from None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise StaleFileError(row.path, row.expected or UNKNOWN, NOT_A_FILE) from None
    return PinnedPath(folder_fd, name, row.path)


def _land_in(
    committer: Committer,
    section: Section,
    targets: list[PinnedPath],
    rows: Sequence[TreeRow],
    relied_on: ReliedOn | None,
) -> tuple[list[WriteResult], list[UnflushedError | None]]:
    files: list[Row] = []
    folders = section.distinct_folders()
    leader, members = section.note(folders[0]), [section.note(folder) for folder in folders[1:]]
    patience = committer.patience()
    landed = False
    try:
        _refuse_elsewhere(committer, section, folders)
        token = os.urandom(6).hex()
        for folder in folders:
            section.note(folder).prepare(f"swap-{token}")
            # Or the versions beyond the usual number would not be kept, and removed by a later call.
            store = section.store(folder)
            store.most_waiting = max(store.most_waiting, len(rows) + SPARE_FILES)
        for number, (target, row) in enumerate(zip(targets, rows, strict=True)):
            files.append(
                _begun(committer, section.store(target.folder), target, row, f"swap-{token}{number:05x}")
            )
        for file in files:
            file.stage()
        for file in files:
            if not isinstance(file, StagedCreation):
                file.verify(patience)
        inodes = {folder: section.status(folder).st_ino for folder in section.folders}
        leader.swap(*[file.planned() for file in files], inodes=inodes)
        for member in members:
            member.join(folders[0], inodes[folders[0]])
        kind = section.store(folders[0]).filesystem
        is_one_step = _is_one_step(files)
        if not is_one_step:
            for note in (leader, *members):
                note.await_bytes(kind)
        reached("tree-noted")
        section.look_again()
        if relied_on is not None:
            relied_on.look_again()
        try:
            for file in files:
                _do(file, patience, leader)
                reached("tree-exchanged")
        except (NoclobberError, OSError):
            # First: if taking back fails, too, recovery must not find that everything has landed.
            leader.mark(journal.RESTORING)
            leader.flush()
            _take_back(files, patience, leader)
            raise
        unflushed = None
        if not is_one_step:
            unflushed = flush_names(targets[0], files[0].new_hash, section.folders.values(), kind)
        leader.mark(journal.LANDED)  # The commit point.
        landed = True
        try:
            # Before anything is removed: with a note that still says `S`, half of a folder that goes would
            # look as if somebody had written to it, and recovery would take back the rest.
            if not is_one_step:
                leader.await_bytes(kind)
        except OSError:
            pass  # It has landed.
        reached("tree-committed")
        troubles = [_finished(file) for file in files]
        if committer.durable:
            troubles.append(unflushed)
        return [_result(section, file) for file in files], troubles
    finally:
        section.conclude(files, [leader, *members], landed=landed)
        for file in files:
            committer.report_later(file.target.path, file.kept)


def _is_one_step(files: Sequence[Row]) -> bool:
    """
    True for one file with new content: a power cut leaves its exchange done or not done (`journal`).

    As in any commit of one file, neither its note nor its name is waited for then: on a disk, a third of the
    time that such a landing takes. If the commit is durable, `finish()` flushes the name.
    """
    return len(files) == 1 and isinstance(files[0], StagedSwap)


def _refuse_elsewhere(committer: Committer, section: Section, folders: list[str]) -> None:
    for folder in folders:
        store = section.store(folder)
        if store.is_beside or not section.is_exclusive or not committer.can_exchange(store):
            raise BadRequestError(
                folder,
                "a command's changes can be landed only on the workspace's own filesystem, and only if that"
                " can exchange two names.",
            )


def _begun(committer: Committer, store: Store, target: PinnedPath, row: TreeRow, prefix: str) -> Row:
    if row.action == "create":
        return StagedCreation(target, row, store, prefix, committer.durable)
    if row.action == "mode":
        return ModeChange(target, row, store, prefix)
    if row.action == "delete" and row.kind != "file":
        return Departure(target, row, store, prefix)
    kind = Removal if row.action == "delete" else StagedSwap
    swap = kind(
        target,
        row.expected,
        b"",
        store,
        leases=committer.ceiling == "lease+exchange" and leases.SUPPORTED,
        durable=committer.durable,
        root=committer.root,
        busy=committer.busy,
        reuse=False,
    )
    if isinstance(swap, StagedSwap):
        swap.staged = row.staged
    try:
        swap.open_old()
        swap.begin_staging(prefix)
    except BaseException:
        swap.close()
        raise
    return swap


def _do(file: Row, patience: Patience, leader: Note) -> None:
    file.exchange(patience)
    if isinstance(file, StagedCreation):
        return
    file.settle(patience, leader)
    if isinstance(file, Removal):
        file.take_away(patience, leader)


def _finished(file: Row) -> UnflushedError | None:
    """End one row of a commit that has landed. What fails now leaves something for `close()`, or a sweep."""
    try:
        return file.finish(file.new_hash) if isinstance(file, Removal) else file.finish()
    except OSError:
        return None


def _take_back(files: list[Row], patience: Patience, leader: Note) -> None:
    for file in reversed(files):
        if not file.is_swapped:
            continue
        if isinstance(file, StagedCreation):
            file.undo()
        elif file.is_settled and not (isinstance(file, Removal) and file.is_in_doubt):
            file.undo(patience, leader)


def _result(section: Section, file: Row) -> WriteResult:
    level: Level = (
        file.level if isinstance(file, Swap) else "create" if isinstance(file, StagedCreation) else "exchange"
    )
    after = DELETED if isinstance(file, (Removal, Departure)) else file.new_hash
    result = section.landed(file.target.path, after, level, file.previous)
    return result._replace(not_kept=file.not_kept) if isinstance(file, Swap) and file.not_kept else result


def expected_of(path: str) -> str:
    """Return what a row may expect of what is at a path: the hash of a file, the print of other things."""
    folder, name = os.path.split(path)
    folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return print_of(folder_fd, name) or hash_of(PinnedPath(folder_fd, name, path))
    finally:
        os.close(folder_fd)


def hash_and_status(
    path: str, size_hint: int, act: Callable[[int], object] | None = None
) -> tuple[str, os.stat_result] | None:
    """
    Return the hash of what should be a file, and its status *after* it was read; None: ask `expected_of()`.

    In this order: a write that the hash has seen shows in the times. `act`: what else to do with the file.
    """
    try:
        descriptor = os.open(path, LOOK)
    except OSError:
        return None
    try:
        sha256 = hashing.of_descriptor(descriptor, size_hint=size_hint)
        status = os.fstat(descriptor)
        if act is not None:
            act(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return (sha256, status) if stat.S_ISREG(status.st_mode) else None
