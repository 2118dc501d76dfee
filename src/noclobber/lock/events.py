"""
What goes on record about a lock: one event per acquisition, renewal, release, recovery and refusal.

Events go to `.lock-ledger.jsonl` inside the deliverable folder (REQ-LOCK-008), or to a ledger that the
caller passes. They are written inside the section that makes the change, so that their order in the ledger is
the order in which things happened. An observer is told of them after the section, by `tell_observer()`.

Automatic and manual recovery write the same event, `LOCK_RECOVERED`. It is written once even if the
recoverer is killed between taking the lock and writing: the new lock carries `recovered_from`, and
whoever recovers that lock finds that the event is missing and writes it first.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from json.encoder import encode_basestring as _quote
from typing import TYPE_CHECKING, Any, Protocol

from noclobber.errors import BadEventError, LedgerError
from noclobber.lock.names import LEDGER_NAME

if TYPE_CHECKING:
    from noclobber.core.clock import Clock
    from noclobber.errors import LockContention
    from noclobber.ledger import AgentTraceLedger, LedgerEntry
    from noclobber.ledger.observer import Observer
    from noclobber.lock.record import LockRecord

    class EventLog(Protocol):
        """What a lock asks of the ledger that a caller passes: less than a whole one."""

        def append(self, event: dict[str, Any]) -> LedgerEntry:
            """Record one event or raise `LedgerError`."""

        def events(self) -> Any:
            """Yield every event."""


class LockEvents:
    """Writes a lock's events. Keeps the folder's ledger open for as long as the lock object lives."""

    def __init__(
        self, clock: Clock, ledger: EventLog | None = None, observer: Observer | None = None
    ) -> None:
        self._clock, self._given, self._observer = clock, ledger, observer
        self._not_told: list[tuple[dict[str, Any], LedgerEntry]] = []
        self._own: AgentTraceLedger | None = None
        self._own_folder = ""

    def acquired(self, folder: str, record: LockRecord) -> None:
        """The lock was taken; if it was taken over, say first from whom."""
        if record.recovered_from is not None:
            self.recovered(folder, record, "acquire")
        self._append(folder, "LOCK_ACQUIRED", record, "ACQUIRED")

    def renewed(self, folder: str, record: LockRecord) -> None:
        """The lease was extended."""
        self._append(folder, "LOCK_RENEWED", record, "RENEWED")

    def released(self, folder: str, record: LockRecord) -> None:
        """The holder released the lock."""
        self._append(folder, "LOCK_RELEASED", record, "RELEASED")

    def retired(self, folder: str, record: LockRecord) -> None:
        """The folder is no longer a deliverable that anybody works in."""
        self._append(folder, "LOCK_RETIRED", record, "RETIRED")

    def recovered(self, folder: str, record: LockRecord, how: str) -> None:
        """An orphan was taken over, by `acquire` or by hand. One kind of event for both (REQ-LOCK-006)."""
        self._record(folder, recovery_event(folder, record, how))

    def catch_up(self, folder: str, orphan: LockRecord) -> None:
        """Write the recovery that `orphan`'s holder made, if it was killed before it could."""
        if orphan.recovered_from is None:
            return
        with suppress(Exception):  # An unreadable ledger says nothing; a doubled event is better than none.
            for event in self._ledger(folder).events():
                if (
                    event.get("action_type") == "LOCK_RECOVERED"
                    and event["result"]["lock_id"] == orphan.lock_id
                ):
                    return
        self.recovered(folder, orphan, "acquire")

    def refused(self, folder: str, holder: str, error: LockContention) -> None:
        """Somebody asked and was refused. Every refusal is on record, once per question and not per look."""
        self._record(folder, refusal_event(folder, holder, error))

    def tell_observer(self) -> None:
        """Tell the observer what was recorded since the last time. Outside the section: it may take long."""
        if self._observer is None or not self._not_told:
            return
        from noclobber.ledger.observer import tell

        while self._not_told:
            tell(self._observer, *self._not_told.pop(0))

    def close(self) -> None:
        """Close the folder's ledger. The next event opens it again."""
        if self._own is not None:
            self._own.close()
            self._own = None

    def _append(self, folder: str, kind: str, record: LockRecord, status: str) -> None:
        # Spelled by hand: with a dict and an encoder, acquire + release takes 1.12 to 1.18 times as long,
        # and is no longer four times as fast as filelock's lease (a bar of `make bench`).
        lease = f',"lease_duration_s":{record.lease_duration_s},"pid":{record.pid}'
        try:
            body = (
                f'"action_type":"{kind}","payload":{{"deliverable_id":{_quote(record.deliverable_id)},'
                f'"folder":{_quote(folder)},"lock_id":{_quote(record.lock_id)},'
                f'"acquired":{_quote(record.acquired)}{"" if status == "RELEASED" else lease}}},'
                f'"result":{{"status":"{status}"}},"identity":{{"agent_id":{_quote(record.holder)},'
                f'"host":{"null" if record.host is None else _quote(record.host)}}}'
            ).encode()
        except UnicodeEncodeError:
            raise BadEventError(
                folder, "its path is not valid UTF-8, so nothing can be recorded there; rename the folder"
            ) from None
        if self._given is None and self._observer is None:
            try:
                self._own_ledger(folder).append_spelled(body)
            except LedgerError as error:
                self._explain(folder, error)
                raise
        else:
            self._record(folder, json.loads(b"{%b}" % body))

    def _record(self, folder: str, event: dict[str, Any]) -> None:
        try:
            entry = self._ledger(folder).append(event)
        except LedgerError as error:
            self._explain(folder, error)
            raise
        if self._observer is not None:
            self._not_told.append((event, entry))

    def _explain(self, folder: str, error: LedgerError) -> None:
        """Raise an error with a remedy if something was placed where the folder's record goes."""
        path = os.path.join(folder, LEDGER_NAME)
        if self._given is None and os.path.isdir(path):
            raise LedgerError(
                path,
                "a folder has the name of the record of locks, so nothing can be locked here. "
                "Move it away or delete it, then try again",
            ) from error

    def _ledger(self, folder: str) -> EventLog:
        return self._own_ledger(folder) if self._given is None else self._given

    def _own_ledger(self, folder: str) -> AgentTraceLedger:
        if self._own is None or self._own_folder != folder:  # The folder was moved: its ledger moved along.
            from noclobber.ledger import AgentTraceLedger

            self.close()
            self._own = AgentTraceLedger(os.path.join(folder, LEDGER_NAME), clock=self._clock)
            self._own_folder = folder
        return self._own


def recovery_event(folder: str, record: LockRecord, how: str) -> dict[str, Any]:
    """Return the event of an orphan that `record` took the place of."""
    origin = record.recovered_from or {}
    names = ("recovery_reason", "previous_holder", "previous_acquired", "previous_lock_id", "detail")
    return {
        "action_type": "LOCK_RECOVERED",
        "payload": {
            "deliverable_id": record.deliverable_id,
            "folder": folder,
            **{name: origin.get(name) for name in names},
        },
        "result": {
            "status": "RECOVERED",
            "recovered_by": record.holder,
            "recovered_at": record.acquired,
            "how": how,
            "lock_id": record.lock_id,
        },
        "identity": {"agent_id": record.holder, "host": record.host},
    }


def refusal_event(folder: str, asker: str, refusal: LockContention) -> dict[str, Any]:
    """Return the event of a request that was refused."""
    report = refusal.to_report()
    return {
        "action_type": "LOCK_CONTENTION",
        "payload": {"deliverable_id": report["deliverable_id"], "folder": folder, "requested_by": asker},
        "result": {"status": "REFUSED", **report},
        "identity": {"agent_id": asker, "host": os.uname().nodename},
    }
