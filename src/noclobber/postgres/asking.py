"""
When to ask the server again, for how long, and what to say if it does not help: for every way of asking.
"""

from __future__ import annotations

import time
from functools import cache
from typing import TYPE_CHECKING, Any

from noclobber.core.json_text import spell_in_ascii
from noclobber.core.project import COORDINATOR
from noclobber.disk import hashing
from noclobber.disk.commit import note_keys
from noclobber.errors import ConfigError, CoordinatorUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noclobber.disk.processes import ProcessIdentity

VERSION = 9  # Of the tables and functions on the server: schema.py.
# With a name where the server ends what it is asked for within 6 s: a step may wait so long for its turn.
VERSION_QUESTION = (
    "SELECT noclobber.installed_version(), current_setting('transaction_isolation'), (SELECT name FROM"
    " (VALUES ('statement_timeout'), ('lock_timeout'), ('transaction_timeout')) s(name)"
    " WHERE extract(epoch FROM coalesce(current_setting(name, true), '0')::interval)"
    " BETWEEN 0.000001 AND 6 LIMIT 1)"
)
ISOLATION = "read committed"  # A step must see what was done while it waited for its turn.
PATIENCE_S = 10.0
CONNECT_S = 3  # libpq's own limit, for each address of a host name.
ANSWER_MS = 5000  # TCP without an answer for so long is a broken connection.
# A machine that is gone says nothing. Without these a client that waits for an answer would wait two hours.
ALIVE = {"keepalives_idle": "3", "keepalives_interval": "1", "keepalives_count": "3"}
# What we send and understand, whatever PGCLIENTENCODING or the address says: otherwise two clients would have
# two names for one folder, and both of them its lock.
ENCODING = {"client_encoding": "UTF8"}
SHORTEST_ANSWER_S = 0.2  # A server that is asked for the last time gets that long at least.
_FIRST_NAP_S, LONGEST_NAP_S = 0.02, 0.5

# The connection was lost, or the server is going down, starting, switching over, or has no room: asking
# again may help. Everything else is an answer. 23505: two steps wanted the same place in the chain, because
# functions were replaced while one of them was under way. Nothing was done then, and ids are the client's.
_ASK_AGAIN = ("08", "57P", "53", "40", "25006", "23505")


def naps() -> Iterator[float]:
    """Yield how long to wait before each further try, without end."""
    nap_s = _FIRST_NAP_S
    while True:
        yield nap_s
        nap_s = min(nap_s * 2, LONGEST_NAP_S)


def answer_until_s(deadline_s: float) -> float:
    """Return until when one try waits for its answer. Another session may answer after that."""
    now_s = time.monotonic()
    return max(min(deadline_s, now_s + ANSWER_MS / 1000), now_s + SHORTEST_ANSWER_S)


def may_ask_again(state: str | None, message: str) -> bool:
    """True if the same question may have an answer later. `state` is None if it never came to one."""
    return not _is_for_a_person(message) if state is None else state.startswith(_ASK_AGAIN)


def _is_for_a_person(message: str) -> bool:
    """A failed login has no state. Asking again would lock the account of some servers."""
    return any(
        part in message
        for part in (
            *("authentication failed", "no password supplied", "does not exist", "no pg_hba"),
            *("invalid integer value", "invalid port number"),  # Of the address: nobody was asked.
            *("certificate verify failed", "does not match host name", "authentication method requirement"),
        )
    )


def refuse_other_version(server: str, rows: list[Any]) -> None:
    """Raise if the tables are not of our version: what their functions mean may be something else."""
    found, isolation, too_short = rows[0] if rows else (None, ISOLATION, None)
    if too_short:
        raise ConfigError(
            COORDINATOR,
            f"{too_short} in {server} ends steps that wait for their turn. Set it to 0, or to more than 6 s,"
            " for the database, the user and PGOPTIONS",
        )
    if isolation != ISOLATION:  # A database, a user or PGOPTIONS may say so.
        raise ConfigError(
            COORDINATOR,
            f"transactions in {server} are {isolation}, so that a step would not see a lock that was taken "
            "while it waited for its turn. Take default_transaction_isolation from the database, the user "
            "and PGOPTIONS",
        )
    if found == VERSION:
        return
    if found is not None and found > VERSION:
        raise ConfigError(
            COORDINATOR,
            f"{server} has version {found} of noclobber's tables, and this noclobber knows up to {VERSION}. "
            "Upgrade noclobber on this machine",
        )
    raise ConfigError(
        COORDINATOR,
        f"{server} has version {found} of noclobber's tables, older than {VERSION}. Run `noclobber "
        "coordinator migrate` as the owner of the database",
    )


def judge_dead(row: dict[str, Any], judged: dict[str, Any]) -> None:
    """
    Note for the next question that a lock's holder no longer runs. The server believes it of this version of
    this lock only.
    """
    judged.setdefault("locks", {})[row["path"]] = f"{row['version']} {row['lock_id']}"
    judged["key"] = judging_key()


@cache
def judging_key() -> str:
    """
    Return what users of this machine know, and nobody who only talks to the server; a process has its hash.

    Who has it may say that a process of this machine no longer runs.
    """
    return note_keys.word(b"who judges on this machine")


def judged_process(process: ProcessIdentity) -> str:
    """Spell a process for the server, with the hash of what those who may judge it have."""
    return spell_in_ascii({**process._asdict(), "judge": hashing.of_bytes(judging_key().encode())})


def unavailable(server: str, message: str) -> CoordinatorUnavailableError:
    """The error for a server that stays away."""
    reason = message.strip().splitlines()
    return CoordinatorUnavailableError(
        server,
        f"the coordinator does not answer ({reason[0] if reason else 'it says nothing'}). Writes and "
        "locks wait for it; reading goes on. Try again when the server is back, and see `noclobber "
        "coordinator doctor`",
    )


def explained(server: str, state: str | None, message: str) -> Exception:
    """Return the error with a remedy, for what a person has to put right."""
    state = state or ""
    said = (message.strip().splitlines() or [""])[0]
    if state in ("3F000", "42883", "42P01"):
        return ConfigError(
            COORDINATOR,
            f"noclobber is not installed in {server}, or it is of another version. Run `noclobber "
            "coordinator init` or `noclobber coordinator migrate` as the owner of the database",
        )
    if state.startswith("28") or state == "42501":
        return ConfigError(
            COORDINATOR,
            f"this user may not use the coordinator in {server}: {said}. "
            "Its owner grants it with: GRANT noclobber_agent TO <user>",
        )
    if state == "3D000":
        return ConfigError(COORDINATOR, f"there is no such database: {said}")
    if not state and "authentication method requirement" in message:
        return ConfigError(
            COORDINATOR,
            f"{server} wants a password that whoever listens there could read: {said}. Let the server use "
            "scram-sha-256, or say require_auth= in the address if you know who that is",
        )
    if not state and _is_for_a_person(message):
        return ConfigError(
            COORDINATOR,
            f"{server} cannot be used with this address: {said}. Put the user, database, port and "
            "sslrootcert right, and the password into ~/.pgpass or PGPASSWORD",
        )
    return CoordinatorUnavailableError(
        server,
        f"the coordinator could not do what it was asked: {said} "
        f"({state or 'no state'}). Run `noclobber coordinator doctor`",
    )
