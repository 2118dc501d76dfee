"""
The coordinator's address: what may be in it, and what may not.

It is a libpq URL or a list of `key=value`. A password in it is refused: the address is shown in errors, in
process lists and in continuous integration's logs. libpq has places for secrets (`~/.pgpass`, `PGPASSFILE`,
`PGSERVICEFILE`, `PGPASSWORD`, a client certificate). A connection to another machine is encrypted and the
server proves who it is (`sslmode=verify-full`), unless the address says something weaker, which is refused:
whoever can pretend to be the server can give a lock to two.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from noclobber.core.project import COORDINATOR
from noclobber.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = COORDINATOR
_SECRETS = ("password", "sslpassword")
_WEAKER = ("disable", "allow", "prefer", "require", "verify-ca")
_REQUIRE_AUTH_SINCE = 160_000  # libpq's version.
_LOOPBACK = frozenset(("", "localhost", "127.0.0.1", "::1"))


def address_in(environment: Mapping[str, str]) -> str | None:
    """Return the address that the environment names; None if no coordinator is asked for."""
    return environment.get(VARIABLE) or None


def connection_options(address: str) -> dict[str, Any]:
    """Return what to connect with; `ConfigError` if the address is none, or is not safe."""
    try:
        options = _parsed(address)
    except (ValueError, UnicodeError) as error:
        reason = "it is no text" if isinstance(error, UnicodeError) else _without_values(str(error))
        raise ConfigError(
            VARIABLE,
            f"this is not the address of a PostgreSQL server: {reason}. It looks like "
            "postgresql://user@host:5432/database",
        ) from None
    if any(options.get(name) for name in _SECRETS):
        raise ConfigError(
            VARIABLE,
            "the address has a password in it, where errors and process lists show it. Take it out, and put "
            "it into ~/.pgpass or the variable PGPASSWORD",
        )
    if not is_this_machine(options):
        mode = options.setdefault("sslmode", os.environ.get("PGSSLMODE") or "verify-full")
        if mode != "verify-full":
            raise ConfigError(
                VARIABLE,
                f"sslmode={mode if mode in _WEAKER else '…'} lets another machine pretend to be the server. "
                "Use sslmode=verify-full, and "
                "sslrootcert= for a certificate authority of your own",
            )
        if "sslrootcert" not in options and "PGSSLROOTCERT" not in os.environ:
            options["sslrootcert"] = "system"
    elif "require_auth" not in options and "PGREQUIREAUTH" not in os.environ and _knows_require_auth():
        # Nothing proves who listens there: a program of another user may have been first. It gets no
        # password, and nothing that a password can be read from at once.
        options["require_auth"] = "!password,!md5"
    return options


def _knows_require_auth() -> bool:
    from noclobber.postgres.light_connection import library

    libpq = library()
    if libpq is not None:
        return bool(libpq.PQlibVersion() >= _REQUIRE_AUTH_SINCE)
    from psycopg import pq

    return pq.version() >= _REQUIRE_AUTH_SINCE


def _parsed(address: str) -> dict[str, Any]:
    """Return the parts, as libpq reads them; `ValueError` in its words."""
    from noclobber.postgres.light_connection import parsed  # Here: it asks this module about the parts.

    found = parsed(address)
    if found is not None:
        return found
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        return conninfo_to_dict(address)
    except ProgrammingError as error:
        raise ValueError(str(error)) from None


def is_this_machine(options: Mapping[str, Any]) -> bool:
    """
    True for a socket in the file system and for the loopback address: nobody is in between.

    As libpq sees it: an address of numbers wins over a name, wherever each comes from. A service file that we
    do not read may hold one, so a service counts as another machine unless the address has numbers itself.
    """
    numbers = options.get("hostaddr")
    if not numbers and (options.get("service") or os.environ.get("PGSERVICE")):
        return False
    numbers = numbers or os.environ.get("PGHOSTADDR")
    hosts = str(numbers or options.get("host") or os.environ.get("PGHOST") or "").split(",")
    return all(host.startswith(("/", "@")) or host in _LOOPBACK for host in hosts)


def shown(options: Mapping[str, Any]) -> str:
    """Return the server in a form that errors may show."""
    host, port = options.get("host") or "the local socket", options.get("port") or 5432
    return f"{host}:{port}/{options.get('dbname') or options.get('user') or ''}"


def _without_values(message: str) -> str:
    """libpq repeats what it could not read, and that may be a secret."""
    return message.split('"', 1)[0].strip().rstrip(":,") or "it cannot be read"
