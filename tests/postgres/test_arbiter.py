"""The arbiter whose locks are rows, under the tests that every arbiter has to pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noclobber.postgres.arbiter import PostgresArbiter
from noclobber.postgres.connection import ServerConnection
from noclobber.postgres.ledger import PostgresLedger
from noclobber.postgres.workspace_name import place_of
from tests.lock.arbiter_suite import ArbiterSuite
from tests.rigs import postgres


class RowRig:
    """Folders of one project, judged by the server's clock."""

    def __init__(self, root: Path) -> None:
        self._root, self._address = root, postgres.coordinator()
        self._connections: list[ServerConnection] = []

    def arbiter(self) -> PostgresArbiter:
        connection = ServerConnection(self._address)
        self._connections.append(connection)
        return PostgresArbiter(connection)

    racing_arbiter = arbiter

    def folder(self, name: str) -> str:
        (self._root / name).mkdir(parents=True)
        return str(self._root / name)

    def root(self) -> str:
        return str(self._root)

    def pass_time(self, seconds: float) -> None:
        postgres.pass_time(self._address, seconds)

    def events(self, folder: str) -> list[dict[str, Any]]:
        place, connection = place_of(folder), ServerConnection(self._address)
        try:
            found = PostgresLedger(connection, place.workspace).events()
            return [event for event in found if event["payload"]["path"] == place.path]
        finally:
            connection.close()

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


class TestPostgresArbiter(ArbiterSuite):
    """The shared suite."""

    @pytest.fixture
    def rig(self, tmp_path: Path) -> Any:
        root = tmp_path / "deliverables"
        (root / ".noclobber").mkdir(parents=True)
        rig = RowRig(root)
        yield rig
        rig.close()
