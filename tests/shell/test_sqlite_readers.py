"""A guarded command beside a server that has an SQLite database open in WAL mode. (finding G12)"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from noclobber.shell.roots import why_not
from tests.rigs.commands import Done, environment, noclobber_command, run

REFUSED = 75

SERVER = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
for line in sys.stdin:
    print(database.execute(line).fetchall(), flush=True)
"""
COUNT = (
    "import sqlite3, sys; database = sqlite3.connect(sys.argv[1]); "
    "print(database.execute('SELECT sum(n) FROM t').fetchone()[0])"
)


class Server:
    """A process that has a database open, and does what it is told."""

    def __init__(self, root: Path, name: str) -> None:
        self.root, self.name, self.database = root, name, root / name
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(self.database)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for line in ("PRAGMA journal_mode = WAL", "CREATE TABLE t (n)", "INSERT INTO t VALUES (1)"):
            self.tell(line)

    def tell(self, line: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(line, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()

    def files(self) -> dict[str, bytes]:
        """The database and its log: whatever a command does, they are the server's."""
        return {name: (self.root / name).read_bytes() for name in (self.name, f"{self.name}-wal")}

    def python(self, code: str) -> Done:
        return run("run", "--", sys.executable, "-c", code, self.name, cwd=self.root)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(params=["app.db", "data/app.sqlite"])
def server(request: pytest.FixtureRequest, root: Path) -> Iterator[Server]:
    if (reason := why_not(str(root))) is not None:
        pytest.skip(reason)
    (root / request.param).parent.mkdir(exist_ok=True)
    found = Server(root, request.param)
    yield found
    found.end()


MANY = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 9999) INSERT INTO t SELECT 0 FROM c"
STATES = {
    "all in the log": (),
    "many pages": (MANY,),
    "nothing in the log that is not in the database": (MANY, "PRAGMA wal_checkpoint(FULL)"),
    "an empty log": (MANY, "PRAGMA wal_checkpoint(TRUNCATE)"),
    "a log that began anew": (MANY, "PRAGMA wal_checkpoint(RESTART)", "INSERT INTO t VALUES (0)"),
    "a shorter database": (MANY, "DELETE FROM t WHERE n = 0", "VACUUM"),
    "an open transaction": ("BEGIN", "INSERT INTO t VALUES (7)"),
}


@pytest.mark.parametrize("state", STATES)
def test_a_command_reads_a_database_that_a_server_has_open(server: Server, state: str) -> None:
    """Finding G12: a guarded SELECT was refused with FILE_BUSY, because SQLite tidied up behind it."""
    for line in STATES[state]:
        server.tell(line)
    before = server.files()
    done = server.python(COUNT)
    assert (done.code, done.out) == (0, "1\n"), done.err
    assert server.files() == before
    assert server.tell("SELECT 1") == "[(1,)]"


@pytest.mark.parametrize("ending", ["; import os; sys.stdout.flush(); os._exit(0)", "; database.close()"])
def test_what_else_the_command_did_lands(server: Server, ending: str) -> None:
    """Finding G12: also if the connection was never closed."""
    done = server.python(f"{COUNT}; open('report.txt', 'w').write('one'){ending}")
    assert done.code == 0, done.err
    assert (server.root / "report.txt").read_text() == "one"


def test_a_command_that_writes_to_the_database_is_refused(server: Server) -> None:
    """Ruling 18: the server has it open for writing, and its log would go on without the command's change."""
    before = server.files()
    done = server.python(f"{COUNT}; database.execute('UPDATE t SET n = n + 1'); database.commit()")
    assert done.code == REFUSED, done.err
    assert "FILE_BUSY" in done.err
    assert server.files() == before


def test_an_equal_change_by_the_server_is_not_taken_for_a_read(server: Server) -> None:
    """Finding E1: both counted from one to two. That the bytes are equal does not mean that the command is done."""
    count = "database.execute('UPDATE t SET n = n + 1'); database.commit(); database.close()"
    code = f"{COUNT}; {count}; print('done', flush=True); sys.stdin.readline()"
    with subprocess.Popen(
        noclobber_command("run", "--", sys.executable, "-c", code, server.name),
        cwd=server.root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as command:
        assert command.stdout is not None
        assert [command.stdout.readline(), command.stdout.readline()] == ["1\n", "done\n"]
        server.tell("UPDATE t SET n = n + 1")
        _, err = command.communicate("\n", timeout=60)
    assert command.returncode == REFUSED, err
    assert server.tell("SELECT n FROM t") == "[(2,)]"


def test_a_log_that_a_command_removes_is_no_read(server: Server) -> None:
    """Finding G12: `rm` of the log is not what SQLite does, and the server still has it."""
    server.tell("PRAGMA wal_checkpoint(FULL)")
    name = server.name
    done = run("run", "--", "rm", f"{name}-wal", f"{name}-shm", cwd=server.root)
    assert done.code == REFUSED, done.err
    assert (server.root / f"{name}-wal").exists()
