"""
Replace a file's content, if it is still what the caller saw: the commit primitive and its ladder.

Readers see the old bytes or the new bytes, never a mixture. The level that comes back says how
strong the promise was; `disk.filesystems.PROMISES` is the table. It depends on what the file's filesystem is
known to do, and on what the kernel granted for this very write.

Calling sequence: `Committer(root)` once, `replace()` for each write. `replace_if_unchanged()` is the
same for one write without a workspace; it keeps its files beside the target.

Not promised: that the mutex excludes other machines on every FUSE and network filesystem; see `disk.reach`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from noclobber.core.clock import SYSTEM_CLOCK, Patience
from noclobber.core.project import NOTES_FOLDER, STATE_FOLDER
from noclobber.core.values import WriteResult
from noclobber.disk import forks, hashing, leases, metadata, ordering, paths, renames, signals, volume_mutex
from noclobber.disk.commit import departed, inplace, made_folders, open_stores, sweep
from noclobber.disk.commit.flushing import UnflushedError, flush_name
from noclobber.disk.commit.link_appeared import MOST_TRIES, LinkAppearedError, retry_while_links_appear
from noclobber.disk.commit.made_folders import MadeFolders
from noclobber.disk.commit.section import Section
from noclobber.disk.commit.store import gives_acl
from noclobber.disk.commit.swap import Swap
from noclobber.disk.hashing_thread import HashOf
from noclobber.disk.reading import DEFAULT_PATIENCE_S, NOT_READABLE, hash_of, status_of
from noclobber.disk.small_file import write_all
from noclobber.disk.steps import reached
from noclobber.disk.system_errors import commit_failed
from noclobber.errors import (
    ABSENT,
    DELETED,
    NOT_A_FILE,
    BadRequestError,
    FileBusyError,
    MetadataNotKeptError,
    MissingFileError,
    NoclobberError,
    OutsideWorkspaceError,
    StaleFileError,
)

if TYPE_CHECKING:
    from noclobber.core.clock import Clock
    from noclobber.core.values import Level, Recovered
    from noclobber.disk.commit.section import Fence
    from noclobber.disk.commit.store import Store
    from noclobber.disk.paths import PinnedPath
    from noclobber.disk.version_keeper import VersionKeeper

DEFAULT_WAIT_S = 1.0
MOST_KNOWN_FOLDERS = 4096
LADDER: tuple[Level, ...] = ("lease+exchange", "exchange", "plain")


class Committer:
    """Commits below one root (or anywhere, if `root` is None), with the files it keeps meanwhile."""

    def __init__(
        self,
        root: str | None,
        *,
        durable: bool = False,
        wait_s: float = DEFAULT_WAIT_S,
        mutex_wait_s: float = DEFAULT_PATIENCE_S,
        ceiling: Level = "lease+exchange",
        hard_links: bool = True,
        busy: str = "refuse",
        keeper: VersionKeeper | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if ceiling not in LADDER:
            raise BadRequestError("", f"the level must be one of {', '.join(LADDER)}, not {ceiling!r}.")
        self.root, self.durable, self.wait_s, self.clock = root, durable, wait_s, clock
        self.mutex_wait_s, self.ceiling, self.hard_links = mutex_wait_s, ceiling, hard_links
        self.keeper = keeper
        self.busy = busy  # `exchange`: a file that somebody has open for writing is replaced without leases.
        self._store: Store | None = None
        # Files that were kept and not reported yet. Without a workspace a committer lives for one write.
        self._unreported: deque[tuple[str, str]] = deque() if root is not None else _unreported_anywhere
        self._has_no_exchange: set[int] = set()  # Devices.
        self._has_records = False  # Of folders, by processes that may be dead: to be looked at in no section.
        self._mounts: dict[str, bool] = {}  # Folders: can the workspace's swap files be renamed there?

    # Where things are.

    def pin(
        self,
        path: str | os.PathLike[str],
        *,
        expected: str | None = None,
        at: str | None = None,
        make_folders: MadeFolders | None = None,
    ) -> PinnedPath:
        """
        Resolve a path and hold its folder open; the caller unpins the target.

        `at` is the canonical path that the caller has checked. A link swapped in since then would lead to a
        file that nobody has checked: that is refused.
        """
        text = paths.lexical(self.root or os.getcwd(), path)
        with forks.undivided():
            target = paths.pin(self.root, text, make_folders=make_folders or False)
            forks.track(target.folder_fd)
        if at is None or target.path == at:
            return target
        try:
            actual = hash_of(target)
            if actual == NOT_A_FILE and os.path.islink(target.path):
                raise LinkAppearedError(target.path)  # It is changing at the moment: begin again.
            if expected is not None and actual != expected:
                raise StaleFileError(target.path, expected, actual)
            raise FileBusyError(
                target.path, f"{path} led to {at} a moment ago, and leads here now; try again."
            )
        finally:
            self.unpin(target)

    def made_folders(self) -> MadeFolders:
        """Put a commit inside of this: the folders that it makes go again if it does not land."""
        return MadeFolders(self.root, lambda: self._store or self.open_store())

    def unpin(self, target: PinnedPath) -> None:
        """Close a pinned target's folder."""
        forks.close(target.folder_fd)

    def store_of(self, folder_fd: int, folder: str, device: int) -> Store:
        """Return the store for a folder: the workspace's own if that is on the same mount."""
        own = self._store
        if own is None or not own.is_in_place():  # `git clean -fdx` removes it; or it was moved.
            own = self.open_store()
        if own is not None and own.device == device and self._is_on_mount_of(own, folder_fd, folder):
            return own
        beside = open_stores.beside(folder_fd, folder, self.clock.now_s(), self.root)
        beside.keeper = self.keeper
        return beside

    def _is_on_mount_of(self, own: Store, folder_fd: int, folder: str) -> bool:
        """True if the workspace's swap files can be renamed to a folder; asked once, it costs a file read."""
        answer = self._mounts.get(folder)
        if answer is None:
            if len(self._mounts) >= MOST_KNOWN_FOLDERS:
                self._mounts.clear()
            answer = self._mounts[folder] = own.is_on_mount_of(folder_fd)
        return answer

    def failed(self, error: OSError, path: str, *, begin_again: bool = False) -> Exception:
        """Return the refusal for an error of the system in a commit; `begin_again` if the caller can."""
        if error.errno == errno.EXDEV and self._mounts.pop(os.path.dirname(path), False):
            return LinkAppearedError(path)  # Its folder has been mounted over: begin again.
        if error.errno == errno.ESTALE and begin_again:
            # Of a file that another machine has replaced, which this one still had under its name. The next
            # attempt asks for the folder anew. Nothing has landed: after that, nothing is asked for by name.
            self.clock.sleep(volume_mutex.STALE_NAP_S)
            return LinkAppearedError(path)
        is_raw = not isinstance(
            error, NoclobberError
        )  # A refusal of ours may be an error of the system, too.
        if (
            error.errno == errno.ENOENT
            and begin_again
            and is_raw
            and not os.path.lexists(os.path.dirname(path))
        ):
            # A commit that made the folder was refused, and took it away again: the next attempt makes it.
            return LinkAppearedError(path)
        return commit_failed(error, path)

    def open_store(self) -> Store | None:
        """Open the workspace's own store, anew if its folders were removed; None without one."""
        if self.root is None:
            return None
        try:
            self._store = open_stores.for_workspace(self.root)
        except PermissionError:
            return None  # Another user's. Then our files go beside the target.
        self._store.keeper = self.keeper
        try:
            self._unreported.extend(sweep.adopt_orphans(self._store, self.clock.now_s()))
            self._has_records = made_folders.has_records(self._store)
        except OSError:
            pass  # For example, another user's notes. What may not be an orphan stays.
        return self._store

    @property
    def store_if_open(self) -> Store | None:
        """The workspace's store, if a commit has needed it yet."""
        return self._store

    def section(
        self,
        targets: list[PinnedPath],
        fence: Fence | None = None,
        *,
        beside: Mapping[str, int] | None = None,
    ) -> Section:
        """
        The critical section for some targets. Use it in a `with` statement at once.

        `beside`: further folders, in which nothing is written and nobody else is to write.
        """
        folders = {**(beside or {}), **{target.folder: target.folder_fd for target in reversed(targets)}}
        section = Section(folders, self.store_of, patience_s=self.mutex_wait_s, clock=self.clock)
        if fence is not None:
            section.put_up(fence, [target.path for target in targets])
        return section

    def patience(self) -> Patience:
        """How long one commit waits for others to close a file."""
        return Patience(self.wait_s, self.clock)

    @signals.whole
    def sweep(self) -> list[tuple[str, str]]:
        """Remove displaced files; return (path, where) of those kept because somebody wrote to them."""
        self.tidy(young=True)
        return self._take_unreported()

    @signals.whole
    def close(self) -> None:
        """Sweep, and close the store, as soon as no other thread commits. A later commit opens it again."""
        self.tidy(young=True)
        if self._store is not None:
            self._unreported.extend(departed.look_after(self._store, at_once=True))
        self._store = None  # It closes itself with its last user.

    def report_later(self, path: str, kept: Sequence[str]) -> None:
        """Report what this commit had to keep with the next commit that lands."""
        self._unreported.extend((path, where) for where in kept)

    def _take_unreported(self) -> list[tuple[str, str]]:
        taken = []
        while self._unreported:  # One by one: each step is atomic between threads.
            try:
                taken.append(self._unreported.popleft())
            except IndexError:
                break
        return taken

    def tidy(self, sparing: str = "", *, young: bool = False) -> None:
        """The same, before a commit to a path; what was kept is reported by the next commit that lands."""
        self._unreported.extend(open_stores.sweep_lingering())
        self._recover_made_folders()
        store = self._store  # Another thread may close it.
        if store is not None:
            self._unreported.extend(sweep.sweep(store, sparing, young=young))
        if self.keeper is not None and self.keeper.is_full:
            self.keeper.tidy()

    def reporting(self, results: list[WriteResult], *troubles: UnflushedError | None) -> list[WriteResult]:
        """
        Return the results of writes that have landed, with what was kept; or raise the first failed flush.

        A refusal does not report kept files. They are reported when something lands, or by `sweep()`.
        """
        if self._unreported:
            kept = tuple(where for _, where in self._take_unreported())
            results = [result._replace(kept=kept) for result in results]
        for trouble in filter(None, troubles):
            trouble.commits = tuple(results)
            raise trouble
        return results

    @signals.whole
    def recover_folder(self, target: PinnedPath) -> list[Recovered]:
        """
        Finish a commit that was cut off in a target's folder, before anyone reads there.

        What a dead process left may be a version that nobody verified. A commit that is still running holds
        the mutex; then there is nothing to recover, and no reason to wait.
        """
        own = self._store
        if own is None and self.root is not None and _is_there(f"{self.root}/{STATE_FOLDER}/{NOTES_FOLDER}"):
            own = self.open_store()
        self._recover_made_folders()
        folder, status = target.folder, os.fstat(target.folder_fd)
        if own is None or not own.is_under_way(status):
            elsewhere = open_stores.cut_off_elsewhere(folder, status, own, self.clock)
            if elsewhere is None:
                return []
            if elsewhere[1] is not None:
                elsewhere[1].close()
        section = Section({folder: target.folder_fd}, self.store_of, patience_s=0.0, clock=self.clock)
        try:
            with section:
                return section.recovered
        except FileBusyError:
            return []

    def recover_all(self) -> list[Recovered]:
        """
        Finish every commit that was cut off in this workspace, before a command looks at all of it.

        Whoever reads one file through a guard has its folder recovered; a command reads without one.
        """
        if self.root is None or not _is_there(f"{self.root}/{STATE_FOLDER}/{NOTES_FOLDER}"):
            return []
        store = self._store or self.open_store()
        if store is None:
            return []
        folders: dict[str, None] = {}
        for note in store.notes_in_use():
            # Without its mutex. What it says is read again with it.
            folders.update((planned.folder, None) for planned in note.read().files)
        recovered = [each for folder in folders for each in self._recover_at(folder)]
        self._has_records = True
        self._recover_made_folders()
        return recovered

    def _recover_made_folders(self) -> None:
        if self._has_records and self._store is not None and self.root is not None:
            self._has_records = False
            made_folders.recover(self._store, self.root, self._recover_at)

    def _recover_at(self, folder: str) -> list[Recovered]:
        try:
            folder_fd = forks.open_tracked(folder, paths.OPEN_FOLDER)
        except OSError:
            return []  # It was moved or removed since; the next commit there looks after it.
        target = paths.PinnedPath(folder_fd, "", folder)
        try:
            return self.recover_folder(target)
        finally:
            self.unpin(target)

    # The commit of one file.

    @signals.whole
    def replace(
        self,
        path: str | os.PathLike[str],
        expected: str | None,
        data: bytes,
        *,
        at: str | None = None,
        fence: Fence | None = None,
        mode: int | None = None,
    ) -> WriteResult:
        """
        Write `data` if the file is still `expected`: a hash, `ABSENT`, or None for any content.

        `mode` is for a file that is created: its permissions, from the start. Without it the umask decides.
        """

        def attempt() -> WriteResult:
            with self.made_folders() as made:
                return self._replace(path, expected, data, at, fence, mode, made)

        return retry_while_links_appear(attempt, str(path))

    def _replace(
        self,
        path: str | os.PathLike[str],
        expected: str | None,
        data: bytes,
        at: str | None,
        fence: Fence | None,
        mode: int | None,
        made: MadeFolders,
    ) -> WriteResult:
        makes_folders = made if expected in (None, ABSENT) else None
        try:
            target = self.pin(path, expected=expected, at=at, make_folders=makes_folders)
        except MissingFileError as error:  # Even the folder is gone.
            raise StaleFileError(error.path, expected or "", DELETED) from None
        try:
            self.tidy(target.path if self.durable else "")
            with self.section([target], fence) as section:
                reached("entered")
                result, trouble = self._replace_in(section, target, expected, data, mode)
        except OSError as error:
            raise self.failed(error, target.path, begin_again=True) from error
        finally:
            self.unpin(target)
        return self.reporting([result], trouble)[0]

    def _replace_in(
        self,
        section: Section,
        target: PinnedPath,
        expected: str | None,
        data: bytes,
        mode: int | None,
    ) -> tuple[WriteResult, UnflushedError | None]:
        for _ in range(MOST_TRIES):
            if expected == ABSENT or (expected is None and not _exists(target)):
                try:
                    return self._create(section, target, data, mode)
                except StaleFileError:
                    if expected is not None:
                        raise
                    continue  # The caller expects nothing in particular, so replace what is there now.
            try:
                return self._exchange(section, target, expected, data)
            except StaleFileError:
                if expected is not None:
                    raise
        raise StaleFileError(target.path, ABSENT, hash_of(target))

    def _exchange(
        self,
        section: Section,
        target: PinnedPath,
        expected: str | None,
        data: bytes,
    ) -> tuple[WriteResult, UnflushedError | None]:
        folder = target.folder
        store, note, patience = section.store(folder), section.note(folder), self.patience()
        with_leases = self.ceiling == "lease+exchange" and leases.SUPPORTED
        swap = Swap(
            target,
            expected,
            data,
            store,
            leases=with_leases,
            durable=self.durable,
            root=self.root,
            busy=self.busy,
        )
        in_use = [note]
        try:
            swap.open_old()
            if swap.links > 1 and store.remove_second_names(swap.old_status.st_ino):
                swap.close()
                swap.open_old()
            swap.refuse_read_only()
            must_keep_inode = swap.links > 1 and swap.links - store.second_names(swap.old_status.st_ino) > 1
            can_exchange = self.can_exchange(store) and section.is_exclusive
            if must_keep_inode or not can_exchange:
                swap.close()  # Our own open descriptor would prevent the write lease.
                if must_keep_inode and not self.hard_links:
                    raise OutsideWorkspaceError(
                        target.path,
                        f"it has {swap.links} hard links, and a write would show under all of its names,"
                        " which may be outside the workspace. To change it under this name alone, delete it"
                        " and write it anew.",
                        links=swap.links,
                    )
                if must_keep_inode and not swap.sees_writers:
                    raise _cannot_keep_inode(target, swap.links)
                if swap.leases or must_keep_inode:
                    in_use.clear()  # It clears the note itself, or leaves it for recovery.
                    try:
                        return self._in_place(section, target, expected, data, patience), None
                    except leases.LeasesUnavailableError:
                        in_use.append(note)
                        if must_keep_inode:
                            raise _cannot_keep_inode(target, swap.links) from None
                swap.open_old()
            prefix = store.new_prefix()
            note.prepare(prefix)
            swap.begin_staging(prefix)
            swap.stage()
            if not can_exchange:
                # Before the final check: what is saved between that and the rename is lost.
                swap.await_bytes()
            swap.verify(patience)
            if not can_exchange:
                section.look_again()
                return self._plain(section, swap, prefix, patience)
            note.swap(swap.planned())
            reached("noted")
            section.look_again()
            try:
                swap.exchange(patience)
            except OSError as error:
                if error.errno != errno.EBUSY or swap.is_swapped:
                    raise
                # A single file that is mounted there, as containers do: no rename can replace it.
                swap.close()
                if not swap.leases:
                    raise _cannot_keep_inode(target, swap.links) from None
                note.clear()
                in_use.clear()
                return self._in_place(section, target, expected, data, patience), None
            swap.settle(patience, note)
            trouble = swap.finish()
            result = section.landed(target.path, swap.new_hash, swap.level, swap.previous)
            return result._replace(not_kept=swap.not_kept) if swap.not_kept else result, trouble
        finally:
            section.conclude([swap], in_use, landed=swap.is_settled)
            if swap.kept:
                self.report_later(target.path, swap.kept)

    def _in_place(
        self,
        section: Section,
        target: PinnedPath,
        expected: str | None,
        data: bytes,
        patience: Patience,
    ) -> WriteResult:
        previous, level = inplace.rewrite(
            target,
            expected,
            data,
            store=section.store(target.folder),
            note=section.note(target.folder),
            patience=patience,
        )
        return section.landed(target.path, hashing.of_bytes(data), level, previous)

    def _plain(
        self, section: Section, swap: Swap, prefix: str, patience: Patience
    ) -> tuple[WriteResult, UnflushedError | None]:
        # Where the mutex excludes nobody, a second name would look like a hard link to other guards. Those on
        # another mount know it by its place.
        may_link = section.is_exclusive or swap.store.is_alone
        aside = swap.link_aside(f"{prefix}01", patience) if may_link else ""
        if not aside:
            swap.check_name(patience)
        try:
            os.rename(
                swap.swap_name,
                swap.target.name,
                src_dir_fd=swap.store.swap_fd,
                dst_dir_fd=swap.target.folder_fd,
            )
        except BaseException:
            if aside:
                swap.store.remove_swap(aside)
            raise
        if aside:
            swap.leave_linked_aside(aside)
        trouble = flush_name(swap.target, swap.new_hash) if self.durable else None
        return section.landed(swap.target.path, swap.new_hash, "plain", swap.previous), trouble

    def can_exchange(self, store: Store) -> bool:
        """True if the filesystem of a store can exchange two names; tried once per device."""
        return self.ceiling != "plain" and self.has_exchange(store)

    def has_exchange(self, store: Store) -> bool:
        """The same whatever level the caller has asked for: several files need it at every level."""
        if store.device in self._has_no_exchange:
            return False
        if store.device in _tried_devices:
            return True
        if can_exchange_in(store):
            _tried_devices.add(store.device)
            return True
        self._has_no_exchange.add(store.device)
        return False

    def _create(
        self, section: Section, target: PinnedPath, data: bytes, mode: int | None
    ) -> tuple[WriteResult, UnflushedError | None]:
        """Create a file that must not exist: complete, or not at all."""
        folder = target.folder
        store, note = section.store(folder), section.note(folder)
        if not store.is_beside and gives_acl(target.folder_fd):
            # Only a file made here inherits the folder's ACL.
            store = open_stores.beside(target.folder_fd, folder, self.clock.now_s(), self.root)
        background = HashOf(data)
        prefix = store.new_prefix()
        note.prepare(prefix)
        try:
            # The umask may take away from a given mode, never add. It is set exactly before it is shown.
            name, new_fd = store.create_swap(prefix, target.name, None, 0o666 if mode is None else mode)
        except BaseException:
            note.clear()
            if store is not section.store(folder):
                open_stores.leave(store)
            raise
        try:
            reached("creating")
            write_all(new_fd, data)
            metadata.inherit_group(new_fd, target.folder_fd)
            if mode is not None:
                os.fchmod(new_fd, mode)
            if self.durable:
                os.fsync(new_fd)
            elif data:
                ordering.wait(new_fd, store.filesystem)
            section.look_again()
            new_hash = background.result()
            try:
                renames.move_without_replacing(store.swap_fd, name, target.folder_fd, target.name)
            except FileExistsError:
                raise StaleFileError(target.path, ABSENT, hash_of(target)) from None
            reached("created")
            trouble = flush_name(target, new_hash) if self.durable else None
            return section.landed(target.path, new_hash, "create", ABSENT), trouble
        finally:
            forks.close(new_fd)
            store.remove_swap(name)
            note.clear()
            if store is not section.store(folder):
                open_stores.leave(store)


_tried_devices: set[int] = set()
_unreported_anywhere: deque[tuple[str, str]] = deque()


def _cannot_keep_inode(target: PinnedPath, links: int) -> MetadataNotKeptError:
    return MetadataNotKeptError(
        target.path,
        "it has several hard links, and without file leases it cannot be changed"
        " under all of them at once. Write to a copy, or unlink the other names."
        if links > 1
        else "it is a mount of its own, which cannot be replaced, and without file leases it cannot be"
        " changed in place. Mount its folder instead.",
        links=links,
    )


def _is_there(folder: str) -> bool:
    """True if there is such a folder; OSError if that cannot be told, where `isdir` says no."""
    try:
        return stat.S_ISDIR(os.stat(folder).st_mode)
    except OSError as error:
        if error.errno not in NOT_READABLE:
            raise
        return False


def _exists(target: PinnedPath) -> bool:
    try:
        status_of(target)
    except FileNotFoundError:
        return False
    return True


def can_exchange_in(store: Store) -> bool:
    """Try an exchange on two scratch files: there is no other way to know if a filesystem supports it."""
    names = []
    try:
        for _ in range(2):
            name, descriptor = store.create_swap(store.new_prefix(), "probe", None, 0o600)
            forks.close(descriptor)
            names.append(name)
        renames.exchange(store.swap_fd, names[0], store.swap_fd, names[1])
        return True
    except OSError as error:
        if error.errno in renames.UNSUPPORTED:
            return False
        raise
    finally:
        for name in names:
            store.remove_swap(name)


def replace_if_unchanged(
    path: str | os.PathLike[str],
    expected_hash: str | None,
    new_bytes: bytes,
    *,
    durable: bool = False,
    wait_s: float = DEFAULT_WAIT_S,
    ceiling: Level = "lease+exchange",
    clock: Clock = SYSTEM_CLOCK,
) -> WriteResult:
    """
    Compare and swap a file's content, without a workspace.

    `expected_hash` is the hash the caller saw, `ABSENT` to create exclusively, or None to replace
    any content. Raises StaleFileError, FileBusyError and the other refusals; then nothing has
    changed.
    """
    if expected_hash not in (None, ABSENT) and not _is_hash(expected_hash):
        # Reported as stale, it would make the caller read again for ever.
        message = (
            f"An expected hash is 64 lower-case hex digits, or {ABSENT} for a file that must not exist yet."
        )
        raise BadRequestError(os.fspath(path), message, parameter="expected_hash")
    committer = Committer(None, durable=durable, wait_s=wait_s, ceiling=ceiling, clock=clock)
    return committer.replace(path, expected_hash, new_bytes)


def _is_hash(value: object) -> bool:
    return isinstance(value, str) and len(value) == 64 and not set(value) - set("0123456789abcdef")
