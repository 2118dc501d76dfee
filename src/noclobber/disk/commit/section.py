"""
The critical section of a commit: the mutex of every folder concerned, and no unfinished commit in them.

Entering it takes the mutexes in sorted order (two commits that share folders cannot wait for each
other), then looks at each folder's note. A note in use means that its writer died: recovery comes
first, because a commit on top of half a commit would destroy what recovery needs.

Signals are held back while the section lasts (`signals`), and let in while it waits for a mutex. If one still
gets through (a handler that another thread triggers), the same recovery deals with it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from noclobber.core.project import LEASE_NAME, STATE_FOLDER
from noclobber.core.values import WriteResult
from noclobber.disk import filesystems, forks, mutex, ordering, paths, signals, volume_mutex
from noclobber.disk.commit import journal, open_stores, recovery
from noclobber.disk.commit.open_files import FEW, make_room
from noclobber.disk.commit.sweep import sweep
from noclobber.errors import FileBusyError, StorageError

if TYPE_CHECKING:
    from noclobber.core.clock import Clock
    from noclobber.core.values import Level, Recovered
    from noclobber.disk.commit.journal import Note
    from noclobber.disk.commit.store import Store
    from noclobber.disk.paths import PinnedPath


class Admission(Protocol):
    """What a fence returns for a write that it allows, for as long as its block lasts."""

    def look_again(self) -> None:
        """Raise if the write is no longer allowed: the block cannot prevent every change."""


class Guarding(Protocol):
    """A fence's answer before its block is entered."""

    folder: str | None
    """The locked folder whose mutex is needed besides that of the file's own; None: none is locked."""

    def __enter__(self) -> Admission: ...
    def __exit__(self, *raised: object) -> None: ...


class Closable(Protocol):
    """A file of a commit, at its end."""

    is_swapped: bool
    kept: list[str]
    target: PinnedPath

    def close(self, *, landed: bool) -> None:
        """Close what is open."""


class Fence(Protocol):
    """Something else that decides whether a write may happen: asked inside the critical section."""

    def folder(self, path: str) -> str | None:
        """Return a folder whose mutex is needed as well, besides that of the file's own."""

    def guarding(self, path: str, held: Sequence[int]) -> Guarding:
        """Allow a write to `path`, or raise; `held` are the folders whose mutexes are held."""

    def guarding_more(self, paths: Sequence[str]) -> None:
        """Raise if one of these may not be written, in a folder that `guarding()` has allowed."""


NO_FLOCK = (errno.EBADF, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES)
MOST_RECOVERIES = 8
MOST_ASKED = 48  # Of more files the fence is asked folder by folder.


class Wider(NamedTuple):
    """What a recovery takes that a section does not hold."""

    folders: dict[str, int]
    store_of: Callable[[int, str, int], Store]
    to_close: Store | None = None


def _opened_again(folder_fd: int) -> int:
    """Open a folder once more: a copy of the descriptor would share its mutex."""
    return forks.open_tracked(".", paths.OPEN_FOLDER, dir_fd=folder_fd)


def _decide(note: journal.Note, state: bytes) -> None:
    note.mark(state)
    note.flush()


class Section:
    """Use as a context manager. `folders` maps canonical folder paths to open descriptors."""

    def __init__(
        self,
        folders: dict[str, int],
        store_of: Callable[[int, str, int], Store],
        *,
        patience_s: float,
        clock: Clock,
        depth: int = 0,
    ) -> None:
        self.folders = folders
        self._depth = depth  # Sections around this one, each of which was entered to recover something.
        self._targets: Sequence[str] = ()
        self._fence: Fence | None = None
        self._opened: list[int] = []
        self._admissions: list[Admission] = []
        self._fenced: list[Guarding] = []
        self._store_of, self._patience_s, self._clock = store_of, patience_s, clock
        self.is_exclusive = True  # False where the mutex excludes not everybody: then the level is `plain`.
        self.recovered: list[Recovered] = []
        self._held: list[int] = []
        self._held_for_all: list[int] = []  # Mutexes of volumes that other machines use, too.
        self._leases: list[tuple[Store, bytes]] = []  # The same for mounts whose locks reach nobody else.
        self._stores: dict[str, Store] = {}
        self._status: dict[str, os.stat_result] = {}
        self._notes: dict[str, journal.Note] = {}
        self._signals = signals.held_back()
        self._holds_back = False

    def store(self, folder: str) -> Store:
        """Return where commits to a folder keep their files."""
        store = self._stores.get(folder)
        if store is None:
            store = self._stores[folder] = self._store_of(
                self.folders[folder], folder, self.status(folder).st_dev
            )
        return store

    def note(self, folder: str) -> journal.Note:
        """Return a folder's note."""
        note = self._notes.get(folder)
        if note is None:
            note = self._notes[folder] = self.store(folder).note(self.status(folder))
        return note

    def status(self, folder: str) -> os.stat_result:
        """Return the `fstat` of a folder, asked once."""
        status = self._status.get(folder)
        if status is None:
            status = self._status[folder] = os.fstat(self.folders[folder])
        return status

    def distinct_folders(self) -> list[str]:
        """Return the folders, sorted by name, each under one name only."""
        by_place = {self._place(folder): folder for folder in sorted(self.folders, reverse=True)}
        return sorted(by_place.values())

    def _place(self, folder: str) -> tuple[int, int]:
        status = self.status(folder)
        return status.st_dev, status.st_ino

    def __enter__(self) -> Section:
        self._signals.__enter__()
        self._holds_back = True
        try:
            return self._enter()
        except BaseException:
            self.__exit__()
            raise

    def _enter(self) -> Section:
        for _ in range(MOST_RECOVERIES):
            self._take_mutexes()
            wider = self._recover()
            if wider is None:
                locked = self._pass_fence()
                if locked is None:
                    return self
                self._leave()
                self._open_locked(locked)
                continue
            # It takes folders whose mutexes we do not hold, or another store. Taking them now, out of order,
            # could deadlock with another commit; so release ours, take all of them in order, and try again.
            self._leave()
            self._recover_wider(wider)
        raise FileBusyError(
            next(iter(self.folders)),
            f"{MOST_RECOVERIES} times another process died in the middle of a commit in its folder; gave up.",
        )

    def put_up(self, fence: Fence, targets: Sequence[str]) -> None:
        """Before entering: have a fence decide about every target, under the mutexes that it needs."""
        self._fence, self._targets = fence, targets
        if len(targets) == 1:
            return  # Nothing is locked, nearly always. If something is, entering finds out, and begins again.
        try:
            for path in _one_a_folder(targets):
                folder = fence.folder(path)
                if folder is not None and folder not in self.folders:
                    self._open_locked(folder)
        except BaseException:
            self._close_opened()
            raise

    def _open_locked(self, folder: str) -> None:
        """Take the mutex of a locked folder as well, at the next entry, in its place among the others."""
        self.folders[folder] = forks.open_tracked(folder, paths.OPEN_FOLDER)
        self._opened.append(self.folders[folder])

    def _close_opened(self) -> None:
        while self._opened:
            forks.close(self._opened.pop())

    def _pass_fence(self) -> str | None:
        """
        Ask the fence about every target; what it allows stays allowed until the section ends.

        Or return a locked folder whose mutex that takes and that is not held: taken now, out of order, two
        commits could wait for each other.
        """
        if self._fence is None:
            return None
        first_ones = set(_one_a_folder(self._targets))
        folders: set[str | None] = set()
        others: dict[str, list[str]] = {}
        for path in self._targets:
            is_many = len(self._targets) > MOST_ASKED
            if is_many and path not in first_ones:
                others.setdefault(path.rpartition("/")[0], []).append(path)
                continue
            guarding = self._fence.guarding(path, self._held)
            if guarding.folder is not None and guarding.folder not in self.folders:
                return guarding.folder
            admission = guarding.__enter__()
            if path in first_ones:
                self._admissions.append(admission)
            if is_many:
                # One for each locked folder keeps the answer true, with whatever that keeps open.
                folder = self._fence.folder(path)
                if folder in folders:
                    guarding.__exit__(None, None, None)
                    continue
                folders.add(folder)
            self._fenced.append(guarding)
        for more in others.values():
            self._fence.guarding_more(more)
        return None

    def look_again(self) -> None:
        """Right before something is replaced: raise if the fence no longer allows it. Once a folder."""
        for admission in self._admissions:
            admission.look_again()

    def _take_mutexes(self) -> None:
        taken: set[tuple[int, int]] = set()
        # Sorted by what they are and not by name: a folder may have two (a bind mount), in either order.
        for place, folder in sorted((self._place(folder), folder) for folder in self.folders):
            descriptor = self.folders[folder]
            if place in taken:
                continue  # Another name of a folder that we hold: we would wait for ourselves.
            taken.add(place)
            try:
                waiting = signals.Interruptible(self._clock)
                held = mutex.hold(descriptor, patience_s=self._patience_s, clock=waiting)
            except OSError as error:
                if error.errno not in NO_FLOCK:
                    raise
                self.is_exclusive = False
                continue
            if not held:
                raise FileBusyError(
                    folder,
                    f"another process has been committing in this folder for {self._patience_s:g} s; it may"
                    " be stopped. Continue or end it, then try again.",
                )
            self._held.append(descriptor)
        self._take_volume_mutexes()

    def _take_volume_mutexes(self) -> None:
        """
        Take the mutexes that other machines see, of every store on a volume that they may have mounted.

        After all those of folders, and in their own order: so no two commits wait for each other.
        """
        shared: dict[tuple[int, int], str] = {}
        for folder in self.folders:
            store = self.store(folder)
            if store.is_remote:
                # Of two mounts each may replace what the other has just verified. Whatever needs more than
                # one step, or a second name, would be in the other's way.
                self.is_exclusive = self.is_exclusive and not store.is_alone
                _refuse_object_stores(folder, store.kind)
                status = os.fstat(store.notes_fd)
                shared[status.st_dev, status.st_ino] = folder
        for _, folder in sorted(shared.items()):
            store = self.store(folder)
            waiting = signals.Interruptible(self._clock)
            taken = volume_mutex.take(
                store.notes_fd, store.prefix, patience_s=self._patience_s, clock=waiting
            )
            if taken is not None:
                self._held_for_all.append(taken)
            if taken is None or (store.is_alone and not self._take_lease(store, waiting)):
                raise FileBusyError(
                    folder,
                    f"another process, here or on another machine, has been committing on this volume for"
                    f" {self._patience_s:g} s; it may be stopped. Continue or end it, then try again.",
                )
        if shared:
            # What this machine remembers of the folders is from before the mutex: a version that somebody
            # has replaced since would be verified, and that change lost.
            for folder, descriptor in self.folders.items():
                if self.store(folder).is_remote:
                    filesystems.ask_anew(descriptor)

    def _take_lease(self, store: Store, clock: Clock) -> bool:
        from noclobber.disk import lease_file  # Here: on a local disk nobody needs it.

        name, patience_s = f"{store.prefix}{LEASE_NAME}", self._patience_s
        taken = lease_file.take(name, store.swap_fd, patience_s=patience_s, clock=clock)
        if taken is not None:
            self._leases.append((store, taken))
        return taken is not None

    def _recover(self) -> Wider | None:
        """Finish what dead processes left in our folders; or return what it takes to do that."""
        for folder in self.folders:
            if not self._depth:
                found = open_stores.cut_off_elsewhere(
                    folder, self.status(folder), self.store(folder), self._clock
                )
                if found is not None:
                    return Wider({folder: _opened_again(self.folders[folder])}, *found)
            if self.note(folder).is_idle:
                continue
            content = self._content(folder)
            wider = self._missing(folder, content) if self._depth < MOST_RECOVERIES else {}
            if wider:
                wider[folder] = _opened_again(self.folders[folder])
                return Wider(wider, self._store_of)
            self._finish(content, folder)
        return None

    def _content(self, folder: str) -> journal.NoteContent:
        """Return what a folder's note says, with the folders in it called as they are called here."""
        content = self.note(folder).read()
        device = self.status(folder).st_dev

        def known(path: str, inode: int) -> str:
            if path in self.folders and self.status(path).st_ino == inode:
                return path
            # Moved since, or another name of it.
            alike = [
                name
                for name, folder_fd in self.folders.items()
                if self._place(name) == (device, inode) and self.store(name).is_on_mount_of(folder_fd)
            ]
            return alike[0] if alike else path

        files = tuple(
            planned._replace(folder=known(planned.folder, planned.folder_inode)) for planned in content.files
        )
        leader = known(content.leader, content.leader_inode) if content.leader else ""
        return content._replace(files=files, leader=leader)

    def _missing(self, folder: str, content: journal.NoteContent) -> dict[str, int]:
        """Open the folders that a recovery takes and that are not held; what is not there is left out."""
        concerned = {planned.folder: planned.folder_inode for planned in content.files}
        if content.leader:
            concerned[content.leader] = content.leader_inode
            if content.leader in self.folders:
                leader = self._content(content.leader)
                concerned |= {planned.folder: planned.folder_inode for planned in leader.files}
        if len(concerned) > FEW:
            make_room(0, len(concerned))
        base = self.note(folder).base
        opened: dict[str, int] = {}
        for path, inode in concerned.items():
            if path in self.folders:
                continue
            try:
                with forks.undivided():
                    descriptor = forks.track(paths.open_below(base, path[len(base.rstrip("/")) + 1 :]))
            except OSError as error:
                # Any other error is no answer: the leader may be there, and its commit under way.
                if error.errno not in NOT_THERE:
                    for each in opened.values():
                        forks.close(each)
                    raise
                continue
            if os.fstat(descriptor).st_ino == inode:
                opened[path] = descriptor
            else:
                forks.close(descriptor)  # Another folder, which has that name now.
        if opened:
            for path in concerned:
                if path in self.folders and path != folder:
                    opened[path] = _opened_again(self.folders[path])
        return opened

    def _finish(self, content: journal.NoteContent, folder: str) -> None:
        if content.state == journal.MEMBER:
            # We hold the leader's mutex, too. An idle leader means that the commit was over before its
            # members were cleared; otherwise the loop comes to the leader, and that does the work.
            if content.leader in self.folders:
                leader = self._content(content.leader)
                if leader.state not in (journal.IDLE, journal.MEMBER):
                    self._finish(leader, content.leader)
                # Killed between two notes: while this one spoke of them, no sweep took its files for orphans.
                self.store(folder).leave_all_marked(content.prefix, folder)
            self.note(folder).clear()
            return
        note, store = self.note(folder), self.store(folder)
        here = [planned for planned in content.files if self._may_touch(note, planned)]
        recovered = recovery.recover(
            content._replace(files=tuple(here)),
            self.folders,
            [folder],
            self.store,
            self._clock,
            lambda state: _decide(note, state),
        )
        own = f"{note.base.rstrip('/')}/{STATE_FOLDER}/"  # Of a command's landing: nobody's file.
        self.recovered += [each for each in recovered if not each.path.startswith(own)]
        if here:  # What recovery did must last before the note that asked for it is cleared.
            ordering.flush_names(self.folders.values(), store.filesystem)
        note.clear()

    def _may_touch(self, note: journal.Note, planned: journal.Planned) -> bool:
        """False for a row about a folder that is not there, or that the note's writer has no say about."""
        folder = planned.folder
        if folder not in self.folders:
            return False
        status = self.status(folder)
        if status.st_ino != planned.folder_inode:
            return False
        # Root believes the notes of a project's owner. That must not let the owner change root's own folders.
        if note.written_by not in (os.geteuid(), status.st_uid):
            return False
        prefix = self.store(folder).prefix
        return all(journal.is_swap_name(name, prefix) for name in (planned.swap, planned.undo) if name)

    def _recover_wider(self, wider: Wider) -> None:
        try:
            # Entering does the recovery; there is nothing else to do inside.
            with Section(
                wider.folders,
                wider.store_of,
                patience_s=self._patience_s,
                clock=self._clock,
                depth=self._depth + 1,
            ) as section:
                self.recovered += section.recovered
        finally:
            for descriptor in wider.folders.values():
                forks.close(descriptor)
            if wider.to_close is not None:
                sweep(wider.to_close)
                wider.to_close.close()

    def landed(self, path: str, sha256: str, level: Level, previous_sha256: str) -> WriteResult:
        """The result of a write that has just landed here. What was kept aside is added at the end."""
        return WriteResult(path, sha256, level, previous_sha256, recovered=tuple(self.recovered))

    def conclude(self, files: Sequence[Closable], in_use: list[Note], *, landed: bool) -> None:
        """
        Close every file of a commit and clear its notes, leader first; after anything unforeseen, recover.

        Exchanged, and neither landed nor restored: then an error that is not a refusal (an interrupt, an
        I/O error) cut it off. It looks exactly like a crash, and gets the same treatment while the mutex is
        still ours.
        """
        cut_off = not landed and any(file.is_swapped for file in files)
        failed: OSError | None = None
        for file in files:
            try:
                file.close(landed=landed)
            except OSError as error:  # The others are closed all the same.
                failed = error
        if failed is not None and not landed:
            raise failed
        if cut_off:
            known = len(self.recovered)
            self._recover()
            # An error is on its way to the caller, and with it no result. So each file says what was kept.
            kept = {each.path: each.kept for each in self.recovered[known:] if each.kept}
            for file in files:
                if file.target.path in kept:
                    file.kept.append(kept[file.target.path])
        for note in in_use:
            note.clear()

    def __exit__(self, *exc: object) -> None:
        try:
            self._leave()
            self._close_opened()
        finally:
            if self._holds_back:
                self._holds_back = False
                self._signals.__exit__()

    def _leave(self) -> None:
        # Each step runs even if the one before has failed: a mutex that stays would lock out everyone else
        # for as long as this process lives.
        try:
            self._admissions.clear()
            while self._fenced:
                self._fenced.pop().__exit__(None, None, None)
            while self._leases:
                from noclobber.disk import lease_file

                store, taken = self._leases.pop()
                lease_file.release(f"{store.prefix}{LEASE_NAME}", store.swap_fd, taken)
            while self._notes:
                folder, note = self._notes.popitem()
                self._stores[folder].put_away(note)
            while self._stores:
                _, store = self._stores.popitem()
                if store.is_beside:
                    open_stores.leave(store)
        finally:
            while self._held_for_all:
                descriptor = self._held_for_all.pop()
                mutex.release(descriptor)
                forks.close(descriptor)
            while self._held:
                mutex.release(self._held.pop())


def _one_a_folder(targets: Sequence[str]) -> list[str]:
    """Return the first target of each folder. What is locked above a file is the same for all beside it."""
    found: dict[str, str] = {}
    for path in targets:
        found.setdefault(path.rpartition("/")[0], path)
    return list(found.values())


def _refuse_object_stores(folder: str, kind: str) -> None:
    """Nothing here holds where a rename is not one step. Asked of FUSE only, where all calls are slow."""
    if kind == "fuse" and (store := filesystems.object_store(folder)) is not None:
        raise StorageError(folder, f"this ({store}) {filesystems.NO_RENAME}")
