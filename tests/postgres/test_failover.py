"""A server that is lost, and its standby that takes its place: what is promised, and what is told beforehand."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from torture.failover import Pair
from torture.postgres_server import programs

import noclobber
from noclobber import cli
from noclobber.errors import CoordinatorUnavailableError, LockContention, LockLost
from noclobber.postgres import schema, shared_volume
from noclobber.postgres.connection import ServerConnection
from noclobber.postgres.coordinator import _connection

WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE %s"


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A server with tables in it and its standby."""
    folder = programs()
    if folder is None:
        pytest.skip("no PostgreSQL: install postgresql, or `make .venv/.ready`")
    found = Pair(folder)
    found.start()
    schema.install(found.address())
    yield found
    found.remove()
    _connection.cache_clear()


@pytest.fixture
def project(tmp_path: Path, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose coordinator is that pair."""
    monkeypatch.setenv("NOCLOBBER_COORDINATOR", pair.both())
    monkeypatch.setenv("NOCLOBBER_WORKSPACE", f"team-{os.urandom(4).hex()}")
    (tmp_path / "p/.noclobber").mkdir(parents=True)
    (tmp_path / "p/report").mkdir()
    return tmp_path / "p"


@pytest.mark.parametrize("is_shared", [False, True], ids=["checkout", "volume"])
def test_a_write_with_a_token_of_the_lost_timeline_is_refused(
    project: Path,
    pair: Pair,
    is_shared: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """N-machines: `coordinator doctor` has warned of it, the forgotten holder writes nothing, tokens rise."""
    monkeypatch.setattr(shared_volume, "is_shared_volume", lambda root: is_shared)
    assert cli.main(["coordinator", "doctor"]) == 1
    assert "not synchronous" in capsys.readouterr().out
    pair.standby.stop("fast")  # It falls behind.
    with noclobber.Workspace(project) as workspace:
        lock = noclobber.DeliverableLock(project / "report", holder="first", heartbeat=False).acquire()
        before = lock.fencing_token
        with workspace.turn(agent_id="first", lock=lock) as turn:
            turn.write_file("report/a.md", b"1")
            pair.fail_over()
            with pytest.raises(LockLost):
                turn.write_file("report/a.md", b"2")
            with noclobber.DeliverableLock(project / "report", holder="second") as second:
                assert (second.fencing_token or 0) > (before or 0)
                with pytest.raises(LockLost):
                    turn.write_file("report/a.md", b"3")
        with pytest.raises(LockLost):
            lock.release()
    assert (project / "report/a.md").read_bytes() == b"1"


def test_with_a_synchronous_standby_the_lock_is_still_its_holders(
    project: Path, pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    """N-machines: one holder over a failover, no event is lost, and `coordinator doctor` says so beforehand."""
    pair.be_synchronous()
    cli.main(["coordinator", "doctor"])
    assert "one holder also over a failover" in capsys.readouterr().out
    with noclobber.Workspace(project) as workspace:
        lock = noclobber.DeliverableLock(project / "report", holder="first", heartbeat=False).acquire()
        with workspace.turn(agent_id="first", lock=lock) as turn:
            turn.write_file("report/a.md", b"1")
            recorded = workspace.ledger.verify().event_count
            pair.fail_over()
            with pytest.raises(LockContention):
                noclobber.DeliverableLock(project / "report", holder="second").acquire()
            turn.write_file("report/a.md", b"2")
            assert workspace.ledger.verify().event_count > recorded
        token = lock.fencing_token or 0
        lock.release()
        with noclobber.DeliverableLock(project / "report", holder="second") as second:
            assert (second.fencing_token or 0) > token


QUESTIONS = {
    "take": "SELECT noclobber.take('w','r',repeat('5',64),'D','me','/r',60,NULL,'{}','{}',true)",
    "decide": "SELECT noclobber.decide_section('555555555555555555555555', 'decided')",
    "append": "SELECT noclobber.append('w', '\"action_type\":\"X\"', 'call-1')",
}


FILES = json.dumps([{"path": path, "action": "write", "from": "ABSENT", "to": "0" * 64} for path in "ab"])


@pytest.mark.parametrize("name", QUESTIONS)
def test_what_a_standby_may_not_have_is_not_acknowledged_when_it_is_asked_for_again(
    name: str, pair: Pair
) -> None:
    """
    N-machines: an ended session has committed here and nowhere else. The second answer has to wait as well.

    Otherwise a client hears "yes" from a server that is about to be lost, and its standby never heard of it.
    """
    pair.be_synchronous()
    with psycopg.connect(pair.address(), autocommit=True) as link:
        link.execute(
            "SELECT noclobber.begin_section('w','t','555555555555555555555555',%s,NULL,NULL,'me',NULL,'{}',60,NULL)",
            (FILES,),
        )
        pair.standby.stop("fast")
        first = psycopg.connect(pair.address(), autocommit=True)
        first.pgconn.send_query(QUESTIONS[name].encode())
        while (found := link.execute(WAITING, (f"%{name}%",)).fetchone()) is None:
            pass
        link.execute("SELECT pg_terminate_backend(%s)", found)
        while link.execute("SELECT FROM pg_stat_activity WHERE pid = %s", found).fetchone() is not None:
            pass
        first.pgconn.finish()
    again = ServerConnection(pair.address(), patience_s=0.3)
    with pytest.raises(CoordinatorUnavailableError):
        again.value(QUESTIONS[name], ())
    again.close()
    pair.standby.start()
    patient = ServerConnection(pair.address(), patience_s=60)
    assert patient.value(QUESTIONS[name], ()) is not None
    patient.close()
