"""Races, kills and interrupts with real processes: the long proofs, shortened."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rigs.locks import REPOSITORY

ROUNDS = {
    "races": 60,  # REQ-LOCK-003: 2, 8 and 32 racers
    "recoveries": 100,  # REQ-LOCK-006, X-005: 8 recoverers of every kind of orphan
    "recoveries-without-mutex": 250,  # The same where flock excludes nobody
    "kills": 40,  # Never two holders, never a lock that stays
    "steps": 1,  # kill -9 before every call that touches the disk
    "interrupts": 30,  # REQ-LOCK-005: Ctrl-C in the middle
    "sleepers": 1,  # REQ-LOCK-013: stopped past its lease, continued, made to write
}


@pytest.mark.slow
@pytest.mark.parametrize("proof", ROUNDS)
def test_no_round_has_two_holders_or_none(tmp_path: Path, proof: str) -> None:
    """REQ-LOCK-003, REQ-LOCK-005, REQ-LOCK-006, X-005: `make torture` runs the same with all its rounds."""
    result = subprocess.run(
        [sys.executable, "-m", "torture.lock", "--only", proof, "--rounds", str(ROUNDS[proof]),
         "--folder", str(tmp_path)],
        cwd=REPOSITORY, env=os.environ | {"PYTHONPATH": str(REPOSITORY / "src")},
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    lines = result.stdout.splitlines()
    assert result.returncode == 0, result.stdout + result.stderr
    assert lines
    assert all(line.startswith("ok") for line in lines)
