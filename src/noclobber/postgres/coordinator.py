"""The coordinator that this process uses: one connection for each address, made when it is first needed."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING

from noclobber.errors import ConfigError
from noclobber.postgres.address import VARIABLE, address_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from noclobber.core.clock import Clock
    from noclobber.ledger.observer import Observer
    from noclobber.lock.events import EventLog
    from noclobber.postgres.arbiter import PostgresArbiter
    from noclobber.postgres.connection import ServerConnection
    from noclobber.postgres.health import ServerFinding
    from noclobber.postgres.ledger import PostgresLedger
    from noclobber.postgres.server_claims import ServerClaims


def arbiter(clock: Clock, ledger: EventLog | None, observer: Observer | None) -> PostgresArbiter:
    """Return an arbiter over this process's connection."""
    connection = shared_connection()
    from noclobber.postgres.arbiter import PostgresArbiter

    return PostgresArbiter(connection, clock, ledger, observer)


def locked_above(path: str) -> str | None:
    """Return the innermost folder above a canonical path that somebody has locked, on any machine."""
    connection = shared_connection()
    from noclobber.postgres.workspace_name import place_of

    place = place_of(os.path.dirname(path))
    found = connection.value("SELECT noclobber.covering(%s, %s)", (place.workspace, place.path))
    return None if found is None else f"{place.root.rstrip('/')}/{found}".rstrip("/") or "/"


def ledger(root: str) -> PostgresLedger:
    """Return the chain of the workspace with this root."""
    connection = shared_connection()
    from noclobber.postgres.ledger import PostgresLedger
    from noclobber.postgres.workspace_name import place_of

    return PostgresLedger(connection, lambda: place_of(root, make=True).workspace)


def claims(root: str, clock: Clock) -> ServerClaims:
    """Return the claims of the shared volume with this root."""
    connection = shared_connection()
    from noclobber.postgres.server_claims import ServerClaims
    from noclobber.postgres.volume import Volume
    from noclobber.postgres.workspace_name import place_of

    return ServerClaims(connection, place_of(root, make=True), Volume(root, clock), clock)


def ask_lightly() -> None:
    """For a process that asks once or twice and ends: without the driver, if its library is there."""
    global _is_light
    _is_light = True


_is_light = False


def shared_connection() -> ServerConnection:
    """Return this process's connection to the server that the environment names; `ConfigError`."""
    return _connection(_address())


def _address() -> str:
    address = address_in(os.environ)
    if address is None:
        raise ConfigError(VARIABLE, "no coordinator is set. It looks like postgresql://user@host/database")
    return address


@lru_cache(8)
def _connection(address: str) -> ServerConnection:
    _made[address] = _new_connection(address)
    return _made[address]


def _new_connection(address: str) -> ServerConnection:
    if _is_light:
        from noclobber.postgres.light_connection import LightConnection, library

        if library() is not None:
            return LightConnection(address)  # type: ignore[return-value]  # All that a hook asks for.
    try:
        from noclobber.postgres.connection import ServerConnection

        return ServerConnection(address)
    except ModuleNotFoundError as error:
        if error.name != "psycopg":
            raise
        raise ConfigError(
            VARIABLE,
            "a coordinator needs the package psycopg. Install it with: pip install 'noclobber[postgres]'",
        ) from None


def install(share: Callable[[int, int], None] | None = None) -> int:
    """
    Make the tables in the database that the environment names; return their version.

    `share` is told how many steps were made, and how many there are.
    """
    shared_connection()  # Says what is missing if it is the driver.
    from noclobber.postgres.schema import install as install_schema

    return install_schema(_address(), share)


def facts() -> dict[str, object]:
    """Return what the server has, for people."""
    connection = shared_connection()
    (row,) = connection.ask("SELECT noclobber.summary()", ())
    found: dict[str, object] = {"server": connection.server, **row[0]}
    return found


def findings() -> list[ServerFinding]:
    """Return what was found when the server was examined."""
    from noclobber.postgres.health import examine

    shared_connection()  # Says what is missing if it is the driver.
    from noclobber.postgres.connection import ServerConnection

    connection = ServerConnection(_address(), any_version=True)
    try:
        return examine(connection)
    finally:
        connection.close()


def end_sessions() -> None:
    """Say goodbye to the server: the last workspace of this process was closed. A new question asks anew."""
    connection = _made.get(address_in(os.environ) or "")
    if connection is not None:
        connection.close()


def forget_connections() -> None:
    """
    Make no use of what this process was forked with, and say nothing on it: it is the parent's.

    For a process that has closed all that it inherited. The number of a connection may be that of another
    file now, so a question would be written into that one.
    """
    _connection.cache_clear()
    _made.clear()


_made: dict[str, ServerConnection] = {}
