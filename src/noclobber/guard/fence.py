"""
May this agent write this file now? One answer for the library, the hooks and the MCP server.

Two things can forbid a write: another agent's *claim* on the file (its host is about to write it, see
`claims`), and a *lock* on a folder above the file, if it is not the writer's own. A writer that carries a
lock is always asked for it: it may write inside its folder only, and only while the lock is its own.

The writer carries a lock in one of three ways: as an object (`lock`, a turn's), by its id (`held_locks`, ids
and folders, an MCP connection's), or from `noclobber lock run`, which puts the id into the environment. The
last one is looked up at the first write, and only if the first two name no lock.

Calling sequence. A commit calls `folder()` and takes the mutex of that folder together with the mutexes it
needs anyway, then enters `guarding()` in its critical section, and calls `look_again()` right before it
replaces the file. Before a write that another program carries out, call `check()`.

Where nothing is claimed or locked this is a look at each folder above the file, and nothing of the lock's
code is loaded: a hook is a process for each tool call.

Not promised: a folder may be locked between the look and the replacement. A write to a direct child is safe,
because its parent's mutex is the lock's. One to a subfolder, let through a moment before, may land a moment
after; `look_again()` makes that moment short. Where `flock` excludes nobody (network and FUSE filesystems;
`noclobber doctor` says which), this holds for every write.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.errors import FileBusyError, LockContention, LockLost
from noclobber.guard import claims
from noclobber.lock.locked_folder import locked_folder
from noclobber.lock.names import ENVIRONMENT_ID, LOCK_NAME

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from noclobber.core.clock import Clock
    from noclobber.errors import RefusalError
    from noclobber.lock.lock import DeliverableLock


class WriteFence:
    """Stops writes to files that others have claimed or locked. A turn has one; so has a hook's event."""

    def __init__(
        self,
        root: str,
        lock: DeliverableLock | None = None,
        *,
        held_locks: Mapping[str, str] | None = None,
        owner: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """
        `held_locks` maps lock ids to folders and is looked at anew for each write. `owner` is the agent whose
        own claims do not stop it.
        """
        self._root, self._lock, self._owner, self._clock = root, lock, owner, clock
        self._held_locks: Mapping[str, str] = {} if held_locks is None else held_locks
        self._environment_lock: DeliverableLock | None = None

    @property
    def owner(self) -> str | None:
        """The agent whose own claims do not stop it."""
        return self._owner

    def folder(self, path: str) -> str | None:
        """Return the locked folder whose mutex must be held for a write to a canonical path, or None."""
        try:
            return _deciding_folder(path, locked_folder(path, self._root, self._clock), self._lock_for(path))
        except LockLost as error:
            raise _of_file(error, path) from None

    def guarding(self, path: str, held: Sequence[int] = ()) -> GuardedWrite:
        """
        Let a write to a canonical path pass, or raise, and keep the answer true until the block ends.

        `held` are descriptors of folders whose mutexes the caller has. Errors: `ClaimedError`;
        `LockContention` (somebody else's folder); `LockLost` (the writer's lock is not its own any more);
        `OutsideScopeError` (the writer carries a lock, and this is not inside its folder); `FileBusyError`
        (a stopped process holds the folder); `AccessDeniedError` (the lock cannot be read).
        """
        claims.refuse_if_claimed(self._root, path, self._owner, self._clock, passes=True)
        try:
            lock = self._lock_for(path)
        except LockLost as error:
            raise _of_file(error, path) from None
        folder = _deciding_folder(path, locked_folder(path, self._root, self._clock), lock)
        if folder is None:
            return GuardedWrite(path, self._root, None, None, self._clock)
        from noclobber.lock.backend import locked_write

        locked = locked_write(folder, lock, held, self._clock)
        return GuardedWrite(path, self._root, folder, locked, self._clock)

    def guarding_more(self, paths: Sequence[str]) -> None:
        """
        Raise if one of several files of a folder is claimed. For a commit of many files.

        `guarding()` was asked about another file of that folder, and what it answered about locks holds for
        these: a lock is a folder's. The mutex of the folder is held.
        """
        claims.refuse_if_any_claimed(self._root, paths, self._owner, self._clock)

    def carried(self, path: str) -> DeliverableLock | None:
        """
        Return the lock that the writer works under, for a server that decides about locks itself.

        Raises if another agent has claimed the file, or if it is outside the lock's folder.
        """
        claims.refuse_if_claimed(self._root, path, self._owner, self._clock)
        try:
            lock = self._lock_for(path)
        except LockLost as error:
            raise _of_file(error, path) from None
        _deciding_folder(path, None, lock)
        return lock

    def check(self, path: str) -> None:
        """Raise if a write to `path` would be refused now; for writes that another program carries out."""
        with self.guarding(path):
            pass

    def check_tree(self, folder: str) -> None:
        """
        Raise if a folder, or one somewhere in it, is locked and the lock is not the writer's own.

        For a move of the folder: a lock is a lock on a place, and its holder would go on at the old one.
        Looks into every folder below, so it is not for writes.
        """
        from noclobber.lock.backend import contention_at, list_locks

        for found in list_locks(folder, self._clock):
            if not found.is_locked and found.state != "unreadable":  # Which is not free.
                continue
            try:
                lock = self._lock_for(f"{found.folder}/{LOCK_NAME}")
                if lock is None or lock.folder != found.folder:
                    raise contention_at(found.folder, self._clock)
                lock.assert_held()
            except (LockContention, LockLost) as error:
                raise _of_file(error, folder) from None

    def _lock_for(self, path: str) -> DeliverableLock | None:
        """Return the lock that the writer carries for a path; `LockLost` if it was lost."""
        if self._lock is not None:
            return self._lock
        if self._held_locks:
            inside = [
                (len(folder), folder, lock_id)
                for lock_id, folder in list(self._held_locks.items())
                if _is_in(path, folder)
            ]
            if inside:
                _, folder, lock_id = max(inside)
                return _attach(folder, lock_id, self._clock)
        if self._environment_lock is None and ENVIRONMENT_ID in os.environ:
            self._environment_lock = _from_environment(self._clock)
        return self._environment_lock


class GuardedWrite:
    """A write that was let through, for as long as the block lasts."""

    def __init__(
        self,
        path: str,
        root: str,
        folder: str | None,
        locked: AbstractContextManager[None] | None,
        clock: Clock,
    ) -> None:
        self.folder = folder
        """The locked folder that the write is inside of; None if nothing is locked."""
        self._path, self._root, self._locked, self._clock = path, root, locked, clock

    def __enter__(self) -> GuardedWrite:
        if self._locked is not None:
            try:
                self._locked.__enter__()
            except (LockContention, LockLost, FileBusyError) as error:
                raise _of_file(error, self._path) from None
        return self

    def __exit__(self, *raised: object) -> None:
        if self._locked is not None:
            self._locked.__exit__(*raised)  # type: ignore[arg-type]

    def look_again(self) -> None:
        """Raise if a folder that was not locked has been locked since. As cheap as the first look."""
        innermost = locked_folder(self._path, self._root, self._clock)
        if innermost is not None and innermost != self.folder:
            from noclobber.lock.backend import contention_at

            raise _of_file(contention_at(innermost, self._clock), self._path)


def _deciding_folder(path: str, locked: str | None, lock: DeliverableLock | None) -> str | None:
    """Return the folder whose lock decides: the writer's own, or a locked one further inside."""
    if lock is None:
        return locked
    own = lock.folder
    if not _is_in(path, own):
        from noclobber.errors import OutsideScopeError

        raise OutsideScopeError(
            path,
            f"this agent works under the lock of {own} and may write only inside that folder. Write other "
            "files in a turn or a command that does not carry this lock",
            scope=own,
        )
    # If nothing is locked, or only a folder above our own, then our lock is lost; `locked_write` finds out.
    return locked if locked is not None and len(locked) > len(own) else own


def _of_file(error: RefusalError, path: str) -> RefusalError:
    """Return the refusal of a write: it names the file, and says which folder's lock is in the way."""
    return type(error)(path, f"{error.message}. The lock is that of {error.path}", **error.details)


def _is_in(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


def _attach(folder: str, lock_id: str, clock: Clock) -> DeliverableLock:
    from noclobber.lock.lock import DeliverableLock

    return DeliverableLock.attach(folder, lock_id, clock=clock)


def _from_environment(clock: Clock) -> DeliverableLock | None:
    from noclobber.errors import LockLost, MissingFileError
    from noclobber.lock.lock import DeliverableLock

    try:
        return DeliverableLock.from_environment(clock=clock)
    except MissingFileError as error:
        raise LockLost(
            error.path, "the lock was lost: its folder was deleted. Stop writing, and start again"
        ) from None
