"""
Two ways to use a PostgreSQL server that look right and are not: `make hosts` shows that each of them fails.

- A session lock (`pg_advisory_lock`) behind a pooler in transaction mode. The session is another client's
  after each commit, and its locks with it: two clients hold the same lock.
- One statement that checks the grant and writes: `UPDATE … WHERE version = 7 AND EXISTS (SELECT … grant)` at
  the default isolation level. If it has to wait for the row, the row is looked at anew, and the grant is not:
  the write of somebody whose grant is gone lands. That is why a step here locks the lock's row itself.
"""

from __future__ import annotations

import sys
import threading

import psycopg

from torture.postgres_server import Pooler, Server, programs


def session_lock_behind_a_pooler(server: Server) -> int | None:
    """Return how many clients hold one lock at the same time; None without PgBouncer."""
    if not Pooler.is_here():
        return None
    pooler = Pooler(server)
    try:
        links = [psycopg.connect(pooler.address(), autocommit=True) for _ in range(2)]
        asked = [link.execute("SELECT pg_try_advisory_lock(7)", prepare=False).fetchone() for link in links]
        for link in links:
            link.close()
        return sum(row == (True,) for row in asked)
    finally:
        pooler.stop()


def grant_in_a_subquery(server: Server) -> int:
    """Return how many rows somebody changed after its grant had gone to another one."""
    with psycopg.connect(server.address(), autocommit=True) as link:
        link.execute("CREATE TABLE IF NOT EXISTS kept (version int, by_ text)")
        link.execute("CREATE TABLE IF NOT EXISTS granted (holder text)")
        link.execute("TRUNCATE kept, granted")
        link.execute("INSERT INTO kept VALUES (7, 'nobody')")
        link.execute("INSERT INTO granted VALUES ('former')")
    changed: list[int] = []

    def former() -> None:
        with psycopg.connect(server.address(), autocommit=True) as link:
            done = link.execute(
                "UPDATE kept SET by_ = 'former' WHERE version = 7"
                " AND EXISTS (SELECT FROM granted WHERE holder = 'former')"
            )
            changed.append(done.rowcount)

    late = threading.Thread(target=former)
    with psycopg.connect(server.address()) as link, psycopg.connect(server.address(), autocommit=True) as eye:
        link.execute("SELECT FROM kept FOR UPDATE")
        link.execute("UPDATE granted SET holder = 'next'")
        late.start()
        while not eye.execute(
            "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE kept%'"
        ).fetchall():
            pass
        link.commit()
    late.join()
    return changed[0]


def main() -> bool:
    """Run both; True if each was convicted."""
    folder = programs()
    assert folder is not None
    server = Server(folder)
    server.start()
    try:
        holders, late = session_lock_behind_a_pooler(server), grant_in_a_subquery(server)
    finally:
        server.remove()
    told = "NOT TRIED: apt install pgbouncer" if holders is None else f"{holders} holders at one time"
    print(f"control, session locks behind PgBouncer: {told}")
    print(f"control, a grant in a subquery: {late} write after the grant was gone")
    return holders == 2 and late == 1


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
