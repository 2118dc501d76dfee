"""
`noclobber hook HOST`: one process for one event of a coding-agent host.

    stdin → hosts.X.read → what happened → memory, policies, claims, ledger → hosts.X.phrase → stdout

- `start` is the script that hosts run: it makes the package importable and nothing else.
- `main` reads, answers, and stands in for everything that fails: a write is then refused, a read never.
- `judge` is the way of one event: before a call, after it, when it failed, at the end of a turn.
- `foresight` says what a call must leave on the disk; `sight` what part of a file the model was shown.
- `memory` is what the agent saw, kept between processes in the user's runtime folder.

Standard library only, and little of that: the process starts, answers and is gone in milliseconds, so
`json`, `re`, `typing` and `hashlib` stay outside. A test counts the modules.
"""
