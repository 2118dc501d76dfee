"""
Ask the server, and ask again if the answer was lost.

Every step is one statement whose ids were made before it was sent. So after a broken connection the same
question is simply asked again: if the first one had arrived, the second one finds that it was done.

The wait is bounded. When it is over, `CoordinatorUnavailableError` is raised, and whoever asked refuses what
it was asked for: nothing is decided without the server.

One connection for each process and thread-safe. After a fork the child closes the inherited socket's
descriptor only, because a proper goodbye would end the parent's session. Nothing here relies on what a
session keeps (prepared statements, `SET`, advisory locks), so a transaction pooler may stand in between.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from noclobber.errors import ConfigError, CoordinatorUnavailableError
from noclobber.postgres.address import VARIABLE, connection_options, shown

if TYPE_CHECKING:
    import psycopg

PATIENCE_S = 10.0
CONNECT_S = 3  # libpq's own limit, for each address of a host name.
ANSWER_MS = 5000  # TCP without an answer for so long is a broken connection.
_FIRST_NAP_S, _LONGEST_NAP_S = 0.02, 0.5

# The connection was lost, or the server is going down, starting, switching over, or has no room: asking
# again may help. Everything else is an answer.
_ASK_AGAIN = ("08", "57P", "53", "40", "25006")


class ServerConnection:
    """A way to the server that survives lost connections. Any number of threads may use it."""

    def __init__(self, address: str, *, patience_s: float = PATIENCE_S) -> None:
        self._options = connection_options(address)
        self._patience_s = patience_s
        self._mutex = threading.RLock()
        self._pid = os.getpid()
        self._link: psycopg.Connection[Any] | None = None
        self._listener: psycopg.Connection[Any] | None = None

    @property
    def server(self) -> str:
        """Which server this is, for messages."""
        return shown(self._options)

    def ask(self, statement: str, arguments: tuple[Any, ...], patience_s: float | None = None) -> list[Any]:
        """
        Run one statement in a transaction of its own and return its rows.

        `patience_s` bounds how long it is tried; the statement must be one that may be asked twice.
        """
        import psycopg

        deadline_s = time.monotonic() + (self._patience_s if patience_s is None else patience_s)
        nap_s = _FIRST_NAP_S
        while True:
            try:
                with self._mutex:
                    return self._open().execute(statement, arguments, prepare=False).fetchall()
            except psycopg.Error as error:
                self._drop()
                if not _may_ask_again(error):
                    raise self._explained(error) from error
                if time.monotonic() + nap_s >= deadline_s:
                    raise self._unavailable(error) from error
            time.sleep(nap_s)
            nap_s = min(nap_s * 2, _LONGEST_NAP_S)

    def value(self, statement: str, arguments: tuple[Any, ...], patience_s: float | None = None) -> Any:
        """Run one statement and return the first column of its first row; None if there is no row."""
        rows = self.ask(statement, arguments, patience_s)
        return rows[0][0] if rows else None

    def wait(self, key: str, at_most_s: float) -> None:
        """
        Return when somebody has let go of `key`, or after `at_most_s`.

        The first call only begins to listen and returns at once: what was let go of before that was not
        heard, so the caller has to look again. Behind a transaction pooler nothing is ever heard, and a lost
        listener hears nothing; then the time that was given is the poll.
        """
        import psycopg

        try:
            self._own()
            listener = self._listener
            if listener is None:
                self._listener = listener = self._connect()
                listener.execute("LISTEN noclobber")
                return
            for notice in listener.notifies(timeout=at_most_s):
                if notice.payload == key:
                    return
        except psycopg.Error:
            listener, self._listener = self._listener, None
            with suppress(psycopg.Error):
                if listener is not None:
                    listener.close()
            time.sleep(min(at_most_s, _LONGEST_NAP_S))

    def close(self) -> None:
        """Say goodbye to the server. The next question opens a new connection."""
        with self._mutex:
            self._own()
            for link in (self._link, self._listener):
                if link is not None:
                    link.close()
            self._link = self._listener = None

    def __del__(self) -> None:
        if getattr(self, "_pid", None) == os.getpid():
            with suppress(Exception):
                self.close()

    def _own(self) -> None:
        """In a forked child: let go of the parent's sockets without a word, which the server would hear."""
        if self._pid == os.getpid():
            return
        for link in (self._link, self._listener):
            if link is not None:
                _forget(link)
        self._link = self._listener = None
        self._mutex, self._pid = threading.RLock(), os.getpid()

    def _open(self) -> psycopg.Connection[Any]:
        self._own()
        if self._link is None or self._link.closed:
            self._link = self._connect()
        return self._link

    def _connect(self) -> psycopg.Connection[Any]:
        import psycopg

        return psycopg.connect(
            **{
                "connect_timeout": CONNECT_S,
                "application_name": "noclobber",
                "tcp_user_timeout": ANSWER_MS,
                "target_session_attrs": "read-write",  # A standby cannot decide anything.
                **self._options,
            },
            autocommit=True,
            prepare_threshold=None,
        )

    def _drop(self) -> None:
        import psycopg

        with self._mutex:
            link, self._link = self._link, None
            with suppress(psycopg.Error, OSError):
                if link is not None:
                    link.close()

    def _unavailable(self, error: Exception) -> CoordinatorUnavailableError:
        reason = str(error).strip().splitlines()
        return CoordinatorUnavailableError(
            self.server,
            f"the coordinator does not answer ({reason[0] if reason else type(error).__name__}). Writes and "
            "locks wait for it; reading goes on. Try again when the server is back, and see `noclobber "
            "coordinator doctor`",
        )

    def _explained(self, error: psycopg.Error) -> Exception:
        """Return the error with a remedy, for what a person has to put right."""
        state = error.sqlstate or ""
        if state in ("3F000", "42883", "42P01"):
            return ConfigError(
                VARIABLE,
                f"noclobber is not installed in {self.server}, or it is of another version. Run `noclobber "
                "coordinator init` or `noclobber coordinator migrate` as the owner of the database",
            )
        if state.startswith("28") or state == "42501":
            return ConfigError(
                VARIABLE,
                f"this user may not use the coordinator in {self.server}: "
                f"{error.diag.message_primary or error}. "
                "Its owner grants it with: GRANT noclobber_agent TO <user>",
            )
        if state == "3D000":
            return ConfigError(VARIABLE, f"there is no such database: {error.diag.message_primary or error}")
        return CoordinatorUnavailableError(
            self.server,
            f"the coordinator could not do what it was asked: {error.diag.message_primary or error} "
            f"({state or type(error).__name__}). Run `noclobber coordinator doctor`",
        )


def _may_ask_again(error: psycopg.Error) -> bool:
    import psycopg

    state = error.sqlstate
    if state is None:  # It never came to an answer.
        return isinstance(error, psycopg.OperationalError) and not _is_about_rights(str(error))
    return state.startswith(_ASK_AGAIN)


def _is_about_rights(message: str) -> bool:
    """psycopg gives a failed login no state. Asking again would lock the account of some servers."""
    return any(
        part in message
        for part in ("authentication failed", "no password supplied", "does not exist", "no pg_hba")
    )


def _forget(link: psycopg.Connection[Any]) -> None:
    with suppress(Exception):
        os.close(link.fileno())
    # libpq would still send its goodbye when the object is collected, to whatever has that number by then.
    _forgotten.append(link)


_forgotten: list[Any] = []
