"""Threads and tasks that ask the server at the same time: several sessions, bounded, and gone with the workspace."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from torture.postgres_server import Pooler

import noclobber
from noclobber import aio
from noclobber.errors import CoordinatorUnavailableError
from noclobber.postgres import more_sessions, schema
from noclobber.postgres.connection import ServerConnection
from noclobber.postgres.coordinator import _connection
from tests.rigs import postgres

SESSION = "SELECT pg_backend_pid()"
# Answers when the gate is opened, so that a test need not sleep to have questions at the same time.
AT_THE_GATE = "SELECT pg_backend_pid() FROM (SELECT pg_advisory_xact_lock_shared(%s)) AS gate"


class Gate:
    """Questions wait here until it is opened."""

    def __init__(self, address: str) -> None:
        self.key = int.from_bytes(os.urandom(4), "big") >> 1
        self._link = psycopg.connect(address, autocommit=True)
        self._link.execute("SELECT pg_advisory_lock(%s)", (self.key,))

    def wait_for(self, count: int) -> None:
        """Return when so many questions wait."""
        while True:
            row = self._link.execute(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND NOT granted",
                (self.key,),
            ).fetchone()
            if row is not None and row[0] >= count:
                return

    def open(self) -> None:
        """Let them go on."""
        self._link.close()


@pytest.fixture
def address() -> str:
    """A server with the tables in it."""
    return postgres.coordinator()


@pytest.fixture
def connection(address: str) -> Iterator[ServerConnection]:
    """A connection of its own."""
    found = ServerConnection(address, patience_s=60)
    yield found
    found.close()


def sessions(address: str) -> int:
    """How many sessions noclobber has on the server."""
    with psycopg.connect(address) as link:
        row = link.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'noclobber'"
        ).fetchone()
    assert row is not None
    return int(row[0])


def meet(connection: ServerConnection, count: int) -> list[int]:
    """Let so many threads ask at the same time; none is answered before all have asked."""
    gate = Gate(postgres.coordinator())
    with ThreadPoolExecutor(count) as threads:
        asked = [threads.submit(connection.value, AT_THE_GATE, (gate.key,)) for _ in range(count)]
        gate.wait_for(count)
        gate.open()
        return [each.result() for each in asked]


def test_a_program_with_one_thread_has_one_session_and_loads_no_pool(address: str) -> None:
    """N-machines: what most programs are pays for nothing."""
    program = (
        "import sys\n"
        "from noclobber.postgres.connection import ServerConnection\n"
        "connection = ServerConnection(sys.argv[1])\n"
        f"assert connection.value({SESSION!r}, ()) == connection.value({SESSION!r}, ())\n"
        "print('psycopg_pool' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, address], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_threads_that_ask_at_the_same_time_have_a_session_each(connection: ServerConnection) -> None:
    """N-machines: nobody waits behind another's question; each is answered only when all have asked."""
    assert len(set(meet(connection, 4))) == 4


def test_there_are_never_more_sessions_than_the_bound(
    connection: ServerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines: thirty threads share them, and all are answered."""
    monkeypatch.setattr(more_sessions, "MOST", 2)
    with ThreadPoolExecutor(30) as threads:
        found = list(threads.map(lambda _: connection.value(SESSION, ()), range(300)))
    assert 1 <= len(set(found)) <= 3


def test_who_gets_no_session_in_time_hears_that_the_coordinator_is_unavailable(
    address: str, connection: ServerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines: bounded in time as well."""
    monkeypatch.setattr(more_sessions, "MOST", 1)
    gate = Gate(address)
    with ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(connection.value, AT_THE_GATE, (gate.key,)) for _ in range(2)]
        gate.wait_for(2)
        with pytest.raises(CoordinatorUnavailableError):
            connection.value(SESSION, (), 0.2)
        gate.open()
        assert len({each.result() for each in asked}) == 2


def test_a_forked_child_leaves_the_parents_sessions_alone(connection: ServerConnection) -> None:
    """N-machines: its end says no goodbye on sockets that are not its own, and it has its own sessions."""
    before = set(meet(connection, 3))
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if before.isdisjoint(meet(connection, 3)) else 1
            connection.close()
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert before & set(meet(connection, 3)), "the parent's sessions are gone"


def test_a_child_that_is_forked_while_another_thread_asks_can_close(
    address: str, connection: ServerConnection
) -> None:
    """N-machines, N-fork: a child that closed its workspace waited for ever for a thread that it does not have."""
    gate = Gate(address)
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(connection.value, AT_THE_GATE, (gate.key,))
        gate.wait_for(1)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)  # Ends a child that hangs.
            connection.close()
            os._exit(0)
        ended = os.waitpid(pid, 0)[1]
        gate.open()
        assert asked.result()
    assert ended == 0


def test_threads_that_wait_for_different_locks_do_not_wait_for_each_other(
    address: str, connection: ServerConnection
) -> None:
    """N-machines: twelve threads that wait for twelve locks asked again after three seconds, not after a quarter."""
    connection.wait("one", 0.0)
    listener: Any = connection._listener
    first = threading.Thread(target=connection.wait, args=("one", 10.0))
    first.start()
    while not listener.lock.locked():  # It listens.
        pass
    connection.wait("two", 0.01)
    assert first.is_alive()
    with psycopg.connect(address, autocommit=True) as link:
        link.execute("NOTIFY noclobber, 'one'")
    first.join()


def test_a_session_that_was_ended_is_replaced(address: str, connection: ServerConnection) -> None:
    """N-machines: who borrowed it asks again."""
    lost = set(meet(connection, 3))
    with psycopg.connect(address, autocommit=True) as link:
        for pid in lost:
            link.execute("SELECT pg_terminate_backend(%s)", (pid,))
    assert lost.isdisjoint(meet(connection, 3))


def test_behind_a_pooler_in_transaction_mode_threads_get_their_answers(address: str, tmp_path: Path) -> None:
    """N-machines: sessions are neither set up nor reset, and none of them is somebody's own."""
    if not Pooler.is_here():
        pytest.skip("no PgBouncer: install pgbouncer")
    server = postgres.started()
    try:
        schema.install(server.address())
        pooler = Pooler(server, pool_size=2)
        connection = ServerConnection(pooler.address(), patience_s=60)
        try:
            with ThreadPoolExecutor(8) as threads:
                found = list(threads.map(lambda n: connection.value("SELECT %s::int", (n,)), range(200)))
            assert found == list(range(200))
        finally:
            connection.close()
            pooler.stop()
    finally:
        server.remove()


@pytest.fixture
def project(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project whose locks and record are on the server."""
    monkeypatch.setenv("NOCLOBBER_COORDINATOR", address)
    (tmp_path / "p/.noclobber").mkdir(parents=True)
    for number in range(6):
        (tmp_path / f"p/d{number}").mkdir()
    _connection.cache_clear()
    yield tmp_path / "p"
    _connection.cache_clear()


def test_tasks_of_an_event_loop_work_beside_each_other_and_the_workspace_closes_their_sessions(
    project: Path, address: str
) -> None:
    """N-machines: `noclobber.aio` asks from threads; with the last workspace every session is gone."""
    at_once: list[int] = []

    async def work(workspace: aio.Workspace, number: int) -> int:
        async with aio.DeliverableLock(project / f"d{number}", holder=f"agent {number}") as lock:
            async with workspace.turn(agent_id=f"agent {number}", lock=lock) as turn:
                await turn.write_file(f"d{number}/a.md", "written\n")
            at_once.append(await aio.in_thread(sessions, address))
            return lock.fencing_token or 0

    async def main() -> list[Any]:
        async with aio.Workspace(project) as workspace:
            return await asyncio.gather(*(work(workspace, number) for number in range(6)))

    before = sessions(address)
    tokens = asyncio.run(main())
    assert len(tokens) == 6
    assert all(tokens)
    assert max(at_once) <= before + more_sessions.MOST + 2
    assert all((project / f"d{number}/a.md").exists() for number in range(6))
    with psycopg.connect(address) as link:  # The server notices a goodbye a moment later.
        for _ in range(1000):
            if sessions(address) <= before:
                break
            link.execute("SELECT pg_sleep(0.01)")
    assert sessions(address) <= before


def test_an_open_workspace_keeps_its_sessions_when_another_one_is_closed(project: Path) -> None:
    """N-machines: the last one closes them, and a closed session is made anew when it is needed."""
    with noclobber.Workspace(project) as workspace:
        with workspace.turn() as turn:
            turn.write_file("a.md", "1\n")
        with noclobber.Workspace(project):
            pass
        assert _connection(os.environ["NOCLOBBER_COORDINATOR"])._link is not None
    assert _connection(os.environ["NOCLOBBER_COORDINATOR"])._link is None
    with noclobber.Workspace(project) as workspace, workspace.turn() as turn:
        turn.write_file("b.md", "1\n")


def test_a_heartbeat_does_not_wait_behind_a_question(address: str, connection: ServerConnection) -> None:
    """N-machines, REQ-LOCK-013: a slow answer on the process's own session does not cost it its lock."""
    gate = Gate(address)
    slow = threading.Thread(target=lambda: connection.value(AT_THE_GATE, (gate.key,)))
    slow.start()
    gate.wait_for(1)
    assert connection.value("SELECT 7", ()) == 7
    assert slow.is_alive()
    gate.open()
    slow.join()


def test_without_room_for_a_thread_those_that_there_are_wait_for_each_other(
    address: str, connection: ServerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines: at the limit of a container's threads, the second one that asked met an internal error."""
    start = threading.Thread.start

    def start_ours(thread: threading.Thread) -> None:
        if thread.name.startswith("noclobber-"):
            raise RuntimeError("can't start new thread")
        start(thread)

    gate = Gate(address)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(connection.value, AT_THE_GATE, (gate.key,))
        gate.wait_for(1)
        monkeypatch.setattr(threading.Thread, "start", start_ours)
        second = threads.submit(connection.value, SESSION, ())
        gate.open()
        assert second.result(30) == first.result(30)
