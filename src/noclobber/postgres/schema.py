"""
What the server keeps: install it, and say which version is there.

Tables change in steps: `tables_2.sql` leads from version 1 to version 2, and so on. Functions are replaced
as a whole. Both are one transaction: all of it or nothing.

Two roles. The owner of the database installs and migrates. `noclobber_agent` may call the functions that
begin a step, and touch no table: whoever has it can record and read, and change nothing that is on record.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Any

from noclobber.errors import ConfigError
from noclobber.postgres.address import VARIABLE, connection_options, shown
from noclobber.postgres.asking import ENCODING
from noclobber.postgres.asking import VERSION as VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

AGENT_ROLE = "noclobber_agent"
# The functions that begin a step. The others are their parts.
STEPS = (
    *("append", "append_all", "begin_section", "begin_write", "chain_end", "claim_file", "clear", "covering"),
    *("decide_section", "find", "give_up", "is_former", "overdue_section", "settle_section", "sweep_section"),
    *("list_claims", "never", "release_claim", "take_lock", "renew_lock", "append_event", "append_events"),
    *(
        "installed_version",
        "lease_clock",
        "lines",
        "list",
        "look",
        "renew",
        "settle_write",
        "summary",
        "take",
    ),
)
OLDEST_SERVER = 13
_SAME_TIME = 7_062_635_201  # Whoever installs holds this number, so that two do not install at once.


def installed_version(link: psycopg.Connection[Any]) -> int | None:
    """Return the version of the schema; None if there is none."""
    row = link.execute("SELECT to_regclass('noclobber.schema_version') IS NOT NULL").fetchone()
    if row is None or not row[0]:
        return None
    found = link.execute("SELECT noclobber.installed_version()").fetchone()
    return None if found is None else int(found[0])


def install(address: str, share: Callable[[int, int], None] | None = None) -> int:
    """
    Install the schema if it is missing and return its version; `ConfigError` if that cannot be done.

    `share` is told how many steps were made, and how many there are.
    """
    import psycopg

    options = connection_options(address)
    try:
        with psycopg.connect(**{**options, **ENCODING, "connect_timeout": 5}) as link:
            return _install(link, shown(options), share)
    except psycopg.Error as error:
        remedy = "Check the address, and that the server runs and lets this user in"
        if error.sqlstate == "42501":
            remedy = "Run this as the owner of the database"
            if "create role" in str(error):
                remedy = (
                    f"Let somebody with that right run CREATE ROLE {AGENT_ROLE} NOLOGIN, and then this again"
                )
        said = (str(error).strip().splitlines() or ["it said nothing"])[0]
        raise ConfigError(
            VARIABLE, f"noclobber could not be installed in {shown(options)}: {said}. {remedy}"
        ) from error


def _install(link: psycopg.Connection[Any], server: str, share: Callable[[int, int], None] | None) -> int:
    if link.info.server_version < OLDEST_SERVER * 10_000:
        raise ConfigError(
            VARIABLE,
            f"{server} is PostgreSQL {link.info.server_version // 10_000}; it takes {OLDEST_SERVER} or newer",
        )
    encoding = link.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise ConfigError(
            VARIABLE,
            f"the database {server} keeps text as {encoding}, which cannot hold every file's name. Make one "
            "with CREATE DATABASE … TEMPLATE template0 ENCODING 'UTF8'",
        )
    link.execute("SELECT pg_advisory_xact_lock(%s)", (_SAME_TIME,))
    version = installed_version(link) or 0
    if version > VERSION:
        raise ConfigError(
            VARIABLE,
            f"{server} has version {version} of the schema, and this noclobber knows up to {VERSION}. "
            "Upgrade noclobber on this machine",
        )
    if version < VERSION:
        tables = [f"tables_{number}.sql" for number in range(version + 1, VERSION + 1)]
        steps = [*tables, "functions.sql", "claims.sql", "sections.sql", "durable.sql", "rights.sql"]
        for number, name in enumerate(steps):
            if share is not None:
                share(number, len(steps) + 1)
            link.execute(_text(name))
        _grant(link)
    return VERSION


def _text(name: str) -> bytes:
    return resources.files(__package__).joinpath(name).read_bytes()


def _grant(link: psycopg.Connection[Any]) -> None:
    from psycopg import sql

    role = sql.Identifier(AGENT_ROLE)
    there = link.execute("SELECT FROM pg_roles WHERE rolname = %s", (AGENT_ROLE,)).fetchone()
    if there is None:
        link.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(role))
    link.execute(sql.SQL("GRANT USAGE ON SCHEMA noclobber TO {}").format(role))
    for name in STEPS:
        link.execute(
            sql.SQL("DO $$ DECLARE f regprocedure; BEGIN FOR f IN SELECT p.oid FROM pg_proc p "
                    "WHERE p.pronamespace = 'noclobber'::regnamespace AND p.proname = {} LOOP "
                    "EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO %I', f, {}); END LOOP; END $$")
            .format(sql.Literal(name), sql.Literal(AGENT_ROLE))
        )  # fmt: skip
