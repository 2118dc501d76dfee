"""
`DeliverableLock`: one task agent at a time in a deliverable folder.

What happens to the record is the protocol's business; here it gets a holder: a process with threads, a
heartbeat, signals and forks.

Calling sequence:

    with DeliverableLock(folder, holder="builder-1") as lock:    # LockContention if somebody is there
        work()
        lock.assert_held()                                       # before anything that cannot be undone

A heartbeat renews while the process runs. Lost locks are reported, never taken again silently: by
`assert_held()`, `renew()`, `release()` and the end of the `with` block (`LockLost`), and by the fence
that guarded writes pass.

Not promised: a lock keeps out those who ask. An editor or a shell does not. Acquiring does not wait
for writes that were admitted to subfolders a moment before; the guard's own check finds what they changed.
"""

from __future__ import annotations

import os
import random
import threading
import warnings
from contextlib import suppress
from typing import Any

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.disk.processes import identify
from noclobber.errors import BadRequestError, FileBusyError, LockContention, LockLost, NoclobberError
from noclobber.lock import heartbeat, messages, release_at_exit
from noclobber.lock.events import Audit
from noclobber.lock.liveness import DEFAULT_LEASE_S, FREE, check_lease_s
from noclobber.lock.lock_file import PATIENCE_S, FolderStore
from noclobber.lock.names import ENVIRONMENT_FOLDER, ENVIRONMENT_ID
from noclobber.lock.protocol import Protocol, Recovery, Refused, Taker
from noclobber.lock.record import MAX_TEXT_CHARS, LockRecord
from noclobber.lock.status import status_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from noclobber.core.clock import Clock
    from noclobber.lock.events import Ledger
    from noclobber.lock.record import Found
    from noclobber.lock.status import LockStatus

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.0004, 0.05
BEAT_PATIENCE_S = 0.25


class DeliverableLock:
    """The lock of one folder, as one holder sees it. Not re-entrant; threads may share it."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        deliverable_id: str | None = None,
        holder: str | None = None,
        lease_duration_s: int = DEFAULT_LEASE_S,
        pid: int | None = None,
        lease_only: bool = False,
        heartbeat: bool | None = None,
        on_lost: Callable[[LockLost], None] | None = None,
        ledger: Ledger | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """
        Describe a lock; nothing is touched yet.

        `pid` names another process whose life the lock is bound to; `lease_only` binds it to none, for
        holders that are not one process. Either way there is no heartbeat unless it is asked for. `on_lost`
        is called from the heartbeat's thread when the lock turns out to be lost.
        """
        self._path = os.path.realpath(os.fspath(folder))
        self.deliverable_id = _check_text(
            "deliverable_id", deliverable_id, os.path.basename(self._path) or "/"
        )
        self.holder = _check_text("holder", holder, "")
        self.lease_duration_s = check_lease_s(lease_duration_s)
        self._pid, self._lease_only = pid, lease_only
        self._beats = (pid is None and not lease_only) if heartbeat is None else heartbeat
        self._on_lost, self._clock = on_lost, clock
        self._audit = Audit(clock, ledger)
        self._protocol = Protocol(clock, self._audit)
        self._is_attached = False
        self._store: FolderStore | None = None
        self._spare: FolderStore | None = None  # Open, between one holding and the next.
        self._record: LockRecord | None = None
        self._lost: LockLost | None = None
        self._renewed_s = 0.0
        self._owner_pid = os.getpid()
        self._who: Taker | None = None
        self._mutex = threading.RLock()

    @classmethod
    def attach(cls, folder: str | os.PathLike[str], lock_id: str, **options: Any) -> DeliverableLock:
        """
        Speak for a lock that somebody else acquired and whose id is known; `LockLost` if it no longer stands.

        It can be renewed, checked, released and carried by a turn. It has no heartbeat, and leaving a `with`
        block does not release it: that is its owner's to do.
        """
        lock = cls(folder, **options)
        store = FolderStore(lock._path)
        try:
            found = store.read()
            verdict = store.judge(found, lock._clock.now_s())
            if found is None or found.record is None or found.key != lock_id or verdict.state == "corrupt":
                raise messages.lost(store.location(), found, lock_id)
        except BaseException:
            store.close()
            raise
        lock._store, lock._record, lock._is_attached, lock._beats = store, found.record, True, False
        lock.deliverable_id, lock.holder = found.record.deliverable_id, found.record.holder
        if "lease_duration_s" not in options:
            lock.lease_duration_s = found.record.renewal_s or DEFAULT_LEASE_S
        return lock

    @classmethod
    def from_environment(cls, **options: Any) -> DeliverableLock | None:
        """Attach to the lock that `noclobber lock run` holds for this command; None if it holds none."""
        lock_id, folder = os.environ.get(ENVIRONMENT_ID), os.environ.get(ENVIRONMENT_FOLDER)
        return cls.attach(folder, lock_id, **options) if lock_id and folder else None

    # What it is

    @property
    def folder(self) -> str:
        """Where the folder is now, canonical; a held folder is found again after it was moved."""
        store = self._store
        return self._path if store is None or store.descriptor < 0 else store.location()

    @property
    def lock_id(self) -> str | None:
        """The id of the acquisition; None if not held."""
        return None if self._record is None else self._record.lock_id

    @property
    def held(self) -> bool:
        """
        True if this object acquired, and has not heard of a loss. No look at the disk: see `assert_held`.
        """
        return self._record is not None

    @property
    def lost(self) -> LockLost | None:
        """The loss that was noticed, if one was."""
        error = self._lost  # A new one each time: an exception that is raised twice gathers tracebacks.
        return None if error is None else LockLost(error.path, error.message, **error.details)

    def status(self) -> LockStatus:
        """Return what the folder's lock is like now, whoever holds it."""
        return status_of(self.folder, self._clock)

    # Acquire

    def acquire(self, timeout_s: float = 0.0) -> DeliverableLock:
        """
        Take the lock, or raise `LockContention`: at once, or after `timeout_s` of asking again.

        An orphan (expired, dead, corrupt) is taken over, which is recorded. Returns the lock itself, so that
        `with lock.acquire(timeout_s=5):` reads as it works.
        """
        if not timeout_s >= 0:  # NaN, too.
            raise BadRequestError("", f"timeout_s must not be negative, and is {timeout_s!r}")
        deadline_s = self._clock.monotonic_s() + timeout_s
        pause_s = FIRST_PAUSE_S
        while True:
            refusal = self.attempt()
            if refusal is None:
                return self
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0:
                self.report(refusal)
                raise refusal
            # Jitter: contenders that were refused together must not come back together for ever.
            self._clock.sleep(min(pause_s * (0.5 + random.random()), left_s))  # noqa: S311
            pause_s = min(pause_s * 1.6, LONGEST_PAUSE_S)

    def attempt(self) -> LockContention | None:
        """
        Try once. Return None if the lock is now held, otherwise the refusal, not raised and not recorded.
        """
        with self.changing():
            if self._record is not None:
                raise RuntimeError(f"{self._path}: this DeliverableLock is already held; release() it first")
            store = self._open()
            try:
                refused = self._protocol.take(store, self._taker(), self._path, self._begin)
                busy = None
            except FileBusyError as error:
                refused, busy = Refused(None, FREE), error
            except BaseException:
                self._record = None
                self._end()
                store.close()
                raise
            if refused is None:
                return None
            self._spare = store
            return self._contention(refused, busy)

    def _open(self) -> FolderStore:
        """Open the folder, or take it from the last time, if its path still names the same one."""
        store, self._spare = self._spare, None
        if store is not None:
            if store.descriptor >= 0 and store.is_same_folder(self._path):
                return store
            store.close()
        return FolderStore(self._path)

    def _begin(self, store: FolderStore, record: LockRecord) -> None:
        self._store, self._record, self._renewed_s = store, record, record.acquired_s
        self._lost, self._is_attached, self._owner_pid = None, False, os.getpid()
        release_at_exit.holding(self)
        if self._beats:
            heartbeat.start(self, self.lease_duration_s)

    def _taker(self) -> Taker:
        """Who asks. Looked up once: a process does not become another, but for a fork."""
        taker = self._who
        if taker is None or self._pid is not None or taker.process.pid != os.getpid():
            process = identify(self._pid)
            holder = self.holder or f"pid {process.pid} on {process.host}"
            taker = Taker(self.deliverable_id, holder, self.lease_duration_s, process, self._lease_only)
        elif taker.lease_duration_s != self.lease_duration_s:
            taker = taker._replace(lease_duration_s=self.lease_duration_s)
        self._who = taker
        return taker

    # Renew, check

    def renew(self, lease_duration_s: int | None = None) -> None:
        """
        Extend the lease to a full one from now; `LockLost` if the lock is no longer this holder's.

        Allowed after the lease ran out, as long as nobody took the lock over: its id still stands.
        """
        lease_s = self.lease_duration_s if lease_duration_s is None else check_lease_s(lease_duration_s)
        with self.changing():
            self._renew(lease_s)

    def _renew(self, lease_s: int, patience_s: float = PATIENCE_S) -> None:
        record, store = self._mine()
        if os.getpid() != self._owner_pid:
            raise LockLost(self._path, "a forked copy of the holder cannot renew; its parent does")
        try:
            with store.section(patience_s=patience_s, clock=self._clock):
                self._renew_within(store, record, lease_s)
        finally:
            _leave(store)

    def _renew_within(self, store: FolderStore, record: LockRecord, lease_s: int) -> None:
        """Renew inside a section that is already held: our own, or the fence's."""
        self._check_standing(store, record)
        now_s = self._clock.now_s()
        renewed = self._protocol.renew(store, record, lease_s, now_s)
        if renewed is None:
            raise self._lose(store, store.read())
        self._record, self._renewed_s = renewed, now_s
        if lease_s != self.lease_duration_s:
            self.lease_duration_s = lease_s
            if self._beats:
                heartbeat.start(self, lease_s)

    def assert_held(self) -> None:
        """
        Return if this holder has the lock now; otherwise raise `LockLost`.

        A lease that ran out unnoticed (the machine slept) is renewed here if nobody came in between.
        """
        with self.changing():
            record, store = self._mine()
            if store.descriptor < 0:  # A forked child: the folder was closed at the fork.
                store = self._store = FolderStore(self._path)
            self._check_standing(store, record)
            if self._clock.now_s() >= record.expires_s:
                self._renew(self.lease_duration_s)

    def assert_held_within(self, store: FolderStore, found: Found | None) -> None:
        """
        The same, inside `changing()` and a section that the fence holds, on what the fence has read
        there.
        """
        record, _ = self._mine()
        if found is None or found.key != record.lock_id or store.judge_copied(found):
            raise self._lose(store, found)
        if self._clock.now_s() >= record.expires_s:
            self._renew_within(store, record, self.lease_duration_s)

    def lose_folder(self) -> LockLost:
        """Inside `changing()`: the folder is not where the fence looked for it. Return the loss."""
        _, store = self._mine()
        return self._lose(store, None)

    def beat(self) -> None:
        """What the heartbeat calls: renew if a third of the lease has passed, and notice a loss."""
        # Not long: the thread that has it may be waiting for a slow disk, and other locks want their beat.
        if self._record is None or not self._mutex.acquire(timeout=BEAT_PATIENCE_S):
            return
        try:
            with suppress(NoclobberError, OSError):
                self._beat()
            lost = None if self.held else self.lost
        finally:
            self._mutex.release()
        if lost is not None and self._on_lost is not None:
            self._on_lost(lost)

    def _beat(self) -> None:
        if self._record is None or self._store is None or os.getpid() != self._owner_pid:
            return
        since_s = self._clock.now_s() - self._renewed_s
        if 0 <= since_s < self.lease_duration_s / 3:  # Negative: the clock was set back.
            self._check_standing(self._store, self._record)
        else:
            # Not long: a guarded write of ours may hold the folder and wait for this thread.
            self._renew(self.lease_duration_s, patience_s=BEAT_PATIENCE_S)

    def begin_in_child(self) -> None:
        """After a fork, in the child: a thread that does not exist here may have had the mutex."""
        self._mutex = threading.RLock()

    # Release

    def release(self) -> bool:
        """
        Let go. True if the lock was held; False if there was nothing to let go (released before, or
        this is a forked copy of the holder). `LockLost` if it was lost: nothing is changed then.
        """
        with self.changing():
            if os.getpid() != self._owner_pid or (self._record is None and self._lost is None):
                return False
            record, store = self._mine()
            try:
                with store.section(clock=self._clock):
                    self._give_up(store, record)
            finally:
                _leave(store)
            return True

    def _give_up(self, store: FolderStore, record: LockRecord) -> None:
        is_own = self._pid is None and not self._is_attached
        if not self._protocol.give_up(store, record, is_own=is_own):
            raise self._lose(store, store.read())
        self._record = None
        self._path = folder = store.location()
        try:
            self._audit.released(folder, record)
        finally:
            self._end()

    def detach(self) -> str:
        """Leave the lock standing and return its id: whoever knows it can renew and release it."""
        with self.changing():
            record, store = self._mine()
            self._path, self._record = store.location(), None
            self._end()
            return record.lock_id

    def let_go(self) -> None:
        """Release at the end of the process. Raises nothing: there is nobody left to tell."""
        if not self._is_attached:
            with suppress(Exception):
                self.release()

    def __enter__(self) -> DeliverableLock:
        return self if self.held else self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_attached:
            return
        try:
            self.release()
        except LockLost as lost:
            if error is None:
                raise
            error.add_note(f"While this was raised, the lock turned out to be lost: {lost}")

    def __del__(self) -> None:
        if getattr(self, "_record", None) is not None and not self._is_attached:
            warnings.warn(
                f"{self._path}: lock forgotten without release()", ResourceWarning, stacklevel=2, source=self
            )
        for name in ("_store", "_spare"):
            store = getattr(self, name, None)
            if store is not None:
                store.close()

    # Orphans

    def recover(self) -> Recovery | None:
        """
        Clear an orphan by hand; `LockContention` if its holder is alive, None if nothing is locked.

        The same steps and the same record as when `acquire` takes over, but the folder is free afterwards.
        """
        return self._clear(lambda folder, record: self._audit.recovered(folder, record, "manual"))

    def retire(self) -> Recovery | None:
        """
        Make a folder ready to be deleted or archived (REQ-LOCK-012): refuse while a live lock is held, clear
        a stale one.
        """

        def record_event(folder: str, record: LockRecord) -> None:
            if record.recovered_from is not None:
                self._audit.recovered(folder, record, "manual")
            self._audit.retired(folder, record)

        return self._clear(record_event, even_if_free=True)

    def recover_within(self, store: FolderStore) -> Recovery | None:
        """Recover inside a section that the fence holds; `LockContention` if somebody is alive there."""
        return self._clear_within(
            store, lambda folder, record: self._audit.recovered(folder, record, "write")
        )

    def _clear(
        self, record_event: Callable[[str, LockRecord], None], *, even_if_free: bool = False
    ) -> Recovery | None:
        store = FolderStore(self._path)
        try:
            with store.section(clock=self._clock):
                return self._clear_within(store, record_event, even_if_free=even_if_free)
        except LockContention as refusal:
            self.report(refusal)
            raise
        finally:
            store.close()

    def _clear_within(
        self,
        store: FolderStore,
        record_event: Callable[[str, LockRecord], None],
        *,
        even_if_free: bool = False,
    ) -> Recovery | None:
        found = store.read()
        if found is None and not even_if_free:
            self._protocol.sweep(store)
            return None
        taker = self._taker()._replace(holder=self.holder or _person())
        folder = store.location()
        outcome = self._protocol.clear(store, taker, found, lambda record: record_event(folder, record))
        if isinstance(outcome, Refused):
            raise self._contention(outcome)
        return outcome

    # Parts

    def changing(self) -> _Changing:
        """One operation on this object at a time: the heartbeat's thread and the owner's share it."""
        return _Changing(self._mutex)

    def _mine(self) -> tuple[LockRecord, FolderStore]:
        if self._record is None or self._store is None:
            raise self.lost or LockLost(self._path, "not held: it was never acquired, or has been released")
        return self._record, self._store

    def _check_standing(self, store: FolderStore, record: LockRecord) -> None:
        found = store.read()
        if found is None or found.key != record.lock_id:
            raise self._lose(store, found)

    def _lose(self, store: FolderStore, found: Found | None) -> LockLost:
        """Remember that the lock is lost, stop renewing, and return the error that says so."""
        assert self._record is not None
        self._path = store.location()
        error = messages.lost(self._path, found, self._record.lock_id, exists=store.exists())
        self._lost = error
        self._record = None
        self._end()
        return error

    def _end(self) -> None:
        heartbeat.stop(self)
        release_at_exit.released(self)
        self._spare, self._store = self._store, None

    def _contention(self, refused: Refused, busy: FileBusyError | None = None) -> LockContention:
        return messages.contention(
            self._path,
            refused.found,
            refused.verdict,
            self._clock.now_s(),
            deliverable_id=self.deliverable_id,
            busy=busy,
        )

    def report(self, refusal: LockContention) -> None:
        """Put a refusal on record. If that fails the refusal stands, and says so."""
        try:
            self._audit.refused(self._path, self.holder or _person(), refusal)
        except NoclobberError as error:
            refusal.add_note(f"This refusal could not be recorded: {error}")


class _Changing:
    """
    The lock object's own mutex, for a block.

    Re-entrant: an interrupt may leave an operation's frames alive in its traceback, and with them this
    mutex, while the same thread's `except` block already releases the lock.
    """

    __slots__ = ("_mutex", "_thread")

    def __init__(self, mutex: threading.RLock) -> None:
        self._mutex, self._thread = mutex, threading.get_ident()

    def __enter__(self) -> None:
        release_at_exit.begin_change(self._thread)
        self._mutex.acquire()

    def __exit__(self, *_: object) -> None:
        self._mutex.release()
        release_at_exit.end_change(self._thread)


def _leave(store: FolderStore) -> None:
    """An interrupt on the way out of a section leaves it held, on a folder that stays open."""
    if store.is_held:
        store.let_go()


def _check_text(name: str, value: str | None, default: str) -> str:
    text = default if value is None else value
    if not isinstance(text, str) or (value is not None and not text) or len(text) > MAX_TEXT_CHARS:
        raise BadRequestError("", f"{name} must be a string of 1 to {MAX_TEXT_CHARS} characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        if value is not None:
            raise BadRequestError("", f"{name} must be Unicode text") from None
        return text.encode("utf-8", "backslashreplace").decode()  # A folder's name may be any bytes.
    return text


def _person() -> str:
    """Who runs this, for a holder that did not say."""
    return f"uid {os.geteuid()} on {os.uname().nodename}"
