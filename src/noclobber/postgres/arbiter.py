"""
The arbiter whose locks are rows: one holder on any number of machines.

Each operation is one SQL function (functions.sql): one transaction, one round trip, the server's clock. What
the server cannot know is whether a process on some machine still runs. It answers "refused", with the
process; who asked looks, if that process is of its own machine, and asks again with what it found
(`judged`): "the holder of version 7 is dead". The server believes that of this very version of this very
lock only.

A holder counts its lease by its own clock as well, from the moment at which it *asked*, less `MARGIN`: its
clock may run a little slower than the server's. If the server cannot be reached, the lock is lost in its own
eyes before anybody else can get it. The clock is the one that counts while a machine sleeps.

Fencing tokens only rise. A `.lock` file is put into the folder as well, for people and for programs that look
for one. It is a mirror: nobody here believes it.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from contextlib import suppress
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.disk.processes import GONE, ProcessIdentity, fate, identify
from noclobber.errors import BadEventError, CoordinatorUnavailableError, LockLost
from noclobber.lock import messages
from noclobber.lock.arbiter import LockStatus, Recovery, Taker
from noclobber.lock.limits import COORDINATED_LEASE_S
from noclobber.lock.os_errors import explain
from noclobber.lock.record import hash_of, new_secret, public_id
from noclobber.postgres import mirror
from noclobber.postgres.asking import judge_dead
from noclobber.postgres.ledger import PostgresLedger
from noclobber.postgres.workspace_name import SharedFolder, place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from noclobber.errors import LockContention
    from noclobber.lock.arbiter import LockState
    from noclobber.postgres.connection import ServerConnection

MARGIN = 0.05  # Of the lease: two clocks' rates differ by less.
WRITE_S = 120.0  # For so long at most a write that was let through keeps others from taking over.
POLL_S = 0.25  # Behind a notice that did not come.
RENEWAL_S = 2.0  # A renewal waits for the server's disk, and perhaps for its standby, for so long at least.
UNDO_S = 1.0  # Whoever has waited in vain waits for so long that it is undone.
_TRIES = 8  # How many dead holders in a row may be in the way.


def boot_time_s() -> float:
    """Seconds that go on while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class RowHolding(NamedTuple):
    """A lock that is held, as the server knows it."""

    place: SharedFolder
    secret: str
    deliverable_id: str
    holder: str
    renewal_s: int | None
    fencing_token: int
    """Rises with every holder. Whoever keeps something safe elsewhere refuses a lower one."""
    valid_until_s: float
    """By this machine's clock. After it, and without an answer from the server, the lock is lost."""

    @property
    def lock_id(self) -> str:
        """The holder's id."""
        return self.secret

    @property
    def folder(self) -> str:
        """Where the folder is on this machine."""
        return f"{self.place.root.rstrip('/')}/{self.place.path}".rstrip("/") or "/"

    def ends_in_s(self) -> float:
        """The server may have been away for that long: then nobody else has the lock before this is over."""
        return self.valid_until_s - boot_time_s()

    def ended(self) -> LockLost:
        """Nobody renewed it in time."""
        what = "its lease has ended and the coordinator does not answer"
        return messages.lost(self.folder, public_id(hash_of(self.secret)), what)


class PostgresArbiter:
    """Decides by asking the server. Any number of these may share one connection."""

    longest_pause_s = POLL_S
    renewed_lease_s = COORDINATED_LEASE_S

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    def close(self) -> None:
        """The connection is the process's own, and others use it."""

    # -- take, renew, give up, clear -----------------------------------------------------------------------

    def take(self, folder: str, taker: Taker, began: Callable[[RowHolding], None]) -> LockContention | None:
        """Take the lock, or return the refusal; see `Arbiter`."""
        place = self._place(folder)
        in_the_way = mirror.foreign_lock(folder)
        if in_the_way is not None:  # Somebody works here who has never heard of the coordinator.
            return in_the_way
        secret = new_secret()
        secret_sha256, process = hash_of(secret), _spelled(taker)
        held = [hash_of(held_id) for held_id in taker.held_ids]
        judged: dict[str, Any] = {}
        for _ in range(_TRIES):
            asked_s = boot_time_s()
            try:
                answer = self._connection.value(
                    "CALL noclobber.take_lock(%s,%s,%s,%s,%s,%s,%s,%s::jsonb,%s::text[],%s::jsonb,%s,NULL)",
                    (
                        *(place.workspace, place.path, secret_sha256, taker.deliverable_id, taker.holder),
                        *(folder, taker.lease_duration_s, process, held, _json(judged), True),
                    ),
                )
                if answer["outcome"] == "taken":
                    holding = _holding(place, secret, answer["lock"], asked_s)
                    began(holding)
                    mirror.put(folder, place, answer["lock"], taker, secret_sha256)
                    return None
            except BaseException:
                # An answer that was lost, Ctrl-C before the taker knew of it: what may be ours must not stay.
                self._undo(place, secret, folder)
                raise
            if not self._judge(place, answer, judged):
                return _contention(place, folder, answer, taker.deliverable_id)
        return _contention(place, folder, answer, taker.deliverable_id)

    def _undo(self, place: SharedFolder, secret: str, folder: str) -> None:
        """Take back what may have been taken. Raises nothing: its lease ends it otherwise."""
        try:
            # Also if no answer comes in time: it waits on the server for its turn, as the question before it.
            self._connection.ask(_NEVER, (place.workspace, place.path, hash_of(secret)), UNDO_S)
            mirror.remove(folder, place, hash_of(secret))
        except Exception:  # noqa: S110 - the error that brought us here is the one to tell
            pass

    def find(self, folder: str, lock_id: str) -> RowHolding:
        """Return the lock with this id; `LockLost` if another one or none is there."""
        place, asked_s = self._place(folder), boot_time_s()
        found = self._find(place, lock_id)
        if not found["is_own"]:
            now = (
                "the folder is not locked"
                if found["is_free"]
                else f"the folder is locked by {messages.plain(found['holder'])}"
            )
            raise LockLost(
                folder,
                f"there is no lock with this id here: the id is wrong, or its lock has ended; {now}. If the "
                "id is right, stop writing here and acquire again",
                lock_id=public_id(hash_of(lock_id)),
                taken_by=None,
            )
        return _holding(place, lock_id, found, asked_s)

    def check(self, holding: RowHolding) -> float:
        """Return how many seconds of the lease are left; `LockLost` if the lock was lost."""
        self._assert_there(holding)
        try:
            found = self._find(holding.place, holding.secret, patience_s=1.0)
        except CoordinatorUnavailableError as error:
            left_s = holding.valid_until_s - boot_time_s()
            if left_s > 0:
                return left_s
            raise messages.lost(
                holding.folder,
                public_id(hash_of(holding.secret)),
                f"its lease has ended and the coordinator does not answer ({error.path})",
            ) from error
        if not found["is_own"]:
            raise _lost(holding, found)
        return float(found["remaining_s"])

    def renew(self, holding: RowHolding, lease_s: int, *, patience_s: float | None = None) -> RowHolding:
        """Extend the lease to a full one from now; `LockLost` if the lock was lost."""
        self._assert_there(holding)
        place, asked_s = holding.place, boot_time_s()
        arguments = (place.workspace, place.path, hash_of(holding.secret), lease_s)
        patience_s = None if patience_s is None else max(patience_s, RENEWAL_S)
        found = self._connection.value("CALL noclobber.renew_lock(%s,%s,%s,%s,NULL)", arguments, patience_s)
        if not found["is_own"]:
            raise _lost(holding, found)
        mirror.renew(holding.folder, found, hash_of(holding.secret))
        return _holding(place, holding.secret, found, asked_s)

    def give_up(self, holding: RowHolding, ended: Callable[[str], None]) -> None:
        """Take the lock away; `LockLost` if it was lost."""
        place, folder, secret_sha256 = holding.place, holding.folder, hash_of(holding.secret)
        # The mirror first: afterwards it could be the next holder's.
        mirror.remove(folder, place, secret_sha256)
        arguments = (place.workspace, place.path, secret_sha256, new_secret())
        found = self._connection.value("SELECT noclobber.give_up(%s,%s,%s,%s)", arguments)
        if not found["is_own"]:
            raise _lost(holding, found)
        if not os.path.isdir(folder):  # It was lost before; nobody else has to wait for its end now.
            raise messages.lost(folder, public_id(secret_sha256), _NOT_THERE)
        ended(folder)

    def clear(self, folder: str, taker: Taker, *, retire: bool = False) -> Recovery | LockContention | None:
        """Clear an orphan, or return the refusal; see `Arbiter`."""
        return self._clear(self._place(folder), folder, taker, "manual", retire=retire)

    def _clear(
        self, place: SharedFolder, folder: str, taker: Taker, how: str, *, retire: bool
    ) -> Recovery | LockContention | None:
        held = [hash_of(held_id) for held_id in taker.held_ids]
        judged: dict[str, Any] = {}
        for _ in range(_TRIES):
            answer = self._connection.value(
                "SELECT noclobber.clear(%s,%s,%s,%s,%s,%s::jsonb,%s::text[],%s::jsonb,%s,%s)",
                (
                    *(place.workspace, place.path, taker.deliverable_id, taker.holder, folder),
                    *(_json(taker.process.host), held, _json(judged), retire, how),
                ),
            )
            if answer["outcome"] in ("free", "cleared"):
                mirror.remove(folder, place, None)
                orphan, why = answer.get("lock"), answer.get("recovered")
                if why is None:
                    return None
                detail = _DETAILS[why]
                return Recovery(why, orphan["holder"], orphan["acquired"], orphan["lock_id"], detail)
            if not self._judge(place, answer, judged):
                break
        return _contention(place, folder, answer, taker.deliverable_id)

    def refused(self, folder: str, asker: str, refusal: LockContention) -> None:
        """Record a refusal."""
        place, report = self._place(folder), refusal.to_report()
        payload = {"deliverable_id": report["deliverable_id"], "folder": folder, "path": place.path}
        event = {
            "action_type": "LOCK_CONTENTION",
            "payload": {**payload, "requested_by": asker},
            "result": {"status": "REFUSED", **report},
            "identity": {"agent_id": asker, "host": os.uname().nodename},
        }
        PostgresLedger(self._connection, place.workspace).append(event)

    # -- read, list, wait ----------------------------------------------------------------------------------

    def read(self, folder: str) -> LockStatus:
        """Return what the folder's lock is like now."""
        place = self._place(folder)
        found = self._connection.value("SELECT noclobber.look(%s,%s)", (place.workspace, place.path))
        return LockStatus(folder, "free", "not locked") if found is None else _status(folder, found)

    def list(self, root: str, ledgers: set[str] | None = None) -> Iterator[LockStatus]:
        """Yield the status of every locked folder below a root. Their events are in no file, but here."""
        place = self._place(root)
        for (found,) in self._connection.ask("SELECT noclobber.list(%s,%s)", (place.workspace, place.path)):
            yield _status(f"{place.root.rstrip('/')}/{found['path']}".rstrip("/") or "/", found)

    def wait(self, folder: str, at_most_s: float) -> None:
        """Return when the lock may have been let go of, and after `at_most_s` at the latest."""
        place = self._place(folder)
        key = _notice_key(place)
        self._connection.wait(key, min(at_most_s, POLL_S))

    # -- guarded writes ------------------------------------------------------------------------------------

    def intend_write(self, folder: str, holding: RowHolding | None, held: Sequence[int]) -> RowWriteIntent:
        """Return a write inside a locked folder, not begun. Mutexes are this machine's, and say nothing."""
        return RowWriteIntent(self, self._connection, folder, holding)

    def _assert_there(self, holding: RowHolding) -> None:
        """Deleting the folder ends the lock; moving it too, because other machines know it by its path."""
        if os.path.isdir(holding.folder):
            return
        self._undo(holding.place, holding.secret, holding.folder)
        lock_id = public_id(hash_of(holding.secret))
        raise messages.lost(holding.folder, lock_id, _NOT_THERE)

    # -- parts ---------------------------------------------------------------------------------------------

    def _place(self, folder: str) -> SharedFolder:
        try:
            if not stat.S_ISDIR(os.stat(folder).st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            folder.encode()
        except UnicodeEncodeError:
            raise BadEventError(
                folder, "its path is not valid UTF-8, so nothing can be recorded there; rename the folder"
            ) from None
        except OSError as error:
            explain(error, folder, "lock it")
        return place_of(folder)

    def _judge(self, place: SharedFolder, answer: dict[str, Any], judged: dict[str, Any]) -> bool:
        """Look at what is in the way. True if it is not any more: then ask again."""
        if answer["outcome"] == "unsettled" and answer.get("is_overdue"):
            # A write on a shared volume whose writer is dead or cut off. After this it has happened, or it
            # never will: its rename must not land in a folder that somebody has locked since.
            from noclobber.core.clock import SYSTEM_CLOCK
            from noclobber.postgres.sections import Sections
            from noclobber.postgres.volume import Volume

            volume = Volume(place.root, SYSTEM_CLOCK)
            Sections(self._connection, place, volume, SYSTEM_CLOCK, 0.0).recover(answer)
            return True
        return _judge(answer, judged)

    def _find(self, place: SharedFolder, secret: str, patience_s: float | None = None) -> dict[str, Any]:
        arguments = (place.workspace, place.path, hash_of(secret))
        found = self._connection.value("SELECT noclobber.find(%s,%s,%s)", arguments, patience_s)
        return {"is_own": False, "is_free": True} if found is None else found


class RowWriteIntent:
    """A write inside a locked folder, on record before it happens."""

    def __init__(
        self, arbiter: PostgresArbiter, connection: ServerConnection, folder: str, holding: RowHolding | None
    ) -> None:
        self._arbiter, self._connection, self._folder, self._holding = arbiter, connection, folder, holding
        self._id = os.urandom(16).hex()
        self._place: SharedFolder | None = None
        self._is_known = True  # False: it is not known what the server has heard.

    def begin(self) -> None:
        """Ask the server, and raise unless the write may go on."""
        holding = self._holding
        self._place = place = place_of(self._folder) if holding is None else holding.place
        process = identify()
        writer = f"pid {process.pid} on {process.host}" if holding is None else holding.holder
        judged: dict[str, Any] = {}
        for _ in range(_TRIES):
            self._is_known = False
            answer = self._connection.value(
                "SELECT noclobber.begin_write(%s,%s,%s,%s,%s,%s,%s::jsonb,%s::jsonb,%s)",
                (
                    *(place.workspace, place.path, None if holding is None else hash_of(holding.secret)),
                    *(self._id, writer, self._folder, _json(process._asdict()), _json(judged), WRITE_S),
                ),
            )
            self._is_known = True
            if answer["outcome"] == "begun":
                return
            if answer["outcome"] == "lost":
                assert holding is not None
                raise _lost(holding, answer["lock"])
            if not self._arbiter._judge(place, answer, judged):
                break
        raise _contention(place, self._folder, answer, None)

    def settle(self) -> None:
        """The write is over: from now on somebody else may take over. Also if it was never begun."""
        if self._place is not None:
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


_NOT_THERE = "the folder was deleted or moved"
_DETAILS = {"lease_expired": "its lease ran out", "pid_dead": "its process no longer runs"}


def _holding(place: SharedFolder, secret: str, row: dict[str, Any], asked_s: float) -> RowHolding:
    # Counted from the question, and not from the answer: the server counts from a moment in between.
    valid_s = float(row["remaining_s"]) * (1 - MARGIN)
    return RowHolding(
        place, secret, row["deliverable_id"], row["holder"], row["renewal_s"], row["token"], asked_s + valid_s
    )


def _status(folder: str, row: dict[str, Any]) -> LockStatus:
    left_s, process = float(row["remaining_s"]), row["process"]
    state: LockState = "live"
    detail = "held"
    if left_s <= 0:
        state, detail = "expired", f"its lease ran out {-left_s:.0f} s ago"
    elif _is_gone(process):
        state, detail = "dead", f"its process {process['pid']} no longer runs"
    return LockStatus(
        folder,
        state,
        detail,
        messages.plain(row["deliverable_id"]),
        messages.plain(row["holder"]),
        row["acquired"],
        max(0, int(row["age_s"])),
        row["lease_s"],
        _whole_s(left_s) if state == "live" else 0,
        None if process is None else process["pid"],
        None if process is None else messages.plain(process["host"]),
        row["lock_id"],
        row["token"],
    )


def _whole_s(left_s: float) -> int:
    """Whole seconds that are left, as people count them: a lease of 60 s that was just taken has 60."""
    return max(0, ceil(left_s - 0.001))


def _is_gone(process: dict[str, Any] | None) -> bool:
    return process is not None and fate(ProcessIdentity(**process)) == GONE


def _judge(answer: dict[str, Any], judged: dict[str, Any]) -> bool:
    """Look whether the process that is in the way still runs. True if it does not: then ask again."""
    if answer["outcome"] == "unsettled":
        if not _is_gone(answer["process"]):
            return False
        judged.setdefault("intents", []).append(answer["intent_id"])
        return True
    row = answer["lock"]
    if not _is_gone(row["process"]):
        return False
    judge_dead(row, judged)
    return True


def _contention(
    place: SharedFolder, folder: str, answer: dict[str, Any], deliverable_id: str | None
) -> LockContention:
    row = answer["lock"]
    if answer["outcome"] == "unsettled":
        holder, remaining_s = f"{answer['writer']} (in the middle of a write)", answer["remaining_s"]
    else:
        holder, remaining_s = row["holder"], row["remaining_s"]
    where = None
    if answer["outcome"] == "in_the_way":
        where = f"{place.root.rstrip('/')}/{row['path']}".rstrip("/") or "/"
    return messages.contention(
        folder, holder, deliverable_id or row["deliverable_id"], _whole_s(float(remaining_s)),
        time.time(), where=where,
    )  # fmt: skip


def _lost(holding: RowHolding, row: dict[str, Any]) -> LockLost:
    lock_id = public_id(hash_of(holding.secret))
    if row.get("is_free", True):
        return messages.lost(holding.folder, lock_id, "it was released, or recovered by somebody")
    by = messages.plain(row["holder"])
    return messages.lost(holding.folder, lock_id, f"it was taken over by {by}", by)


def _spelled(taker: Taker) -> str | None:
    """The process that the lock is bound to; NULL if its lease alone counts."""
    return None if taker.lease_only else _spelled_process(taker.process)


@lru_cache(8)
def _spelled_process(process: ProcessIdentity) -> str:
    """The same for every lock of a process."""
    return _json(process._asdict())


def _json(value: Any) -> str:
    return json.dumps(value)


def _notice_key(place: SharedFolder) -> str:
    from hashlib import md5

    return md5(f"{place.workspace}/{place.path}".encode(), usedforsecurity=False).hexdigest()
