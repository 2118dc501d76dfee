"""
The arbiter of a team: every lock is a file in its folder, and a row that several machines share.

The file is `file_arbiter`'s, with all that it promises. So a program without a coordinator and one with it
exclude each other, in both directions, and a lock follows its folder. The row excludes those who do not see
the file: machines with a checkout of their own. A holder has both. The file is published first, then the
server is asked, and the file is read again: a taker that was stopped in between for longer than its lease
finds another record there, and gives the row back.

Each question is one SQL function (functions.sql): one transaction, one round trip, the server's clock. What
the server cannot know is whether a process on some machine still runs. It answers "refused", with the
process; who asked looks, if that process is of its own machine, and asks again with what it found
(`judged`): "the holder of version 7 is dead". The server believes that of this very version of this very
lock only.

A file that names its row is judged by the server's clock, because those of two machines may differ. Without
the row (its taker has not asked yet, or was killed before) the file's own rules count.

A holder counts its lease by its own clock as well, from the moment at which it *asked*, less `MARGIN`: its
clock may run a little slower than the server's. If the server cannot be reached, the lock is lost in its own
eyes before anybody else can get it. The clock is the one that counts while a machine sleeps.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from functools import lru_cache
from hashlib import md5
from math import ceil
from typing import TYPE_CHECKING, Any

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.disk.processes import GONE, ProcessIdentity, fate, identify
from noclobber.errors import BadEventError, CoordinatorUnavailableError, LockLost, NoclobberError
from noclobber.lock import messages
from noclobber.lock.arbiter import LockStatus, Recovery, Taker
from noclobber.lock.events import recovery_event, refusal_event
from noclobber.lock.file_arbiter import FileArbiter, FileHolding, FileWriteIntent, LockRow, boot_time_s
from noclobber.lock.limits import COORDINATED_LEASE_S
from noclobber.lock.liveness import Liveness, is_copied
from noclobber.lock.names import LOCK_NAME
from noclobber.lock.record import hash_of, new_secret, public_id
from noclobber.postgres.asking import judge_dead, judged_process, judging_key
from noclobber.postgres.ledger import PostgresLedger
from noclobber.postgres.workspace_name import SharedFolder, place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from noclobber.core.clock import Clock
    from noclobber.errors import LockContention
    from noclobber.ledger.observer import Observer
    from noclobber.lock.arbiter import LockState
    from noclobber.lock.events import EventLog
    from noclobber.lock.liveness import FolderIdentity
    from noclobber.lock.record import LockContent, LockRecord
    from noclobber.postgres.connection import ServerConnection

MARGIN = 0.05  # Of the lease: two clocks' rates differ by less.
WRITE_S = 120.0  # For so long at most a write that was let through keeps others from taking over.
POLL_S = 0.25  # Behind a notice that did not come.
RENEWAL_S = 2.0  # A renewal waits for the server's disk, and perhaps for its standby, for so long at least.
UNDO_S = 1.0  # Whoever has waited in vain waits for so long that it is undone.
_TRIES = 8  # How many dead holders in a row may be in the way.


class PostgresArbiter(FileArbiter):
    """Decides by files, and asks the server. Any number of these may share one connection."""

    renewed_lease_s = COORDINATED_LEASE_S

    def __init__(
        self,
        connection: ServerConnection,
        clock: Clock = SYSTEM_CLOCK,
        ledger: EventLog | None = None,
        observer: Observer | None = None,
    ) -> None:
        super().__init__(clock, ledger, observer)
        self._connection = connection
        self._is_elsewhere = False

    @property
    def _is_elsewhere(self) -> bool:
        """The last refusal was the server's."""
        return self.longest_pause_s == POLL_S

    @_is_elsewhere.setter
    def _is_elsewhere(self, is_elsewhere: bool) -> None:
        self.longest_pause_s = POLL_S if is_elsewhere else FileArbiter.longest_pause_s

    # -- take, renew, give up, clear -----------------------------------------------------------------------

    def take(self, folder: str, taker: Taker, began: Callable[[FileHolding], None]) -> LockContention | None:
        """Take the lock, or return the refusal; see `Arbiter`."""
        if self._is_elsewhere:
            # Held on another machine a moment ago. A waiter that published its file at every look would be
            # taken for the holder by the others here.
            place = _place(folder)
            row = self._look(place.workspace, place.path)
            if row is not None and _state(row)[0] == "live":
                return _contention(place, folder, {"outcome": "refused", "lock": row}, taker.deliverable_id)
            self._is_elsewhere = False
        return super().take(folder, taker, began)

    def _row_of(self, folder: str) -> tuple[str, str]:
        place = _place(folder)
        return place.workspace, place.path

    def _verdict(self, found: LockContent, place: FolderIdentity) -> Liveness:
        verdict, record = super()._verdict(found, place), found.record
        if record is None or record.workspace is None or verdict.state == "dead" or is_copied(record, place):
            return verdict
        row = self._look(record.workspace, record.path or "")
        if row is None or row["lock_id"] != record.lock_id:
            return verdict
        state, detail = _state(row)
        if state == "expired":
            return Liveness("expired", "lease_expired", 0, detail)
        return Liveness("live", None, _whole_s(row["remaining_s"]), detail)

    def _confirm(self, folder: str, holding: FileHolding, taker: Taker) -> FileHolding | LockContention:
        place, process = _place(folder), _spelled(taker)
        held = [hash_of(held_id) for held_id in taker.held_ids]
        judged: dict[str, Any] = {}
        for _ in range(_TRIES):
            asked_s = boot_time_s()
            answer = self._connection.value(
                "CALL noclobber.take_lock(%s,%s,%s,%s,%s,%s,%s,%s::jsonb,%s::text[],%s::jsonb,%s,NULL)",
                (
                    *(place.workspace, place.path, hash_of(holding.secret), taker.deliverable_id),
                    *(taker.holder, folder, taker.lease_duration_s, process, held, _json(judged), True),
                ),
            )
            if answer["outcome"] == "taken":
                return holding._replace(row=_row(place.workspace, place.path, answer["lock"], asked_s))
            if not self._judge_row(place, answer, judged):
                break
        self._is_elsewhere = True
        return _contention(place, folder, answer, taker.deliverable_id)

    def _unconfirm(self, record: LockRecord) -> None:
        if record.workspace is None:
            return
        # Also if no answer comes in time: it waits on the server for its turn, as the question before it.
        with suppress(Exception):  # Its lease ends it otherwise.
            self._connection.ask(_NEVER, (record.workspace, record.path, record.secret_sha256), UNDO_S)

    def _report_recovery(self, folder: str, record: LockRecord, how: str, orphan: LockContent) -> None:
        """The server records whose row was taken over. An orphan that had none is unknown to it."""
        if orphan.record is None or orphan.record.workspace is None:
            self._append(folder, recovery_event(folder, record, how))

    def _append(self, folder: str, event: dict[str, Any]) -> None:
        place = _place(folder)
        event["payload"]["path"] = place.path
        PostgresLedger(self._connection, place.workspace).append(event)

    def find(self, folder: str, lock_id: str) -> FileHolding:
        """Return the lock with this id; `LockLost` if another one or none is there."""
        holding, asked_s = super().find(folder, lock_id), boot_time_s()
        record = holding.record
        if record.workspace is None:  # Taken without the coordinator, and so released without it.
            return holding
        found = self._find(record)
        if not found["is_own"]:
            raise self._lost_row(holding, found)
        return holding._replace(row=_row(record.workspace, record.path or "", found, asked_s))

    def check(self, holding: FileHolding) -> float:
        """Return how many seconds of the lease are left; `LockLost` if the lock was lost."""
        with self._losing_both(holding):
            left_s = super().check(holding)
        if holding.row is None:
            return left_s
        try:
            found = self._find(holding.record, patience_s=1.0)
        except CoordinatorUnavailableError as error:
            ends_in_s = holding.ends_in_s()
            if ends_in_s is not None and ends_in_s > 0:
                return ends_in_s
            raise holding.ended() from error
        if not found["is_own"]:
            raise self._lost_row(holding, found)
        return float(found["remaining_s"])

    def renew(self, holding: FileHolding, lease_s: int, *, patience_s: float | None = None) -> FileHolding:
        """Extend the lease to a full one from now; `LockLost` if the lock was lost."""
        # The file first: whoever judges it meanwhile finds that it has changed, and looks again.
        with self._losing_both(holding):
            renewed = super().renew(holding, lease_s, patience_s=patience_s)
        row = holding.row
        if row is None:
            return renewed
        asked_s = boot_time_s()
        arguments = (row.workspace, row.path, hash_of(holding.secret), lease_s)
        patience_s = None if patience_s is None else max(patience_s, RENEWAL_S)
        found = self._connection.value("CALL noclobber.renew_lock(%s,%s,%s,%s,NULL)", arguments, patience_s)
        if not found["is_own"]:
            raise self._lost_row(renewed, found)
        return renewed._replace(row=_row(row.workspace, row.path, found, asked_s))

    def give_up(self, holding: FileHolding, ended: Callable[[str], None]) -> None:
        """Take the lock away; `LockLost` if it was lost."""
        row = holding.row
        if row is not None:
            # The row first: without an answer nothing has changed, and the holder can try again. The file
            # keeps everybody out until it is gone, too.
            arguments = (row.workspace, row.path, hash_of(holding.secret), new_secret())
            found = self._connection.value("SELECT noclobber.give_up(%s,%s,%s,%s)", arguments)
            if not found["is_own"]:
                raise self._lost_row(holding, found)
        super().give_up(holding, ended)

    def clear(self, folder: str, taker: Taker, *, retire: bool = False) -> Recovery | LockContention | None:
        """Clear an orphan, or return the refusal; see `Arbiter`."""
        place = _place(folder)
        held = [hash_of(held_id) for held_id in taker.held_ids]
        row = self._look(place.workspace, place.path)
        if row is not None and _state(row)[0] == "live" and row["lock_id"] not in map(public_id, held):
            return _contention(place, folder, {"outcome": "refused", "lock": row}, taker.deliverable_id)
        cleared = super().clear(folder, taker, retire=retire)
        if cleared is not None and not isinstance(cleared, Recovery):
            return cleared
        judged: dict[str, Any] = {}
        for _ in range(_TRIES):
            answer = self._connection.value(
                "SELECT noclobber.clear(%s,%s,%s,%s,%s,%s::jsonb,%s::text[],%s::jsonb,%s,%s)",
                (
                    *(place.workspace, place.path, taker.deliverable_id, taker.holder, folder),
                    *(_json(taker.process.host), held, _json(judged), retire, "manual"),
                ),
            )
            if answer["outcome"] in ("free", "cleared"):
                orphan, why = answer.get("lock"), answer.get("recovered")
                if why is None or cleared is not None:
                    return cleared
                return Recovery(why, orphan["holder"], orphan["acquired"], orphan["lock_id"], _DETAILS[why])
            if not self._judge_row(place, answer, judged):
                break
        return _contention(place, folder, answer, taker.deliverable_id)

    def refused(self, folder: str, asker: str, refusal: LockContention) -> None:
        """Record a refusal."""
        super().refused(folder, asker, refusal)
        self._append(folder, refusal_event(folder, asker, refusal))

    # -- read, list, wait ----------------------------------------------------------------------------------

    def read(self, folder: str) -> LockStatus:
        """Return what the folder's lock is like now."""
        status, place = super().read(folder), _place(folder)
        row = self._look(place.workspace, place.path)
        if row is None:
            return status
        if status.state == "free":
            return _status(folder, row)
        return status._replace(fencing_token=row["token"]) if row["lock_id"] == status.public_id else status

    def list(self, root: str, ledgers: set[str] | None = None) -> Iterator[LockStatus]:
        """Yield the status of every locked folder below a root: those on this machine, and all others."""
        place = _place(root)
        rows = self._connection.ask("SELECT noclobber.list(%s,%s)", (place.workspace, place.path))
        elsewhere = {_folder(place, row["path"]): row for (row,) in rows}
        for status in super().list(root, ledgers):
            elsewhere.pop(status.folder, None)
            yield status
        for folder, row in elsewhere.items():
            yield _status(folder, row)

    def wait(self, folder: str, at_most_s: float) -> None:
        """Return when the lock may have been let go of, and after `at_most_s` at the latest."""
        if not self._is_elsewhere:
            super().wait(folder, at_most_s)
        else:  # Each look is a question, and the server tells when it is free.
            place = _place(folder)
            key = md5(f"{place.workspace}/{place.path}".encode(), usedforsecurity=False).hexdigest()
            self._connection.wait(key, at_most_s)

    # -- guarded writes ------------------------------------------------------------------------------------

    def intend_write(self, folder: str, holding: FileHolding | None, held: Sequence[int]) -> FileWriteIntent:
        """Return a write inside a locked folder, not begun."""
        if holding is not None and holding.row is None:
            return super().intend_write(folder, holding, held)
        return RowWriteIntent(self, self._connection, folder, holding, held)

    # -- parts ---------------------------------------------------------------------------------------------

    @contextmanager
    def _losing_both(self, holding: FileHolding) -> Iterator[None]:
        """For a step on the file. A lock that lost its file gives its row back: nobody waits for its end."""
        try:
            yield
        except LockLost:
            self._unconfirm(holding.record)
            raise

    def _lost_row(self, holding: FileHolding, row: dict[str, Any]) -> LockLost:
        """Say how a lock lost its row. Its file must not keep others out any longer."""
        found, lock_id = holding.lock_file.read(), holding.record.lock_id
        if found is None or found.key != lock_id:
            return self.lost(holding, found)
        with suppress(NoclobberError):  # By bids alone: the caller may have the folder's mutex.
            holding.lock_file.remove(lock_id, holding.record, self._may_break(holding.lock_file, lock_id))
        if row.get("is_free", True):
            return messages.lost(holding.folder, lock_id, "it was released, or recovered by somebody")
        by = messages.plain(row["holder"])
        return messages.lost(holding.folder, lock_id, f"it was taken over by {by}", by)

    def _judge_row(self, place: SharedFolder, answer: dict[str, Any], judged: dict[str, Any]) -> bool:
        """Look at what is in the way. True if it is not any more: then ask again."""
        if answer["outcome"] == "unsettled":
            if answer.get("is_overdue"):
                # A write on a shared volume whose writer is dead or cut off. After this it has happened, or
                # it never will: its rename must not land in a folder that somebody has locked since.
                from noclobber.postgres.sections import Sections
                from noclobber.postgres.volume import Volume

                volume = Volume(place.root, SYSTEM_CLOCK)
                Sections(self._connection, place, volume, SYSTEM_CLOCK, 0.0).recover(answer)
            elif _is_gone(answer["process"]):
                judged.setdefault("intents", []).append(answer["intent_id"])
                judged["key"] = judging_key()
            else:
                return False
            return True
        if not _is_gone(answer["lock"]["process"]):
            return False
        judge_dead(answer["lock"], judged)
        return True

    def _look(self, workspace: str, path: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self._connection.value(
            "SELECT noclobber.look(%s,%s)", (workspace, path)
        )
        return found

    def _find(self, record: LockRecord, patience_s: float | None = None) -> dict[str, Any]:
        arguments = (record.workspace, record.path, record.secret_sha256)
        found = self._connection.value("SELECT noclobber.find(%s,%s,%s)", arguments, patience_s)
        return {"is_own": False, "is_free": True} if found is None else found


class RowWriteIntent(FileWriteIntent):
    """A write inside a locked folder: on record before it begins, and under the folder's mutex."""

    def __init__(
        self,
        arbiter: PostgresArbiter,
        connection: ServerConnection,
        folder: str,
        holding: FileHolding | None,
        held: Sequence[int],
    ) -> None:
        super().__init__(arbiter, folder, holding, held)
        self._rows, self._connection = arbiter, connection
        self._id = os.urandom(16).hex()
        self._place: SharedFolder | None = None
        self._is_known = True  # False: it is not known what the server has heard.

    def begin(self) -> None:
        """Ask the server, take the mutex, read the lock, and raise unless the write may go on."""
        if self._holding is None and os.path.lexists(f"{self._folder}/{LOCK_NAME}"):
            # An orphan's file while its row can still be asked about. Then the row: whoever waits for the
            # mutex does not wait for the server.
            super().begin()
            super().settle()
        self._begin_row()
        super().begin()

    def _begin_row(self) -> None:
        holding = self._holding
        self._place = place = _place(self._folder)
        if holding is not None and holding.row is not None:  # Where the folder was when it was locked.
            self._place = place = place._replace(workspace=holding.row.workspace, path=holding.row.path)
        process = identify()
        writer = f"pid {process.pid} on {process.host}" if holding is None else holding.holder
        judged: dict[str, Any] = {}
        for _ in range(_TRIES):
            self._is_known = False
            answer = self._connection.value(
                "SELECT noclobber.begin_write(%s,%s,%s,%s,%s,%s,%s::jsonb,%s::jsonb,%s)",
                (
                    *(place.workspace, place.path, None if holding is None else hash_of(holding.secret)),
                    *(self._id, writer, self._folder, judged_process(process), _json(judged), WRITE_S),
                ),
            )
            self._is_known = True
            if answer["outcome"] == "begun":
                return
            if answer["outcome"] == "lost":
                assert holding is not None
                raise self._rows._lost_row(holding, answer["lock"])
            if not self._rows._judge_row(place, answer, judged):
                break
        raise _contention(place, self._folder, answer, None)

    def settle(self) -> None:
        """The write is over: from now on somebody else may take over. Also if it was never begun."""
        super().settle()
        if self._place is None:
            return
        arguments = (self._place.workspace, self._place.path, self._id)
        self._place = None
        try:
            if self._is_known:
                self._connection.ask(_SETTLE, arguments)
            else:
                self._connection.ask(_NEVER, arguments, UNDO_S)
        except CoordinatorUnavailableError:
            # What happened to the file has happened. The server is told before the next question, and the
            # intent ends by itself.
            with suppress(CoordinatorUnavailableError):
                self._connection.tell(_SETTLE, arguments)


_SETTLE = "SELECT noclobber.settle_write(%s,%s,%s)"
_NEVER = "SELECT noclobber.never(%s,%s,%s)"  # Of what was asked for and may still be done later.
_DETAILS = {"lease_expired": "its lease ran out", "pid_dead": "its process no longer runs"}


def _place(folder: str) -> SharedFolder:
    try:
        folder.encode()
    except UnicodeEncodeError:
        raise BadEventError(
            folder, "its path is not valid UTF-8, so nothing can be recorded there; rename the folder"
        ) from None
    return place_of(folder)


def _folder(place: SharedFolder, path: str) -> str:
    return f"{place.root.rstrip('/')}/{path}".rstrip("/") or "/"


def _row(workspace: str, path: str, row: dict[str, Any], asked_s: float) -> LockRow:
    # Counted from the question, and not from the answer: the server counts from a moment in between.
    return LockRow(workspace, path, row["token"], asked_s + float(row["remaining_s"]) * (1 - MARGIN))


def _state(row: dict[str, Any]) -> tuple[LockState, str]:
    left_s, process = float(row["remaining_s"]), row["process"]
    if left_s <= 0:
        return "expired", f"its lease ran out {-left_s:.0f} s ago"
    if _is_gone(process):
        return "dead", f"its process {process['pid']} no longer runs"
    return "live", "held"


def _status(folder: str, row: dict[str, Any]) -> LockStatus:
    (state, detail), process = _state(row), row["process"]
    return LockStatus(
        folder,
        state,
        detail,
        messages.plain(row["deliverable_id"]),
        messages.plain(row["holder"]),
        row["acquired"],
        max(0, int(row["age_s"])),
        row["lease_s"],
        _whole_s(row["remaining_s"]) if state == "live" else 0,
        None if process is None else process["pid"],
        None if process is None else messages.plain(process["host"]),
        row["lock_id"],
        row["token"],
    )


def _whole_s(left_s: float) -> int:
    """Whole seconds that are left, as people count them: a lease of 60 s that was just taken has 60."""
    return max(0, ceil(float(left_s) - 0.001))


def _is_gone(process: dict[str, Any] | None) -> bool:
    return process is not None and fate(ProcessIdentity(**process)) == GONE


def _contention(
    place: SharedFolder, folder: str, answer: dict[str, Any], deliverable_id: str | None
) -> LockContention:
    row, where = answer["lock"], None
    holder, remaining_s = row["holder"], row.get("remaining_s")
    if answer["outcome"] == "unsettled":  # Nobody takes over in the middle of a write.
        holder, remaining_s = answer["writer"], answer["remaining_s"]
    elif answer["outcome"] == "in_the_way":
        where = _folder(place, row["path"])
    return messages.contention(
        folder, holder, deliverable_id or row["deliverable_id"], _whole_s(remaining_s or 0),
        SYSTEM_CLOCK.now_s(), where=where,
    )  # fmt: skip


def _spelled(taker: Taker) -> str | None:
    """The process that the lock is bound to; NULL if its lease alone counts."""
    return None if taker.lease_only else _spelled_process(taker.process)


@lru_cache(8)
def _spelled_process(process: ProcessIdentity) -> str:
    """The same for every lock of a process."""
    return judged_process(process)


def _json(value: Any) -> str:
    return json.dumps(value)
