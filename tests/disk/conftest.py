"""What the tests of the disk share."""

from __future__ import annotations

from pathlib import Path

import pytest

from noclobber.disk.file_guard import FileGuard


@pytest.fixture
def guard(root: Path) -> FileGuard:
    return FileGuard(root)
