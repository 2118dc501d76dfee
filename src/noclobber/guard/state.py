"""
What all turns of a workspace share: the ledger, the open turns, and what agents saw in earlier turns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noclobber.core.project import state_folder
from noclobber.errors import LedgerError
from noclobber.guard.open_turns import OpenTurns
from noclobber.guard.recording import Recorder
from noclobber.guard.sessions import EarlierTurns
from noclobber.ledger.chosen import ledger_of

if TYPE_CHECKING:
    from noclobber.core.clock import Clock
    from noclobber.ledger.observer import Observer


class WorkspaceState:
    """The ledger, the open turns and the sessions of one workspace."""

    def __init__(self, root: str, *, clock: Clock, durable: bool, observer: Observer | None = None) -> None:
        self.root, self.clock = root, clock
        self.folder = state_folder(root)
        self.ledger = ledger_of(root, clock=clock, durable=durable)
        self.recorder = Recorder(root, self.ledger, observer)
        self.turns = OpenTurns(self.folder, clock)
        self.sessions = EarlierTurns()

    def ledger_trouble(self) -> LedgerError | None:
        """Return why events cannot be recorded now, None if they can. Makes the state folder if need be."""
        try:
            is_new = self.recorder.prepare()
        except LedgerError as error:
            return error
        if is_new:
            self.turns.show()  # There was no place for it before, or somebody deleted it.
        return None

    def close(self) -> None:
        """Let go of the ledger, and show no turns any more."""
        self.ledger.close()
        self.turns.close()
