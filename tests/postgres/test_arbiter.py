"""The arbiter whose locks are rows, under the tests that every arbiter has to pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from noclobber.errors import CoordinatorUnavailableError
from noclobber.postgres.arbiter import PostgresArbiter
from noclobber.postgres.connection import ServerConnection
from noclobber.postgres.ledger import PostgresLedger
from noclobber.postgres.workspace_name import place_of
from tests.lock.arbiter_suite import ArbiterSuite, ignore, taken, taker
from tests.rigs import postgres


class RowRig:
    """Folders of one project, judged by the server's clock."""

    def __init__(self, root: Path) -> None:
        self._root, self._address = root, postgres.coordinator()
        self._connections: list[ServerConnection] = []

    def arbiter(self) -> PostgresArbiter:
        connection = ServerConnection(self._address)
        self._connections.append(connection)
        return PostgresArbiter(connection)

    racing_arbiter = arbiter

    def folder(self, name: str) -> str:
        (self._root / name).mkdir(parents=True)
        return str(self._root / name)

    def root(self) -> str:
        return str(self._root)

    def pass_time(self, seconds: float) -> None:
        postgres.pass_time(self._address, seconds)

    def events(self, folder: str) -> list[dict[str, Any]]:
        place, connection = place_of(folder), ServerConnection(self._address)
        try:
            found = PostgresLedger(connection, place.workspace).events()
            return [event for event in found if event["payload"]["path"] == place.path]
        finally:
            connection.close()

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


class TestPostgresArbiter(ArbiterSuite):
    """The shared suite."""

    @pytest.fixture
    def rig(self, tmp_path: Path) -> Any:
        root = tmp_path / "deliverables"
        (root / ".noclobber").mkdir(parents=True)
        rig = RowRig(root)
        yield rig
        rig.close()


ROW = "SELECT noclobber.hold_lock(%s, %s)"
GATE = "SELECT noclobber.hold_gate(%s, noclobber.upward(%s))"
UNDER_WAY = (
    "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid()"
    " AND query ~ 'noclobber.(take_lock|begin_write|give_up|never|settle_write)'"
)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A deliverable."""
    (tmp_path / ".noclobber").mkdir()
    (tmp_path / "d").mkdir()
    return str(tmp_path / "d")


@pytest.fixture
def impatient() -> Iterator[PostgresArbiter]:
    """The arbiter of a client that soon gives up."""
    connection = ServerConnection(postgres.coordinator(), patience_s=0.3)
    assert connection.value("SELECT 1", ()) == 1
    yield PostgresArbiter(connection)
    connection.close()


@contextmanager
def held_up(folder: str, step: str) -> Iterator[None]:
    """Keep every step about a folder waiting on the server, and after that wait until all of them are over."""
    place = place_of(folder)
    with psycopg.connect(postgres.coordinator()) as link:
        link.execute(step, (place.workspace, place.path))
        yield
    with psycopg.connect(postgres.coordinator(), autocommit=True) as link:
        while link.execute(UNDER_WAY).fetchone() != (0,):
            pass


@pytest.mark.parametrize("step", [ROW, GATE])
def test_a_lock_that_its_taker_has_given_up_is_not_taken_later(
    folder: str, impatient: PostgresArbiter, step: str
) -> None:
    """N-machines: its question waited for its turn, and then took a lock that nobody knew of until its lease ended."""
    with held_up(folder, step), pytest.raises(CoordinatorUnavailableError):
        impatient.take(folder, taker("gone"), ignore)
    assert impatient.read(folder).state == "free"
    impatient.give_up(taken(impatient, folder, taker("next")), ignore)


def test_a_write_that_its_writer_has_given_up_does_not_begin_later(
    folder: str, impatient: PostgresArbiter
) -> None:
    """N-machines: its question waited for its turn, and then kept everybody from the lock for two minutes."""
    intent = impatient.intend_write(folder, None, ())
    with held_up(folder, ROW):
        with pytest.raises(CoordinatorUnavailableError):
            intent.begin()
        intent.settle()
    impatient.give_up(taken(impatient, folder), ignore)


def test_what_was_done_before_its_asker_gave_up_is_undone(folder: str, impatient: PostgresArbiter) -> None:
    """N-machines: the answer got lost, and not the question."""
    holding = taken(impatient, folder)
    impatient._undo(holding.place, holding.secret, folder)
    intent = impatient.intend_write(folder, None, ())
    intent.begin()
    intent._is_known = False
    intent.settle()
    impatient.give_up(taken(impatient, folder, taker("next")), ignore)
