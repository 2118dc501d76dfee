"""A pooler between the clients and the server."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from torture.postgres_server import Pooler, programs

import noclobber
from noclobber.errors import CoordinatorUnavailableError, LockContention
from noclobber.postgres import asking, health, schema, shared_volume
from noclobber.postgres.arbiter import PostgresArbiter
from noclobber.postgres.connection import ServerConnection
from noclobber.postgres.coordinator import _connection
from noclobber.postgres.light_connection import LightConnection
from tests.lock.arbiter_suite import ignore, taken, taker
from tests.rigs import postgres
from torture import failover


@pytest.fixture(scope="module")
def pooled() -> Iterator[str]:
    """The address of PgBouncer in transaction mode, with one session for everybody."""
    if not Pooler.is_here():
        pytest.skip("no PgBouncer: install pgbouncer")
    schema.install(postgres.shared_server().address())
    pooler = Pooler(postgres.shared_server())
    yield pooler.address()
    pooler.stop()


def test_two_clients_that_share_one_session_are_two_holders_with_session_locks(pooled: str) -> None:
    """N-machines: the control. A session lock behind a pooler belongs to whoever gets the session next."""
    with psycopg.connect(pooled, autocommit=True) as one, psycopg.connect(pooled, autocommit=True) as two:
        held = [
            link.execute("SELECT pg_try_advisory_lock(1)", prepare=False).fetchone() for link in (one, two)
        ]
        one.execute("SELECT pg_advisory_unlock_all()", prepare=False)
    assert held == [(True,), (True,)], "the control must have two holders"


def test_locks_behind_a_pooler_have_one_holder_and_waiters_poll(pooled: str, tmp_path: Path) -> None:
    """N-machines: two clients on one session; nobody listens, because nobody would hear."""
    (tmp_path / ".noclobber").mkdir()
    (tmp_path / "d").mkdir()
    connections = [ServerConnection(pooled) for _ in range(2)]
    one, two = (PostgresArbiter(connection) for connection in connections)
    holding = taken(one, str(tmp_path / "d"))
    assert isinstance(two.take(str(tmp_path / "d"), taker("other"), ignore), LockContention)
    two.wait(str(tmp_path / "d"), 0.0)
    assert [connection.is_pooled() for connection in connections] == [True, True]
    assert connections[1]._listener is None
    one.give_up(holding, ignore)
    later = taken(two, str(tmp_path / "d"), taker("other"))
    assert (later.fencing_token or 0) > (holding.fencing_token or 0)
    two.give_up(later, ignore)
    assert any("a pooler is in between" in found.message for found in health.examine(connections[0]))
    for connection in connections:
        connection.close()


def test_a_direct_connection_is_no_pool_and_listens() -> None:
    """N-machines: notices wake waiters wherever they can."""
    connection = ServerConnection(postgres.coordinator())
    connection.wait("key", 0.0)
    assert (connection.is_pooled(), connection._listener is None) == (False, False)
    connection.close()


def test_sections_and_hooks_work_behind_a_pooler(
    pooled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines: every step is one statement, so each may run in another session."""
    monkeypatch.setenv("NOCLOBBER_COORDINATOR", pooled)
    monkeypatch.setattr(shared_volume, "is_shared_volume", lambda root: True)
    (tmp_path / ".noclobber").mkdir()
    with noclobber.Workspace(tmp_path) as workspace, workspace.turn() as turn:
        turn.write_file("a.txt", "a\n")
        turn.write_files({"a.txt": "b\n", "b.txt": "b\n"})
        assert workspace.ledger.verify().event_count == 3
    light = LightConnection(pooled)
    assert light.value("SELECT %s::int + 1", (1,)) == 2
    light.close()
    _connection.cache_clear()


@pytest.mark.parametrize("kind", [ServerConnection, LightConnection])
def test_a_server_that_takes_the_question_and_never_answers_is_asked_elsewhere(
    kind: type[ServerConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines: TCP has no complaint about a process that is stopped; nobody waits for it for ever."""
    monkeypatch.setattr(asking, "ANSWER_MS", 200)
    connection = kind(postgres.coordinator())
    stopped = []
    try:
        for patience_s in (0.0, 10.0):
            stopped.append(connection.value("SELECT pg_backend_pid()", ()))
            os.kill(stopped[-1], signal.SIGSTOP)
            if patience_s:
                assert connection.value("SELECT 2", (), patience_s) == 2
            else:
                with pytest.raises(CoordinatorUnavailableError, match="does not answer"):
                    connection.value("SELECT 2", (), patience_s)
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        connection.close()


def test_a_standby_that_had_fallen_behind_forgets_a_lock_and_its_holder_is_told() -> None:
    """N-machines: a failover without synchronous replication; the next token is higher all the same."""
    if programs() is None:
        pytest.skip("no PostgreSQL")
    found = failover.fail_over(synchronous=False)
    assert (found.is_still_held, found.was_told) == (False, True)
    assert found.tokens[1] > found.tokens[0]
    assert "not synchronous" in found.doctor


def test_what_is_asked_again_is_prepared_unless_a_pooler_is_in_between(pooled: str) -> None:
    """N-machines: it saves the server's time, and a session that is another client's has no such statement."""
    for address, expected in ((postgres.coordinator(), 1), (pooled, 0)):
        connection = ServerConnection(address)
        for number in range(4):
            assert connection.value("SELECT %s::int", (number,)) == number
        found = connection.value("SELECT count(*)::int FROM pg_prepared_statements WHERE NOT from_sql", ())
        assert found == expected
        connection.close()


def test_a_pooler_that_nobody_recognised_is_asked_without_prepared_statements() -> None:
    """N-machines: a session that has forgotten what was prepared in it, as if it were another client's."""
    connection = ServerConnection(postgres.coordinator())
    for number in range(3):
        assert connection.value("SELECT %s::int", (number,)) == number
        connection.value("DEALLOCATE ALL", ())
    assert connection.value("SELECT count(*)::int FROM pg_prepared_statements", ()) == 0
    connection.close()
