"""
What a server promises, and what it does not: the questions of `noclobber coordinator doctor`.

The one that matters most is replication. With a synchronous standby an answer that a client got survives a
failover, so there is one holder at any time. With an asynchronous one the last seconds may be lost: the lock
of a holder that was told "yes" is gone, and another one gets it, until the first one's next renewal. Tokens
still rise, because a promoted standby has a new timeline, which is in the upper bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from noclobber.postgres.asking import ISOLATION, VERSION
from noclobber.postgres.schema import AGENT_ROLE, OLDEST_SERVER

if TYPE_CHECKING:
    from noclobber.postgres.connection import ServerConnection


class ServerFinding(NamedTuple):
    """One thing that was looked at."""

    is_well: bool
    message: str
    remedy: str = ""


def examine(connection: ServerConnection) -> list[ServerFinding]:
    """Ask the server about itself. Errors go to the caller: then there is nothing to examine."""
    return [
        *_version(connection),
        *_rights(connection),
        *_settings(connection),
        *_durability(connection),
        *_replication(connection),
        *_clock(connection),
        *_pooler(connection),
    ]


def _version(connection: ServerConnection) -> list[ServerFinding]:
    server = int(connection.value("SELECT current_setting('server_version_num')::int", ())) // 10_000
    installed = int(connection.value("SELECT noclobber.installed_version()", ()))
    found = [ServerFinding(server >= OLDEST_SERVER, f"PostgreSQL {server} at {connection.server}")]
    if installed == VERSION:
        found.append(ServerFinding(True, f"noclobber's tables are version {installed}"))
    elif installed < VERSION:
        found.append(
            ServerFinding(False, f"noclobber's tables are version {installed}, older than {VERSION}",
                          "run `noclobber coordinator migrate` as the owner of the database")
        )  # fmt: skip
    else:
        found.append(
            ServerFinding(False, f"noclobber's tables are version {installed}, newer than {VERSION}",
                          "upgrade noclobber on this machine")
        )  # fmt: skip
    return found


def _rights(connection: ServerConnection) -> list[ServerFinding]:
    row = connection.ask(
        "SELECT current_user, has_schema_privilege('noclobber', 'USAGE'),"
        " has_table_privilege('noclobber.event', 'UPDATE')",
        (),
    )[0]
    if not row[1]:
        remedy = f"as the owner of the database: GRANT {AGENT_ROLE} TO {row[0]};"
        return [ServerFinding(False, f"user {row[0]} may not use noclobber's functions", remedy)]
    if row[2]:
        remedy = f"let agents work as a user that has the role {AGENT_ROLE} and nothing else"
        return [ServerFinding(False, f"user {row[0]} may change what is on record", remedy)]
    return [ServerFinding(True, f"user {row[0]} may record and read, and change nothing that is on record")]


def _settings(connection: ServerConnection) -> list[ServerFinding]:
    """What a database, a user or `PGOPTIONS` may set, and the steps count on."""
    encoding, isolation = connection.ask(
        "SELECT current_setting('server_encoding'), current_setting('transaction_isolation')", ()
    )[0]
    found = []
    if encoding != "UTF8":
        message = f"the database keeps text as {encoding}, which cannot hold every file's name"
        remedy = "make one with CREATE DATABASE … TEMPLATE template0 ENCODING 'UTF8'"
        found.append(ServerFinding(False, message, remedy))
    if isolation != ISOLATION:
        message = f"transactions are {isolation}: a step would not see what was done while it waited its turn"
        remedy = "take default_transaction_isolation from the database, the user and PGOPTIONS"
        found.append(ServerFinding(False, message, remedy))
    return found


def _durability(connection: ServerConnection) -> list[ServerFinding]:
    settings = dict(
        connection.ask(
            "SELECT name, setting FROM pg_settings"
            " WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes')",
            (),
        )
    )
    wrong = [name for name, value in settings.items() if value == "off"]
    if wrong:
        return [
            ServerFinding(
                False,
                f"{', '.join(sorted(wrong))} is off: a crash of the server may forget a lock",
                "switch it on in postgresql.conf",
            )
        ]
    return [ServerFinding(True, "what it answers is on its disk")]


def _replication(connection: ServerConnection) -> list[ServerFinding]:
    standbys = connection.value("SELECT count(*) FROM pg_stat_replication", ()) or 0
    names = connection.value("SELECT current_setting('synchronous_standby_names')", ()) or ""
    if not standbys and not names:
        return [ServerFinding(True, "no standby: while this server is away, nobody gets a lock")]
    if names:
        return [_synchronous(connection, names, standbys)]
    return [
        ServerFinding(
            False,
            f"{standbys} standby that is not synchronous: a failover may forget the last seconds, so that "
            "a lock has two holders until the first one's next renewal; tokens still rise",
            "set synchronous_standby_names",
        )
    ]


def _synchronous(connection: ServerConnection, names: str, standbys: int) -> ServerFinding:
    waits_for = connection.value("SELECT current_setting('synchronous_commit')", ())
    if waits_for in ("off", "local"):
        return ServerFinding(
            False,
            f"synchronous standbys are named ({names}), and synchronous_commit = {waits_for} does not wait "
            "for them: a failover may forget the last seconds, so that a lock has two holders",
            "set synchronous_commit = on",
        )
    if not standbys:
        return ServerFinding(
            False,
            f"none of the synchronous standbys ({names}) is connected: locks and writes wait for one, and "
            "are refused in the end",
            "start a standby, or take it from synchronous_standby_names",
        )
    return ServerFinding(True, f"synchronous standbys ({names}): one holder also over a failover")


def _clock(connection: ServerConnection) -> list[ServerFinding]:
    listens = connection.value("SELECT pg_is_in_recovery()", ())
    if listens:
        return [ServerFinding(False, "this is a standby, which decides nothing", "name the primary as well")]
    if connection.value("SELECT noclobber.lease_clock()", ()) == "uptime":
        return [ServerFinding(True, "leases are counted by its machine's uptime, which nobody sets")]
    message = (
        "leases are counted while somebody asks, because its uptime cannot be read here: after a holder on "
        "another machine died, the next one waits for a whole lease from its first question on"
    )
    return [ServerFinding(True, message)]


def _pooler(connection: ServerConnection) -> list[ServerFinding]:
    if connection.is_pooled():
        message = "a pooler is in between: every step works, and waiters ask four times a second"
        return [ServerFinding(True, message)]
    return []
