"""
A failover to a standby: `python -m torture.failover`, a part of `make hosts`.

A server and its standby. Clients name both, and talk to the one that may write. The server stops as by a
crash, and the standby is promoted.

- With a synchronous standby whatever was acknowledged is there: the lock is still its holder's, every event
  is in the chain, and the next token is higher.
- With an asynchronous one that had fallen behind, the last lock and its event are forgotten. Then its holder
  hears at its next renewal that it has none, its writes are refused, and whoever takes the lock gets a higher
  token than the forgotten one: a promoted server has a new timeline, which is in the token's upper bits.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psycopg

from noclobber.disk.processes import identify
from noclobber.errors import LockContention, LockLost
from noclobber.lock.arbiter import Taker
from noclobber.lock.file_arbiter import FileHolding
from noclobber.postgres import health, schema
from noclobber.postgres.arbiter import PostgresArbiter
from noclobber.postgres.connection import ServerConnection
from noclobber.postgres.ledger import PostgresLedger
from torture.postgres_server import Server, programs


class FailoverVerdict(NamedTuple):
    """What was found after the failover."""

    is_still_held: bool
    """The lock that was given before."""
    was_told: bool
    """The first holder heard of the loss when it renewed, and its write was refused."""
    tokens: tuple[int, int]
    """The last one before, and the first one after."""
    events_lost: int
    doctor: str
    """What `noclobber coordinator doctor` said of the standby, before."""


class Pair:
    """A server and its standby. They change places at a failover, and the lost one can be built anew."""

    def __init__(
        self,
        folder: str,
        settings: str = "-F -c listen_addresses=",
        prefixes: Sequence[tuple[str, ...]] = ((), ()),
    ) -> None:
        """`settings` are for both; `prefixes` run the programs of each elsewhere, as in `Server`."""
        # A standby that lost its server looks for it at once: until it is there, nothing is answered.
        both = f"{settings} -c wal_level=replica -c hot_standby=on -c wal_retrieve_retry_interval=200ms"
        self.primary = Server(folder, settings=both, prefix=prefixes[0])
        self.standby = Server(folder, settings=both, prefix=prefixes[1], is_empty=True)
        self._is_synchronous = False

    def start(self) -> None:
        """Start both."""
        self.primary.start()
        self._copy()

    def _copy(self) -> None:
        """Make the standby of what the primary has now."""
        shutil.rmtree(self.standby.data, ignore_errors=True)
        where = ("-h", self.primary.folder, "-U", "owner", "-D", self.standby.data)
        self.standby.run("pg_basebackup", *where, "-R", "-X", "stream", "-c", "fast", "--no-sync")
        self.standby.start()

    def address(self, user: str = "owner") -> str:
        """The one that may write, by its socket."""
        return self.primary.address(user)

    def both(self) -> str:
        """Both of them, for clients; whichever may write is used."""
        hosts = f"{self.primary.folder},{self.standby.folder}"
        return f"host={hosts} user=owner dbname={self.primary.database}"

    def be_synchronous(self) -> None:
        """From now on an answer means that the standby has it, too."""
        self._is_synchronous = True
        with psycopg.connect(self.primary.address(), autocommit=True) as link:
            link.execute("SET synchronous_commit = local")  # This one does not wait for a standby to come.
            link.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            link.execute("SELECT pg_reload_conf()")
            while not link.execute("SELECT FROM pg_stat_replication WHERE sync_state = 'sync'").fetchall():
                time.sleep(0.01)

    def stop(self) -> None:
        """The primary stops as by a crash."""
        self.primary.stop()

    def start_again(self) -> None:
        """The primary starts, if somebody stopped it."""
        self.primary.start_again()

    def fail_over(self) -> None:
        """The primary crashes, and the standby takes its place."""
        self.primary.stop()
        self.standby.start_again()
        self.standby.run("pg_ctl", "-D", self.standby.data, "-w", "promote")
        self.primary, self.standby = self.standby, self.primary

    def rebuild(self) -> None:
        """What was lost becomes the standby of the one that took its place."""
        self._copy()
        if self._is_synchronous:
            self.be_synchronous()

    def remove(self) -> None:
        """Stop both."""
        self.primary.remove()
        self.standby.remove()


def take(arbiter: PostgresArbiter, folder: str, holder: str) -> FileHolding | LockContention:
    """Try to take the lock for a minute."""
    begun: list[FileHolding] = []
    refusal = arbiter.take(folder, Taker("D-1", holder, 60, identify()), begun.append)
    return begun[0] if refusal is None else refusal


def fail_over(*, synchronous: bool) -> FailoverVerdict:
    """Take a lock, lose the server, and look what is left of it."""
    programs_folder = programs()
    assert programs_folder is not None
    base = tempfile.mkdtemp(prefix="nc-failover-")
    pair = Pair(programs_folder)
    try:
        (Path(base) / ".noclobber").mkdir()
        folder = f"{base}/d"
        os.mkdir(folder)
        pair.start()
        schema.install(pair.address())
        connection = ServerConnection(pair.both(), patience_s=60)
        arbiter = PostgresArbiter(connection)
        if synchronous:
            pair.be_synchronous()
        doctor = "; ".join(
            found.message for found in health.examine(connection) if "standby" in found.message
        )
        if not synchronous:  # It falls behind: what comes now, it never hears of.
            pair.standby.stop("fast")
        held = take(arbiter, folder, "first")
        assert isinstance(held, FileHolding)
        ledger = PostgresLedger(connection, held.record.workspace or "")
        recorded = sum(1 for _ in ledger.lines())
        pair.fail_over()
        events_lost = recorded - sum(1 for _ in ledger.lines())
        ledger.verify()
        second = take(arbiter, folder, "second")
        assert isinstance(second, LockContention)  # The first holder's file is there.
        is_still_held, was_told = True, False
        try:
            arbiter.give_up(arbiter.renew(held, 60), lambda _: None)
        except LockLost:
            is_still_held = False
            try:
                arbiter.intend_write(folder, held, ()).begin()
            except LockLost:
                was_told = True
        last = take(arbiter, folder, "second")
        assert isinstance(last, FileHolding)
        tokens = (held.fencing_token or 0, last.fencing_token or 0)
        return FailoverVerdict(is_still_held, was_told, tokens, events_lost, doctor)
    finally:
        pair.remove()
        shutil.rmtree(base, ignore_errors=True)


def main() -> bool:
    """Both kinds; True if each is as promised."""
    one, other = fail_over(synchronous=True), fail_over(synchronous=False)
    is_well = one.is_still_held and one.tokens[1] > one.tokens[0] and not one.events_lost
    print(f"{'ok  ' if is_well else 'MISS'} failover to a synchronous standby: {one}")
    is_told = not other.is_still_held and other.was_told and other.tokens[1] > other.tokens[0]
    print(f"{'ok  ' if is_told else 'MISS'} failover to a standby that had fallen behind: {other}")
    return is_well and is_told


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
