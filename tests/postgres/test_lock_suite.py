"""
The lock's own tests once more, with a server that decides: one suite over both arbiters.

`tests/lock/arbiter_suite.py` has what every arbiter must do; here are the lock's own promises, in one process.
Races of many processes are in torture/hosts.py. Time is told to the server, too. Waiting is polling here: nobody hears a notice while time stands still.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from noclobber.core.clock import iso8601
from noclobber.disk.processes import ProcessIdentity, identify
from noclobber.lock.record import LockRecord
from noclobber.postgres.connection import ServerConnection
from noclobber.postgres.coordinator import _connection
from noclobber.postgres.ledger import PostgresLedger
from noclobber.postgres.workspace_name import place_of
from tests.lock import test_aio, test_lock
from tests.rigs import postgres
from tests.rigs.locks import T0_S, ToldClock

SUITES = (test_lock, test_aio)

# Tests that are about the lock's file, or about this machine's kernel, and why.
BY_HAND = "the lock's file is changed by hand; on a server it is a mirror that nobody believes"
BY_PATH = "a lock on a server is one on a path, and does not follow the folder"
OWN_LEDGER = "a server keeps the record itself, in the same transaction"
ABOUT_FILES = {
    "test_a_corrupt_lock_is_recovered_and_nothing_of_others_is_lost": BY_HAND,
    "test_an_error_in_the_block_is_not_hidden_by_the_loss": BY_HAND,
    "test_a_lock_that_was_removed_by_hand_and_taken_by_another_is_not_released": BY_HAND,
    "test_a_loss_is_told_in_the_event_loop": BY_HAND,
    "test_leftovers_of_killed_processes_are_swept_by_recover": BY_HAND,
    "test_list_shows_every_lock_below_a_root_with_its_state": "one of its locks is damaged by hand",
    "test_a_moved_folder_stays_locked_by_its_holder": BY_PATH,
    "test_a_recreated_folder_with_a_new_holder_is_not_touched_by_the_old_one": BY_PATH,
    "test_deleting_the_folder_ends_the_lock_without_an_unhandled_error[True]": BY_PATH,
    "test_a_copied_folder_does_not_carry_the_lock": BY_PATH,
    "test_where_inode_numbers_change_a_live_lock_is_not_taken_for_a_copy": BY_PATH,
    "test_no_lock_is_taken_that_cannot_be_recorded": OWN_LEDGER,
    "test_a_refusal_stands_even_if_it_cannot_be_recorded": OWN_LEDGER,
    "test_a_ledger_of_the_callers_gets_the_events_instead": OWN_LEDGER,
    "test_both_ledgers_hold_the_same_events": OWN_LEDGER,
    "test_a_recovery_that_was_not_recorded_is_recorded_by_the_next": OWN_LEDGER,
    "test_a_holder_that_renews_at_the_last_moment_is_not_taken_over": "steps of the file's mutex",
    "test_a_folder_held_by_a_stopped_process_is_refused_and_not_waited_for": "a folder's mutex decides nothing",
    "test_waiting_ends_when_the_holder_lets_go": "how long the naps of a lock by file are",
    "test_the_lifecycle_file_is_never_opened": "counts what a lock by file opens",
    "test_a_lock_that_cannot_be_created_says_why_and_what_to_do": "what creating the file fails with",
}

_TOLD = """
CREATE TABLE IF NOT EXISTS noclobber.told_clock (told timestamptz);
INSERT INTO noclobber.told_clock SELECT NULL WHERE NOT EXISTS (SELECT FROM noclobber.told_clock);
CREATE OR REPLACE FUNCTION noclobber.now_() RETURNS timestamptz LANGUAGE sql VOLATILE AS
'SELECT coalesce((SELECT told FROM noclobber.told_clock), clock_timestamp() + (SELECT ahead FROM noclobber.test_clock))';
"""


class ServerClock(ToldClock):
    """Tells the server, too."""

    _link: psycopg.Connection[Any] | None = None

    last: ServerClock | None = None

    def __init__(self, now_s: float = T0_S) -> None:
        super().__init__(now_s)
        ServerClock.last = self

    @property
    def time_s(self) -> float:
        return self._time_s

    @time_s.setter
    def time_s(self, now_s: float) -> None:
        self._time_s = now_s
        tell(now_s)


def tell(now_s: float | None) -> None:
    """From now on it is this time on the server; None: the real time."""
    if ServerClock._link is None:
        ServerClock._link = psycopg.connect(postgres.coordinator(), autocommit=True)
        ServerClock._link.execute(_TOLD)
    ServerClock._link.execute("UPDATE noclobber.told_clock SET told = to_timestamp(%s)", (now_s,))


def events(folder: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """What the server has on record about the folder's lock."""
    place, connection = place_of(str(folder)), ServerConnection(postgres.coordinator())
    try:
        found = list(PostgresLedger(connection, place.workspace).events())
    finally:
        connection.close()
    return [
        event
        for event in found
        if event["payload"].get("path") == place.path and (kind is None or event["action_type"] == kind)
    ]


def put_record(folder: Path, who: ProcessIdentity | None = None, **changes: Any) -> LockRecord:
    """Take the lock as somebody else would have."""
    who, place = who or identify(), place_of(str(folder))
    record = LockRecord(
        "D-1", "somebody else", iso8601(T0_S), 1800, who.pid, os.urandom(16).hex(),
        who.host, who.boot_id, who.pid_namespace, who.started, 0, 0,
    )._replace(**changes)  # fmt: skip
    process = {name: getattr(record, name, None) for name in ProcessIdentity._fields}
    process["started"], began = record.pid_started, record.acquired_s
    with psycopg.connect(postgres.coordinator()) as link:
        row = (place.workspace, place.path)
        link.execute("DELETE FROM noclobber.lock WHERE workspace = %s AND path = %s", row)
        link.execute(
            "INSERT INTO noclobber.lock (workspace, path, token, version, secret_sha256, deliverable_id, holder, folder,"
            " acquired, expires, lease_s, renewal_s, process) VALUES (%s, %s, 1, 1, %s, %s, %s, %s, to_timestamp(%s),"
            " to_timestamp(%s), %s, %s, %s::jsonb)",
            (
                *(place.workspace, place.path, record.lock_id * 2, record.deliverable_id, record.holder),
                *(str(folder), began, began + record.lease_duration_s, record.lease_duration_s),
                *(record.lease_duration_s, json.dumps(process)),
            ),
        )
    return record


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """A deliverable inside a project: the name of the project outlives it."""
    (tmp_path / ".noclobber").mkdir()
    (tmp_path / "deliverable").mkdir()
    return tmp_path / "deliverable"


@pytest.fixture
def clock(server: None) -> ToldClock:
    return ServerClock()


@pytest.fixture(autouse=True)
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The server decides, and knows the time that is told."""
    if request.node.name in ABOUT_FILES:
        pytest.skip(ABOUT_FILES[request.node.name])
    monkeypatch.setenv("NOCLOBBER_COORDINATOR", postgres.coordinator())
    for suite in SUITES:
        monkeypatch.setattr(suite, "events", events, raising=False)
        monkeypatch.setattr(suite, "put_record", put_record, raising=False)
        monkeypatch.setattr(suite, "ToldClock", ServerClock, raising=False)

    def poll(_: ServerConnection, key: str, at_most_s: float) -> None:
        (time if ServerClock.last is None else ServerClock.last).sleep(at_most_s)

    monkeypatch.setattr(ServerConnection, "wait", poll)
    yield
    tell(None)
    ServerClock.last = None
    _connection.cache_clear()


_TESTS = {name: test for suite in SUITES for name, test in vars(suite).items() if name.startswith("test_")}
globals().update({name: test for name, test in _TESTS.items() if name not in ABOUT_FILES})


def test_what_is_left_out_exists() -> None:
    """N-machines: a test that was renamed is not left out in silence."""
    assert [name for name in ABOUT_FILES if name.partition("[")[0] not in _TESTS] == []
