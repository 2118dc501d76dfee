"""
The agent trace ledger: what was written, what was refused and by whom, on record and chained.

- `line` is one line of the file: how an event is spelled, sealed and recognised. Pure.
- `tail` finds where the chain stands at the end of a file, and sets a torn end aside.
- `handle` is what one process has open, and how a fork leaves it.
- `trace` is `AgentTraceLedger`: append, read, verify.
- `audit` walks a whole file and names the first line that is not as it was written.

docs/ledger.md describes the file for people who read it without this library.
"""

from noclobber.ledger.ledger import AgentTraceLedger, LedgerEntry, VerifyReport
from noclobber.ledger.line import GENESIS, MAX_LINE_BYTES, spell_hash

__all__ = ["GENESIS", "MAX_LINE_BYTES", "AgentTraceLedger", "LedgerEntry", "VerifyReport", "spell_hash"]
