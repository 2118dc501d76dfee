"""The arbiter of a team, and fleets of which some programs know no coordinator, under the tests of every arbiter."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from torture.postgres_server import Server

from noclobber.errors import CoordinatorUnavailableError
from noclobber.lock.file_arbiter import FileArbiter
from noclobber.postgres import schema
from noclobber.postgres.arbiter import PostgresArbiter, RowWriteIntent
from noclobber.postgres.connection import ServerConnection
from noclobber.postgres.health import examine
from noclobber.postgres.ledger import PostgresLedger
from noclobber.postgres.workspace_name import place_of
from tests.lock.arbiter_suite import ArbiterSuite, ignore, taken, taker
from tests.rigs import postgres
from tests.rigs.locks import ToldClock, dead_process, events


class RowRig:
    """Folders below one root, judged by the server's clock."""

    def __init__(self, root: Path) -> None:
        self._root, self._address = root, postgres.coordinator()
        self._clock = ToldClock()
        self._connections: list[ServerConnection] = []
        self._arbiters: list[FileArbiter] = []

    def arbiter(self) -> FileArbiter:
        return self._kept(PostgresArbiter(self._connection(), self._clock))

    def racing_arbiter(self) -> FileArbiter:
        return self._kept(PostgresArbiter(self._connection()))

    def _connection(self) -> ServerConnection:
        self._connections.append(ServerConnection(self._address))
        return self._connections[-1]

    def _kept(self, arbiter: FileArbiter) -> FileArbiter:
        self._arbiters.append(arbiter)
        return arbiter

    def folder(self, name: str) -> str:
        (self._root / name).mkdir(parents=True)
        return str(self._root / name)

    def root(self) -> str:
        return str(self._root)

    def pass_time(self, seconds: float) -> None:
        self._clock.time_s += seconds
        postgres.pass_time(self._address, seconds)

    def events(self, folder: str) -> list[dict[str, Any]]:
        """What the server has on record; the folder's own record has the same."""
        place, connection = place_of(folder), ServerConnection(self._address)
        try:
            chain = PostgresLedger(connection, place.workspace).events()
            found = [event for event in chain if event["payload"]["path"] == place.path]
        finally:
            connection.close()
        here = [event["action_type"] for event in events(Path(folder))]
        assert here == [event["action_type"] for event in found]
        return found

    def close(self) -> None:
        for arbiter in self._arbiters:
            arbiter.close()
        for connection in self._connections:
            connection.close()


class MixedRig(RowRig):
    """The same folders; every other program has never heard of the coordinator."""

    def __init__(self, root: Path, turn: int) -> None:
        super().__init__(root)
        self._turns = count(turn)

    def arbiter(self) -> FileArbiter:
        if next(self._turns) % 2:
            return super().arbiter()
        return self._kept(FileArbiter(self._clock))

    def racing_arbiter(self) -> FileArbiter:
        # Forked processes do not share a counter.
        return super().racing_arbiter() if os.getpid() % 2 else self._kept(FileArbiter())

    def events(self, folder: str) -> list[dict[str, Any]]:
        """What the folder's own record has: every program writes there."""
        return events(Path(folder))


class TestPostgresArbiter(ArbiterSuite):
    """The shared suite, inside a project and in folders of none (finding E8)."""

    @pytest.fixture(params=["project", "no project"])
    def rig(self, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
        root = tmp_path / "deliverables"
        (root / (".noclobber" if request.param == "project" else "")).mkdir(parents=True)
        rig = RowRig(root)
        yield rig
        rig.close()


class TestMixedFleet(ArbiterSuite):
    """Ruling 35, finding E8: the shared suite over a fleet of which half knows no coordinator."""

    @pytest.fixture(params=["the first one without", "the first one with"])
    def rig(self, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
        (tmp_path / "deliverables").mkdir()
        rig = MixedRig(tmp_path / "deliverables", int(request.param.endswith("with")))
        yield rig
        rig.close()


@pytest.mark.parametrize("content", [None, b"not a record"])
def test_an_orphan_of_a_program_without_the_coordinator_is_on_record_at_the_server(
    folder: str, content: bytes | None
) -> None:
    """REQ-LOCK-006, finding E8: it had no row, and its recovery is recorded there all the same."""
    rig = RowRig(Path(folder).parent)
    if content is None:
        taken(FileArbiter(), folder, taker("gone", process=dead_process()))
    else:
        lock = Path(folder, ".lock")
        lock.write_bytes(content)
        os.utime(lock, (1.0, 1.0))
    arbiter = rig.racing_arbiter()
    arbiter.give_up(taken(arbiter, folder), ignore)
    place, connection = place_of(folder), ServerConnection(postgres.coordinator())
    found = list(PostgresLedger(connection, place.workspace).events())
    connection.close()
    rig.close()
    assert [event["action_type"] for event in found] == ["LOCK_RECOVERED", "LOCK_ACQUIRED", "LOCK_RELEASED"]
    assert found[0]["payload"]["previous_holder"] == (None if content else "gone")


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
    impatient._undo(holding.lock_file, holding.record)
    intent = impatient.intend_write(folder, None, ())
    assert isinstance(intent, RowWriteIntent)
    intent.begin()
    intent._is_known = False
    intent.settle()
    impatient.give_up(taken(impatient, folder, taker("next")), ignore)


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server whose clocks a test may spoil."""
    server = postgres.started()
    schema.install(server.address())
    yield server
    server.remove()


class Clocks:
    """A server's clock for people, which is set, and its machine's uptime."""

    def __init__(self, link: psycopg.Connection[Any], *, has_uptime: bool) -> None:
        self._link, self._has_uptime, self._ahead_s, self._up_s = link, has_uptime, 0.0, 1000.0
        self.step(0)

    def step(self, seconds: float) -> None:
        """Somebody sets the clock."""
        self._ahead_s += seconds
        for name, text in (
            ("now_() RETURNS timestamptz", f"to_timestamp({2e9 + self._up_s + self._ahead_s})"),
            ("uptime_s() RETURNS float8", f"{self._up_s}::float8" if self._has_uptime else "NULL::float8"),
        ):
            words = f"CREATE OR REPLACE FUNCTION noclobber.{name} LANGUAGE sql VOLATILE AS 'SELECT {text}'"
            self._link.execute(words.encode())

    def pass_time(self, seconds: float) -> None:
        """Time passes, and somebody asks four times a second."""
        for _ in range(int(seconds * 4)):
            self._up_s += 0.25
            self.step(0)
            self._link.execute("SELECT noclobber.look('w', 'p')")

    def take(self, who: str) -> str:
        row = self._link.execute(
            "SELECT noclobber.take('w','p',%s,'d',%s,'/p',60,NULL,'{}','{}',true)->>'outcome'",
            (sha256(who.encode()).hexdigest(), who),
        ).fetchone()
        assert row is not None
        return str(row[0])


@pytest.fixture(params=["uptime", "looks"])
def clocks(own_server: Server, request: pytest.FixtureRequest) -> Iterator[Clocks]:
    """Of a server whose uptime can be read, and of one where nobody may."""
    with psycopg.connect(own_server.address(), autocommit=True) as link:
        yield Clocks(link, has_uptime=request.param == "uptime")


def test_a_clock_that_steps_forward_makes_no_second_holder(clocks: Clocks) -> None:
    """Finding R13: an hour, a day, and many small steps."""
    assert clocks.take("one") == "taken"
    for seconds in (3600, 86_400, -7200, 1e8):
        clocks.step(seconds)
        assert clocks.take("two") == "refused"
    clocks.pass_time(50)
    assert clocks.take("two") == "refused"
    clocks.pass_time(11)
    assert clocks.take("two") == "taken"


def test_a_clock_that_steps_back_does_not_keep_a_dead_lease(clocks: Clocks) -> None:
    """Finding R13: it ends when its time has passed."""
    assert clocks.take("one") == "taken"
    clocks.step(-3600)
    clocks.pass_time(30)
    clocks.step(-3600)
    assert clocks.take("two") == "refused"
    clocks.pass_time(31)
    assert clocks.take("two") == "taken"


def test_a_server_that_starts_again_ends_no_lease_early(own_server: Server) -> None:
    """Finding R13: its machine may have another uptime by now, and another clock."""
    with psycopg.connect(own_server.address(), autocommit=True) as link:
        clocks = Clocks(link, has_uptime=True)
        assert clocks.take("one") == "taken"
    own_server.stop("fast")
    own_server.start()
    with psycopg.connect(own_server.address(), autocommit=True) as link:
        clocks = Clocks(link, has_uptime=True)
        clocks._up_s = 1e6  # A failover: another machine, which has run for longer.
        clocks.step(1e6)
        assert clocks.take("two") == "refused"
        clocks.pass_time(59)
        assert clocks.take("two") == "refused"
        clocks.pass_time(2)
        assert clocks.take("two") == "taken"


def test_the_uptime_is_read_where_the_owner_may(own_server: Server) -> None:
    """Finding R13: a real server's, and one whose owner is an ordinary user. `coordinator doctor` says which."""
    with psycopg.connect(own_server.address(), autocommit=True) as link:
        link.execute("CREATE ROLE plain LOGIN CREATEROLE")
        link.execute("CREATE DATABASE plain OWNER plain")
        link.execute("GRANT noclobber_agent TO plain WITH ADMIN OPTION")
    plain = own_server.address("plain").replace("dbname=postgres", "dbname=plain")
    schema.install(plain)
    for address, kind, said in (
        (own_server.address(), "uptime", "machine's uptime"),
        (plain, "looks", "while somebody asks"),
    ):
        with psycopg.connect(address, autocommit=True) as link:
            assert link.execute("SELECT noclobber.lease_clock()").fetchone() == (kind,)
        connection = ServerConnection(address)
        assert any(said in finding.message for finding in examine(connection))
        connection.close()
