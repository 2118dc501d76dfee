"""
The PostgreSQL server that tests share, with a clock that they can move.

It is the one in `NOCLOBBER_TEST_POSTGRES`, or one that is started here (torture/postgres_server.py).
"""

from __future__ import annotations

import atexit
import os
from functools import cache

import psycopg
import pytest
from torture.postgres_server import Server, programs

from noclobber.postgres import schema

# Time passes for tests by both clocks. They move them on, and never back: other tests do not ask what time it is.
_CLOCK = """
CREATE TABLE IF NOT EXISTS noclobber.test_clock (ahead interval NOT NULL);
INSERT INTO noclobber.test_clock SELECT '0 s' WHERE NOT EXISTS (SELECT FROM noclobber.test_clock);
CREATE OR REPLACE FUNCTION noclobber.now_() RETURNS timestamptz LANGUAGE sql VOLATILE AS
'SELECT clock_timestamp() + (SELECT ahead FROM noclobber.test_clock)';
CREATE OR REPLACE FUNCTION noclobber.uptime_s() RETURNS float8 LANGUAGE sql VOLATILE AS
'SELECT split_part(pg_read_file(''/proc/uptime'', 0, 64), '' '', 1)::float8
        + (SELECT extract(epoch FROM ahead)::float8 FROM noclobber.test_clock)';
"""


def started() -> Server:
    """Return a server that runs; skips where there is none to start."""
    folder = programs()
    if folder is None:
        pytest.skip("no PostgreSQL: set NOCLOBBER_TEST_POSTGRES, install postgresql, or `make .venv/.ready`")
    server = Server(folder)
    server.start()
    return server


@cache
def shared_server() -> Server:
    """The server that the tests of one process share."""
    server, pid = started(), os.getpid()
    atexit.register(lambda: server.remove() if os.getpid() == pid else None)
    return server


@cache
def coordinator() -> str:
    """The address of a server with the schema in it and a clock that tests can move; skips without one."""
    address = os.environ.get("NOCLOBBER_TEST_POSTGRES") or shared_server().address()
    schema.install(address)
    with psycopg.connect(address) as link:
        link.execute(_CLOCK)
    return address


def pass_time(address: str, seconds: float) -> None:
    """Let time pass on the server."""
    with psycopg.connect(address) as link:
        link.execute("UPDATE noclobber.test_clock SET ahead = ahead + make_interval(secs => %s)", (seconds,))
