"""
Calls of one agent that read a file in order to write it, one after the other.

A model asks for several edits of one file in one step, and a framework runs its edit tools at the same time.
Each reads the file, and then writes what it made of it. All but the first would be refused: the file is no
longer what they read, by the agent's own hand. So the second waits with its read until the first has written.

Waiting is for a limited time: a framework may drop a call without telling us. Whoever waited too long goes
on, and is refused if the file has changed.

Tasks do not wait in threads: those who wait would take up the ones in which the first has yet to write.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from weakref import WeakKeyDictionary

WAIT_S = 10.0


class CallQueue:
    """Who reads and writes which file. Keys are a turn and a file's name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: WeakKeyDictionary[object, dict[str, deque[Future[None]]]] = WeakKeyDictionary()

    async def enter(self, turn: object, name: str) -> None:
        """Wait until no other call of the turn is between its read and its write of the file."""
        ticket = self._ticket(turn, name)
        if ticket is None:
            return
        try:
            async with asyncio.timeout(
                WAIT_S
            ):  # Not `wait_for`: in Python 3.11 it can swallow a cancellation.
                await asyncio.wrap_future(ticket)
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            if ticket.done() and not ticket.cancelled():  # Our turn had come: pass it on.
                self.leave(turn, name)
            raise

    def enter_thread(self, turn: object, name: str) -> None:
        """The same for a call that is carried out in this thread and needs no other one."""
        ticket = self._ticket(turn, name)
        if ticket is not None:
            with suppress(TimeoutError):
                ticket.result(WAIT_S)
            ticket.cancel()  # Whoever leaves passes it over.

    def _ticket(self, turn: object, name: str) -> Future[None] | None:
        """Return what to wait for; None if nobody is there."""
        with self._lock:
            files = self._waiting.setdefault(turn, {})
            if name not in files:
                files[name] = deque()
                return None
            ticket: Future[None] = Future()
            files[name].append(ticket)
            return ticket

    def leave(self, turn: object, name: str) -> None:
        """Let the next one in."""
        with self._lock:
            files = self._waiting.get(turn, {})
            tickets = files.get(name)
            while tickets:
                ticket = tickets.popleft()
                if ticket.set_running_or_notify_cancel():
                    ticket.set_result(None)
                    return
            files.pop(name, None)


QUEUE = CallQueue()
