"""
Ask the server, and ask again if the answer was lost.

Every step is one statement whose ids were made before it was sent. So after a broken connection the same
question is simply asked again: if the first one had arrived, the second one finds that it was done.

The wait is bounded, also for a server that took the question and does not answer: one that is stopped, or
that waits for a synchronous standby which is gone. When it is over, `CoordinatorUnavailableError` is raised,
and whoever asked refuses what it was asked for: nothing is decided without the server.

One session for each process, and more for threads that ask at the same time (`more_sessions`). After a fork
the child closes the inherited sockets' descriptors only, because a proper goodbye would end the parent's
sessions. Nothing here relies on what a session keeps (`SET`, advisory locks; statements are prepared only
where no pooler is found), so a transaction pooler may stand in between.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from noclobber.errors import NoclobberError
from noclobber.postgres.address import connection_options, shown
from noclobber.postgres.asking import (
    ALIVE,
    ANSWER_MS,
    CONNECT_S,
    ENCODING,
    LONGEST_NAP_S,
    PATIENCE_S,
    VERSION_QUESTION,
    answer_until_s,
    explained,
    may_ask_again,
    naps,
    refuse_other_version,
    unavailable,
)
from noclobber.postgres.text_form import LostError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from noclobber.postgres.bounded_session import BoundedSession
    from noclobber.postgres.more_sessions import MoreSessions

# Statements that were prepared in another session: there is a pooler that nobody has recognised.
_NOT_PREPARED = ("26000", "42P05")


class ServerConnection:
    """A way to the server that survives lost connections. Any number of threads may use it."""

    def __init__(self, address: str, *, patience_s: float = PATIENCE_S, any_version: bool = False) -> None:
        """`any_version`: also ask a server whose tables are of another version, to say so."""
        self._options = connection_options(address)
        self._is_right_version = any_version
        self._patience_s = patience_s
        self._mutex, self._making = threading.RLock(), threading.Lock()
        self._pid = os.getpid()
        self._link: BoundedSession | None = None
        self._owed: _Question | None = None
        self._listener: psycopg.Connection[Any] | None = None
        self._listening = threading.Lock()
        self._more: MoreSessions | None = None
        self._is_pooled: bool | None = None
        self._may_prepare = True
        self.answered_s = float("-inf")
        """When the server answered last, by the monotonic clock."""

    @property
    def server(self) -> str:
        """Which server this is, for messages."""
        return shown(self._options)

    def ask(self, statement: str, arguments: tuple[Any, ...], patience_s: float | None = None) -> list[Any]:
        """
        Run one statement in a transaction of its own and return its rows.

        `patience_s` bounds how long it is tried; the statement must be one that may be asked twice.
        """
        deadline_s = time.monotonic() + (self._patience_s if patience_s is None else patience_s)
        for nap_s in naps():
            try:
                with self._session(deadline_s) as link:
                    until_s = answer_until_s(deadline_s)
                    self._check_version(link, until_s)
                    if self._owed is not None and link is self._link:
                        self._settle_owed(link, until_s)
                    link.send(statement, arguments, until_s)
                    rows = link.receive(until_s)
                self.answered_s = time.monotonic()
                return rows
            except LostError as error:
                if error.state in _NOT_PREPARED:
                    self._may_prepare = False
                    continue
                if not may_ask_again(error.state, str(error)):
                    raise explained(self.server, error.state, str(error)) from error
                if time.monotonic() + nap_s >= deadline_s:
                    raise unavailable(self.server, str(error)) from error
            time.sleep(nap_s)
        raise AssertionError  # Naps do not end.

    @contextmanager
    def _session(self, deadline_s: float) -> Iterator[BoundedSession]:
        """The process's own session; if somebody waits for an answer on it, another one."""
        self._own()
        if not self._mutex.acquire(blocking=False):
            more = self._more_sessions()
            if more is not None:
                with more.one(deadline_s - time.monotonic()) as link:
                    yield link
                return
            self._mutex.acquire()
        try:
            yield self._open()
        except BaseException:
            self._drop()
            raise
        finally:
            self._mutex.release()

    def _more_sessions(self) -> MoreSessions | None:
        """None without the pool's package, or room for its threads: then threads wait for each other."""
        with self._making:
            if self._more is None:
                try:
                    from noclobber.postgres.more_sessions import MoreSessions
                except ModuleNotFoundError as error:
                    if error.name != "psycopg_pool":
                        raise
                    return None
                with suppress(RuntimeError):  # No room for another thread.
                    self._more = MoreSessions(self._connect_options())
            return self._more

    def _check_version(self, link: BoundedSession, until_s: float) -> None:
        """Once a process, before the first question: tables of another version are not written to."""
        if not self._is_right_version:
            if self._owed is not None and link is self._link:
                self._settle_owed(link, until_s)
            link.send(VERSION_QUESTION, (), until_s)
            rows = link.receive(until_s)
            refuse_other_version(self.server, rows)
            self._is_right_version = True

    def tell(self, statement: str, arguments: tuple[Any, ...]) -> None:
        """
        Run one statement and do not wait for it. Its answer is received before the next question is sent, and
        if that does not come, it is told again. An end of this process in between may leave it undone.
        """
        question = _Question(statement, arguments)
        self._own()  # Before the mutex, here and below: its owner may be a thread that a child does not have.
        with self._mutex:
            if self._owed is not None:
                self.ask("SELECT 1", ())
            self._owed = question
            try:
                link = self._open()
                link.send(statement, arguments, answer_until_s(time.monotonic()))
                question.asked_by = link
            except LostError:
                self._drop()  # The next question tells it again.

    def _settle_owed(self, link: BoundedSession, until_s: float) -> None:
        """Receive the answer to what was told. It goes first: it happened before what is asked now."""
        question = self._owed
        assert question is not None
        if question.asked_by is not link:
            link.send(question.statement, question.arguments, until_s)
        question.asked_by = None
        try:
            link.receive(until_s)
        except LostError as error:
            if error.state in _NOT_PREPARED or may_ask_again(error.state, str(error)):
                raise
        self._owed = None

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

        self._own()
        if self._is_pooled:
            time.sleep(at_most_s)
            return
        until_s = time.monotonic() + at_most_s
        if not self._listening.acquire(timeout=at_most_s):
            return  # Another thread listens, perhaps for something else. Its patience is not ours.
        try:
            self._listen(key, until_s)
            return
        except psycopg.Error:
            listener, self._listener = self._listener, None
            with suppress(psycopg.Error):
                if listener is not None:
                    listener.close()
        finally:
            self._listening.release()
        time.sleep(max(0.0, min(until_s - time.monotonic(), LONGEST_NAP_S)))

    def _listen(self, key: str, until_s: float) -> None:
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
        for notice in listener.notifies(timeout=max(0.0, until_s - time.monotonic())):
            if notice.payload == key:
                return

    def is_pooled(self) -> bool:
        """True if a pooler (PgBouncer, Pgpool) is in between: then nobody hears notices, and waiters poll."""
        self._own()
        with self._mutex:
            if self._is_pooled is None:
                found = self.value("SELECT pg_backend_pid()", ())
                self._is_pooled = found != self._open().connection.info.backend_pid
            return self._is_pooled

    def close(self) -> None:
        """Say goodbye to the server. The next question opens a new connection."""
        self._own()
        with self._mutex:
            if self._owed is not None:
                with suppress(NoclobberError):
                    self.ask("SELECT 1", (), 1.0)
            for link in self._sessions():
                link.close()
            self._link = self._listener = None
            with self._making:
                more, self._more = self._more, None
        if more is not None:
            more.close()

    def __del__(self) -> None:
        try:
            if self._pid == os.getpid():
                self.close()
        except Exception:  # noqa: S110 - at the end of the interpreter every name here may be gone
            pass

    def _own(self) -> None:
        """In a forked child: let go of the parent's sockets without a word, which the server would hear."""
        if self._pid == os.getpid():
            return
        # One thread of the child, once: a second one would close what are the first one's new sockets.
        with _taking_over:
            if self._pid != os.getpid():
                self._forget_parents()

    def _forget_parents(self) -> None:
        for link in self._sessions():
            _forget(link)
        if self._more is not None:
            for link in list(self._more.made):
                _forget(link)
            _forgotten.append(self._more)
        self._link = self._listener = self._more = None
        self._owed = None  # What is owed, the parent tells.
        self._mutex, self._making, self._listening = threading.RLock(), threading.Lock(), threading.Lock()
        self._pid = os.getpid()

    def _sessions(self) -> list[psycopg.Connection[Any]]:
        links = (None if self._link is None else self._link.connection, self._listener)
        return [link for link in links if link is not None]

    def _open(self) -> BoundedSession:
        self._own()
        if self._link is None or self._link.is_lost:
            import psycopg

            from noclobber.postgres.bounded_session import BoundedSession  # Here: it needs the driver.

            try:
                self._link = BoundedSession(self._connect(), may_prepare=self._may_prepare)
            except psycopg.OperationalError as error:
                raise LostError(error.sqlstate, str(error)) from error
        return self._link

    def _connect(self) -> psycopg.Connection[Any]:
        import psycopg

        return psycopg.Connection.connect(**self._connect_options(), autocommit=True, prepare_threshold=None)

    def _connect_options(self) -> dict[str, Any]:
        return {
            **ALIVE,
            "connect_timeout": CONNECT_S,
            "application_name": "noclobber",
            "tcp_user_timeout": ANSWER_MS,
            "target_session_attrs": "read-write",  # A standby cannot decide anything.
            **self._options,
            **ENCODING,
        }

    def _drop(self) -> None:
        import psycopg

        with self._mutex:
            link, self._link = self._link, None
            with suppress(psycopg.Error, OSError):
                if link is not None:
                    link.connection.close()


class _Question:
    """What the server was told, and has not answered yet."""

    def __init__(self, statement: str, arguments: tuple[Any, ...]) -> None:
        self.statement, self.arguments = statement, arguments
        self.asked_by: BoundedSession | None = None


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
_taking_over = threading.Lock()


def _begin_in_child() -> None:
    global _taking_over
    _taking_over = threading.Lock()  # A thread that does not exist here may have had the parent's.


os.register_at_fork(after_in_child=_begin_in_child)
