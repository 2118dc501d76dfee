"""
Sessions for threads that ask at the same time: a bounded pool (psycopg_pool), made when a second one asks.

A process has one session of its own (`connection`). While a thread waits for an answer on it, others would
wait, too: a heartbeat behind a slow write, eight tasks of an event loop one after the other. They borrow a
session here. Asyncio programs ask from threads (`noclobber.aio`), so these are their sessions as well.

Most programs ask from one thread at a time, and never load the pool.

- Bounded: `MOST` sessions and the process's own; who finds all of them taken waits, and in the end it is
  `COORDINATOR_UNAVAILABLE` as for a server that does not answer.
- A transaction pooler may stand in between: sessions are neither set up nor reset, and nothing is prepared.
- After a fork the child forgets the parent's sessions without a word, and makes its own.
- Sessions that nobody needed for `IDLE_S` are closed, all of them with the last workspace of the process.
"""

from __future__ import annotations

import logging
import weakref
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import psycopg
import psycopg_pool

from noclobber.postgres.bounded_session import BoundedSession
from noclobber.postgres.text_form import LostError

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST = 7
IDLE_S = 30.0

# Its warnings (a session was lost) would go to the terminal of a program that has set up no logging. What
# matters of them is in our errors.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())


class MoreSessions:
    """Sessions to borrow, each for one question."""

    def __init__(self, options: dict[str, Any]) -> None:
        """`options` are what `psycopg.connect` takes."""
        self.made: weakref.WeakSet[psycopg.Connection[Any]] = weakref.WeakSet()
        self._pool = psycopg_pool.ConnectionPool(
            kwargs={**options, "autocommit": True, "prepare_threshold": None},
            configure=self.made.add,
            min_size=0,
            max_size=MOST,
            max_idle=IDLE_S,
            num_workers=1,
            name="noclobber",
            open=True,
        )

    @contextmanager
    def one(self, at_most_s: float) -> Iterator[BoundedSession]:
        """Borrow a session; `LostError` if none is free in time."""
        try:
            with self._pool.connection(timeout=max(0.01, at_most_s)) as link:
                try:
                    yield BoundedSession(link, may_prepare=False)
                except BaseException:
                    # Its answer may still come. The pool throws away what is closed.
                    with suppress(psycopg.Error, OSError):
                        link.close()
                    raise
        except psycopg.OperationalError as error:
            raise LostError(error.sqlstate, str(error)) from error

    def close(self) -> None:
        """Say goodbye to the server. Sessions that are in use are closed when they come back."""
        self._pool.close(timeout=1.0)
