"""What the tests of the hooks share."""

from __future__ import annotations

from pathlib import Path

import pytest

from noclobber.guard import claims


@pytest.fixture(autouse=True)
def patient_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a test may take longer than a claim lasts; how long that is, tests/guard says."""
    monkeypatch.setattr(claims, "TAKE_OVER_S", claims.LIFE_S)


@pytest.fixture
def file(root: Path) -> Path:
    path = root / "a.txt"
    path.write_bytes(b"hello\nworld\n")
    return path
