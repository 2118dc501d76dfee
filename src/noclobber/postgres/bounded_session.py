"""
One session with the server, asked through the driver's lowest layer, with an end to its waiting.

A server that is stopped, or that waits for a synchronous standby which is gone, has taken the question and
never answers. TCP has no complaint. So whoever waits for an answer says until when, and then counts the
session as lost. The question may still be carried out: asking it again finds out (`connection`).

A question is sent and its answer is received in two calls, so that something else may be done in between.

What is asked again and again is prepared, which saves the server a tenth of its time, unless a pooler is in
between: it gives a session to another client after each transaction. A pooler that was not recognised answers
that there is no such statement; then the question is asked again without (`connection`).
"""

from __future__ import annotations

import select
import time
from hashlib import md5
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import DiagnosticField, ExecStatus

from noclobber.postgres.text_form import LostError, numbered, spelled, understood

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

_FINE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)
_SENDING = 1


class BoundedSession:
    """A session that gives up. One question at a time."""

    def __init__(self, connection: psycopg.Connection[Any], *, may_prepare: bool) -> None:
        self.connection = connection
        self._pgconn = connection.pgconn
        self._poll = select.poll()
        self._poll.register(self._pgconn.socket, select.POLLIN)
        self._asked: dict[str, bytes | None] = {}
        self._may_prepare = may_prepare
        self._is_direct: bool | None = None
        self.is_lost = False
        """True if no question can be sent any more."""

    def send(self, statement: str, arguments: tuple[Any, ...], until_s: float) -> None:
        """Send a question. Its answer must be received before the next one."""
        values = [spelled(each) for each in arguments]
        try:
            name = self._prepared(statement, until_s) if self._may_prepare else None
            if name is None:
                self._pgconn.send_query_params(numbered(statement), values)
            else:
                self._pgconn.send_query_prepared(name, values)
            if self._pgconn.flush() == _SENDING:
                self._send_rest(until_s)
        except psycopg.Error as error:
            raise LostError(None, str(error)) from error
        except LostError:
            raise
        except BaseException:  # Ctrl-C: half a question.
            self._lose()
            raise

    def receive(self, until_s: float) -> list[tuple[Any, ...]]:
        """Return the rows; `LostError` if the server said no, or nothing in time (by the monotonic clock)."""
        try:
            answer = self._answer(until_s)
        except psycopg.Error as error:
            raise LostError(None, str(error)) from error
        except LostError:
            raise
        except BaseException:  # Ctrl-C: the answer would be taken for that to the next question.
            self._lose()
            raise
        return _rows(answer) if answer is not None else []

    def _prepared(self, statement: str, until_s: float) -> bytes | None:
        """Return a statement's name if it is prepared: from its second time on, and without a pooler."""
        if statement not in self._asked:
            self._asked[statement] = None
            return None
        name = self._asked[statement]
        if name is None and self._is_direct is None:
            self._pgconn.send_query_params(b"SELECT pg_backend_pid()", None)
            [(pid,)] = self.receive(until_s)
            self._is_direct = pid == self.connection.info.backend_pid  # A pooler logs us in by itself.
        if name is None and self._is_direct:
            # Of the text, so that it means the same in whichever session it is found.
            name = b"noclobber_" + md5(statement.encode(), usedforsecurity=False).hexdigest().encode()
            self._pgconn.send_prepare(name, numbered(statement))
            self.receive(until_s)
            self._asked[statement] = name
        return name

    def _answer(self, until_s: float) -> PGresult | None:
        answer = None
        # To the end, which is sent after the commit: rows alone may come before it.
        while (found := self._next(until_s)) is not None:
            answer = answer or found
        return answer

    def _lose(self) -> None:
        self.is_lost = True
        self._pgconn.finish()

    def _send_rest(self, until_s: float) -> None:
        """More than the socket takes at once. The server may have to say something before it reads on."""
        while self._pgconn.flush() == _SENDING:
            self._poll.modify(self._pgconn.socket, select.POLLIN | select.POLLOUT)
            try:
                events = self._wait(until_s)
            finally:
                self._poll.modify(self._pgconn.socket, select.POLLIN)
            if events & ~select.POLLOUT:
                self._pgconn.consume_input()

    def _next(self, until_s: float) -> PGresult | None:
        while self._pgconn.is_busy():
            self._wait(until_s)
            self._pgconn.consume_input()
        return self._pgconn.get_result()

    def _wait(self, until_s: float) -> int:
        left_s = until_s - time.monotonic()
        events = self._poll.poll(max(0.0, left_s) * 1000)
        if not events:
            raise LostError(None, "the server took the question and does not answer")
        return events[0][1]


def _rows(answer: PGresult) -> list[tuple[Any, ...]]:
    if answer.status not in _FINE:
        state, message = (
            answer.error_field(field) or b""
            for field in (DiagnosticField.SQLSTATE, DiagnosticField.MESSAGE_PRIMARY)
        )
        raise LostError(state.decode() or None, message.decode("utf-8", "replace"))
    kinds = [answer.ftype(column) for column in range(answer.nfields)]
    return [
        tuple(
            None if (text := answer.get_value(row, column)) is None else understood(kind, text)
            for column, kind in enumerate(kinds)
        )
        for row in range(answer.ntuples)
    ]
