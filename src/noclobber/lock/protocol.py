"""
The protocol: four operations, each one compare-and-set on one record, judged by one clock.

| operation | from | to | refused if |
|---|---|---|---|
| `take` | nothing, or an orphan's record | the taker's record | somebody is alive there |
| `renew` | the holder's own record | the same with a longer lease | its id no longer stands |
| `give_up` | the holder's own record | nothing | its id no longer stands |
| `clear` | nothing, or an orphan's record | the taker's, then nothing | somebody is alive there |

Where the record lives is the store's business, who may be taken over is the judge's, and threads,
heartbeats and signals are the lock object's. Nothing here remembers anything between two calls.

Everything but the first look of `take` runs inside the store's section; the caller of `renew`, `give_up`
and `clear` has entered it.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import NamedTuple

from noclobber.core.clock import iso8601
from noclobber.errors import NoclobberError
from noclobber.lock.liveness import FREE, Verdict
from noclobber.lock.record import LockRecord, new_id, remember_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from noclobber.core.clock import Clock
    from noclobber.disk.processes import ProcessIdentity
    from noclobber.lock.events import Audit
    from noclobber.lock.lock_file import FolderStore
    from noclobber.lock.record import Found

SAFE_MARGIN_S = 2.0  # With so much lease left nobody has a reason to claim the record.
SPELLED_CHARS = len("2026-01-02T03:04:05.678901Z")
_TRIES = 8  # How often a record may change hands under our eyes before we call it contention.


class Recovery(NamedTuple):
    """An orphan that was cleared, as its event records it."""

    recovery_reason: str
    previous_holder: str | None
    previous_acquired: str | None
    previous_lock_id: str | None
    detail: str


class Taker(NamedTuple):
    """Who wants a lock, and for how long."""

    deliverable_id: str
    holder: str
    lease_duration_s: int
    process: ProcessIdentity
    lease_only: bool = False


class Refused(NamedTuple):
    """Somebody is there: what was found, and what was made of it."""

    found: Found | None
    verdict: Verdict


class Protocol:
    """The operations, for one clock and one audit trail."""

    def __init__(self, clock: Clock, audit: Audit) -> None:
        self._clock, self._audit = clock, audit

    def judge(self, store: FolderStore, found: Found | None) -> Verdict:
        """Decide what became of a lock, now."""
        return store.judge(found, self._clock.now_s())

    def take(
        self, store: FolderStore, taker: Taker, folder: str, begin: Callable[[FolderStore, LockRecord], None]
    ) -> Refused | None:
        """
        Make the record the taker's, and put it on record; enters the section by itself.

        `begin` is told of the record in here, where an interruption still takes it back; after the return
        it could fall between two steps, and a lock would stay that nobody knows of.
        """
        found, verdict, record = None, FREE, None
        if not store.is_free():
            found = store.read()
            verdict = self.judge(store, found)
            if verdict.state == "live":  # Refused without the mutex: waiting contenders disturb nobody.
                return Refused(found, verdict)
        try:
            with store.section(clock=self._clock):
                look_again = found is not None  # It was judged outside the section.
                for _ in range(_TRIES):
                    if look_again:
                        found = store.read()
                        verdict = self.judge(store, found)
                        if verdict.state == "live":
                            return Refused(found, verdict)
                    record = self._new_record(store, taker, found, verdict)
                    if self._put(store, found, record):
                        self._audit.acquired(folder, record)
                        begin(store, record)
                        return None
                    look_again = True
                return Refused(found, verdict)
        except BaseException:
            # A ledger that cannot be written, Ctrl-C between two steps: what we published must not stay,
            # because nobody would renew or release it.
            if record is not None:
                self.undo(store, record)
            raise

    def undo(self, store: FolderStore, record: LockRecord) -> None:
        """Take back what was published, if it was. Raises nothing."""
        with suppress(Exception), store.section(clock=self._clock):
            store.remove(record.lock_id, record, self._may_break(store, record.lock_id))

    def renew(self, store: FolderStore, record: LockRecord, lease_s: int, now_s: float) -> LockRecord | None:
        """Extend the lease to a full one from now; None if the record is no longer the holder's."""
        # `acquired` stays, so that acquired + lease_duration_s is the true expiry for every reader. Never
        # shorter than before: after the clock was set back the old end is the later one.
        needed_s = math.ceil(now_s - record.acquired_s) + lease_s
        renewed = record._replace(lease_duration_s=max(record.lease_duration_s, needed_s), renewal_s=lease_s)
        if not store.replace(record.lock_id, renewed, self._may_break(store, record.lock_id)):
            return None
        self._audit.renewed(store.location(), renewed)
        return renewed

    def give_up(self, store: FolderStore, record: LockRecord, *, is_own: bool) -> bool:
        """
        Take the holder's record away; False if it is no longer the holder's.

        `is_own`: the calling process is the holder, so that its life is not in doubt, only its lease.
        """
        undisputed = is_own and self._clock.now_s() < record.expires_s - SAFE_MARGIN_S
        return (undisputed and store.remove_undisputed()) or store.remove(
            record.lock_id, record, self._may_break(store, record.lock_id)
        )

    def clear(
        self,
        store: FolderStore,
        taker: Taker,
        found: Found | None,
        record_event: Callable[[LockRecord], None],
    ) -> Recovery | Refused | None:
        """Take the record as `take` does, put it on record, and take it away: a kill in between leaves
        an ordinary orphan, which carries what is still to be recorded."""
        verdict = self.judge(store, found)
        if verdict.state == "live":
            return Refused(found, verdict)
        record = self._new_record(store, taker, found, verdict)
        if not self._put(store, found, record):
            return Refused(store.read(), verdict)
        try:
            record_event(record)
        finally:
            store.remove(record.lock_id, record, self._may_break(store, record.lock_id))
            self.sweep(store)
        return Recovery(**record.recovered_from) if record.recovered_from else None

    def sweep(self, store: FolderStore) -> list[str]:
        """Remove what killed processes left."""
        return store.sweep(self._may_break(store))

    def _put(self, store: FolderStore, found: Found | None, record: LockRecord) -> bool:
        if found is None:
            return store.create(record)
        if found.record is not None:
            self._audit.catch_up(store.location(), found.record)
        if not store.replace(found.key, record, self._may_break(store), found):
            return False
        with suppress(NoclobberError):  # Where one was killed, more may have been.
            self.sweep(store)
        return True

    def _new_record(
        self, store: FolderStore, taker: Taker, found: Found | None, verdict: Verdict
    ) -> LockRecord:
        process = taker.process
        now_s = self._clock.now_s()
        acquired = iso8601(now_s)
        # To the microsecond that is spelled, so that we go by the very moment that others read.
        if len(acquired) == SPELLED_CHARS:  # Not in the year 10 000, which nobody can read.
            remember_time(acquired, (int(now_s // 1) * 1_000_000 + int(acquired[-7:-1])) / 1_000_000)
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
            taker.deliverable_id,
            taker.holder,
            acquired,
            taker.lease_duration_s,
            # Lease only: a reader that knows only the five mandatory members asks whether the pid runs.
            # Pid 1 does, always, so that it waits for the lease, which is what is meant.
            1 if taker.lease_only else process.pid,
            new_id(),
            process.host,
            process.boot_id,
            process.pid_namespace,
            None if taker.lease_only else process.started,
            store.place.device,
            store.place.inode,
            taker.lease_duration_s,
            origin,
        )

    def _may_break(self, store: FolderStore, own_id: str | None = None) -> Callable[[Found], bool]:
        """Whose claims may be broken: an orphan's, and what an interrupted step of our own left."""

        def answer(found: Found) -> bool:
            if own_id is not None and found.record is not None and found.record.lock_id == own_id:
                return True
            return self.judge(store, found).reason is not None

        return answer
