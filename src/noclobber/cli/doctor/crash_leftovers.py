"""
What crashes left behind in a workspace: find it, finish it, and list what only a person can decide.

The same code finishes it that the next commit would run: entering a folder's section recovers it, and
adopting orphans sweeps the files that dead processes displaced. With `repair=False` nothing is changed.
"""

from __future__ import annotations

import os
import shutil
import stat
from typing import TYPE_CHECKING, NamedTuple

from noclobber.cli.doctor.workspace_checks import SCRATCH_PREFIX
from noclobber.core.findings import Finding, remedy_of
from noclobber.core.project import BESIDE_PREFIX, KEPT_FOLDER, STATE_FOLDER, state_folder
from noclobber.disk import forks, paths
from noclobber.disk.commit import leftovers, open_stores, sweep
from noclobber.disk.commit.committer import Committer
from noclobber.disk.commit.section import Section
from noclobber.disk.processes import GONE, mutex_holder
from noclobber.errors import FileBusyError, NoclobberError
from noclobber.guard import kept_versions
from noclobber.guard.open_turns import left_behind, look

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from noclobber.core.clock import Clock
    from noclobber.core.values import Recovered
    from noclobber.disk.commit.leftovers import Kept
    from noclobber.disk.commit.store import Store
    from noclobber.lock.arbiter import LockStatus

OLD_SCRATCH_S = 3600.0
MUTEX_WAIT_S = 1.0
MOST_FOLDERS = 200_000


class WalkResult(NamedTuple):
    """What a walk through the workspace found."""

    folders: dict[tuple[int, int], str]
    """Paths of the folders that notes in use name, by device and inode."""
    beside: tuple[str, ...]
    """Folders in which files of ours are beside the user's."""
    scratch: tuple[str, ...]
    """Scratch folders of doctors that were killed."""
    folder_count: int
    is_whole: bool


def check_leftovers(root: str, clock: Clock, *, repair: bool) -> list[Finding]:
    """Find what crashes left, finish it, and list what only a person can decide about."""
    state = state_folder(root)
    findings = _check_state_folder(state)
    if not all(finding.ok for finding in findings):
        return findings
    in_use = leftovers.found_in(state, clock.now_s()).notes
    findings += _check_ignored(state)
    seen = _walk(root, {_place_of(name, state) for name in in_use})
    if repair:
        findings += _repair(root, state, in_use, seen, clock)
    else:
        findings += _report(state, seen, clock)
    kept = list(leftovers.kept_in(f"{state}/{KEPT_FOLDER}"))
    for folder in seen.beside:
        kept += leftovers.kept_in(folder)
    findings += [_kept_finding(file, kept_versions.origin(root, file)) for file in kept]
    findings += _orphan_locks(root, clock)
    if not seen.is_whole:
        detail = f"looked at the first {seen.folder_count:,} folders only"
        findings.append(Finding("leftovers", True, detail, "name a subfolder to check the rest"))
    if not any(finding.name in ("cut-off commit", "swap files", "kept file", "busy") for finding in findings):
        folders = "folder" if seen.folder_count == 1 else "folders"
        findings.append(Finding("leftovers", True, f"none in {seen.folder_count:,} {folders}"))
    return findings


def _check_state_folder(state: str) -> list[Finding]:
    try:
        mode = os.lstat(state).st_mode
    except FileNotFoundError:
        return [Finding("state folder", True, "none yet; the first guarded write creates .noclobber/")]
    except OSError as error:
        return [Finding("state folder", False, f"{state}: {error.strerror}", "check its permissions")]
    if not stat.S_ISDIR(mode):
        remedy = "move it away; until then no guarded write can succeed"
        return [Finding("state folder", False, f"{state} is not a folder", remedy)]
    if not open_stores.is_private(os.lstat(state), os.path.dirname(state)) and os.lstat(state).st_uid not in (
        os.geteuid(),
        os.lstat(os.path.dirname(state)).st_uid,
    ):
        remedy = "if you trust that user, nothing is to be done; if not, move it away"
        detail = f"{state} belongs to another user; this user's commits keep their files beside each target"
        return [Finding("state folder", True, detail, remedy)]
    if not os.access(state, os.W_OK | os.X_OK):
        remedy = "make it writable for everybody who works here; until then their guarded writes are refused"
        return [Finding("state folder", False, f"{state} is not writable for this user", remedy)]
    return []


def _check_ignored(state: str) -> list[Finding]:
    """Report what had the name of a crash note and was not one of ours: nothing was done about it."""
    ignored = leftovers.ignored_in(state)
    if not ignored:
        return []
    detail = f"{len(ignored)} that this user has not written on this machine; ignored: {', '.join(ignored)}"
    remedy = "they may have come with the repository or from another user; look at them, then delete them"
    return [Finding("foreign notes", False, detail, remedy)]


def _place_of(note: str, state: str) -> tuple[int, int]:
    """Return the device and inode of the folder that a note is about; its name carries the inode."""
    try:
        return os.stat(state).st_dev, int(note, 16)
    except (OSError, ValueError):
        return -1, -1


def _walk(root: str, wanted: set[tuple[int, int]]) -> WalkResult:
    """Walk through the workspace once, to find the folders that notes name and files of ours."""
    inodes = {inode for _, inode in wanted}
    found: dict[tuple[int, int], str] = {}
    beside, scratch = [], []
    waiting, count = [root], 0
    while waiting and count < MOST_FOLDERS:
        folder = waiting.pop()
        count += 1
        has_ours = False
        for entry in _entries(folder):
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name.startswith(SCRATCH_PREFIX) and is_folder:
                scratch.append(entry.path)
            elif entry.name.startswith(BESIDE_PREFIX):
                has_ours = True
            elif is_folder and entry.name != STATE_FOLDER:
                waiting.append(entry.path)
                if entry.inode() in inodes:
                    _match(entry.path, wanted, found)
        if has_ours:
            beside.append(folder)
    _match(root, wanted, found)
    return WalkResult(found, tuple(beside), tuple(scratch), count, not waiting)


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError:
        return  # Not ours to read, or gone.


def _match(folder: str, wanted: set[tuple[int, int]], found: dict[tuple[int, int], str]) -> None:
    try:
        status = os.stat(folder)
    except OSError:
        return
    if (status.st_dev, status.st_ino) in wanted:
        found[status.st_dev, status.st_ino] = folder


def _report(state: str, seen: WalkResult, clock: Clock) -> list[Finding]:
    there = leftovers.found_in(state, clock.now_s())
    remedy = "run doctor without --no-repair when nobody is writing"
    findings = []
    if there.notes:
        findings.append(Finding("cut-off commit", False, f"{len(there.notes)} notes are in use", remedy))
    if there.swaps and any(turn.state != GONE for turn in look(state)):
        detail = f"{len(there.swaps)}; turns are open, and put theirs away when they end"
        findings.append(Finding("swap files", True, detail))
    elif there.swaps:
        findings.append(Finding("swap files", False, f"{len(there.swaps)} older than a minute", remedy))
    if seen.beside:
        findings.append(Finding("files beside", False, f"in {', '.join(seen.beside)}", remedy))
    if dead := left_behind(state):
        findings.append(Finding("dead turns", True, f"{len(dead)} processes ended during a turn"))
    return findings


def _repair(root: str, state: str, in_use: tuple[str, ...], seen: WalkResult, clock: Clock) -> list[Finding]:
    findings: list[Finding] = []
    if os.path.isdir(state):
        committer = Committer(root, mutex_wait_s=MUTEX_WAIT_S, clock=clock)
        for note in in_use:
            folder = seen.folders.get(_place_of(note, state))
            if folder is None:
                findings.append(_forget_note(root, note))
            else:
                findings += _enter(folder, committer.store_of, clock)
        committer.sweep()  # What recovery displaced is open here, and so would be in the way of `_adopt`.
        findings += _adopt(root, clock)
        for board in left_behind(state):
            os.unlink(board)
            findings.append(Finding("dead turn", True, "a process ended during a turn; cleaned up"))
    for folder in seen.beside:
        findings += _enter(folder, lambda fd, path, _: open_stores.beside(fd, path, clock.now_s()), clock)
    for folder in seen.scratch:
        if clock.now_s() - os.lstat(folder).st_mtime > OLD_SCRATCH_S:
            shutil.rmtree(folder, ignore_errors=True)
            findings.append(Finding("old scratch", True, f"{folder} of an earlier doctor; removed"))
    return findings


def _enter(folder: str, store_of: Callable[[int, str, int], Store], clock: Clock) -> list[Finding]:
    """Enter the section of a folder, which finishes what is unfinished there."""
    descriptor = forks.open_tracked(folder, paths.OPEN_FOLDER)
    try:
        with Section({folder: descriptor}, store_of, patience_s=MUTEX_WAIT_S, clock=clock) as section:
            section.note(folder)
            return [_recovered_finding(file) for file in section.recovered]
    except FileBusyError as error:
        status = os.fstat(descriptor)
        holder = mutex_holder(status.st_dev, status.st_ino)
        remedy = f"look at process {holder}: continue it or end it" if holder else "try again in a minute"
        return [Finding("busy", False, str(error), remedy)]
    except (OSError, NoclobberError) as error:
        remedy = "look at the disk and at the folder's permissions, then run doctor again"
        return [Finding("cut-off commit", False, f"{folder} could not be finished: {error}", remedy)]
    finally:
        forks.close(descriptor)


def _recovered_finding(file: Recovered) -> Finding:
    words = {
        "discarded": "its new version had not been published; the old one stands",
        "landed": "the write had landed",
        "restored": "what somebody else had saved is in place again",
        "kept": f"could not be put back; kept as {file.kept}",
    }
    return Finding("cut-off commit", True, f"{file.path}: {words.get(file.outcome, file.outcome)}; finished")


def _forget_note(root: str, name: str) -> Finding:
    """Clear the note of a folder that is gone: no commit will ever do it."""
    store = open_stores.for_workspace(root)
    try:
        for note in store.notes_in_use():
            if note.name == name:
                prefix = note.read().prefix
                note.clear()
                if prefix:
                    store.remove_swaps(prefix)
    finally:
        store.close()
    return Finding("cut-off commit", True, "its folder is gone; cleaned up")


def _adopt(root: str, clock: Clock) -> list[Finding]:
    store = open_stores.for_workspace(root)
    try:
        before = len(sweep.orphans(store, clock.now_s()))
        sweep.adopt_orphans(store, clock.now_s())
        after = len(sweep.orphans(store, clock.now_s()))
    finally:
        store.close()
    findings = []
    if before > after:
        detail = f"{before - after} displaced by other processes; removed"
        findings.append(Finding("swap files", True, detail))
    if after:
        detail = f"{after} cannot be removed: another process has them open for writing"
        findings.append(Finding("swap files", True, detail, "whatever is written to them will be kept"))
    return findings


# What a person must decide


def _orphan_locks(root: str, clock: Clock) -> list[Finding]:
    """Report locks whose holder is gone. No fault: the next to acquire takes them over."""
    from noclobber.lock.backend import list_locks

    try:
        orphans = [status for status in list_locks(root, clock) if not status.is_locked]
    except (OSError, NoclobberError) as error:
        return [Finding("locks", False, f"could not be checked: {error}", remedy_of(error))]
    return [_lock_finding(status) for status in orphans]


def _lock_finding(status: LockStatus) -> Finding:
    if status.state == "unreadable":  # Nobody here can clear it: the detail names owner and remedy.
        return Finding("unreadable lock", False, status.folder, status.detail)
    return Finding(
        "orphan lock",
        True,
        f"{status.folder} ({status.state}: {status.detail})",
        f"the next to acquire takes it over; `noclobber lock recover {status.folder}` clears it now",
    )


def _kept_finding(kept: Kept, origin: str | None) -> Finding:
    what = origin or f"a file called {kept.name}"
    detail = (
        f"{kept.path} ({kept.size_bytes} bytes, {kept.changed[:19]}Z): written to after {what} was replaced"
    )
    against = origin or "the file as it is now"
    remedy = f"compare it with {against}: `noclobber kept list`, then `noclobber kept restore` or `drop`"
    return Finding("kept file", False, detail, remedy)
