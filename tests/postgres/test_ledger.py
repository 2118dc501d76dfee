"""The ledger on the server, under the tests that every ledger has to pass."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import pytest

from noclobber.postgres.connection import ServerConnection
from noclobber.postgres.ledger import PostgresLedger
from tests.ledger.ledger_suite import LedgerSuite, Opener
from tests.rigs import postgres


def open_chain(address: str, workspace: str) -> PostgresLedger:
    """Open a chain over a connection of its own."""
    return PostgresLedger(ServerConnection(address), workspace)


class TestPostgresLedger(LedgerSuite):
    """The shared suite."""

    @pytest.fixture
    def open_ledger(self, tmp_path: Path) -> Opener:
        return functools.partial(open_chain, postgres.coordinator(), os.urandom(8).hex())
