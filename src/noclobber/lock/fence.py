"""
May this writer write here? Asked by the guard, in the same critical section as the replacement.

    with fenced(path, lock, root) as fence:      # LockContention / LockLost: nothing was touched
        ... hold the parent's mutex, check, replace ...

The innermost folder with a `.lock`, from the target's parent up to the workspace's root, decides; one
`stat` per folder, nothing remembered between calls. Where nothing is locked that is all, and nothing is
held.

How it holds against a holder that wakes up between check and write. Every change of a lock (take-over
above all) runs under the exclusive `flock` of the deliverable folder. `fenced` takes that same `flock`
*before* it reads the lock, and keeps it until the block ends, that is, until the replacement has landed.
So there are two orders and no third. Either the holder's block comes first: then a recoverer waits for
its write, and the write was the holder's right. Or the take-over comes first: then the former holder
reads the new record inside its own block, and is refused with `LockLost` before it touches anything. A
holder that is stopped between `fenced` and the replacement keeps the `flock`, so nobody takes over
meanwhile; contenders are told (`LockContention`, naming the process) and do not hang.

Deadlock is avoided by order, ancestors before descendants: enter `fenced` first, then take the parent's
mutex; or ask `locked_folder()`, take its mutex among the others in sorted order, and pass the descriptors
as `already_held`. Where the parent *is* the locked folder, taking its mutex again on another descriptor
would wait for itself: `fence.holds(device, inode)` says so, and then `fence.descriptor` is the mutex.

A lock whose holder is gone (expired, dead, corrupt) does not keep writers out for ever: it is recovered
here as acquire would, with the same record, and the write goes on. Its former holder, if it lives, finds
its lock lost.

Not promised: a folder that gets locked between the look and the replacement. A write to a direct child is
safe (its parent's mutex is the lock's); one to a subfolder, admitted a moment before, may land a moment
after. Call `fence.look_again()` right before the replacement to make that moment short. And where `flock`
excludes nobody (network and FUSE filesystems; `doctor` says which) the look is as close to the write as
that.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.lock.names import LOCK_NAME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from noclobber.core.clock import Clock
    from noclobber.lock.lock import DeliverableLock
    from noclobber.lock.lock_file import FolderStore


class Fence:
    """What `fenced` found and holds. Without a locked folder: nothing."""

    def __init__(self, folders: list[str]) -> None:
        self.folder: str | None = None
        """The locked folder that the write is inside of."""
        self.descriptor: int | None = None
        """Its open descriptor, whose `flock` is held until the block ends; None if nothing is held here."""
        self._identity: tuple[int, int] | None = None
        self._folders = folders

    def holds(self, device: int, inode: int) -> bool:
        """True if this is the folder whose mutex is held: do not take it again."""
        return self._identity == (device, inode)

    def look_again(self) -> None:
        """Raise if a folder that was not locked has been locked since. Cheap: the same stats."""
        innermost = _innermost(self._folders)
        if innermost is not None and innermost != self.folder:
            from noclobber.lock.messages import contention_at

            raise contention_at(innermost)


@contextmanager
def fenced(
    path: str,
    lock: DeliverableLock | None,
    root: str,
    already_held: Sequence[int] = (),
    *,
    clock: Clock = SYSTEM_CLOCK,
) -> Iterator[Fence]:
    """
    Let a write to a canonical `path` below a canonical `root` pass, or raise, and keep the answer true
    meanwhile.

    `lock` is what the writer's turn carries, or None. `already_held` are descriptors of folders whose
    mutex the caller holds. Errors: `LockContention` (somebody else's folder), `LockLost` (the writer's
    lock is not its own any more), `OutsideScopeError` (the writer carries a lock, and this is not inside
    its folder), `FileBusyError` (a stopped process holds the folder), and those of reading a lock
    (`AccessDeniedError`).
    """
    folders = _folders_upwards(path, root)
    fence = Fence(folders)
    if lock is None:
        folder = _innermost(folders)
        if folder is None:
            yield fence
            return
    else:
        folder = _innermost(folders) or ""
        folder = _for_holder(path, lock, folder)
    from noclobber.errors import MissingFileError
    from noclobber.lock.lock_file import FolderStore

    # The lock's own mutex first, then the folder's: the heartbeat takes them in that order, too.
    with lock.changing() if lock is not None else nullcontext():
        try:
            store = FolderStore(folder)
        except MissingFileError:
            if lock is None or folder != lock.folder:
                raise  # The parent is missing, which is the guard's to say.
            raise lock.lose_folder() from None
        try:
            fence.folder = folder
            fence._identity = store.place.device, store.place.inode
            if any(_is_same(held, store) for held in already_held):
                _judge_entry(store, lock, clock)
                yield fence
                return
            with store.section(clock=clock):
                fence.descriptor = store.descriptor
                _judge_entry(store, lock, clock)
                yield fence
        finally:
            fence.descriptor = None
            store.close()


class LockFence:
    """What a turn shows the guard: the lock that it carries, or none, in which case others' locks count."""

    def __init__(self, root: str, lock: DeliverableLock | None, clock: Clock = SYSTEM_CLOCK) -> None:
        self.root, self.lock, self._clock = root, lock, clock

    def folder(self, path: str) -> str | None:
        """Return the locked folder that a path is inside of, whose mutex must be held for a write."""
        folder = locked_folder(path, self.root)
        if self.lock is None:
            return folder
        return _for_holder(path, self.lock, folder or "")

    def guarding(self, path: str, held: Sequence[int]) -> AbstractContextManager[Fence]:
        """Let a write to `path` pass, or raise, and keep the answer true meanwhile."""
        return fenced(path, self.lock, self.root, held, clock=self._clock)

    def check(self, path: str) -> None:
        """Raise if a write to `path` would be refused now; for writes that somebody else carries out."""
        with self.guarding(path, ()):
            pass


def locked_folder(path: str, root: str) -> str | None:
    """Return the innermost folder with a lock file that a path is inside of, the root included."""
    return _innermost(_folders_upwards(path, root))


def _folders_upwards(path: str, root: str) -> list[str]:
    """The target's parent and every folder above it, up to and including the root."""
    folders = []
    folder = os.path.dirname(path)
    stem = root.rstrip("/")
    while folder == stem or folder.startswith(stem + "/"):
        folders.append(folder or "/")
        if folder == stem:
            break
        folder = os.path.dirname(folder) if folder != "/" else ""
    return folders


def _innermost(folders: list[str]) -> str | None:
    for folder in folders:
        try:
            os.lstat(f"{folder}/{LOCK_NAME}")
        except (FileNotFoundError, NotADirectoryError):
            continue  # A parent that does not exist yet is not locked; its parents may be.
        except OSError:
            return folder  # Cannot be looked at: not free. Opening it says why.
        return folder
    return None


def _for_holder(path: str, lock: DeliverableLock, locked: str) -> str:
    """
    Return the folder that decides for a writer who carries a lock: its own, or a locked one further
    inside.
    """
    own = lock.folder
    if not path.startswith(own.rstrip("/") + "/"):
        from noclobber.errors import OutsideScopeError

        raise OutsideScopeError(
            path, f"this turn holds the lock of {own} and may write inside that folder only; "
            "acquire the other deliverable's lock in a turn of its own", scope=own,
        )  # fmt: skip
    # Innermost decides. Nothing locked below our own folder, or only above it: then ours ought to be locked,
    # and if it is not, the lock is lost; `_judge_entry` finds out.
    return locked if len(locked) > len(own) else own


def _judge_entry(store: FolderStore, lock: DeliverableLock | None, clock: Clock) -> None:
    """With the folder's mutex held: raise unless this writer may write here now."""
    from noclobber.lock.messages import contention

    found = store.read()
    if lock is not None and store.is_same_folder(lock.folder):
        lock.assert_held_within(store, found)
        return
    if found is None:
        return  # Released since we looked.
    verdict = store.judge(found, clock.now_s())
    if verdict.reason is None:
        raise contention(store.location(), found, verdict, clock.now_s())
    from noclobber.lock.lock import DeliverableLock

    DeliverableLock(store.location(), clock=clock).recover_within(store)


def _is_same(descriptor: int, store: FolderStore) -> bool:
    status = os.fstat(descriptor)
    return (status.st_dev, status.st_ino) == (store.place.device, store.place.inode)
