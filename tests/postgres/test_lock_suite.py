"""
The lock's own tests once more, all of them, with a coordinator: one suite over both arbiters (ruling 35).

Orphans in it are files of programs without the coordinator, so that this is a mixed fleet. `arbiter_suite` has what every
arbiter must do; races of many processes are in torture/hosts.py. Time is told to the server, too. Waiting is polling here:
nobody hears a notice while time stands still.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from noclobber.postgres.connection import ServerConnection
from noclobber.postgres.coordinator import _connection
from tests.lock import test_aio, test_lock
from tests.rigs import postgres
from tests.rigs.locks import T0_S, ToldClock

SUITES = (test_lock, test_aio)

_TOLD = """
CREATE TABLE IF NOT EXISTS noclobber.told_clock (told timestamptz);
INSERT INTO noclobber.told_clock SELECT NULL WHERE NOT EXISTS (SELECT FROM noclobber.told_clock);
CREATE OR REPLACE FUNCTION noclobber.now_() RETURNS timestamptz LANGUAGE sql VOLATILE AS
'SELECT coalesce((SELECT told FROM noclobber.told_clock), clock_timestamp() + (SELECT ahead FROM noclobber.test_clock))';
CREATE OR REPLACE FUNCTION noclobber.steady_() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT noclobber.now_()';
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
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The server decides, and knows the time that is told."""
    monkeypatch.setenv("NOCLOBBER_COORDINATOR", postgres.coordinator())
    for suite in SUITES:
        monkeypatch.setattr(suite, "ToldClock", ServerClock, raising=False)

    def poll(_: ServerConnection, key: str, at_most_s: float) -> None:
        (time if ServerClock.last is None else ServerClock.last).sleep(at_most_s)

    monkeypatch.setattr(ServerConnection, "wait", poll)
    yield
    tell(None)
    ServerClock.last = None
    _connection.cache_clear()


# Where the holder does not know yet that its file is gone, the server keeps the row until it looks: a machine with a
# checkout of its own cannot see the file, and a second holder would be worse than a refusal.
LATER = {
    "test_a_recreated_folder_with_a_new_holder_is_not_touched_by_the_old_one",
    "test_a_lock_that_was_removed_by_hand_and_taken_by_another_is_not_released",
}


for suite in SUITES:
    globals().update(
        {name: test for name, test in vars(suite).items() if name.startswith("test_") and name not in LATER}
    )
