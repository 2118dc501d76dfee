"""Asking the server without its driver: the same answers and errors, and a hook that loads no driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from noclobber.errors import ConfigError, CoordinatorUnavailableError
from noclobber.hook import start
from noclobber.postgres.connection import ServerConnection
from noclobber.postgres.light_connection import LightConnection, library, parsed
from tests.rigs import postgres

pytestmark = pytest.mark.skipif(library() is None, reason="there is no libpq here")


@pytest.mark.parametrize(
    "question",
    [
        ("SELECT %s::text", ('a "quoted" \\ text, {with} ünïcode\n',)),
        ("SELECT %s::text, %s::int, %s::float8, %s::boolean", (None, 7, 1.5, True)),
        ("SELECT %s::text[]", (["a", 'b"c', "d\\e", "", "NULL", "f,g"],)),
        ("SELECT %s::jsonb", ('{"a": [1, null, "x"]}',)),
        ("SELECT x FROM generate_series(1, %s::int) x", (3,)),
        ("SELECT 1 WHERE false", ()),
    ],
    ids=["text", "kinds", "list", "json", "rows", "none"],
)
@pytest.mark.parametrize("kind", [LightConnection, ServerConnection])
def test_it_answers_as_the_driver_does(
    kind: type[LightConnection | ServerConnection], question: tuple[str, tuple[Any, ...]]
) -> None:
    """N-machines: one question, one answer, whichever way it is asked."""
    statement, arguments = question
    with psycopg.connect(postgres.coordinator()) as driver:
        rows = [tuple(row) for row in driver.execute(statement.encode(), [*arguments])]
    asked = kind(postgres.coordinator())
    if "text[]" in statement:
        assert asked.value("SELECT to_jsonb(%s::text[])", arguments) == rows[0][0]
    else:
        assert asked.ask(statement, arguments) == rows


@pytest.mark.parametrize(
    "statement", ["SELECT noclobber.no_such_step()", "SELECT 1/0"], ids=["no-function", "wrong"]
)
def test_its_errors_are_the_drivers(statement: str) -> None:
    """N-machines: what a person has to put right is said in the same words."""
    told = []
    for connection in (LightConnection(postgres.coordinator()), ServerConnection(postgres.coordinator())):
        with pytest.raises((ConfigError, CoordinatorUnavailableError)) as raised:
            connection.ask(statement, ())
        told.append((type(raised.value), str(raised.value)))
    assert told[0] == told[1]


def test_a_server_that_is_away_is_said_to_be() -> None:
    """N-machines: bounded tries, then `COORDINATOR_UNAVAILABLE`."""
    with pytest.raises(CoordinatorUnavailableError, match="does not answer"):
        LightConnection("host=/nowhere dbname=x").ask("SELECT 1", (), 0.1)


def test_an_address_is_read_as_libpq_reads_it() -> None:
    """N-machines: URL and list, and libpq's own words for what is neither."""
    assert parsed("postgresql://me@h:77/d?sslmode=disable") == {
        "user": "me",
        "host": "h",
        "port": "77",
        "dbname": "d",
        "sslmode": "disable",
    }
    with pytest.raises(ValueError, match="missing"):
        parsed("nonsense")


def test_a_hook_records_on_the_server_and_loads_no_driver(tmp_path: Path) -> None:
    """N-machines, finding H4: a hook with a coordinator decides and records without the driver's import time."""
    (tmp_path / ".noclobber").mkdir()
    (tmp_path / "a.txt").write_text("one\n")
    program = (
        "import sys, json, io\n"
        f"sys.path.append({os.path.dirname(os.path.dirname(os.path.dirname(start.__file__)))!r})\n"
        "from noclobber.hook.main import main\n"
        "code = main(['claude-code', 'check'])\n"
        "sys.stderr.write('|' + ' '.join(name for name in sys.modules if name.startswith('psycopg')))\n"
        "sys.exit(code)\n"
    )
    event = {
        "hook_event_name": "PreToolUse",
        "session_id": "s",
        "cwd": str(tmp_path),
        "tool_name": "Write",
        "tool_use_id": "t1",
        "tool_input": {"file_path": str(tmp_path / ".noclobber/agent_trace.jsonl"), "content": "x"},
    }
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        input=json.dumps(event).encode(),
        capture_output=True,
        env={
            "NOCLOBBER_COORDINATOR": postgres.coordinator(),
            "XDG_RUNTIME_DIR": str(tmp_path),
            "NOCLOBBER_WORKSPACE": (name := f"hook-{os.urandom(4).hex()}"),
            "CLAUDE_PROJECT_DIR": str(tmp_path),
        },
    )
    assert done.stderr.decode().rpartition("|")[2] == "", done
    link = ServerConnection(postgres.coordinator())
    lines = [row[0] for row in link.ask("SELECT noclobber.lines(%s, 0, 10, 10)", (name,))]
    assert [json.loads(line)["result"]["status"] for line in lines] == ["DENIED"], done
    assert not (tmp_path / ".noclobber/agent_trace.jsonl").exists()
