"""
Several changes in one commit: all of them, or none.

What an agent writes and deletes, what a command did to a tree, what an undo takes back: each is a list of
rows (`rows`), and this is the one way in which rows land. Every mutex in sorted order; every row staged,
verified and leased; the record in the leader's note; then row after row. New versions of files are hidden by
their leases until the last row is done, and a refusal anywhere takes back every row before it.

The commit point is the moment the leader's note says `L`. A process killed before that is rolled back by the
next call in any of the folders, unless every row had been done already and displaced what was expected: then
nothing is missing, and it counts as landed.

Rows happen in the order in which they are given: a file that goes makes room for a folder of that name. Only
the deletions of an agent (a `Change` without bytes) come last, because nothing hides them.

Every file and every mutex is held, however many there are. The process raises its limit of open files for
that; where that is not enough the commit is refused before anything has happened.

A file that exists, and goes or gets new content, needs a filesystem that can exchange two names. Without
that, files can be created together, and a single one can be deleted (`Removal.move_aside`).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.disk import forks, hashing, leases, paths, signals
from noclobber.disk.commit import journal
from noclobber.disk.commit.flushing import flush_name, flush_names
from noclobber.disk.commit.link_appeared import LinkAppearedError, retry_while_links_appear
from noclobber.disk.commit.open_files import FEW, make_room
from noclobber.disk.commit.prints import print_of
from noclobber.disk.commit.rows import (
    BeginAgainError,
    Change,
    Creation,
    Departure,
    ModeChange,
    Removal,
    StagedSwap,
    TreeRow,
)
from noclobber.disk.commit.swap import Swap
from noclobber.disk.paths import PinnedPath
from noclobber.disk.reading import LOOK, hash_of, status_of
from noclobber.disk.small_file import closing
from noclobber.disk.steps import reached
from noclobber.errors import (
    ABSENT,
    DELETED,
    NOT_A_FILE,
    UNKNOWN,
    BadRequestError,
    MissingFileError,
    NoclobberError,
    NotAFileError,
    StaleFileError,
)

if TYPE_CHECKING:
    from noclobber.core.clock import Patience
    from noclobber.core.values import WriteResult
    from noclobber.disk.commit.committer import Committer
    from noclobber.disk.commit.flushing import UnflushedError
    from noclobber.disk.commit.journal import Note
    from noclobber.disk.commit.made_folders import MadeFolders
    from noclobber.disk.commit.section import Fence, Section
    from noclobber.disk.commit.store import Store

    Row = Swap | Creation | Departure | ModeChange

MOST_ROWS = 20_000

__all__ = ["MOST_ROWS", "Change", "ReliedOn", "TreeRow", "commit_changes", "delete"]


class ReliedOn(NamedTuple):
    """What must stay as it is until the rows have landed, although none of them changes it."""

    folders: Sequence[str]
    """Where it is, below the root: nobody else may commit there meanwhile."""
    look_again: Callable[[], None]
    """Raises if it has changed."""


class Committed(NamedTuple):
    """A commit that has landed, and which flushes failed."""

    results: list[WriteResult]
    troubles: list[UnflushedError | None]


@signals.whole
def commit_changes(
    committer: Committer,
    rows: Sequence[Change | TreeRow],
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
    first = rows[0]
    if len(rows) == 1 and isinstance(first, Change) and first.data is not None and first.like is None:
        return [
            committer.replace(
                first.path, first.expected, first.data, at=first.at, fence=fence, mode=first.mode
            )
        ]
    _refuse_too_many(rows)
    committer.tidy()
    order = sorted(range(len(rows)), key=lambda number: _is_delete(rows[number]))
    ordered = [rows[number] for number in order]

    def attempt() -> list[WriteResult]:
        with committer.made_folders() as made:
            return _commit(committer, ordered, fence, relied_on, made)

    results = begin_again(committer, attempt, str(first.path))
    by_number = dict(zip(order, results, strict=True))
    return [by_number[number] for number in range(len(rows))]


def delete(
    committer: Committer,
    path: str | os.PathLike[str],
    expected: str | None,
    *,
    at: str | None = None,
    fence: Fence | None = None,
) -> WriteResult:
    """Delete one file; `sha256` of the result is `DELETED`."""
    return commit_changes(committer, [Change(os.fspath(path), None, expected, at)], fence=fence)[0]


def begin_again(
    committer: Committer, attempt: Callable[[], list[WriteResult]], path: str
) -> list[WriteResult]:
    """Commit once more for as long as links appear, or others open and replace files in the wrong moment."""
    patience = committer.patience()
    while True:
        try:
            return retry_while_links_appear(attempt, path)
        except BeginAgainError:
            if not patience.nap():
                raise


def _is_delete(row: Change | TreeRow) -> bool:
    return isinstance(row, Change) and row.data is None


def _refuse_too_many(rows: Sequence[Change | TreeRow]) -> None:
    """Have room for so many open files; refuse if there is none."""
    if len(rows) <= FEW:
        return
    folders = len({os.path.dirname(row.path) for row in rows})
    most = make_room(len(rows), folders) if len(rows) <= MOST_ROWS else MOST_ROWS
    if len(rows) > most:
        raise BadRequestError(
            "",
            f"{len(rows)} changed files are too many for one commit here; {most} are possible. Raise the"
            " limit of open files (ulimit -n), or change fewer at a time.",
            most=most,
        )


def _commit(
    committer: Committer,
    rows: Sequence[Change | TreeRow],
    fence: Fence | None,
    relied_on: ReliedOn | None,
    made: MadeFolders,
) -> list[WriteResult]:
    targets: list[PinnedPath] = []
    opened: dict[str, int] = {}
    is_tree = any(isinstance(row, TreeRow) for row in rows)
    try:
        for row in rows:
            targets.append(_pinned(committer, row, opened, made))
        if len(rows) > 1:
            _refuse_doubles(rows, targets)
        beside = {}
        for folder in relied_on.folders if relied_on is not None else ():
            beside[folder] = _pinned_below(committer, TreeRow("", "", f"{folder}/."), opened).folder_fd
        theirs = []
        for target, row in zip(targets, rows, strict=True):
            if isinstance(row, TreeRow) and row.is_own:
                beside[target.folder] = target.folder_fd
            else:
                theirs.append(target)
        with committer.section(theirs, fence, beside=beside) as section:
            reached("entered")
            done = _commit_in(committer, section, targets, rows, relied_on)
    except OSError as error:
        path = targets[-1].path if targets else rows[0].path
        raise committer.failed(error, path, begin_again=not is_tree) from error
    except LinkAppearedError as error:
        if not is_tree:
            raise
        # A command's file is not what its link leads to. So a link is a change like any other.
        raise StaleFileError(str(error), UNKNOWN, NOT_A_FILE) from None
    except StaleFileError as error:
        unread = {target.path for target, row in zip(targets, rows, strict=False) if _is_delete(row)}
        if error.expected or error.path not in unread:
            raise
        raise without_baseline(error) from None
    finally:
        for folder_fd in opened.values():
            forks.close(folder_fd)
    return committer.reporting(done.results, *done.troubles)


# -- where the rows are --------------------------------------------------------------------------------------


def _pinned(
    committer: Committer, row: Change | TreeRow, opened: dict[str, int], made: MadeFolders
) -> PinnedPath:
    """Hold the folder of a row open, once for all of its rows."""
    if isinstance(row, TreeRow):
        return _pinned_below(committer, row, opened)
    makes_folders = made if row.data is not None and row.expected in (None, ABSENT) else None
    try:
        target = committer.pin(row.path, expected=row.expected, at=row.at, make_folders=makes_folders)
    except MissingFileError as error:
        if row.data is None:
            raise
        raise StaleFileError(error.path, row.expected or "", DELETED) from None
    folder_fd = opened.setdefault(target.folder, target.folder_fd)
    if folder_fd != target.folder_fd:
        try:
            is_same = os.path.samestat(os.fstat(folder_fd), os.fstat(target.folder_fd))
        finally:
            committer.unpin(target)
        if not is_same:
            raise LinkAppearedError(target.path)  # Its folder was replaced a moment ago.
        target = target._replace(folder_fd=folder_fd)
    if row.data is None:
        refuse_link(committer, row.path, target, row.expected)
    return target


def _pinned_below(committer: Committer, row: TreeRow, opened: dict[str, int]) -> PinnedPath:
    """The same for a row of a tree: no link is followed on the way."""
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


def _refuse_doubles(rows: Sequence[Change | TreeRow], targets: Sequence[PinnedPath]) -> None:
    """Refuse a file that is named twice: which of the two would it be?"""
    places: dict[int, tuple[int, int]] = {}  # Not by path: a folder may have two (a bind mount).
    seen: set[tuple[tuple[int, int], str]] = set()
    for row, target in zip(rows, targets, strict=True):
        if isinstance(row, TreeRow):
            continue
        if target.folder_fd not in places:
            status = os.fstat(target.folder_fd)
            places[target.folder_fd] = (status.st_dev, status.st_ino)
        file = (places[target.folder_fd], target.name)
        if file in seen:
            raise BadRequestError(target.path, "it is named twice in one commit; merge the two changes.")
        seen.add(file)


def refuse_link(
    committer: Committer, path: str | os.PathLike[str], target: PinnedPath, expected: str | None
) -> None:
    """Refuse a link: deleting or moving what it leads to would leave a broken link behind."""
    name = paths.lexical(committer.root or os.getcwd(), path)
    if not target.via or not os.path.islink(name):
        return
    if expected is not None and (actual := hash_of(target)) != expected:
        raise StaleFileError(target.path, expected, actual)  # It was not a link when it was read.
    raise BadRequestError(name, f"this is a link; name the file itself ({target.path}).")


def refuse_absent(target: PinnedPath, expected: str | None) -> None:
    """The caller knows that there is no such file: it is missing still, or somebody has created one since."""
    if expected != ABSENT:
        return
    if (actual := hash_of(target)) != DELETED:
        raise StaleFileError(target.path, ABSENT, actual)
    raise MissingFileError(target.path, "there is no such file.")


def without_baseline(error: StaleFileError) -> MissingFileError | NotAFileError:
    """Return the refusal of a file that nobody had read: it is missing, or is not a file, but not stale."""
    if error.actual == DELETED:
        return MissingFileError(error.path, "there is no such file.")
    return NotAFileError(error.path, "this is not a regular file; name a file instead.")


# -- the rows ------------------------------------------------------------------------------------------------


def _commit_in(
    committer: Committer,
    section: Section,
    targets: list[PinnedPath],
    rows: Sequence[Change | TreeRow],
    relied_on: ReliedOn | None,
) -> Committed:
    for target, row in zip(targets, rows, strict=True):
        if isinstance(row, TreeRow):
            _refuse_elsewhere(committer, section, target.folder)
        elif row.data is None:
            refuse_absent(target, row.expected)
    only = rows[0]
    store = section.store(targets[0].folder)
    has_exchange = committer.can_exchange(store) and section.is_exclusive
    if len(rows) == 1 and isinstance(only, Change) and only.data is None and not has_exchange:
        return _delete_plainly(committer, section, targets[0], only, store)

    def begin(token: str) -> Iterable[Row]:
        for number, (target, row) in enumerate(zip(targets, rows, strict=True)):
            store = section.store(target.folder)
            yield _begun(committer, section, store, target, row, f"{store.prefix}swap-{token}{number:05x}")

    return land(committer, section, begin, len(rows), relied_on.look_again if relied_on else None)


def _delete_plainly(
    committer: Committer, section: Section, target: PinnedPath, change: Change, store: Store
) -> Committed:
    swap = _removal(committer, store, target, change)
    try:
        swap.open_old()
        swap.verify(committer.patience())
        swap.move_aside()
        trouble = flush_name(target, DELETED) if committer.durable else None
        return Committed([section.landed(target.path, DELETED, "plain", swap.previous)], [trouble])
    finally:
        section.conclude([swap], [], landed=False)
        committer.report_later(target.path, swap.kept)


def _refuse_elsewhere(committer: Committer, section: Section, folder: str) -> None:
    store = section.store(folder)
    if store.is_beside or not section.is_exclusive or not committer.can_exchange(store):
        raise BadRequestError(
            folder,
            "a command's changes can be landed only on the workspace's own filesystem, and only if that"
            " can exchange two names.",
        )


def _begun(
    committer: Committer,
    section: Section,
    store: Store,
    target: PinnedPath,
    row: Change | TreeRow,
    prefix: str,
) -> Row:
    if _is_creation(target, row):
        return Creation(target, row, store, prefix, committer.durable)
    if isinstance(row, TreeRow) and row.action == "mode":
        return ModeChange(target, row, store, prefix)
    if isinstance(row, TreeRow) and row.action == "delete" and row.kind != "file":
        return Departure(target, row, store, prefix)
    if isinstance(row, Change) and not (committer.has_exchange(store) and section.is_exclusive):
        raise BadRequestError(
            target.path,
            "this filesystem cannot exchange two names, so files that exist cannot be replaced together."
            " Write them one by one; on a network or FUSE volume a coordinator makes it possible"
            " (NOCLOBBER_COORDINATOR).",
        )
    if row.data is None and (isinstance(row, Change) or row.action == "delete"):
        swap: Swap = _removal(committer, store, target, row)
    elif isinstance(row, Change):
        swap = Swap(target, row.expected, row.data or b"", store, **swap_options(committer))
    else:
        swap = StagedSwap(target, row.expected, b"", store, **swap_options(committer), reuse=False)
        swap.staged = row.staged
    try:
        swap.open_old()
        if isinstance(row, Change) and row.data is not None:
            swap.refuse_read_only()
            if swap.links > 1:
                raise BadRequestError(
                    target.path,
                    "it has several hard links, so it cannot be replaced together with others; write it"
                    " alone.",
                )
        swap.begin_staging(prefix)
    except BaseException:
        swap.close()
        raise
    return swap


def _is_creation(target: PinnedPath, row: Change | TreeRow) -> bool:
    if isinstance(row, TreeRow):
        return row.action == "create"
    if row.data is None or row.expected is not None:
        return row.data is not None and row.expected == ABSENT
    try:
        status_of(target)
    except FileNotFoundError:
        return True
    return False


def _removal(committer: Committer, store: Store, target: PinnedPath, row: Change | TreeRow) -> Removal:
    removal = Removal(target, row.expected, b"", store, **swap_options(committer), reuse=False)
    # A command's own `rm` asks nobody; an agent is refused what this user may not write to.
    removal.spares_read_only = isinstance(row, Change)
    return removal


def swap_options(committer: Committer) -> dict[str, Any]:
    """Return how a committer wants its files to be exchanged."""
    return {
        "leases": committer.ceiling == "lease+exchange" and leases.SUPPORTED,
        "durable": committer.durable,
        "root": committer.root,
        "busy": committer.busy,
    }


# -- the commit ----------------------------------------------------------------------------------------------


def land(
    committer: Committer,
    section: Section,
    begin: Callable[[str], Iterable[Row]],
    count: int,
    look_again: Callable[[], None] | None = None,
) -> Committed:
    """Do what `begin(token)` yields: `count` rows, with the token in the names of their swap files."""
    files: list[Row] = []
    folders = section.distinct_folders() if len(section.folders) > 1 else list(section.folders)
    leader, members = section.note(folders[0]), [section.note(folder) for folder in folders[1:]]
    patience = committer.patience()
    landed = False
    try:
        token = section.store(folders[0]).new_token()
        for folder in folders:
            store = section.store(folder)
            section.note(folder).prepare(f"{store.prefix}swap-{token}")
            if count > 1:  # Or the versions beyond the usual number would not be kept, but removed later.
                store.most_waiting = max(store.most_waiting, count + len(store.waiting))
        for file in begin(token):
            files.append(file)
        for file in files:
            file.stage()
        for file in files:
            if not isinstance(file, Creation):
                file.verify(patience)
        # The leader first: a member that still says "preparing" removes its own staged files, and nothing has
        # been exchanged yet.
        inodes = {folder: section.status(folder).st_ino for folder in section.folders}
        leader.swap(*[planned for file in files for planned in _planned(file)], inodes=inodes)
        for member in members:
            member.join(folders[0], inodes[folders[0]])
        # The record before the exchanges: after a power cut between two of them it is what undoes the first.
        kinds = {section.store(folder).filesystem for folder in folders}
        kind = kinds.pop() if len(kinds) == 1 else ""  # Of several filesystems each folder is flushed.
        is_one_step = _is_one_step(files)
        if not is_one_step:
            for note in (leader, *members):
                note.await_bytes(kind)
        reached("noted")
        section.look_again()
        if look_again is not None:
            look_again()
        try:
            for file in files:
                _do(file, patience, leader)
                reached("one-visible")
        except (NoclobberError, OSError):
            # First: if taking back fails, too, recovery must not find that everything has landed.
            leader.mark(journal.RESTORING)
            leader.flush()
            _take_back(files, patience, leader)
            raise
        reached("all-visible")
        # The exchanges before the end of the record, for the same reason.
        unflushed = None
        if not is_one_step:
            unflushed = flush_names(files[0].target, _after(files[0]), section.folders.values(), kind)
        leader.mark(journal.LANDED)  # The commit point.
        landed = True
        if _goes_for_good(files):
            try:
                # Before anything is removed: with a note that still says `S`, half of a folder that goes
                # would look as if somebody had written to it, and recovery would take back the rest.
                leader.await_bytes(kind)
            except OSError:
                pass  # It has landed.
        reached("decided")
        troubles = [_finished(file) for file in files]
        if committer.durable:
            troubles.append(unflushed)
        return Committed([_result(section, file) for file in files], troubles)
    finally:
        section.conclude(files, [leader, *members], landed=landed)
        for file in files:
            committer.report_later(file.target.path, file.kept)


def _planned(file: Row) -> Iterable[journal.Planned]:
    """Return what the note says of a row: of a move, something for each of its names."""
    both: Callable[[], Iterable[journal.Planned]] | None = getattr(file, "planned_names", None)
    return both() if both is not None else (file.planned(),)


def _is_one_step(files: Sequence[Row]) -> bool:
    """
    True for one file with new content: a power cut leaves its exchange done or not done (`journal`).

    As in any commit of one file, neither its note nor its name is waited for then: on a disk, a third of the
    time that such a landing takes. If the commit is durable, `finish()` flushes the name.
    """
    return len(files) == 1 and isinstance(files[0], StagedSwap)


def _goes_for_good(files: Sequence[Row]) -> bool:
    """True if something is removed at the end, of which a record that says `S` would make something else."""
    return any(
        isinstance(file, Departure) or (isinstance(file, Removal) and len(files) > 1) for file in files
    )


def _do(file: Row, patience: Patience, leader: Note) -> None:
    file.exchange(patience)
    if isinstance(file, Creation):
        return
    file.settle(patience, leader)
    if isinstance(file, Removal):
        file.take_away()


def _finished(file: Row) -> UnflushedError | None:
    """End one row of a commit that has landed. What fails now leaves something for `close()`, or a sweep."""
    try:
        return file.finish(DELETED) if isinstance(file, Removal) else file.finish()
    except OSError:
        return None


def _take_back(files: list[Row], patience: Patience, leader: Note) -> None:
    for file in reversed(files):
        if not file.is_swapped:
            continue
        if isinstance(file, Creation):
            file.undo()
        elif file.is_settled and not (isinstance(file, Removal) and file.is_in_doubt):
            file.undo(patience, leader)


def _after(file: Row) -> str:
    """Return what is at the name when the row has landed."""
    return DELETED if isinstance(file, (Removal, Departure)) else file.new_hash


def _result(section: Section, file: Row) -> WriteResult:
    result = section.landed(file.target.path, _after(file), file.level, file.previous)
    return result._replace(not_kept=file.not_kept) if file.not_kept else result


def expected_of(path: str) -> str:
    """Return what a row may expect of what is at a path: the hash of a file, the print of other things."""
    folder, name = os.path.split(path)
    with closing(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as folder_fd:
        return print_of(folder_fd, name) or hash_of(PinnedPath(folder_fd, name, path))


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
