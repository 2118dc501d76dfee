"""
Ask the server, and ask again if the answer was lost.

Every step is one statement whose ids were made before it was sent. So after a broken connection the same
question is simply asked again: if the first one had arrived, the second one finds that it was done.

The wait is bounded, also for a server that took the question and does not answer: one that is stopped, or
that waits for a synchronous standby which is gone. When it is over, `CoordinatorUnavailableError` is raised,
and whoever asked refuses what it was asked for: nothing is decided without the server.

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

from noclobber.postgres.address import connection_options, shown
from noclobber.postgres.asking import (
    ALIVE,
    ANSWER_MS,
    CONNECT_S,
    LONGEST_NAP_S,
    PATIENCE_S,
    answer_until_s,
    explained,
    may_ask_again,
    naps,
    unavailable,
)

if TYPE_CHECKING:
    from typing import TypeVar

    import psycopg

    from noclobber.postgres.bounded_connection import BoundedConnection as _Bounded

    Link = TypeVar("Link", bound=psycopg.Connection[Any])


class ServerConnection:
    """A way to the server that survives lost connections. Any number of threads may use it."""

    def __init__(self, address: str, *, patience_s: float = PATIENCE_S) -> None:
        self._options = connection_options(address)
        self._patience_s = patience_s
        self._mutex = threading.RLock()
        self._pid = os.getpid()
        self._link: _Bounded | None = None
        self._listener: psycopg.Connection[Any] | None = None
        self._is_pooled: bool | None = None

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
        for nap_s in naps():
            try:
                with self._mutex:
                    link = self._open()
                    link.until_s = answer_until_s(deadline_s)
                    return link.execute(statement, arguments, prepare=False).fetchall()
            except psycopg.Error as error:
                self._drop()
                if not _may_ask_again(error):
                    said = error.diag.message_primary or str(error)
                    raise explained(self.server, error.sqlstate, said) from error
                if time.monotonic() + nap_s >= deadline_s:
                    raise unavailable(self.server, str(error)) from error
            time.sleep(nap_s)
        raise AssertionError  # Naps do not end.

    def value(self, statement: str, arguments: tuple[Any, ...], patience_s: float | None = None) -> Any:
        """Run one statement and return the first column of its first row; None if there is no row."""
        rows = self.ask(statement, arguments, patience_s)
        return rows[0][0] if rows else None

    def wait(self, key: str, at_most_s: float) -> None:
        """
        Return when somebody has let go of `key`, or after `at_most_s`.

        The first call only begins to listen and returns at once: what was let go of before that was not
        heard, so the caller has to look again. Behind a pooler nothing is ever heard, and a lost listener
        hears nothing; then the time that was given is the poll.
        """
        import psycopg

        try:
            self._own()
            if self._is_pooled:
                time.sleep(at_most_s)
                return
            listener = self._listener
            if listener is None:
                listener = self._connect()
                self._is_pooled = _is_pooled(listener)
                if self._is_pooled:
                    # The server would notify whichever client the pooler gives this session to next.
                    listener.close()
                    return
                self._listener = listener
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
            time.sleep(min(at_most_s, LONGEST_NAP_S))

    def is_pooled(self) -> bool:
        """True if a pooler (PgBouncer, Pgpool) is in between: then nobody hears notices, and waiters poll."""
        with self._mutex:
            if self._is_pooled is None:
                self._is_pooled = _is_pooled(self._open())
            return self._is_pooled

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

    def _open(self) -> _Bounded:
        self._own()
        if self._link is None or self._link.closed:
            from noclobber.postgres.bounded_connection import BoundedConnection  # Here: it needs the driver.

            self._link = self._connect(BoundedConnection)
        return self._link

    def _connect(self, kind: type[Link] | None = None) -> Link:
        import psycopg

        return (kind or psycopg.Connection).connect(  # type: ignore[return-value]
            **{
                **ALIVE,
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


def _may_ask_again(error: psycopg.Error) -> bool:
    import psycopg

    is_answer = error.sqlstate is not None or isinstance(error, psycopg.OperationalError)
    return is_answer and may_ask_again(error.sqlstate, str(error))


def _is_pooled(link: psycopg.Connection[Any]) -> bool:
    """A pooler answers the log-in itself, with a process number that is not the server's."""
    row = link.execute("SELECT pg_backend_pid()").fetchone()
    return row is not None and row[0] != link.info.backend_pid


def _forget(link: psycopg.Connection[Any]) -> None:
    with suppress(Exception):
        os.close(link.fileno())
    # libpq would still send its goodbye when the object is collected, to whatever has that number by then.
    _forgotten.append(link)


_forgotten: list[Any] = []
