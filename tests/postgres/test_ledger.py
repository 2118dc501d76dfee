"""The ledger on the server, under the tests that every ledger has to pass."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

import noclobber
from noclobber import cli
from noclobber.postgres.connection import ServerConnection
from noclobber.postgres.coordinator import _connection
from noclobber.postgres.ledger import PostgresLedger
from tests.ledger.ledger_suite import LedgerSuite, Opener
from tests.rigs import postgres


def open_chain(address: str, workspace: str) -> PostgresLedger:
    """Open a chain over a connection of its own."""
    return PostgresLedger(ServerConnection(address), workspace)


class TestPostgresLedger(LedgerSuite):
    """The shared suite."""

    @pytest.fixture
    def open_ledger(self, tmp_path: Path) -> Opener:
        return functools.partial(open_chain, postgres.coordinator(), os.urandom(8).hex())


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project whose record is on the server."""
    monkeypatch.setenv("NOCLOBBER_COORDINATOR", postgres.coordinator())
    (tmp_path / "p/.noclobber").mkdir(parents=True)
    yield tmp_path / "p"
    _connection.cache_clear()


def written(project: Path) -> None:
    """Let one agent write a file twice, and another be refused."""
    with noclobber.Workspace(project) as workspace:
        (project / "plan.md").write_text("one\n")
        with workspace.turn(agent_id="builder") as turn, workspace.turn(agent_id="late") as late:
            turn.read_file("plan.md")
            late.read_file("plan.md")
            turn.write_file("plan.md", "two\n")
            turn.write_file("plan.md", "three\n")
            with pytest.raises(noclobber.StaleFileError) as refused:
                late.write_file("plan.md", "four\n")
    assert "builder" in str(refused.value.written_by)


def test_writes_and_refusals_are_in_the_workspaces_chain_on_the_server(project: Path) -> None:
    """N-machines: machines that share a server share one record; there is no second one in a file."""
    written(project)
    with noclobber.Workspace(project) as workspace:
        kinds = [event["action_type"] for event in workspace.ledger.events()]
        assert workspace.ledger.verify().event_count == 3
    assert kinds == ["MUTATION", "MUTATION", "MUTATION_CONFLICT"]
    assert not (project / ".noclobber/agent_trace.jsonl").exists()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["ledger", "show"], "MUTATION_CONFLICT"),
        (["ledger", "tail", "-n", "1"], "MUTATION_CONFLICT"),
        (["ledger", "verify", "--files"], "events  3"),
        (["ledger", "export"], '"MUTATION"'),
        (["status"], "plan.md"),
        (["blame", "plan.md"], "builder"),
        (["diff", "plan.md", "--agent", "builder"], "plan.md"),
        (["undo", "--agent", "builder", "--dry-run"], "plan.md"),
        (["doctor"], "3 events"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_commands_that_look_back_ask_the_server(
    project: Path,
    command: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """N-machines: `ledger show | tail | verify | export` and what is built on the record work on the server's."""
    written(project)
    monkeypatch.chdir(project)
    cli.main(command)
    assert said in "".join(capsys.readouterr())


def test_several_events_are_recorded_together_and_once(project: Path) -> None:
    """N-machines: an answer that was lost is asked for again, and the chain has each event once."""
    connection = ServerConnection(postgres.coordinator())
    ledger = PostgresLedger(connection, os.urandom(8).hex())
    events = [{"action_type": "TEST", "payload": {"n": n}} for n in range(3)]
    assert [entry.seq for entry in ledger.append_all(events)] == [1, 2, 3]
    bodies, again = ['"action_type":"TEST"'] * 2, "the-same-id"
    asked = ("SELECT noclobber.append_all(%s, %s::text[], %s)", (ledger._workspace, bodies, again))
    assert connection.value(*asked) == connection.value(*asked)
    with pytest.raises(noclobber.LedgerError):
        ledger._ask(asked[0], (ledger._workspace, ['"action_type":"TEST"', "no json"], "another"))
    assert ledger.verify().event_count == 5


def test_an_event_that_met_a_step_of_an_earlier_version_in_the_chain_is_recorded_after_it() -> None:
    """
    N-machines: functions are replaced while others work. One of before held the chain's row only, so both wanted the
    same number, and the second was told that the key exists (23505).
    """
    address, workspace = postgres.coordinator(), os.urandom(8).hex()
    ledger = open_chain(address, workspace)
    ledger.append({"action_type": "FIRST"})
    [first] = ledger.lines()
    with psycopg.connect(address) as link, ThreadPoolExecutor(1) as thread:
        link.execute("SELECT FROM noclobber.chain WHERE workspace = %s FOR UPDATE", (workspace,))
        link.execute("INSERT INTO noclobber.event VALUES (%s, 2, %s, 'x')", (workspace, first.decode()))
        link.execute("UPDATE noclobber.chain SET seq = 2 WHERE workspace = %s", (workspace,))
        later = thread.submit(ledger.append, {"action_type": "LATER"})
        with psycopg.connect(address, autocommit=True) as other:
            waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND %s = ANY (pg_blocking_pids(pid))"
            while other.execute(waits, (link.info.backend_pid,)).fetchone() == (0,):
                assert not later.done()
        link.commit()
        assert later.result(30).seq == 3
