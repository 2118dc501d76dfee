"""
`DeliverableLock`: one task agent at a time in a deliverable folder.

Four operations, each one compare-and-set on one record, judged by one clock: acquire (from nothing, or
from an orphan's record), renew and release (from this holder's own record), recover (from an orphan's
record to nothing). Where the record lives is the store's business; who may take it over is the judge's.

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

import math
import os
import random
import threading
import warnings
from contextlib import suppress
from typing import Any, NamedTuple

from noclobber.clock import SYSTEM_CLOCK, iso8601
from noclobber.disk.processes import identify
from noclobber.errors import BadRequestError, FileBusyError, LockContention, LockLost, NoclobberError
from noclobber.lock import endings, heartbeat, refusals
from noclobber.lock.audit import Audit
from noclobber.lock.judge import DEFAULT_LEASE_S, FREE, Verdict, check_lease_s
from noclobber.lock.record import MAX_TEXT_CHARS, LockRecord, new_id
from noclobber.lock.store import PATIENCE_S, FolderStore
from noclobber.lock.survey import status_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from noclobber.clock import Clock
    from noclobber.disk.processes import ProcessIdentity
    from noclobber.lock.audit import Ledger
    from noclobber.lock.record import Found
    from noclobber.lock.survey import LockStatus

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.0004, 0.05
BEAT_PATIENCE_S = 0.25
SAFE_MARGIN_S = 2.0  # With so much lease left nobody has a reason to claim the record.
_TRIES = 8  # How often a record may change hands under our eyes before we call it contention.

ENVIRONMENT_ID, ENVIRONMENT_FOLDER = "NOCLOBBER_LOCK_ID", "NOCLOBBER_LOCK_FOLDER"


class Recovery(NamedTuple):
    """An orphan that was cleared, as its event records it."""

    recovery_reason: str
    previous_holder: str | None
    previous_acquired: str | None
    previous_lock_id: str | None
    detail: str


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
        self._is_attached = False
        self._store: FolderStore | None = None
        self._spare: FolderStore | None = None  # Open, between one holding and the next.
        self._record: LockRecord | None = None
        self._lost: LockLost | None = None
        self._renewed_s = 0.0
        self._owner_pid = self._process_of = os.getpid()
        self._process: ProcessIdentity | None = None
        self._mutex = threading.RLock()
        self.changing_thread: int | None = None

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
                raise refusals.lost(store.location(), found, lock_id)
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
                refusal = self._take(store)
            except FileBusyError as error:
                refusal = self._contention(None, FREE, error)
            except BaseException:
                store.close()
                raise
            if refusal is None:
                self._begin()
            else:
                self._spare = store
            return refusal

    def _open(self) -> FolderStore:
        """Open the folder, or take it from the last time, if its path still names the same one."""
        store, self._spare = self._spare, None
        if store is not None:
            if store.descriptor >= 0 and store.is_same_folder(self._path):
                return store
            store.close()
        return FolderStore(self._path)

    def _begin(self) -> None:
        self._lost, self._is_attached, self._owner_pid = None, False, os.getpid()
        endings.holding(self)
        if self._beats:
            heartbeat.start(self, self.lease_duration_s)

    def _take(self, store: FolderStore) -> LockContention | None:
        """
        Make the record ours, from nothing or from an orphan's. What we hold is in `_store` and `_record`
        then.
        """
        found, verdict, record = None, FREE, None
        if not store.is_free():
            found = store.read()
            verdict = self._judge(store, found)
            if verdict.state == "live":  # Refused without the mutex: waiting contenders disturb nobody.
                return self._contention(found, verdict)
        try:
            with store.section(clock=self._clock):
                look_again = found is not None  # It was judged outside the section.
                for _ in range(_TRIES):
                    if look_again:
                        found = store.read()
                        verdict = self._judge(store, found)
                        if verdict.state == "live":
                            return self._contention(found, verdict)
                    record = self._new_record(store, found, verdict)
                    if self._put(store, found, record):
                        self._audit.acquired(self._path, record)
                        self._store, self._record = store, record
                        return None
                    look_again = True
                return self._contention(found, verdict)
        except BaseException:
            # A ledger that cannot be written, Ctrl-C between two steps: what we published must not stay,
            # because nobody would renew or release it.
            if record is not None:
                self._store = self._record = None
                with suppress(Exception), store.section(clock=self._clock):
                    store.remove(record.lock_id, record, self._may_break(store))
            raise

    def _put(self, store: FolderStore, found: Found | None, record: LockRecord) -> bool:
        if found is None:
            return store.create(record)
        if found.record is not None:
            self._audit.catch_up(store, found.record)
        if not store.replace(found.key, record, self._may_break(store)):
            return False
        with suppress(NoclobberError):  # Where one was killed, more may have been.
            store.sweep(self._may_break(store))
        return True

    def _new_record(self, store: FolderStore, found: Found | None, verdict: Verdict) -> LockRecord:
        process = self._process
        if process is None or self._pid is not None or self._process_of != os.getpid():
            process = self._process = identify(self._pid)
            self._process_of = os.getpid()
        now_s = self._clock.now_s()
        self._renewed_s = now_s
        origin = None
        if found is not None:
            previous = found.record
            origin = Recovery(
                verdict.reason or "corrupt",
                previous and previous.holder,
                previous and previous.acquired,
                previous and previous.lock_id,
                verdict.detail,
            )._asdict()
        return LockRecord(
            self.deliverable_id,
            self.holder or f"pid {process.pid} on {process.host}",
            iso8601(now_s),
            self.lease_duration_s,
            # Lease only: a reader that knows only the five mandatory members asks whether the pid runs.
            # Pid 1 does, always, so that it waits for the lease, which is what is meant.
            1 if self._lease_only else process.pid,
            new_id(),
            process.host,
            process.boot_id,
            process.pid_namespace,
            None if self._lease_only else process.started,
            store.place.device,
            store.place.inode,
            self.lease_duration_s,
            origin,
        )

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
        with store.section(patience_s=patience_s, clock=self._clock):
            self._renew_within(store, record, lease_s)

    def _renew_within(self, store: FolderStore, record: LockRecord, lease_s: int) -> None:
        """Renew inside a section that is already held: our own, or the fence's."""
        self._check_standing(store, record)
        now_s = self._clock.now_s()
        # `acquired` stays, so that acquired + lease_duration_s is the true expiry for every reader. Never
        # shorter than before: after the clock was set back the old end is the later one.
        needed_s = math.ceil(now_s - record.acquired_s) + lease_s
        renewed = record._replace(lease_duration_s=max(record.lease_duration_s, needed_s), renewal_s=lease_s)
        if not store.replace(record.lock_id, renewed, self._may_break(store, record.lock_id)):
            raise self._lose(store, store.read())
        self._record, self._renewed_s = renewed, now_s
        if lease_s != self.lease_duration_s:
            self.lease_duration_s = lease_s
            if self._beats:
                heartbeat.start(self, lease_s)
        self._audit.renewed(store.location(), renewed)

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
        self.changing_thread = None

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
            with store.section(clock=self._clock):
                undisputed = (
                    self._pid is None
                    and not self._is_attached
                    and self._clock.now_s() < record.expires_s - SAFE_MARGIN_S
                )
                if not (undisputed and store.remove_undisputed()) and not store.remove(
                    record.lock_id, record, self._may_break(store, record.lock_id)
                ):
                    raise self._lose(store, store.read())
                self._record = None
                self._path = folder = store.location()
                try:
                    self._audit.released(folder, record)
                finally:
                    self._end()
            return True

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
        return self._clear(lambda store, record: self._audit.recovered(store.location(), record, "manual"))

    def retire(self) -> Recovery | None:
        """
        Make a folder ready to be deleted or archived (REQ-LOCK-012): refuse while a live lock is held,
        clear a stale one.
        """

        def record_event(store: FolderStore, record: LockRecord) -> None:
            if record.recovered_from is not None:
                self._audit.recovered(store.location(), record, "manual")
            self._audit.retired(store.location(), record)

        return self._clear(record_event, even_if_free=True)

    def _clear(
        self, record_event: Callable[[FolderStore, LockRecord], None], *, even_if_free: bool = False
    ) -> Recovery | None:
        """
        Take the lock as acquire does, record, and remove it: a kill in between leaves an ordinary orphan.
        """
        store = FolderStore(self._path)
        try:
            with store.section(clock=self._clock):
                found = store.read()
                if found is None and not even_if_free:
                    store.sweep(self._may_break(store))
                    return None
                return self._clear_within(store, found, record_event)
        except LockContention as refusal:
            self.report(refusal)
            raise
        finally:
            store.close()

    def recover_within(self, store: FolderStore) -> Recovery | None:
        """Recover inside a section that the fence holds; `LockContention` if somebody is alive there."""
        found = store.read()
        if found is None:
            return None
        return self._clear_within(
            store, found, lambda store, record: self._audit.recovered(store.location(), record, "write")
        )

    def _clear_within(
        self,
        store: FolderStore,
        found: Found | None,
        record_event: Callable[[FolderStore, LockRecord], None],
    ) -> Recovery | None:
        verdict = self._judge(store, found)
        if verdict.state == "live":
            raise self._contention(found, verdict)
        record = self._new_record(store, found, verdict)._replace(holder=self.holder or _person())
        if not self._put(store, found, record):
            raise self._contention(store.read(), verdict)
        try:
            record_event(store, record)
        finally:
            store.remove(record.lock_id, record, self._may_break(store, record.lock_id))
            store.sweep(self._may_break(store))
        return Recovery(**record.recovered_from) if record.recovered_from else None

    # Parts

    def changing(self) -> _Changing:
        """One operation on this object at a time: the heartbeat's thread and the owner's share it."""
        return _Changing(self, self._mutex)

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
        error = refusals.lost(self._path, found, self._record.lock_id, exists=store.exists())
        self._lost = error
        self._record = None
        self._end()
        return error

    def _end(self) -> None:
        heartbeat.stop(self)
        endings.released(self)
        self._spare, self._store = self._store, None

    def _judge(self, store: FolderStore, found: Found | None) -> Verdict:
        return store.judge(found, self._clock.now_s())

    def _may_break(self, store: FolderStore, own_id: str | None = None) -> Callable[[Found], bool]:
        """Whose claims may be broken: an orphan's, and what an interrupted step of our own left."""

        def answer(found: Found) -> bool:
            if own_id is not None and found.record is not None and found.record.lock_id == own_id:
                return True
            return self._judge(store, found).reason is not None

        return answer

    def _contention(
        self, found: Found | None, verdict: Verdict, busy: FileBusyError | None = None
    ) -> LockContention:
        return refusals.contention(
            self._path, found, verdict, self._clock.now_s(), deliverable_id=self.deliverable_id, busy=busy
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

    __slots__ = ("_lock", "_mutex", "_outer")

    def __init__(self, lock: DeliverableLock, mutex: threading.RLock) -> None:
        self._lock, self._mutex = lock, mutex

    def __enter__(self) -> None:
        self._mutex.acquire()
        self._outer, self._lock.changing_thread = self._lock.changing_thread, threading.get_ident()

    def __exit__(self, *_: object) -> None:
        self._lock.changing_thread = self._outer
        self._mutex.release()
        endings.after_change()


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
