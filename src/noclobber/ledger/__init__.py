"""
The agent trace ledger: what was written, what was refused and by whom, on record and chained.

- `line` is one line of the file: how an event is encoded, sealed and recognised. Pure.
- `tail` finds the last entry of a file, and sets a torn end aside.
- `open_file` is what one process has open, and how a fork leaves it.
- `ledger` is `AgentTraceLedger`: append, read, verify.
- `protocol` is what any ledger must do, for a second implementation; its tests are shared.
- `observer` is told each event after it was recorded.
- `root` is how events name files: from the root of a workspace, with its id.
- `verify` walks a whole file and names the first line that is not as it was written.
- `browse` reads for people, `export` for other programs.

docs/ledger.md describes the file for people who read it without this library.
"""

from typing import TYPE_CHECKING

from noclobber.disk import forks

if TYPE_CHECKING:
    from noclobber.ledger.ledger import AgentTraceLedger as AgentTraceLedger
    from noclobber.ledger.ledger import LedgerEntry as LedgerEntry
    from noclobber.ledger.ledger import VerifyReport as VerifyReport
    from noclobber.ledger.line import GENESIS as GENESIS
    from noclobber.ledger.line import MAX_LINE_BYTES as MAX_LINE_BYTES
    from noclobber.ledger.line import spell_hash as spell_hash

# Loaded on first use: a hook that has nothing to record loads `open_file` alone.
_HOMES = {
    "AgentTraceLedger": "ledger",
    "LedgerEntry": "ledger",
    "VerifyReport": "ledger",
    "GENESIS": "line",
    "MAX_LINE_BYTES": "line",
    "spell_hash": "line",
}

__all__ = ["GENESIS", "MAX_LINE_BYTES", "AgentTraceLedger", "LedgerEntry", "VerifyReport", "spell_hash"]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'noclobber.ledger' has no attribute {name!r}")
    with forks.loading():
        from importlib import import_module

        return getattr(import_module(f"noclobber.ledger.{home}"), name)
