"""
`noclobber hook HOST`: one process for one event of a coding-agent host.

    stdin → hosts.X.read → Event → HookTurn → guard.judge → hosts.X.phrase → stdout

- `ask.sh` is what hosts run. It has the event answered by a process that `standby` has left, or runs `start`.
- `start` makes the package importable and calls `main`.
- `main` reads the event, answers it, and answers for every failure: a write is refused, a read never is.
- `turn` is one event as a turn: the project, its options, what the agent saw, the ledger.
- `settings` finds the project of an event, and the project's options.
- `session_memory` keeps what an agent saw between processes, in the user's runtime folder.
- `session_notes` has what is noted of a session as a whole: its project, its commands, who looks on.
- `doctor` checks the hooks of a project; `dry_event` sends an event without consequences through each.
"""
