"""What the tests of the hooks share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def file(root: Path) -> Path:
    path = root / "a.txt"
    path.write_bytes(b"hello\nworld\n")
    return path
