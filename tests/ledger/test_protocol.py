"""The file ledger does what every ledger must."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from noclobber import AgentTraceLedger
from tests.ledger.ledger_suite import LedgerSuite, Opener


class TestFileLedger(LedgerSuite):
    """`AgentTraceLedger`."""

    @pytest.fixture
    def open_ledger(self, tmp_path: Path) -> Opener:
        """Open the file."""
        return partial(AgentTraceLedger, tmp_path / "trace.jsonl")
