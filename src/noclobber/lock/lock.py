"""
`DeliverableLock`: one task agent at a time in a deliverable folder.

What happens to the lock is the arbiter's business; here it gets a holder: a process with threads, a
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
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.disk import signals
from noclobber.disk.processes import identify
from noclobber.errors import BadRequestError, LockLost, NoclobberError
from noclobber.lock import heartbeat, release_at_exit
from noclobber.lock.arbiter import Taker
from noclobber.lock.backend import arbiter_for
from noclobber.lock.file_arbiter import person
from noclobber.lock.limits import DEFAULT_LEASE_S, check_lease_s, check_text
from noclobber.lock.names import ENVIRONMENT_FOLDER, ENVIRONMENT_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import TracebackType

    from noclobber.core.clock import Clock
    from noclobber.errors import LockContention
    from noclobber.ledger.observer import Observer
    from noclobber.lock.arbiter import Arbiter, Holding, LockStatus, Recovery
    from noclobber.lock.events import EventLog

FIRST_PAUSE_S = 0.0004
BEAT_PATIENCE_S = 0.25
LATE_S, LATE_SHARE = 1.0, 0.05  # Later than this the process was stopped: others may have come long ago.


class DeliverableLock:
    """The lock of one folder, as one holder sees it. Not re-entrant; threads may share it."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        deliverable_id: str | None = None,
        holder: str | None = None,
        lease_duration_s: int | None = None,
        pid: int | None = None,
        lease_only: bool = False,
        heartbeat: bool | None = None,
        on_lost: Callable[[LockLost], None] | None = None,
        ledger: EventLog | None = None,
        observer: Observer | None = None,
        held_ids: Iterable[str] = (),
        clock: Clock = SYSTEM_CLOCK,
        arbiter: Arbiter[Any] | None = None,
    ) -> None:
        """
        Describe a lock; nothing is touched yet.

        `lease_duration_s` is 1800 by default; with a coordinator 60, if a heartbeat renews the lock.
        `pid` names another process whose life the lock is bound to; `lease_only` binds it to none, for
        holders that are not one process. Either way there is no heartbeat unless it is asked for. `on_lost`
        is called from the heartbeat's thread when the lock turns out to be lost. `held_ids` are ids of locks
        that the same holder has: it may lock inside and above their folders, where others may not; the lock
        of `noclobber lock run` is always among them. `arbiter` decides who holds
        the lock; by default it is kept in a file of the folder, and judged by `clock`, with events in
        `ledger`, which `observer` is told of.
        """
        self._path = os.path.realpath(os.fspath(folder))
        self.deliverable_id = check_text(
            "deliverable_id", deliverable_id, os.path.basename(self._path) or "/"
        )
        self.holder = check_text("holder", holder, "")
        named_s = None if lease_duration_s is None else check_lease_s(lease_duration_s)
        self._pid, self._lease_only, self._held_ids = pid, lease_only, tuple(held_ids)
        self._beats = (pid is None and not lease_only) if heartbeat is None else heartbeat
        self._on_lost, self._clock = on_lost, clock
        self._arbiter: Arbiter[Any] = arbiter_for(clock, ledger, observer) if arbiter is None else arbiter
        self._is_lease_named = named_s is not None
        self.lease_duration_s = named_s or (self._arbiter.renewed_lease_s if self._beats else DEFAULT_LEASE_S)
        self._is_attached, self._is_in_block = False, False
        self._holding: Holding | None = None
        self._lost: LockLost | None = None
        self._untold: list[bool] = []
        self._is_beating = False
        self._owner_pid = os.getpid()
        self._who: Taker | None = None
        self._mutex = threading.RLock()

    @classmethod
    def attach(cls, folder: str | os.PathLike[str], lock_id: str, **options: Any) -> DeliverableLock:
        """
        Speak for a lock that somebody else acquired and whose id is known; `LockLost` if there is no such
        lock.

        It can be renewed, checked, released and carried by a turn. It has no heartbeat, and leaving a `with`
        block does not release it: that is its owner's to do.
        """
        lock = cls(folder, **options)
        lock._holding = holding = lock._arbiter.find(lock._path, lock_id)
        lock._is_attached, lock._beats = True, False
        lock.deliverable_id, lock.holder = holding.deliverable_id, holding.holder
        if options.get("lease_duration_s") is None:
            lock.lease_duration_s = holding.renewal_s or DEFAULT_LEASE_S
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
        holding = self._holding
        return self._path if holding is None else holding.folder

    @property
    def lock_id(self) -> str | None:
        """The id that renews and releases, a secret; None if not held."""
        return None if self._holding is None else self._holding.lock_id

    @property
    def fencing_token(self) -> int | None:
        """
        A number that rises with every holder on every machine; None if not held, or kept in a file. Whoever
        keeps something safe elsewhere (a push hook, a deployment) refuses a lower one than it has seen.
        """
        return None if self._holding is None else self._holding.fencing_token

    @property
    def held(self) -> bool:
        """
        True if this object acquired, and has not heard of a loss. No look at the disk: see `assert_held`.

        With a coordinator, a lease that has ended by this machine's clock counts as a loss: somebody else may
        have the lock. It may come back, if the server answers again and nobody did.
        """
        if self._holding is None or self._lost is not None:
            return False
        ends_in_s = None if self._is_attached else self._holding.ends_in_s()
        return ends_in_s is None or ends_in_s > 0

    @property
    def lost(self) -> LockLost | None:
        """The loss that was noticed, if one was."""
        error = self._lost  # A new one each time: an exception that is raised twice gathers tracebacks.
        return None if error is None else LockLost(error.path, error.message, **error.details)

    def status(self) -> LockStatus:
        """Return what the folder's lock is like now, whoever holds it."""
        return self._arbiter.read(self.folder)

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
            self._arbiter.wait(self._path, min(pause_s * (0.5 + random.random()), left_s))  # noqa: S311
            pause_s = min(pause_s * 1.6, self.longest_pause_s)

    @property
    def longest_pause_s(self) -> float:
        """How long a waiter waits at most before it asks again."""
        return self._arbiter.longest_pause_s

    def attempt(self) -> LockContention | None:
        """
        Try once. Return None if the lock is now held, otherwise the refusal, not raised and not recorded.
        """
        is_taken = False
        try:
            with self.changing():
                if self._holding is not None and self._lost is None:
                    raise RuntimeError(
                        f"{self._path}: this DeliverableLock is already held; release() it first"
                    )
                try:
                    refusal = self._arbiter.take(self._path, self._taker(), self._begin)
                except BaseException:
                    self._end()
                    raise
                is_taken = refusal is None
            return refusal
        except BaseException:
            if is_taken:  # A signal had to wait, and its handler raises: nobody gets this lock.
                self.let_go()
            raise

    def _begin(self, holding: Holding) -> None:
        self._holding, self._lost = holding, None
        self._is_attached, self._owner_pid = False, os.getpid()
        self._untold = [True]
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
        run_id = os.environ.get(ENVIRONMENT_ID)
        held_ids = (*self._held_ids, run_id) if run_id else self._held_ids
        return taker._replace(held_ids=held_ids) if held_ids else taker

    # Renew, check

    def renew(self, lease_duration_s: int | None = None) -> None:
        """
        Extend the lease to a full one from now; `LockLost` if the lock is no longer this holder's.

        Allowed after the lease ran out, as long as nobody took the lock over.
        """
        lease_s = self.lease_duration_s if lease_duration_s is None else check_lease_s(lease_duration_s)
        with self.changing():
            self._renew(lease_s)
            self._is_lease_named = self._is_lease_named or lease_duration_s is not None

    def _renew(self, lease_s: int, patience_s: float | None = None) -> None:
        holding = self._held()
        if os.getpid() != self._owner_pid:
            raise LockLost(self._path, "a forked copy of the holder cannot renew; its parent does")
        try:
            renewed = self._arbiter.renew(holding, lease_s, patience_s=patience_s)
        except LockLost as error:
            self._lose(error)
            raise
        if (lost := self.lost) is not None:  # `end_in_time`, while we asked. Who was told so does not go on.
            with suppress(NoclobberError):
                self._arbiter.give_up(renewed, self._end)
            self._end()
            raise lost
        self._holding = renewed
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
            if self._check() <= 0:
                self._renew(self.lease_duration_s)

    def _check(self) -> float:
        """Return how much of the lease is left; `LockLost`."""
        holding = self._held()
        try:
            return self._arbiter.check(holding)
        except LockLost as error:
            self._lose(error)
            raise

    @contextmanager
    def writing(self, already_held: Sequence[int]) -> Iterator[None]:
        """
        A guarded write in this lock's folder: let through, and nobody takes over before it is done;
        `LockLost`.

        `already_held` are descriptors of folders whose mutexes the caller has.
        """
        # The lock's own mutex first, then the folder's: the heartbeat takes them in that order, too.
        with self.changing():
            holding = self._held()
            intent = self._arbiter.intend_write(holding.folder, holding, already_held)
            try:
                try:
                    intent.begin()
                except LockLost as error:
                    self._lose(error)
                    raise
                yield
            finally:
                intent.settle()

    def beat(self) -> None:
        """What the heartbeat calls: renew if a third of the lease has passed, and notice a loss."""
        # Not long: the thread that has it may be waiting for a slow disk, and other locks want their beat.
        if self._holding is None or not self._mutex.acquire(timeout=BEAT_PATIENCE_S):
            return
        self._is_beating = True
        try:
            with suppress(NoclobberError, OSError):
                self._beat()
            if self._lost is not None:
                self._end()
        finally:
            self._is_beating = False
            self._mutex.release()
        self._tell_if_lost()

    def ends_in_s(self) -> float | None:
        """For the heartbeat: seconds until this holder stops by its own clock; None if it can always look."""
        holding = self._holding
        return None if holding is None else holding.ends_in_s()

    def end_in_time(self) -> None:
        """
        What the heartbeat's second thread calls: the lease has ended by our clock, and nobody renewed it.

        Nothing is asked and nobody is waited for: the server is away, and the first thread waits for it.
        """
        holding = self._holding
        ends_in_s = None if holding is None else holding.ends_in_s()
        if holding is None or ends_in_s is None or ends_in_s > 0 or os.getpid() != self._owner_pid:
            return
        if ends_in_s < -max(LATE_S, LATE_SHARE * self.lease_duration_s):
            return  # The process was stopped. The first thread asks now; if nobody came, it is still ours.
        is_ours = self._mutex.acquire(blocking=False)
        try:
            if not is_ours and not self._is_beating:
                return  # The owner is asking the server, or in a write that it let through.
            if self._holding is holding and self._lost is None:
                self._lost = holding.ended()
                if is_ours:
                    self._end()
        finally:
            if is_ours:
                self._mutex.release()
        self._tell_if_lost()

    def _tell_if_lost(self) -> None:
        """Once for each loss, whichever thread noticed it."""
        lost = self.lost
        if lost is None or self._on_lost is None:
            return
        try:
            self._untold.pop()  # One step: of two threads one gets it.
        except IndexError:
            return
        self._on_lost(lost)

    def _beat(self) -> None:
        if self._holding is None or os.getpid() != self._owner_pid:
            return
        left_s, ends_in_s = self._check(), self._held().ends_in_s()
        # The answer to a renewal may have got lost: the server counts from it, and this holder does not.
        is_unheard = ends_in_s is not None and ends_in_s <= self.lease_duration_s / 2
        if left_s <= self.lease_duration_s * 2 / 3 or is_unheard:
            # Not long: a guarded write of ours may hold the folder and wait for this thread.
            self._renew(self.lease_duration_s, patience_s=BEAT_PATIENCE_S)

    def begin_in_child(self) -> None:
        """After a fork, in the child: a thread that does not exist here may have had the mutex."""
        self._mutex = threading.RLock()

    # Release

    def release(self) -> bool:
        """
        Release. True if the lock was held; False if there was nothing to release (released before, or
        this is a forked copy of the holder). `LockLost` if it was lost: nothing is changed then.
        """
        with self.changing():
            if os.getpid() != self._owner_pid or (self._holding is None and self._lost is None):
                return False
            holding = self._held()
            try:
                self._arbiter.give_up(holding, self._end)
            except LockLost as error:
                self._lose(error)
                raise
            return True

    def detach(self) -> str:
        """
        Keep the folder locked and return the id: those who know it can renew and release the lock.

        The heartbeat ends. So a short lease that nobody named becomes the one of a lock that nobody renews.
        """
        with self.changing():
            lock_id, lease_s = self._held().lock_id, self.lease_duration_s
            if self._beats and not self._is_lease_named and lease_s < DEFAULT_LEASE_S:
                self._renew(DEFAULT_LEASE_S)
            self._end()
            self.lease_duration_s = lease_s  # Of the next one that this object acquires.
            return lock_id

    def let_go(self) -> None:
        """Release at the end of the process. Raises nothing: there is nobody left to tell."""
        if not self._is_attached:
            with suppress(Exception):
                self.release()

    def __repr__(self) -> str:
        state = "held" if self.held else "lost" if self.lost is not None else "not held"
        return f"<DeliverableLock {self._path!r} by {self.holder!r}, {state}>"  # Never the id: it releases.

    def __enter__(self) -> DeliverableLock:
        if self._holding is not None and self._lost is None:
            return self
        try:
            self._is_in_block = True
            return self.acquire()
        except BaseException:  # In between a handler may raise. Then the block does not begin.
            self._is_in_block = False
            self.let_go()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_attached:
            return
        try:
            self._release_for_certain()
            self._is_in_block = False
        except LockLost as lost:
            if error is None:
                raise
            error.add_note(f"While this was raised, the lock turned out to be lost: {lost}")

    def _release_for_certain(self) -> None:
        """Release; also if a handler raises before that has begun."""
        try:
            self.release()
        except NoclobberError:
            raise
        except BaseException:
            self.let_go()
            raise

    @signals.whole
    def __del__(self) -> None:
        if getattr(self, "_holding", None) is not None and not self._is_attached:
            if self._is_in_block:  # The block is over; a handler raised before `__exit__` had begun.
                self.let_go()
            else:
                warnings.warn(
                    f"{self._path}: lock forgotten without release()",
                    ResourceWarning,
                    stacklevel=3,
                    source=self,
                )
        arbiter = getattr(self, "_arbiter", None)
        if arbiter is not None:
            arbiter.close()

    # Orphans

    def recover(self) -> Recovery | None:
        """
        Clear an orphan by hand; `LockContention` if its holder is alive, None if nothing is locked.

        The same steps and the same record as when `acquire` takes over, but the folder is free afterwards.
        """
        return self._clear(retire=False)

    def retire(self) -> Recovery | None:
        """
        Make a folder ready to be deleted or archived (REQ-LOCK-012): refuse while a live lock is held, clear
        a stale one. A holder's own lock ends with it.
        """
        with self.changing():
            recovery = self._clear(retire=True)
            if self._holding is not None:
                self._end()
            return recovery

    def _clear(self, *, retire: bool) -> Recovery | None:
        taker = self._taker()._replace(holder=self.holder or person())
        if self._holding is not None:
            taker = taker._replace(held_ids=(*taker.held_ids, self._holding.lock_id))
        cleared = self._arbiter.clear(self.folder, taker, retire=retire)
        if isinstance(cleared, NoclobberError):
            self.report(cleared)
            raise cleared
        return cleared

    # Parts

    def changing(self) -> _Changing:
        """One operation on this object at a time: the heartbeat's thread and the owner's share it."""
        return _Changing(self._mutex)

    def _held(self) -> Holding:
        if self._holding is None or self._lost is not None:
            raise self.lost or LockLost(self._path, "not held: it was never acquired, or has been released")
        return self._holding

    def _lose(self, error: LockLost) -> None:
        """Remember that the lock is lost, and stop renewing."""
        self._lost = error
        self._end()

    def _end(self, folder: str | None = None) -> None:
        """Hold nothing from now on. `folder` is where the lock was."""
        holding, self._holding = self._holding, None
        if holding is not None:
            self._path = folder or holding.folder
        heartbeat.stop(self)
        release_at_exit.released(self)

    def report(self, refusal: LockContention) -> None:
        """Record a refusal. If that fails, the refusal says so in a note."""
        try:
            self._arbiter.refused(self._path, self.holder or person(), refusal)
        except NoclobberError as error:
            refusal.add_note(f"This refusal could not be recorded: {error}")


class _Changing:
    """
    The lock object's own mutex, for a block.

    Re-entrant: an interrupt may leave an operation's frames alive in its traceback, and with them this
    mutex, while the same thread's `except` block already releases the lock.
    """

    __slots__ = ("_mutex", "_signals", "_thread")

    def __init__(self, mutex: threading.RLock) -> None:
        self._mutex, self._thread = mutex, threading.get_ident()
        self._signals = signals.held_back()

    def __enter__(self) -> None:
        self._signals.__enter__()
        try:
            release_at_exit.begin_change(self._thread)
            with signals.let_in():
                self._mutex.acquire()
        except BaseException:
            self._signals.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self._mutex.release()
            release_at_exit.end_change(self._thread)
        finally:
            self._signals.__exit__()
