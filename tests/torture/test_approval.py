"""An editor that saves at the very moment of a host's write: a short run of `make torture-approval`."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys

import pytest
from torture.approval import EDITORS, HOSTS


def test_what_the_agent_wrote_is_there_and_nothing_is_kept_for_nothing() -> None:
    """finding H4, 009-SC-002: whatever the two do at the same time, in every pair of ways to write."""
    if not hasattr(fcntl, "F_SETLEASE"):
        pytest.skip("files are not held here")
    # A process of its own: it takes leave of every process that has looked on.
    done = subprocess.run(
        [sys.executable, "-m", "torture.approval"],
        env={**os.environ, "TRIALS": "8", "SPREAD_MS": "2", "LOAD": "0", "SEED": "7"},
        capture_output=True,
        text=True,
        timeout=200,
    )

    assert done.returncode == 0, done
    rows = re.findall(r"^ +([a-z]+) ([a-z]+) +8 +(\d+)", done.stdout, re.MULTILINE)
    assert [(host, editor) for host, editor, _ in rows] == [
        (host, editor) for host in HOSTS for editor in EDITORS
    ]
    assert sum(int(kept) for _, _, kept in rows) > 0, f"the two never met, so this run proves nothing: {done}"
