"""The core is left to a command that begins; nobody's affinity changes by it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from noclobber.shell import own_core
from tests.shell.test_process import is_available, noclobber_run

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity here")


@pytest.mark.parametrize("is_idle", [True, False])
def test_after_stepping_aside_a_process_may_run_where_it_could_before(
    is_idle: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-speed: a hint, and nothing is left of it."""
    moves: list[set[int]] = []
    before, really = os.sched_getaffinity(0), os.sched_setaffinity

    def move(pid: int, cores: set[int]) -> None:
        moves.append(set(cores))
        really(pid, cores)

    monkeypatch.setattr(os, "sched_setaffinity", move)
    monkeypatch.setattr(own_core, "_is_one_idle", lambda: is_idle)
    own_core.step_aside()
    assert os.sched_getaffinity(0) == before
    if not is_idle or len(before) < 2:
        assert moves == []  # On a busy core we would only wait for others.
    else:
        elsewhere, again = moves
        assert len(elsewhere) == len(before) - 1
        assert again == before


def test_cores_that_may_not_be_used_any_more_are_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """N-speed: an administrator may change them at any moment."""

    def refuse(pid: int, cores: set[int]) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    monkeypatch.setattr(own_core, "_is_one_idle", lambda: True)
    own_core.step_aside()


@pytest.mark.skipif(not is_available(), reason="no namespaces here")
def test_a_command_has_the_affinity_of_whoever_runs_it(tmp_path: Path) -> None:
    """N-speed: as if it had been run plainly."""
    words = [sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))"]
    plainly = subprocess.run(words, capture_output=True, text=True, check=True)
    for _ in range(3):
        assert noclobber_run(tmp_path, *words).stdout == plainly.stdout


@pytest.mark.parametrize("said", [b"", b"0.1 0.2 0.3\n", b"0.1 0.2 0.3 many/7 1\n"])
def test_a_load_that_cannot_be_understood_stops_no_command(
    said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-speed: it is a hint; a container may have a /proc of its own."""
    allowed = os.sched_getaffinity(0)
    monkeypatch.setattr(os, "read", lambda *_: said)
    own_core.step_aside()
    assert os.sched_getaffinity(0) == allowed
