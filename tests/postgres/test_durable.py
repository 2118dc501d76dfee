"""What is on the disk when the server answers, and who waits for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from torture.postgres_server import Server, programs

import noclobber
from noclobber.disk.processes import identify
from noclobber.errors import CoordinatorUnavailableError, LedgerError, LockContention, LockLost
from noclobber.postgres import asking, schema, shared_volume
from noclobber.postgres.arbiter import PostgresArbiter
from noclobber.postgres.bounded_session import BoundedSession
from noclobber.postgres.connection import ServerConnection
from noclobber.postgres.coordinator import _connection
from noclobber.postgres.ledger import PostgresLedger
from noclobber.postgres.text_form import LostError
from noclobber.postgres.workspace_name import place_of
from tests.lock.arbiter_suite import ignore, taken, taker

SECRET = "5" * 64


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that writes its log when somebody waits for that, and by itself only after ten seconds."""
    folder = programs()
    if folder is None:
        pytest.skip("no PostgreSQL: install postgresql, or `make .venv/.ready`")
    server = Server(folder, settings="-F -c wal_writer_delay=10s -c autovacuum=off")
    server.start()
    schema.install(server.address())
    yield server
    server.remove()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with two folders."""
    for name in (".noclobber", "report", "other"):
        (tmp_path / name).mkdir()
    return tmp_path


def crash(server: Server) -> None:
    """What was not written is gone."""
    server.stop("immediate")
    server.start()


def test_a_lock_that_was_answered_survives_a_crash_of_the_server(server: Server, project: Path) -> None:
    """N-machines: its row is free for others while the disk works, and yet nobody is told before."""
    arbiter = PostgresArbiter(ServerConnection(server.address()))
    holding = taken(arbiter, str(project / "report"))
    crash(server)
    assert arbiter.check(holding) > 0
    renewed = arbiter.renew(holding, 600)
    crash(server)
    assert arbiter.check(renewed) > 60
    assert isinstance(arbiter.take(str(project / "report"), taker("other"), ignore), LockContention)


@pytest.mark.parametrize("setting", ["off", "local", "remote_write"])
def test_a_user_whose_commits_do_not_wait_gets_answers_that_last(
    server: Server, project: Path, setting: str
) -> None:
    """Finding R12: synchronous_commit is off for the agents' role. After a crash there is one holder."""
    with psycopg.connect(server.address(), autocommit=True) as link:
        link.execute("CREATE ROLE hasty LOGIN IN ROLE noclobber_agent")
        link.execute(f"ALTER ROLE hasty SET synchronous_commit = {setting}".encode())
    connection = ServerConnection(server.address("hasty"))
    arbiter = PostgresArbiter(connection)
    for _ in range(4):  # The log may be written in time by chance.
        holding = taken(arbiter, str(project / "report"))
        crash(server)
        assert arbiter.check(holding) > 0
        arbiter.renew(holding, 600)
        crash(server)
        assert arbiter.check(holding) > 60
        assert isinstance(arbiter.take(str(project / "report"), taker("other"), ignore), LockContention)
        ledger = PostgresLedger(connection, holding.record.workspace or "")
        head = ledger.append({"action_type": "A"}).hash
        crash(server)
        assert ledger.head == head
        arbiter.give_up(holding, ignore)


def test_a_section_begun_by_a_user_whose_commits_do_not_wait_lasts(server: Server) -> None:
    """Finding R12: what is on record before it happens."""
    with psycopg.connect(server.address(), autocommit=True) as link:
        link.execute("SET synchronous_commit = off")
        assert begin_in(link, "a", 1) == "begun"
    crash(server)
    with psycopg.connect(server.address()) as link:
        assert link.execute("SELECT count(*) FROM noclobber.section").fetchone() == (1,)


def test_an_event_that_was_answered_survives_a_crash_of_the_server(server: Server, project: Path) -> None:
    """N-machines, N-ledger: one event, and several."""
    ledger = PostgresLedger(ServerConnection(server.address()), "w")
    ledger.append({"action_type": "A"})
    crash(server)
    ledger.append_all([{"action_type": "B"}, {"action_type": "C"}])
    crash(server)
    assert [event["action_type"] for event in ledger.events()] == ["A", "B", "C"]


def test_an_end_of_the_chain_that_somebody_has_read_survives_a_crash_of_the_server(
    server: Server, project: Path
) -> None:
    """N-machines, N-ledger: a release waits for no disk, and whoever reads its line does."""
    connection = ServerConnection(server.address())
    arbiter = PostgresArbiter(connection)
    holding = taken(arbiter, str(project / "report"))
    ledger = PostgresLedger(connection, holding.record.workspace or "")
    arbiter.give_up(holding, ignore)
    head = ledger.head
    crash(server)
    assert ledger.head == head
    assert ledger.verify().event_count == 2


def test_a_release_that_a_crash_forgot_leaves_a_lock_that_its_holder_can_release_again(
    server: Server, project: Path
) -> None:
    """N-machines: nothing else is lost with it, and the next token is higher."""
    arbiter = PostgresArbiter(ServerConnection(server.address()))
    for _ in range(6):  # In one of ten the log was written in time, though nobody waited for it.
        holding = taken(arbiter, str(project / "report"))
        arbiter.give_up(holding, ignore)
        crash(server)
        if arbiter.read(str(project / "report")).is_locked:
            break
    assert arbiter.read(str(project / "report")).is_locked, "the release waited for the disk after all"
    with pytest.raises(LockLost, match="gone"):  # Its file is; the row is given back all the same.
        arbiter.give_up(holding, ignore)
    later = taken(arbiter, str(project / "report"))
    assert (later.fencing_token or 0) > (holding.fencing_token or 0)


def test_nobody_waits_for_a_step_that_waits_for_its_standby(
    server: Server, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    N-machines: a standby that is gone is a disk that never ends. Who takes a lock is not answered; the chain is free.
    """
    with psycopg.connect(server.address(), autocommit=True) as link:
        link.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        link.execute("SELECT pg_reload_conf()")
        while link.execute("SHOW synchronous_standby_names").fetchone() != ("nobody",):
            pass
        monkeypatch.setattr(asking, "ANSWER_MS", 1000)
        hasty = PostgresArbiter(ServerConnection(server.address(), patience_s=0.5))
        with pytest.raises(CoordinatorUnavailableError):
            hasty.take(str(project / "report"), taker("one"), ignore)
        link.execute("SET synchronous_commit = local")
        link.execute("SET lock_timeout = '10s'")
        workspace = place_of(str(project)).workspace
        assert link.execute(
            "SELECT noclobber.append(%s, '\"action_type\":\"X\"', 'c')", (workspace,)
        ).fetchone()
        ledger = PostgresLedger(ServerConnection(server.address(), patience_s=0.5), workspace)
        with pytest.raises(LedgerError):  # Nor is anybody told of an end that may be lost.
            _ = ledger.head


def take_in(link: psycopg.Connection[Any], path: str, number: int) -> str:
    row = link.execute(
        "SELECT noclobber.take('w', %s, %s, 'd', 'me', '/f', 60, NULL, '{}', '{}', true)->>'outcome'",
        (path, f"{number:064}"),
    ).fetchone()
    assert row is not None
    return str(row[0])


def begin_in(link: psycopg.Connection[Any], path: str, number: int) -> str:
    files = f'[{{"path":"{path}","action":"write","from":"ABSENT","to":"{SECRET}"}}]'
    row = link.execute(
        "SELECT noclobber.begin_section('w', 't', %s, %s, NULL, NULL, 'me', NULL, '{}', 10, NULL)->>'outcome'",
        (f"{number:024x}", files),
    ).fetchone()
    assert row is not None
    return str(row[0])


@pytest.mark.parametrize("path", ["a", "", "a/b"])
def test_a_lock_waits_for_a_write_that_begins_below_it(server: Server, path: str) -> None:
    """N-machines, ruling 24: each sees what the other has done."""
    with psycopg.connect(server.address()) as one, psycopg.connect(server.address()) as two:
        assert begin_in(one, "a/b/file", 1) == "begun"
        two.execute("SET lock_timeout = '300ms'")
        two.commit()
        with pytest.raises(psycopg.errors.LockNotAvailable):
            take_in(two, path, 2)
        two.rollback()
        one.commit()
        assert take_in(two, path, 2) == "unsettled"


@pytest.mark.parametrize("path", ["a/b/file", "a/file"])
def test_a_write_waits_for_a_lock_that_is_taken_above_it(server: Server, path: str) -> None:
    """N-machines, ruling 24: the write is refused once the lock is there."""
    with psycopg.connect(server.address()) as one, psycopg.connect(server.address()) as two:
        assert take_in(one, "a", 1) == "taken"
        two.execute("SET lock_timeout = '300ms'")
        two.commit()
        with pytest.raises(psycopg.errors.LockNotAvailable):
            begin_in(two, path, 2)
        two.rollback()
        one.commit()
        assert begin_in(two, path, 2) == "refused"


def test_a_lock_does_not_wait_for_a_write_beside_it(server: Server) -> None:
    """N-machines: `b` and `ab` are beside `a`, and so is what begins with the same letters."""
    with psycopg.connect(server.address()) as one, psycopg.connect(server.address(), autocommit=True) as two:
        assert begin_in(one, "a/b/file", 1) == "begun"
        two.execute("SET lock_timeout = '10s'")
        for number, path in enumerate(("b", "ab", "a/bb", "a/b/file.d", "a/b0")):
            assert take_in(two, path, number) == "taken", path


@pytest.mark.parametrize(
    ("held", "wanted", "outcome"),
    [
        ("a", "a/b/c", "in_the_way"),
        ("a/b/c", "a", "in_the_way"),
        ("", "a", "in_the_way"),
        ("a", "", "in_the_way"),
        ("a", "ab", "taken"),
        ("a/b", "a/b0", "taken"),
        ("a/b", "a/b-c", "taken"),
        ("ä/ö", "ä", "in_the_way"),
    ],
)
def test_locks_above_and_below_are_found_by_their_paths(
    server: Server, held: str, wanted: str, outcome: str
) -> None:
    """Ruling 24: of whole folders' names, and of nothing that only begins like one."""
    with psycopg.connect(server.address(), autocommit=True) as link:
        assert take_in(link, held, 1) == "taken"
        assert take_in(link, wanted, 2) == outcome


def test_a_death_is_believed_of_the_lock_that_was_looked_at_and_of_no_other(server: Server) -> None:
    """
    N-machines: a server that lost its last moments gives a version's number to another holder. Whoever had
    found the first one dead would take the lock from a holder that is alive.
    """
    with psycopg.connect(server.address(), autocommit=True) as link:
        first = "SELECT noclobber.take('w', 'a', %s, 'd', 'me', '/f', 60, %s::jsonb, '{}', '{}', true)->>'outcome'"
        process = asking.judged_process(identify())
        assert link.execute(first, (f"{1:064}", process)).fetchone() == ("taken",)
        seen = link.execute("SELECT noclobber.look('w', 'a')->>'version', left(%s, 32)", (f"{1:064}",))
        version, lock_id = seen.fetchone() or ("", "")
        asked = "SELECT noclobber.take('w', 'a', %s, 'd', 'me', '/f', 60, NULL, '{}', %s, true)->>'outcome'"
        for found_dead, outcome in (
            (f"{version} {SECRET[:32]}", "refused"),
            (f"{version} {lock_id}", "taken"),
        ):
            judged = json.dumps({"locks": {"a": found_dead}, "key": asking.judging_key()})
            assert link.execute(asked, (f"{2:064}", judged)).fetchone() == (outcome,)


class Losing:
    """A session that is lost after the server has got what it was told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._send, self.lost = BoundedSession.send, 0
        monkeypatch.setattr(BoundedSession, "send", lambda link, *rest: self.send(link, *rest))

    def send(self, link: BoundedSession, statement: str, arguments: tuple[Any, ...], until_s: float) -> None:
        """Lose the first end of a section."""
        self._send(link, statement, arguments, until_s)
        if "settle_section" in statement and not self.lost:
            self.lost += 1
            link.connection.close()
            raise LostError(None, "lost on the way")


def test_the_end_of_a_write_that_got_lost_on_its_way_is_told_again(
    server: Server, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines: before the next question, so that nobody finds the write overdue."""
    monkeypatch.setenv("NOCLOBBER_COORDINATOR", server.address())
    monkeypatch.setattr(shared_volume, "is_shared_volume", lambda root: True)
    losing = Losing(monkeypatch)
    try:
        with noclobber.Workspace(project) as workspace, workspace.turn() as turn:
            turn.write_file("a.txt", "one\n")
            with psycopg.connect(server.address()) as link:
                assert link.execute("SELECT count(*) FROM noclobber.section").fetchone() == (0,)
            turn.write_file("a.txt", "two\n")
    finally:
        _connection.cache_clear()
    assert losing.lost == 1
    assert (project / "a.txt").read_text() == "two\n"


def test_tables_of_version_three_are_migrated_with_their_locks(server: Server) -> None:
    """N-machines: paths get the order of their bytes, and locks stay held."""
    server.use_new_database()
    with psycopg.connect(server.address()) as link:
        for name in ("tables_1.sql", "tables_2.sql", "tables_3.sql"):
            link.execute(schema._text(name))
        link.execute(
            "CREATE FUNCTION noclobber.installed_version() RETURNS int LANGUAGE sql AS "
            "'SELECT version FROM noclobber.schema_version'"
        )
        link.execute(
            "INSERT INTO noclobber.lock (workspace, path, token, secret_sha256, deliverable_id, holder, expires)"
            " VALUES ('w', 'a', 7, %s, 'd', 'them', now() + interval '1 hour')",
            (SECRET,),
        )
    assert schema.install(server.address()) == schema.VERSION
    with psycopg.connect(server.address(), autocommit=True) as link:
        assert take_in(link, "a/b", 1) == "in_the_way"
        assert take_in(link, "a", 1) == "refused"
