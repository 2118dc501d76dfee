"""What the tests of the disk share."""

from __future__ import annotations

from pathlib import Path

import pytest

from noclobber.disk.optimistic_guard import OptimisticGuard


@pytest.fixture
def guard(root: Path) -> OptimisticGuard:
    return OptimisticGuard(root)
