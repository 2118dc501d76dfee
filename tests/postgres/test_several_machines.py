"""Locks that a server decides about: lost servers, forks, tokens, lock files beside them, writes in locked folders."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from torture.postgres_server import Server

import noclobber
from noclobber import cli
from noclobber.disk import steps
from noclobber.errors import (
    ConfigError,
    CoordinatorUnavailableError,
    LedgerError,
    LockContention,
    LockLost,
)
from noclobber.lock import file_arbiter as rows
from noclobber.lock.names import LOCK_NAME
from noclobber.postgres import schema
from noclobber.postgres.arbiter import MARGIN, PostgresArbiter
from noclobber.postgres.connection import ServerConnection
from noclobber.postgres.coordinator import _connection
from noclobber.postgres.text_form import LostError
from tests.lock.arbiter_suite import ignore, taken, taker
from tests.rigs import postgres


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project whose locks the server decides about."""
    monkeypatch.setenv("NOCLOBBER_COORDINATOR", postgres.coordinator())
    (tmp_path / "p/.noclobber").mkdir(parents=True)
    (tmp_path / "p/report").mkdir()
    yield tmp_path / "p"
    _connection.cache_clear()


@pytest.fixture(scope="module")
def stoppable() -> Iterator[Server]:
    """A server that tests may stop."""
    server = postgres.started()
    yield server
    server.remove()


@pytest.fixture
def own_server(stoppable: Server) -> Iterator[Server]:
    """The same with a new, empty database."""
    stoppable.use_new_database()
    yield stoppable
    stoppable.start_again()


def test_a_lock_is_one_on_two_checkouts_of_one_name(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-machines: machines with a checkout each share the name, and so the lock; the second gets the report."""
    monkeypatch.setenv("NOCLOBBER_WORKSPACE", f"team-{os.urandom(4).hex()}")
    other = project.parent / "elsewhere"
    (other / ".noclobber").mkdir(parents=True)
    (other / "report").mkdir()
    with noclobber.DeliverableLock(project / "report", holder="here"):
        second = noclobber.DeliverableLock(other / "report", holder="there")
        with pytest.raises(LockContention) as refused:
            second.acquire()
    assert refused.value.to_report()["holder"] == "here"


def test_a_write_in_the_other_checkout_is_refused_while_the_deliverable_is_locked(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines, REQ-LOCK-007: no lock file is there to be seen; the server is asked."""
    monkeypatch.setenv("NOCLOBBER_WORKSPACE", f"team-{os.urandom(4).hex()}")
    other = project.parent / "elsewhere"
    (other / ".noclobber").mkdir(parents=True)
    (other / "report").mkdir()
    workspace = noclobber.Workspace(other)
    with noclobber.DeliverableLock(project / "report", holder="here"):
        with workspace.turn(agent_id="there") as turn, pytest.raises(LockContention):
            turn.write_file("report/a.md", b"x")
        assert not (other / "report/a.md").exists()
    with workspace.turn(agent_id="there") as turn:
        turn.write_file("report/a.md", b"x")
    assert (other / "report/a.md").read_bytes() == b"x"


def test_the_holder_writes_in_its_folder_and_a_former_holder_does_not(project: Path) -> None:
    """N-machines, REQ-LOCK-006: the server says whose lock it is, at every write."""
    workspace, address = noclobber.Workspace(project), postgres.coordinator()
    lock = noclobber.DeliverableLock(project / "report", holder="first", lease_duration_s=60, heartbeat=False)
    lock.acquire()
    with workspace.turn(agent_id="first", lock=lock) as turn:
        turn.write_file("report/a.md", b"1")
        postgres.pass_time(address, 61)
        with noclobber.DeliverableLock(project / "report", holder="second"), pytest.raises(LockLost):
            turn.write_file("report/b.md", b"2")
    assert not (project / "report/b.md").exists()


def test_tokens_rise_with_every_holder(project: Path) -> None:
    """N-machines: what is kept safe elsewhere can refuse whoever comes late."""
    tokens = []
    for _ in range(3):
        with noclobber.DeliverableLock(project / "report") as lock:
            tokens.append(lock.fencing_token or 0)
            assert lock.status().fencing_token == lock.fencing_token
    assert tokens == sorted(set(tokens))


def test_a_lock_file_that_was_removed_ends_the_lock_and_its_row(project: Path) -> None:
    """N-machines, REQ-LOCK-001: the file is the lock; its holder is told, and nobody waits for the row."""
    lock = noclobber.DeliverableLock(project / "report", holder="first", heartbeat=False).acquire()
    (project / "report" / LOCK_NAME).unlink()
    with pytest.raises(LockContention):  # The server still has it.
        noclobber.DeliverableLock(project / "report", holder="second").acquire()
    with pytest.raises(LockLost, match="gone"):
        lock.assert_held()
    with noclobber.DeliverableLock(project / "report", holder="second"):
        pass
    assert not (project / "report" / LOCK_NAME).exists()


def test_a_lock_by_file_of_somebody_who_knows_no_coordinator_is_respected(project: Path) -> None:
    """N-machines: a machine that was not set up works by files; nobody takes its folder from under it."""
    holder = "import sys, noclobber\nwith noclobber.DeliverableLock(sys.argv[1], holder='by file'):\n    print('held', flush=True); sys.stdin.read()"
    environment = {name: value for name, value in os.environ.items() if name != "NOCLOBBER_COORDINATOR"}
    process = subprocess.Popen(
        [sys.executable, "-c", holder, str(project / "report")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    with pytest.raises(LockContention) as refused:
        noclobber.DeliverableLock(project / "report").acquire()
    assert refused.value.to_report()["holder"] == "by file"
    process.communicate()
    with noclobber.DeliverableLock(project / "report"):
        pass


def test_deleting_the_folder_ends_the_lock(project: Path) -> None:
    """N-machines, REQ-LOCK-012: the holder is told at its next check, and others can have the path at once."""
    lock = noclobber.DeliverableLock(project / "report", heartbeat=False).acquire()
    shutil.rmtree(project / "report")
    with pytest.raises(LockLost, match="deleted"):
        lock.assert_held()
    (project / "report").mkdir()
    with noclobber.DeliverableLock(project / "report"):
        pass


def test_a_waiter_gets_the_lock_when_it_is_let_go(project: Path) -> None:
    """N-machines, REQ-LOCK-007: another process waits, hears of the release, and has it."""
    waiter = "import sys, noclobber\nwith noclobber.DeliverableLock(sys.argv[1], holder='waiter').acquire(timeout_s=60):\n    print('mine', flush=True)"
    with noclobber.DeliverableLock(project / "report"):
        process = subprocess.Popen(
            [sys.executable, "-c", waiter, str(project / "report")], stdout=subprocess.PIPE
        )
    assert process.communicate(timeout=60)[0] == b"mine\n"
    assert process.returncode == 0


def test_without_the_server_nothing_is_decided_and_nothing_is_written(
    own_server: Server, tmp_path: Path
) -> None:
    """N-machines: an error that says so, never a fall-back to files; when it is back, all is as it was."""
    from noclobber.postgres import schema

    schema.install(own_server.address())
    (tmp_path / ".noclobber").mkdir()
    (tmp_path / "report").mkdir()
    folder = str(tmp_path / "report")
    patient = PostgresArbiter(ServerConnection(own_server.address(), patience_s=60))
    hasty = PostgresArbiter(ServerConnection(own_server.address(), patience_s=0.2))
    holding = taken(patient, folder)
    own_server.stop()
    with pytest.raises(CoordinatorUnavailableError):
        hasty.take(folder, taker("other"), ignore)
    with pytest.raises(CoordinatorUnavailableError):
        hasty.read(folder)
    assert 0 < hasty.check(holding) <= 60, "its lease goes on by its own clock"
    own_server.start()
    assert patient.check(holding) > 0, "the server kept the lock over its crash"
    assert patient.take(folder, taker("other"), ignore) is not None


def test_a_write_that_landed_before_the_server_went_away_is_not_called_refused(
    own_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    N-machines: it landed and is not on record, and that is what is said. The server hears of its
    end when it is back, so that nobody waits for a write that is over.
    """
    schema.install(own_server.address())
    monkeypatch.setenv("NOCLOBBER_COORDINATOR", own_server.address())
    monkeypatch.setitem(ServerConnection.__init__.__kwdefaults__ or {}, "patience_s", 0.3)
    (tmp_path / ".noclobber").mkdir()
    report = tmp_path / "report"
    report.mkdir()
    (report / "a.txt").write_text("one\n")

    def stop(step: str) -> None:
        if step == "exchanged":
            monkeypatch.setattr(steps, "observer", None)
            own_server.stop()

    try:
        with noclobber.Workspace(tmp_path) as workspace:
            lock = noclobber.DeliverableLock(report, holder="a", heartbeat=False).acquire()
            with workspace.turn(lock=lock) as turn:
                turn.read_file("report/a.txt")
                monkeypatch.setattr(steps, "observer", stop)
                with pytest.raises(LedgerError, match="The write landed"):
                    turn.write_file("report/a.txt", "two\n")
                assert (report / "a.txt").read_text() == "two\n"
                own_server.start_again()
                assert lock.release()
        with psycopg.connect(own_server.address()) as link:
            assert link.execute("SELECT count(*) FROM noclobber.write_intent").fetchone() == (0,)
    finally:
        _connection.cache_clear()


def test_a_holder_that_cannot_reach_the_server_stops_in_time(
    own_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines: it is no holder in its own eyes before anybody else can become one."""
    from noclobber.postgres import schema

    schema.install(own_server.address())
    (tmp_path / ".noclobber").mkdir()
    (tmp_path / "report").mkdir()
    began_s = rows.boot_time_s()
    hasty = PostgresArbiter(ServerConnection(own_server.address(), patience_s=0.2))
    holding = taken(hasty, str(tmp_path / "report"))
    own_server.stop()
    monkeypatch.setattr(rows, "boot_time_s", lambda: began_s + 60 * (1 - MARGIN) + 1)
    with pytest.raises(LockLost, match="does not answer"):
        hasty.check(holding)


def test_a_forked_child_leaves_the_parents_connection_alone(project: Path) -> None:
    """N-machines: its end says no goodbye on a socket that is not its own."""
    connection = ServerConnection(postgres.coordinator())
    assert connection.value("SELECT 1", ()) == 1
    pid = os.fork()
    if pid == 0:
        code = 0 if connection.value("SELECT 2", ()) == 2 else 1
        connection.close()
        os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert connection.value("SELECT 3", ()) == 3
    connection.close()


_KILLED_WHILE_IT_WRITES = """
import os, signal, sys
import noclobber
lock = noclobber.DeliverableLock(sys.argv[1], holder="killed").acquire()
with lock.writing([]):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("name", ["report", "intents", "claims", "locks"])
def test_a_holder_that_was_killed_while_it_wrote_is_taken_over_whatever_the_folder_is_called(
    project: Path, name: str
) -> None:
    """N-machines, REQ-LOCK-006: a path was taken for one of our own words in what is told to the server."""
    folder = project / name
    folder.mkdir(exist_ok=True)
    assert subprocess.run([sys.executable, "-c", _KILLED_WHILE_IT_WRITES, str(folder)]).returncode == -9
    with noclobber.DeliverableLock(folder, holder="next") as lock:
        assert lock.status().holder == "next"


def test_an_answer_that_was_lost_is_asked_for_again_and_given_once(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines: the lock is taken once, the event recorded once, whichever answer got lost."""
    connection = ServerConnection(postgres.coordinator())
    real, lost = ServerConnection._open, []

    class Losing:
        """A session that breaks after the server has done what it was asked."""

        def __init__(self, link: Any) -> None:
            self._link = link

        def send(self, statement: str, *rest: Any) -> None:
            self._link.send(statement, *rest)
            self._statement = statement

        def receive(self, until_s: float) -> Any:
            self._link.receive(until_s)
            lost.append(self._statement)
            self._link.connection.close()
            raise LostError(None, "the connection was lost")

    def open_once_losing(self: ServerConnection) -> Any:
        return real(self) if lost else Losing(real(self))

    assert connection.value("SELECT 1", ()) == 1  # It has asked for the version.
    monkeypatch.setattr(ServerConnection, "_open", open_once_losing)
    arbiter = PostgresArbiter(connection)
    holding = taken(arbiter, str(project / "report"))
    assert "noclobber.take" in lost[0]
    lost.clear()
    arbiter.give_up(holding, lambda _: None)
    assert "noclobber.give_up" in lost[0]
    lost.clear()
    from noclobber.postgres.ledger import PostgresLedger

    ledger = PostgresLedger(connection, holding.record.workspace or "")
    entry = ledger.append({"action_type": "X"})
    assert "noclobber.append" in lost[0]
    kinds = [event["action_type"] for event in ledger.events()]
    assert kinds == ["LOCK_ACQUIRED", "LOCK_RELEASED", "X"]
    assert ledger.verify().head == entry.hash


def test_a_role_that_may_record_cannot_change_what_is_on_record(project: Path) -> None:
    """N-machines: it calls the functions that begin a step, and touches neither tables nor their parts."""
    import psycopg

    address = postgres.coordinator()
    with psycopg.connect(address) as link:
        link.execute("DO $$ BEGIN CREATE ROLE agent_1 LOGIN; EXCEPTION WHEN duplicate_object THEN END $$")
        link.execute("GRANT noclobber_agent TO agent_1")
    as_agent = address.replace("user=owner", "user=agent_1")
    arbiter = PostgresArbiter(ServerConnection(as_agent))
    holding = taken(arbiter, str(project / "report"))
    arbiter.give_up(holding, lambda _: None)
    for statement in (
        "DELETE FROM noclobber.event",
        "UPDATE noclobber.lock SET token = 0",
        "SELECT noclobber.record('w', '\"action_type\":\"X\"', NULL)",
        "SELECT * FROM noclobber.lock",
    ):
        with psycopg.connect(as_agent) as link, pytest.raises(psycopg.errors.InsufficientPrivilege):
            link.execute(statement)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("postgresql://u:geheim@localhost/x", "password"),
        ("postgresql://u@db.example.com/x?sslmode=require", "verify-full"),
        ("host=db.example.com sslmode=disable", "verify-full"),
        ("not an address", "not the address"),
        ("mysql://u@h/x", "not the address"),
    ],
)
def test_an_address_that_cannot_be_used_safely_is_refused(address: str, says: str) -> None:
    """N-machines, N-input: before anything is sent, and without showing a secret."""
    with pytest.raises(ConfigError, match=says) as refused:
        ServerConnection(address)
    assert "geheim" not in str(refused.value)


def test_a_server_without_the_tables_is_named_with_the_remedy(own_server: Server) -> None:
    """N-machines, N-input: and so is a schema from the future."""
    import psycopg

    from noclobber.postgres import schema

    connection = ServerConnection(own_server.address())
    with pytest.raises(ConfigError, match="coordinator init"):
        connection.value("SELECT noclobber.look('w', '')", ())
    told: list[tuple[int, int]] = []
    schema.install(own_server.address(), lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == list(range(len(told)))  # finding U11
    assert {total for _, total in told} == {len(told) + 1}
    assert schema.install(own_server.address()) == schema.VERSION
    with psycopg.connect(own_server.address()) as link:
        link.execute("UPDATE noclobber.schema_version SET version = 99")
    with pytest.raises(ConfigError, match="Upgrade"):
        schema.install(own_server.address())


def test_folders_in_no_project_do_not_share_one_lock_because_of_the_workspaces_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding R18: the path from the root was empty for each of them, and so both were one deliverable."""
    monkeypatch.setenv("NOCLOBBER_COORDINATOR", postgres.coordinator())
    monkeypatch.setenv("NOCLOBBER_WORKSPACE", f"team-{os.urandom(4).hex()}")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with pytest.raises(ConfigError, match="in no project"):
            noclobber.DeliverableLock(tmp_path / name).acquire()
        assert os.listdir(tmp_path / name) == []
    (tmp_path / "one/noclobber.toml").touch()
    with noclobber.DeliverableLock(tmp_path / "one"):
        pass


def test_a_folder_whose_name_machines_could_not_agree_on_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines: two names for one volume would be two holders of one lock."""
    from noclobber.postgres import workspace_name

    monkeypatch.setattr(workspace_name, "keeps_inodes", lambda _: False)
    with pytest.raises(ConfigError, match="NOCLOBBER_WORKSPACE"):
        noclobber.DeliverableLock(project / "report").acquire()


def test_the_command_line_installs_examines_and_locks(
    own_server: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines: `coordinator init`, `doctor`, `status`; `lock run` hands the token to its command."""
    (tmp_path / ".noclobber").mkdir()
    (tmp_path / "report").mkdir()
    environment = {**os.environ, "NOCLOBBER_COORDINATOR": own_server.address()}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "noclobber", *words]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    assert run("coordinator", "status").returncode == 3
    assert json.loads(run("coordinator", "init", "--json").stdout) == {"schema_version": schema.VERSION}
    done = run("lock", "run", "report", "--", "sh", "-c", "echo $NOCLOBBER_LOCK_TOKEN")
    assert done.stdout.strip().isdigit()
    found = json.loads(run("coordinator", "status", "--json").stdout)
    assert (found["locks"], found["events"]) == (0, 2)
    look = (sys.executable, "-m", "noclobber", "lock", "status", "report", "--json")
    assert json.loads(run("lock", "run", "report", "--", *look).stdout)["lease_duration_s"] == 60
    named = run("lock", "run", "--lease", "90", "report", "--", *look)
    assert json.loads(named.stdout)["lease_duration_s"] == 90
    kept = json.loads(run("lock", "acquire", "report", "--lease-only", "--json").stdout)
    assert kept["lease_duration_s"] == 1800, "a shell does not renew every minute"
    assert run("lock", "release", "report", "--id", kept["lock_id"]).returncode == 0
    examined = run("coordinator", "doctor")
    assert examined.returncode == 1, "the owner may change what is on record, and fsync is off in this test"
    assert "fsync" in examined.stdout
    own_server.stop()
    monkeypatch.setenv("NOCLOBBER_COORDINATOR", own_server.address())
    monkeypatch.setitem(ServerConnection.__init__.__kwdefaults__ or {}, "patience_s", 0.1)
    assert cli.main(["lock", "status", str(tmp_path / "report")]) == 3
    assert "Traceback" not in capfd.readouterr().err
    _connection.cache_clear()


def test_the_push_hook_of_the_page_for_teams_refuses_an_old_token(tmp_path: Path) -> None:
    """N-machines, N-documented: somebody who was taken over does not push over the next one's work."""
    page = (Path(__file__).parents[2] / "docs/team.md").read_text()
    (hook,) = [block for block in page.split("```sh\n") if block.startswith("#!/bin/sh")]

    def git(*words: str, folder: str = "clone") -> int:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        return subprocess.run(
            ["git", *identity, *words], cwd=tmp_path / folder, capture_output=True
        ).returncode

    git("init", "-q", "--bare", "received", folder="")
    git("config", "receive.advertisePushOptions", "true", folder="received")
    script = tmp_path / "received/hooks/pre-receive"
    script.write_text(hook.partition("```")[0])
    script.chmod(0o755)
    git("clone", "-q", "received", "clone", folder="")
    pushed = []
    for token in ("report:5", "other:1", "report:6", "report:5", "report:x"):
        git("commit", "-q", "--allow-empty", "-m", token)
        pushed.append(git("push", "-q", "-o", f"token={token}", "origin", "HEAD"))
    assert pushed == [0, 0, 0, 1, 1]
