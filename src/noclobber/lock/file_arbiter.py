"""
The arbiter whose locks are files: `.lock` in the deliverable folder.

`lock_file` changes the file by compare-and-set, `liveness` judges what is in it, `events` records; here they
are put together to the operations of `arbiter`. Every change runs inside the folder's section (its mutex),
and so does a guarded write between its beginning and its settling.

How that holds against a holder that wakes up between check and write. A take-over needs the folder's mutex.
`begin()` takes that mutex *before* it reads the lock, and `settle()` lets it go when the replacement has
landed. So there are two orders and no third. Either the holder's write comes first: then a recoverer waits
for it, and it was the holder's right. Or the take-over comes first: then the former holder reads the new
record, and is refused with `LockLost` before it touches anything. A holder that is stopped in between keeps
the mutex, so nobody takes over meanwhile; contenders are told which process it is (`LockContention`) and do
not hang.
"""

from __future__ import annotations

import math
import os
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from noclobber.core.clock import SYSTEM_CLOCK, iso8601
from noclobber.core.project import STATE_FOLDER
from noclobber.disk import signals
from noclobber.disk.processes import identify
from noclobber.disk.steps import reached
from noclobber.errors import FileBusyError, LockLost, MissingFileError, NoclobberError
from noclobber.lock import messages
from noclobber.lock.arbiter import LockStatus, Recovery, Taker
from noclobber.lock.events import LockEvents
from noclobber.lock.limits import DEFAULT_LEASE_S
from noclobber.lock.liveness import FREE, FolderIdentity, judge
from noclobber.lock.lock_file import PATIENCE_S, LockFile
from noclobber.lock.names import LEDGER_NAME, LOCK_NAME, SCRATCH_PREFIX
from noclobber.lock.nested import find_obstacle
from noclobber.lock.os_errors import explain
from noclobber.lock.record import LockRecord, hash_of, new_secret, public_id, read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from noclobber.core.clock import Clock
    from noclobber.errors import LockContention
    from noclobber.ledger.observer import Observer
    from noclobber.lock.events import EventLog
    from noclobber.lock.liveness import Liveness
    from noclobber.lock.nested import Obstacle
    from noclobber.lock.record import LockContent

SAFE_MARGIN_S = 2.0  # With so much lease left nobody has a reason to bid for the record.
RELEASE_S = 10  # How long a release may take, at the end of a lease.
_TRIES = 8  # How often a record may change hands under our eyes before we call it contention.

# Full of folders, and never a deliverable among them.
SKIPPED_FOLDERS = frozenset((".git", ".hg", ".svn", STATE_FOLDER, "node_modules", "__pycache__", ".venv"))


def boot_time_s() -> float:
    """Seconds that go on while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class LockRow(NamedTuple):
    """A lock that a coordinator keeps, too."""

    workspace: str
    path: str
    fencing_token: int
    """Rises with every holder. Whoever keeps something safe elsewhere refuses a lower one."""
    valid_until_s: float
    """By `boot_time_s`. After it, and without an answer from the server, the lock is lost."""


class FileHolding(NamedTuple):
    """A lock that is held: the open folder, and the record that is in it."""

    lock_file: LockFile
    record: LockRecord
    secret: str
    """The id that the record holds the hash of."""
    is_own: bool
    """The lock is bound to this process, so that its life is not in doubt, only its lease."""
    row: LockRow | None = None
    """With a coordinator: what the server said."""

    @property
    def lock_id(self) -> str:
        """The holder's id."""
        return self.secret

    @property
    def deliverable_id(self) -> str:
        """What is locked."""
        return self.record.deliverable_id

    @property
    def holder(self) -> str:
        """Who holds it."""
        return self.record.holder

    @property
    def renewal_s(self) -> int | None:
        """For how long one renewal lasts."""
        return self.record.renewal_s

    @property
    def fencing_token(self) -> int | None:
        """A file has none: whoever may write here holds the folder's mutex."""
        return None if self.row is None else self.row.fencing_token

    @property
    def folder(self) -> str:
        """Where the folder is now."""
        return self.lock_file.location()

    def ends_in_s(self) -> float | None:
        """A file can always be looked at. A server may be away."""
        return None if self.row is None else self.row.valid_until_s - boot_time_s()

    def ended(self) -> LockLost:
        """Nobody renewed it in time."""
        what = "its lease has ended and the coordinator does not answer"
        return messages.lost(self.folder, self.record.lock_id, what)


class FileArbiter:
    """Decides by files. One object for one lock object: it keeps the folder and its ledger open."""

    longest_pause_s = 0.05  # A file tells nobody that it is gone.
    renewed_lease_s = DEFAULT_LEASE_S

    def __init__(
        self,
        clock: Clock = SYSTEM_CLOCK,
        ledger: EventLog | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.clock = clock
        self._audit = LockEvents(clock, ledger, observer)
        self._lock_file: LockFile | None = None  # The folder that was asked for last, open.

    def close(self) -> None:
        """Close the folder and its ledger."""
        lock_file, self._lock_file = self._lock_file, None
        if lock_file is not None:
            lock_file.close()
        self._audit.close()

    @signals.whole
    def __del__(self) -> None:
        # Its owner closes it in a `__del__` of its own, which a signal's handler may have cut off.
        if getattr(self, "_lock_file", None) is not None:
            self.close()

    # -- take, renew, give up, clear -----------------------------------------------------------------------

    def take(self, folder: str, taker: Taker, began: Callable[[FileHolding], None]) -> LockContention | None:
        """Take the lock, or return the refusal; see `Arbiter`."""
        lock_file = self._open(folder)
        try:
            return self._take(lock_file, folder, taker, began)
        except FileBusyError as busy:
            return self._contention(folder, lock_file.read(), FREE, taker.deliverable_id, busy)
        except BaseException:
            self._lock_file = None
            lock_file.close()
            raise
        finally:
            self._audit.tell_observer()

    def _take(
        self, lock_file: LockFile, folder: str, taker: Taker, began: Callable[[FileHolding], None]
    ) -> LockContention | None:
        found, verdict, record = None, FREE, None
        own_hashes = {hash_of(held_id) for held_id in taker.held_ids}
        obstacle = find_obstacle(folder, own_hashes, self._verdict, self.clock, is_published=False)
        if obstacle is not None:  # Before anything is published: one that waits for it disturbs nobody else.
            return self._in_the_way(folder, taker, obstacle)
        if not lock_file.is_free():
            found = lock_file.read()
            verdict = self._judge(lock_file, found)
            if verdict.state == "live":  # Refused without the mutex: waiting contenders disturb nobody.
                return self._contention(folder, found, verdict, taker.deliverable_id)
        reached("lock-looked")
        try:
            with lock_file.section(clock=self.clock):
                reached("lock-entered")
                look_again = found is not None  # It was judged outside the section.
                for _ in range(_TRIES):
                    if look_again:
                        found = lock_file.read()
                        verdict = self._judge(lock_file, found)
                        if verdict.state == "live":
                            return self._contention(folder, found, verdict, taker.deliverable_id)
                    secret = new_secret()
                    record = self._new_record(lock_file, folder, taker, found, verdict, hash_of(secret))
                    if self._put(lock_file, found, record):
                        break
                    look_again = True
                else:
                    return self._contention(folder, found, verdict, taker.deliverable_id)
                reached("lock-published")
                obstacle = find_obstacle(folder, own_hashes, self._verdict, self.clock, is_published=True)
                if obstacle is not None:
                    if found is not None:
                        self._report_recovery(folder, record, "acquire", found)
                    self._withdraw(lock_file, folder, record)
                    return self._in_the_way(folder, taker, obstacle)
                reached("lock-looked-again")
                holding = FileHolding(lock_file, record, secret, taker.process.pid == os.getpid())
                if record.workspace is None:
                    self._begin(folder, holding, began)
                    return None
            # Not in the section: whoever waits for it would take this process for a stopped one. The record
            # is in place, and keeps everybody out meanwhile.
            if found is not None:
                self._report_recovery(folder, record, "acquire", found)
            answer = self._confirm(folder, holding, taker)
            reached("lock-confirmed")
            with lock_file.section(clock=self.clock):
                if not isinstance(answer, FileHolding):
                    self._withdraw(lock_file, folder, record)
                    return answer
                now = lock_file.read()
                if now is None or now.key != record.lock_id:  # Stopped for longer than its own lease.
                    self._unconfirm(record)
                    return self._contention(folder, now, self._judge(lock_file, now), taker.deliverable_id)
                self._begin(folder, answer, began)
                return None
        except BaseException:
            # A ledger that cannot be written, Ctrl-C between two steps: what we published must not stay,
            # because nobody would renew or release it.
            if record is not None:
                self._undo(lock_file, record)
            raise

    def _begin(self, folder: str, holding: FileHolding, began: Callable[[FileHolding], None]) -> None:
        """Inside the section: the lock is the taker's."""
        self._audit.acquired(folder, holding.record)
        began(holding)

    def _withdraw(self, lock_file: LockFile, folder: str, record: LockRecord) -> None:
        """Inside the section: take back what was published, because another lock is in the way."""
        if record.recovered_from is not None:  # An orphan was replaced: it is gone, and that is recorded.
            self._audit.recovered(folder, record, "acquire")
        lock_file.unpin()
        lock_file.remove(record.lock_id, record, self._may_break(lock_file, record.lock_id))

    def _in_the_way(self, folder: str, taker: Taker, obstacle: Obstacle) -> LockContention:
        return self._contention(
            folder, obstacle.found, obstacle.verdict, taker.deliverable_id, where=obstacle.folder
        )

    def _undo(self, lock_file: LockFile, record: LockRecord) -> None:
        """Take back what was published, if it was. Raises nothing."""
        with suppress(Exception), lock_file.section(clock=self.clock):
            lock_file.remove(record.lock_id, record, self._may_break(lock_file, record.lock_id))
        self._unconfirm(record)

    def find(self, folder: str, lock_id: str) -> FileHolding:
        """Return the lock with this id; `LockLost` if another one or none is there."""
        lock_file = self._open(folder)
        found = lock_file.read()
        verdict = self._judge(lock_file, found)
        record = None if found is None else found.record
        if record is None or record.secret_sha256 != hash_of(lock_id) or verdict.state == "corrupt":
            raise self._not_found(lock_file, found, hash_of(lock_id))
        return FileHolding(lock_file, record, lock_id, is_own=False)

    def check(self, holding: FileHolding) -> float:
        """Return how many seconds of the lease are left; `LockLost` if the lock was lost."""
        holding.lock_file.open_again()  # A forked child: the folder was closed at the fork.
        return self._standing(holding).expires_s - self.clock.now_s()

    def renew(self, holding: FileHolding, lease_s: int, *, patience_s: float | None = None) -> FileHolding:
        """Extend the lease to a full one from now; `LockLost` if the lock was lost."""
        lock_file = holding.lock_file
        try:
            with lock_file.section(
                patience_s=PATIENCE_S if patience_s is None else patience_s, clock=self.clock
            ):
                return self._renew(holding, lease_s, self._standing(holding))
        finally:
            lock_file.leave()
            self._audit.tell_observer()

    def _renew(self, holding: FileHolding, lease_s: int, record: LockRecord) -> FileHolding:
        """Inside the section."""
        lock_file = holding.lock_file
        # `acquired` stays, so that acquired + lease_duration_s is the true expiry for every reader. Never
        # shorter than before: after the clock was set back the old end is the later one.
        needed_s = math.ceil(self.clock.now_s() - record.acquired_s) + lease_s
        renewed = record._replace(lease_duration_s=max(record.lease_duration_s, needed_s), renewal_s=lease_s)
        if not lock_file.replace(record.lock_id, renewed, self._may_break(lock_file, record.lock_id)):
            raise self.lost(holding, lock_file.read())
        self._audit.renewed(lock_file.location(), renewed)
        return holding._replace(record=renewed)

    def give_up(self, holding: FileHolding, ended: Callable[[str], None]) -> None:
        """Take the lock away; `LockLost` if it was lost."""
        lock_file, record, is_own = holding.lock_file, holding.record, holding.is_own
        try:
            with lock_file.section(clock=self.clock):
                if not (is_own and self._is_early(record) and lock_file.remove_undisputed()):
                    self._remove_in_time(holding, record)
                folder = lock_file.location()
                ended(folder)
                self._audit.released(folder, record)
        finally:
            lock_file.leave()
            self._audit.tell_observer()

    def _is_early(self, record: LockRecord) -> bool:
        return self.clock.now_s() < record.expires_s - SAFE_MARGIN_S

    def _remove_in_time(self, holding: FileHolding, record: LockRecord) -> None:
        """Inside the section: take our record away while its lease runs; `LockLost`."""
        lock_file = holding.lock_file
        may_break = self._may_break(lock_file, record.lock_id)
        for _ in range(_TRIES):
            if not self._is_early(record):
                # Late. Renewing is a compare-and-set in one step, and removing is not: see `remove`.
                needed_s = math.ceil(self.clock.now_s() - record.acquired_s) + RELEASE_S
                record = record._replace(lease_duration_s=max(record.lease_duration_s, needed_s))
                if not lock_file.replace(record.lock_id, record, may_break):
                    break
            if lock_file.remove(record.lock_id, record, may_break, partial(self._is_early, record)):
                return
            if self._is_early(record):
                break  # Not late, so it is somebody else's.
        raise self.lost(holding, lock_file.read())

    def clear(self, folder: str, taker: Taker, *, retire: bool = False) -> Recovery | LockContention | None:
        """Clear an orphan, or return the refusal; see `Arbiter`."""
        lock_file = LockFile(folder)
        try:
            with lock_file.section(clock=self.clock):
                return self._clear(lock_file, lock_file.read(), taker, "manual", retire=retire)
        finally:
            lock_file.close()
            self._audit.tell_observer()

    def _clear(
        self,
        lock_file: LockFile,
        found: LockContent | None,
        taker: Taker,
        how: Literal["manual", "write"],
        *,
        retire: bool = False,
    ) -> Recovery | LockContention | None:
        """
        Inside the section: take the lock as `take` does, put it on record, and take it away. A kill in
        between leaves an ordinary orphan, which carries what is still to be recorded.
        """
        if found is None and not retire:
            self._sweep(lock_file)
            return None
        folder = lock_file.location()
        verdict = self._judge(lock_file, found)
        if verdict.state == "live":
            if retire and found is not None and found.record is not None and taker.held_ids:
                return self._retire_own(lock_file, found, found.record, verdict, taker)
            return self._contention(folder, found, verdict, taker.deliverable_id)
        record = self._new_record(lock_file, folder, taker, found, verdict, hash_of(new_secret()))
        try:
            is_put = self._put(lock_file, found, record)
        except BaseException:
            # It may be in place all the same: the look afterwards can fail, too.
            with suppress(Exception):
                lock_file.remove(record.lock_id, record, self._may_break(lock_file, record.lock_id))
            raise
        if not is_put:
            return self._contention(folder, lock_file.read(), verdict, taker.deliverable_id)
        try:
            if found is not None:
                self._audit.recovered(folder, record, how)
                self._report_recovery(folder, record, how, found)
            if retire:
                self._audit.retired(folder, record)
        finally:
            try:
                lock_file.remove(record.lock_id, record, self._may_break(lock_file, record.lock_id))
            except NoclobberError:  # Once more: left there, it is the live lock of a process that wants none.
                lock_file.remove(record.lock_id, record, self._may_break(lock_file, record.lock_id))
            self._sweep(lock_file)
        return Recovery(**record.recovered_from) if record.recovered_from else None

    def _retire_own(
        self, lock_file: LockFile, found: LockContent, record: LockRecord, verdict: Liveness, taker: Taker
    ) -> LockContention | None:
        """Inside the section: the holder itself ends the deliverable, and its lock with it."""
        folder = lock_file.location()
        if record.secret_sha256 not in [
            hash_of(held_id) for held_id in taker.held_ids
        ] or not lock_file.remove(record.lock_id, record, self._may_break(lock_file, record.lock_id)):
            return self._contention(folder, found, verdict, taker.deliverable_id)
        self._audit.retired(folder, record)
        self._sweep(lock_file)
        return None

    def refused(self, folder: str, asker: str, refusal: LockContention) -> None:
        """Record a refusal."""
        self._audit.refused(folder, asker, refusal)
        self._audit.tell_observer()

    # -- read, list, wait ----------------------------------------------------------------------------------

    def read(self, folder: str) -> LockStatus:
        """Return what the folder's lock is like. Errors as in acquire: what cannot be read is not free."""
        # No mutex and no section: a record is published whole or not at all, so a plain read is right.
        try:
            found = read(f"{folder}/{LOCK_NAME}")
            there = os.stat(folder if found is not None else f"{folder}/.")  # ENOTDIR if it is a file.
        except OSError as error:
            name = folder if isinstance(error, FileNotFoundError) else f"{folder}/{LOCK_NAME}"
            explain(error, name, "look into the deliverable folder")
        if found is None:
            return LockStatus(folder, "free", FREE.detail)
        now_s = self.clock.now_s()
        verdict = self._verdict(found, FolderIdentity(there.st_dev, there.st_ino, folder))
        record = found.record
        if record is None:
            return LockStatus(folder, verdict.state, verdict.detail)
        return LockStatus(
            folder, verdict.state, verdict.detail, messages.plain(record.deliverable_id),
            messages.plain(record.holder), record.acquired,
            max(0, int(now_s - record.acquired_s)), record.lease_duration_s, verdict.remaining_s,
            record.pid, record.host and messages.plain(record.host), record.lock_id,
        )  # fmt: skip

    def list(self, root: str, ledgers: set[str] | None = None) -> Iterator[LockStatus]:
        """
        Yield the status of every locked folder below a root, the root included, in no particular order.

        `ledgers` gets the path of every ledger of locks that is found on the way.

        Links are not followed. A folder that cannot be listed is left out; a lock that cannot be read is
        yielded as `unreadable`, with the reason, because somebody has to look at it.
        """
        waiting = [root]
        while waiting:
            folder = waiting.pop()
            is_locked = False
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        name = entry.name
                        if name == LOCK_NAME:
                            is_locked = True
                        elif name == LEDGER_NAME:
                            if ledgers is not None:
                                ledgers.add(entry.path)
                        elif name in SKIPPED_FOLDERS or name.startswith(SCRATCH_PREFIX):
                            continue
                        elif entry.is_dir(follow_symlinks=False):
                            waiting.append(entry.path)
            except OSError as error:
                if folder == root:
                    explain(error, root, "list the folder")
                continue
            if is_locked:
                try:
                    status = self.read(folder)
                except NoclobberError as error:
                    yield LockStatus(folder, "unreadable", str(error))
                    continue
                if status.state != "free":  # Released between our two looks.
                    yield status

    def wait(self, folder: str, at_most_s: float) -> None:
        """Sleep: a file tells nobody that it is gone, and asking again is cheap."""
        self.clock.sleep(at_most_s)

    # -- guarded writes ------------------------------------------------------------------------------------

    def intend_write(self, folder: str, holding: FileHolding | None, held: Sequence[int]) -> FileWriteIntent:
        """Return a write inside a locked folder, not begun."""
        return FileWriteIntent(self, folder, holding, held)

    def admit(self, lock_file: LockFile, holding: FileHolding | None) -> None:
        """Inside the section: raise unless this writer may write here now."""
        found = lock_file.read()
        if holding is not None:
            record = None if found is None else found.record
            if (
                found is None
                or record is None
                or found.key != holding.record.lock_id
                or lock_file.judge_copied(found)
            ):
                raise self.lost(holding._replace(lock_file=lock_file), found)
            if self.clock.now_s() >= record.expires_s:
                self._renew(
                    holding._replace(lock_file=lock_file), record.renewal_s or DEFAULT_LEASE_S, record
                )
        elif found is not None and found.record is None and self._judge(lock_file, found).state != "live":
            # Another program's file of that name; or a lock that somebody damaged, whose holder finds it
            # lost. It is in nobody's way, and not a writer's to remove: whoever takes the lock does that.
            return
        elif found is not None:  # Otherwise it was released since the folder was found locked.
            refusal = self._clear(lock_file, found, _anybody(lock_file.location(), found), "write")
            if isinstance(refusal, NoclobberError):
                raise refusal

    # -- parts ---------------------------------------------------------------------------------------------

    def _open(self, folder: str) -> LockFile:
        """Open the folder, or take it from the last time, if its path still names the same one."""
        lock_file = self._lock_file
        if lock_file is not None:
            if lock_file.descriptor >= 0 and lock_file.is_same_folder(folder):
                return lock_file
            lock_file.close()
        self._lock_file = lock_file = LockFile(folder)
        return lock_file

    def _judge(self, lock_file: LockFile, found: LockContent | None) -> Liveness:
        return FREE if found is None else self._verdict(found, lock_file.identity)

    # -- what a coordinator adds: `postgres.arbiter` -------------------------------------------------------

    def _row_of(self, folder: str) -> tuple[str, str] | None:
        """Return the name of the row of a new lock; None where files are all there is."""
        return None

    def _verdict(self, found: LockContent, place: FolderIdentity) -> Liveness:
        """Decide what became of a lock that was found."""
        return judge(found, self.clock.now_s(), place)

    def _confirm(self, folder: str, holding: FileHolding, taker: Taker) -> FileHolding | LockContention:
        """Ask whether a lock that was published here is free elsewhere, too."""
        return holding

    def _unconfirm(self, record: LockRecord) -> None:
        """Take back what `_confirm` may have done. Raises nothing."""

    def _report_recovery(self, folder: str, record: LockRecord, how: str, orphan: LockContent) -> None:
        """Tell others whose place `record` took."""

    # ------------------------------------------------------------------------------------------------------

    def _standing(self, holding: FileHolding) -> LockRecord:
        """Return the holder's record as it is in the file now; `LockLost` if it is not there."""
        found = holding.lock_file.read()
        if found is None or found.record is None or found.key != holding.record.lock_id:
            raise self.lost(holding, found)
        return found.record

    def lost(self, holding: FileHolding, found: LockContent | None) -> LockLost:
        """Say how a lock was lost, from what is in its place now."""
        lock_file, by = holding.lock_file, None
        if not lock_file.exists():
            what = "the folder was deleted"
        elif found is None:
            what = "its lock file is gone: it was released or removed"
        elif found.record is None:
            what = f"its lock file was damaged: {found.corruption}"
        elif found.key == holding.record.lock_id:
            what = "this is a copy of the locked folder"
        else:
            by = messages.plain(found.record.holder)
            what = f"it was taken over by {by}"
        return messages.lost(lock_file.location(), holding.record.lock_id, what, by)

    def _not_found(self, lock_file: LockFile, found: LockContent | None, secret_sha256: str) -> LockLost:
        """Say that there is no lock with an id. Whether there ever was one, nobody can tell from here."""
        if found is None:
            now = "the folder is not locked"
        elif found.record is None:
            now = f"its lock file is damaged: {found.corruption}"
        elif found.record.secret_sha256 == secret_sha256:
            now = "this is a copy of the locked folder"
        else:
            now = f"the folder is locked by {messages.plain(found.record.holder)}"
        return LockLost(
            lock_file.location(),
            f"there is no lock with this id here: the id is wrong, or its lock has ended; {now}. "
            "If the id is right, stop writing here and acquire again",
            lock_id=public_id(secret_sha256),
            taken_by=None,
        )

    def _contention(
        self,
        folder: str,
        found: LockContent | None,
        verdict: Liveness,
        deliverable_id: str | None,
        busy: FileBusyError | None = None,
        *,
        where: str | None = None,
    ) -> LockContention:
        record = None if found is None else found.record
        return messages.contention(
            folder,
            None if record is None else record.holder,
            deliverable_id,
            verdict.remaining_s,
            self.clock.now_s(),
            busy,
            where=where,
        )

    def _sweep(self, lock_file: LockFile) -> None:
        """Remove what killed processes left."""
        lock_file.sweep(self._may_break(lock_file))

    def _put(self, lock_file: LockFile, found: LockContent | None, record: LockRecord) -> bool:
        if found is None:
            return lock_file.create(record)
        if found.record is not None:
            self._audit.catch_up(lock_file.location(), found.record)
        if not lock_file.replace(found.key, record, self._may_break(lock_file), found):
            return False
        with suppress(NoclobberError):  # Where one was killed, more may have been.
            self._sweep(lock_file)
        return True

    def _new_record(
        self,
        lock_file: LockFile,
        folder: str,
        taker: Taker,
        found: LockContent | None,
        verdict: Liveness,
        secret_sha256: str,
    ) -> LockRecord:
        process = taker.process
        row = self._row_of(folder)
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
            iso8601(self.clock.now_s()),
            taker.lease_duration_s,
            # Lease only: a reader that knows only the five mandatory members asks whether the pid runs.
            # Pid 1 does, always, so that it waits for the lease, which is what is meant.
            1 if taker.lease_only else process.pid,
            public_id(secret_sha256),
            process.host,
            process.boot_id,
            process.pid_namespace,
            None if taker.lease_only else process.started,
            lock_file.identity.device,
            lock_file.identity.inode,
            taker.lease_duration_s,
            origin,
            process.time_namespace,
            secret_sha256,
            workspace=None if row is None else row[0],
            path=None if row is None else row[1],
        )

    def _may_break(self, lock_file: LockFile, own_id: str | None = None) -> Callable[[LockContent], bool]:
        """Whose bids may be broken: an orphan's, and what an interrupted step of our own left."""

        def answer(found: LockContent) -> bool:
            if own_id is not None and found.record is not None and found.record.lock_id == own_id:
                return True
            # A bid is published whole, so one that cannot be parsed is nobody's that is still writing it.
            return self._judge(lock_file, found._replace(unparsed_age_s=None)).reason is not None

        return answer


class FileWriteIntent:
    """A write inside a locked folder, under the folder's mutex: the caller's, or one that is taken here."""

    def __init__(
        self, arbiter: FileArbiter, folder: str, holding: FileHolding | None, held: Sequence[int]
    ) -> None:
        self._arbiter, self._folder, self._holding, self._held = arbiter, folder, holding, held
        self._lock_file: LockFile | None = None

    def begin(self) -> None:
        """Take the mutex, read the lock, and raise unless the write may go on."""
        try:
            self._lock_file = lock_file = LockFile(self._folder)
        except MissingFileError:
            if self._holding is None:
                raise  # The parent is missing, and the committer says so.
            raise self._arbiter.lost(self._holding, None) from None
        # Not a second time on another descriptor: it would wait for itself.
        if not any(_is_same(descriptor, lock_file) for descriptor in self._held):
            lock_file.section(clock=self._arbiter.clock).__enter__()
        self._arbiter.admit(lock_file, self._holding)

    def settle(self) -> None:
        """Let the folder go, and its mutex, if that was taken here."""
        lock_file, self._lock_file = self._lock_file, None
        if lock_file is not None:
            lock_file.close()


def _is_same(descriptor: int, lock_file: LockFile) -> bool:
    status = os.fstat(descriptor)
    return (status.st_dev, status.st_ino) == (lock_file.identity.device, lock_file.identity.inode)


def _anybody(folder: str, found: LockContent) -> Taker:
    """A writer that meets an orphan: it takes the lock for as long as clearing it lasts."""
    recorded = None if found.record is None else found.record.deliverable_id
    return Taker(recorded or os.path.basename(folder) or "/", person(), DEFAULT_LEASE_S, identify())


def person() -> str:
    """Who runs this, for those who did not say."""
    return f"uid {os.geteuid()} on {os.uname().nodename}"
