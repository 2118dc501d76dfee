"""
The ledger on the server: one chain for each workspace, line for line as a file has it.

Lines are sealed by the server under the chain's row lock, so any number of machines may append. An export
is a ledger file, byte for byte.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

from noclobber.errors import BrokenChainError, LedgerError, RefusalError
from noclobber.ledger.ledger import LedgerEntry, VerifyReport
from noclobber.ledger.line import encode, link_of
from noclobber.ledger.verify import ChainCheck, parse_head

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from noclobber.postgres.connection import ServerConnection

PAGE_LINES = 1000
JUST_S = 1.0


class PostgresLedger:
    """A workspace's chain. It has no file."""

    def __init__(self, connection: ServerConnection, workspace: str | Callable[[], str]) -> None:
        """Name a chain. A workspace that has to be looked up is looked up when it is needed."""
        self._connection, self._given = connection, workspace
        self._named: str | None = None

    @property
    def path(self) -> str:
        """The server and the workspace."""
        return f"{self._connection.server}#{self._workspace}"

    @property
    def _workspace(self) -> str:
        if self._named is None:
            self._named = self._given if isinstance(self._given, str) else self._given()
        return self._named

    def prepare(self, events: int = 1) -> None:
        """
        Raise the `LedgerError` that an append would meet now: the server does not answer.

        One that has just answered is not asked again: what comes next asks it, before anything is written.
        """
        _ = self._workspace  # It has a name, or there is an error now.
        if time.monotonic() - self._connection.answered_s > JUST_S:
            self._ask("SELECT noclobber.installed_version()", ())

    def append(self, event: Mapping[str, Any]) -> LedgerEntry:
        """Record one event: all of it, once, after everything recorded before."""
        body = encode(self.path, event).decode()
        # The id makes a repeated question harmless: the server finds the line that it wrote.
        arguments = (self._workspace, body, os.urandom(16).hex())
        found = self._ask("CALL noclobber.append_event(%s, %s, %s, NULL)", arguments)
        return LedgerEntry(
            found["seq"], found["time"], f"sha256:{found['hash']}", f"sha256:{found['prev_hash']}"
        )

    def append_all(self, events: Iterable[Mapping[str, Any]]) -> list[LedgerEntry]:
        """Record several events, one after the other in the chain: all of them, or none."""
        bodies = [encode(self.path, event).decode() for event in events]
        if not bodies:
            return []
        arguments = (self._workspace, bodies, os.urandom(16).hex())
        found = self._ask("CALL noclobber.append_events(%s, %s::text[], %s, NULL)", arguments)
        return [
            LedgerEntry(each["seq"], each["time"], f"sha256:{each['hash']}", f"sha256:{each['prev_hash']}")
            for each in found
        ]

    def follow(self) -> ServerLines:
        """Return the lines as they are, for somebody who looks; then what is appended."""
        return ServerLines(self)

    @property
    def head(self) -> str:
        """The hash of the last entry, or `GENESIS` if there is none."""
        return f"sha256:{self._end()['head']}"

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield every event in order, a page at a time. A line that is no entry raises `BrokenChainError`."""
        for number, line in enumerate(self.lines(), 1):
            if link_of(line) is None:
                raise BrokenChainError(
                    self.path, f"line {number} is not an entry", line=number, reason="not an entry"
                )
            yield json.loads(line)

    def lines(self, seen: int = 0) -> Iterator[bytes]:
        """Yield every line after the first `seen`, without newlines, up to the end as it was at the start."""
        last = self._end()["seq"]
        while seen < last:
            page = self._rows(seen, last, PAGE_LINES)
            if not page:  # Somebody with the owner's rights deleted them. Whoever verifies says so.
                return
            yield from page
            seen = seen + len(page)

    def last_lines(self, count: int) -> list[bytes]:
        """Return up to `count` lines from the end, without reading the rest."""
        last = self._end()["seq"]
        return self._rows(max(0, last - count), last, count) if count > 0 else []

    def verify(
        self, *, head: str | None = None, progress: Callable[[int, int, int], None] | None = None
    ) -> VerifyReport:
        """Check every line's hash, link, number and JSON, and that the chain ends where the server says."""
        check = ChainCheck(self.path, parse_head(head))
        last = self._end()
        size_bytes = 0
        for line in self.lines():
            check.add(line)
            size_bytes += len(line) + 1
            if progress is not None and check.event_count % PAGE_LINES == 0:
                progress(check.event_count, last["seq"], check.event_count)
        if check.event_count != last["seq"] or check.head.decode() != last["head"]:
            raise BrokenChainError(
                self.path,
                f"the chain has {last['seq']} events by its own count, and {check.event_count} were found. "
                "Somebody changed the tables. Look for a backup",
                line=check.event_count + 1,
                reason="the end is missing",
                event_count=check.event_count,
                head=f"sha256:{check.head.decode()}",
            )
        found = check.finish()
        return VerifyReport(
            self.path, found.event_count, f"sha256:{found.head.decode()}", size_bytes,
            saved_head_line=found.saved_head_line,
        )  # fmt: skip

    def close(self) -> None:
        """The connection is the process's own, and others use it."""

    def _end(self) -> dict[str, Any]:
        end: dict[str, Any] = self._ask("SELECT noclobber.chain_end(%s)", (self._workspace,))
        return end

    def _rows(self, seen: int, last: int, count: int) -> list[bytes]:
        arguments = (self._workspace, seen, last, count)
        try:
            rows = self._connection.ask("SELECT noclobber.lines(%s, %s, %s, %s)", arguments)
        except LedgerError:
            raise  # It does not answer.
        except RefusalError as error:
            raise LedgerError(self.path, error.message) from error
        return [row[0].encode() for row in rows]

    def _ask(self, statement: str, arguments: tuple[Any, ...]) -> Any:
        try:
            return self._connection.value(statement, arguments)
        except LedgerError:
            raise  # It does not answer.
        except RefusalError as error:
            raise LedgerError(self.path, error.message) from error


class ServerLines:
    """The lines of a chain, once; then what was appended since, as often as it is asked for."""

    def __init__(self, ledger: PostgresLedger) -> None:
        self._ledger, self._seen = ledger, 0

    def __iter__(self) -> Iterator[bytes]:
        """Yield them, a page at a time."""
        for line in self._ledger.lines(self._seen):
            self._seen += 1
            yield line

    appended = __iter__
