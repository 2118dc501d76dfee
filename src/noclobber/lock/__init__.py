"""
Deliverable locks: one task agent per folder, with leases that cannot get stuck.

- `names` says how the files are called, and nothing else.
- `record` is the content of a lock file: how it is spelled, read and found broken.
- `judge` decides whether a record is live, expired, dead or corrupt. One clock, no disk.
- `store` is where the record lives: the file `.lock`, changed by compare-and-set only.
- `protocol` is take, renew, give up, clear: each one compare-and-set on that record.
- `lock` is `DeliverableLock`: a process with threads, signals and forks that holds one.
- `audit` puts it on record; `refusals` and `explain` put it into words.
- `heartbeat` renews while the holder works; `endings` lets go when it ends, whichever way.
- `fence` is what a guarded write asks, inside its critical section.
- `survey` looks at many folders; `doctor` tries everything for real on one filesystem.

docs/lock/protocol.md is the specification.
"""
