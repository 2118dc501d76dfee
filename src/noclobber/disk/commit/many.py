"""
Replace several files: all of them, or none.

Every mutex in sorted order, every file staged, verified and leased, the record in the leader's note,
then exchange after exchange. The new versions stay hidden by their leases until the last one is
settled; a refusal anywhere takes back every exchange before anyone has seen it.

The commit point is the moment the leader's note says `L`. A process killed before that is rolled
back by the next call in any of the folders, unless every exchange had happened already and displaced
what was expected: then nothing is missing, and it counts as landed.

More files or folders than can be open at once are committed by `large`.
"""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING

from noclobber.disk import signals
from noclobber.disk.commit import journal, large
from noclobber.disk.commit.flushing import flush_names
from noclobber.disk.commit.link_appeared import retry_while_links_appear
from noclobber.disk.commit.many_files import Change, Creation, begin, level_of, pinned, refuse_doubles
from noclobber.disk.commit.section import MOST_HELD
from noclobber.disk.commit.swap import Swap
from noclobber.disk.steps import reached
from noclobber.errors import BadRequestError, NoclobberError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noclobber.core.clock import Patience
    from noclobber.core.values import WriteResult
    from noclobber.disk.commit.committer import Committer
    from noclobber.disk.commit.flushing import UnflushedError
    from noclobber.disk.commit.journal import Note
    from noclobber.disk.commit.section import Fence, Section
    from noclobber.disk.paths import PinnedPath

MOST_FILES = 10_000
MOST_AT_ONCE = 200  # Each keeps up to three descriptors open until the end.
SPARE_DESCRIPTORS = 64  # For what else is opened meanwhile, by us and by the rest of the program.

__all__ = ["MOST_FILES", "Change", "replace_many"]


@signals.whole
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
    if len(changes) == 1 and _cannot_exchange(committer):
        alone = changes[0]
        return [committer.replace(alone.path, alone.expected, alone.data, at=alone.at, fence=fence)]
    committer.tidy()
    commit = large.replace_in_turn if _are_too_many(changes) else _replace_many
    return retry_while_links_appear(lambda: commit(committer, changes, fence), changes[0].path)


def _cannot_exchange(committer: Committer) -> bool:
    """True where several files cannot be replaced together. One that is alone needs no taking back."""
    store = committer.store_if_open or committer.open_store()
    return store is not None and not committer.has_exchange(store)


def _are_too_many(changes: Sequence[Change]) -> bool:
    """True if not all of the files and folders can be open at once."""
    if len(changes) <= MOST_HELD // 4:
        return False
    folders = len({os.path.dirname(change.path) for change in changes})
    needed = 3 * len(changes) + 2 * folders + SPARE_DESCRIPTORS
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = len(os.listdir("/dev/fd"))
    return len(changes) > MOST_AT_ONCE or folders > MOST_HELD or (0 <= limit < in_use + needed)


def _replace_many(committer: Committer, changes: Sequence[Change], fence: Fence | None) -> list[WriteResult]:
    targets: list[PinnedPath] = []
    try:
        for change in changes:
            targets.append(pinned(committer, change))
        refuse_doubles(targets)
        with committer.section(targets, fence) as section:
            results, troubles = _replace_in(committer, section, targets, changes)
    except OSError as error:
        raise committer.failed(
            error, targets[-1].path if targets else changes[0].path, begin_again=True
        ) from error
    finally:
        for target in targets:
            committer.unpin(target)
    return committer.reporting(results, *troubles)


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
            store = section.store(folder)
            section.note(folder).prepare(f"{store.prefix}swap-{token}")
            # Or the versions beyond the usual number would not be kept, but removed by a later call.
            store.most_waiting = max(store.most_waiting, len(changes) + len(store.waiting))
        for number, (target, change) in enumerate(zip(targets, changes, strict=True)):
            store = section.store(target.folder)
            files.append(begin(committer, store, target, change, f"{token}{number:04x}"))
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
            section.landed(file.target.path, file.new_hash, level_of(file), file.previous)._replace(
                not_kept=file.not_kept if isinstance(file, Swap) else ()
            )
            for file in files
        ]
        return results, troubles
    finally:
        section.conclude(files, [leader, *members], landed=landed)
        for file in files:
            committer.report_later(file.target.path, file.kept)


def _take_back(files: list[Swap | Creation], patience: Patience, leader: Note) -> None:
    for file in reversed(files):
        if not file.is_swapped:
            continue
        if isinstance(file, Creation):
            file.undo()
        elif file.is_settled:
            file.undo(patience, leader)
