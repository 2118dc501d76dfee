"""
Several machines: the same locks, one ledger, decided by a PostgreSQL server that people have anyway.

`NOCLOBBER_COORDINATOR=postgresql://…` switches it on. `address` says whether that may be used as it is,
`workspace_name` which workspace a folder belongs to on every machine, `connection` asks and asks again,
`schema` installs what the server keeps (the SQL files), `arbiter` decides about locks and `ledger` records.
`section_guard` guards a shared volume: `sections` orders its writes, `volume` lands and revokes them.

A server that cannot be reached is an error (`COORDINATOR_UNAVAILABLE`) and never a reason to fall back to
files: two machines would decide for themselves.

What is here may be imported only if a coordinator is asked for: psycopg takes longer to load than a hook may
take.
"""
