"""
Deliverable locks: one task agent per folder, with leases that cannot get stuck.

Who holds a lock:
- `lock` is `DeliverableLock`: a process with threads, signals and forks that holds one; `aio`, for asyncio.
- `heartbeat` renews while the holder works; `release_at_exit` releases when it ends, whichever way.
- `backend` chooses who decides, and asks: a guarded write inside a locked folder, one folder, a whole tree.
- `doctor` tries everything for real on one filesystem.
- `limits` are the bounds of what may be asked for; `messages` phrases refusals.

Who decides: `arbiter` is the protocol, and `file_arbiter` its implementation, made of
- `names`: how the files are called.
- `record`: the content of a lock file, how it is written, read and found broken.
- `liveness`: whether a record is live, expired, dead or corrupt. One clock, no disk.
- `lock_file`: the file `.lock`, changed by compare-and-set only.
- `events`: what goes on record.
- `locked_folder`: which folder above a file is locked.
- `os_errors`: what the operating system said, with path, owner and remedy.

`git_exclude` keeps lock files out of git. docs/lock/protocol.md is the specification.
"""
