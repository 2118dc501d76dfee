"""The kinds of events that this program writes, each with what it says. Other programs may add their own."""

from __future__ import annotations

KINDS = {
    "MUTATION": "a write that landed: file, hashes before and after, level, who",
    "MUTATION_CONFLICT": "a write that was refused because the file was not what its writer had seen",
    "MUTATION_REFUSED": "a write that was refused for another reason",
    "MUTATION_FAILED": "a write that the disk or the system did not carry out",
    "MUTATION_RACE": "somebody saved between a hook's check and the host's write",
    "COMMIT_RECOVERED": "a commit that a crash had cut off was finished or undone",
    "VERSION_KEPT": "somebody wrote to a version that had been replaced; the bytes are kept aside",
    "LEDGER_TORN_TAIL": "a crash had left half a line at the ledger's end; it was set aside",
    "LEDGER_CUT": "the ledger's end was gone; the chain goes on from what was left",
    "LOCK_ACQUIRED": "a folder was locked",
    "LOCK_RENEWED": "its holder extended a lock's lease",
    "LOCK_RELEASED": "its holder released a lock",
    "LOCK_CONTENTION": "somebody wanted a lock that another agent holds",
    "LOCK_RECOVERED": "the lock of a holder that was gone was cleared or taken over",
    "LOCK_RETIRED": "a folder was given up: nobody holds it, and it may be deleted",
}
