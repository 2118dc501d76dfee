"""
The driver's connection, with an end to its waiting.

A server that is stopped, or that waits for a synchronous standby which is gone, has taken the question and
never answers. TCP has no complaint. So whoever waits for an answer says until when, and then counts the
connection as lost. The question may still be carried out: asking it again finds out (`connection`).
"""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.waiting import Ready, Wait

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import TypeVar

    Value = TypeVar("Value")

_EVENTS = {
    Wait.R: select.POLLIN,
    Wait.W: select.POLLOUT,
    Wait.RW: select.POLLIN | select.POLLOUT,
}


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that gives up."""

    until_s = float("inf")
    """By the monotonic clock."""

    def wait(self, gen: Generator[Any, Any, Value], *_: Any, **__: Any) -> Value:
        """Carry on until there is an answer; `OperationalError` if none came in time."""
        poll = select.poll()
        try:
            wanted = next(gen)
            while True:
                poll.register(self.pgconn.socket, _EVENTS[wanted])
                left_s = self.until_s - time.monotonic()
                events = poll.poll(None if left_s == float("inf") else max(0.0, left_s) * 1000)
                if not events:
                    raise psycopg.OperationalError("the server took the question and does not answer")
                ready = Ready.R if events[0][1] & ~select.POLLOUT else 0
                if events[0][1] & select.POLLOUT:
                    ready |= Ready.W
                wanted = gen.send(ready)
        except StopIteration as end:
            value: Value = end.value
            return value
        except psycopg.Error:
            raise
        except BaseException:  # Ctrl-C: the answer would be taken for that to the next question.
            self.pgconn.finish()
            raise
