"""What the tests of the guard share: a workspace, and a turn in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from noclobber import Turn
from noclobber.guard.workspace import Workspace


@pytest.fixture
def ws(root: Path) -> Iterator[Workspace]:
    with Workspace(root) as workspace:
        yield workspace


@pytest.fixture
def turn(ws: Workspace) -> Iterator[Turn]:
    with ws.turn(agent_id="builder") as turn:
        yield turn
