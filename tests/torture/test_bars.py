"""The bars of a whole run, and the parts that only a whole run has, short."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from torture.after_crash import Trial
from torture.arena import Round

from noclobber.disk import leases
from noclobber.disk.commit import recovery
from torture import after_crash, arena, bars, compiled, outsiders, plan

SEED = 20_240_611
COMPILED = [name for name, kind in outsiders.KINDS.items() if kind.is_compiled]


def _round(**given: Any) -> dict[str, Any]:
    figures = {
        "part": "round",
        "filesystem": "ext4",
        "kind": "ring",
        "changes_bytes": True,
        "is_strong": True,
    }
    zeros = dict.fromkeys(("kills", "lost", "torn", "false", "withdrawn"), 0)
    return {**figures, "updates": 10, **zeros, **given}


def _named(found: list[bars.Bar]) -> dict[str, bool | None]:
    return {bar.what: bar.is_met for bar in found}


def test_a_lost_update_misses_the_bar_in_a_short_run_too(tmp_path: Path) -> None:
    """N-proof: how much there must be is asked of a full run, that nothing is lost of every run."""
    path = str(tmp_path / "figures")
    bars.note(path, **_round())
    short = _named(bars.of(bars.read(path), seconds=10, cuts=3, kills=10))
    assert short["outside updates"] is None
    assert short["lost, at the level that is claimed"] is True
    bars.note(path, **_round(lost=1))
    bars.note(path, **_round(lost=7, is_strong=False))  # FUSE: not claimed.
    found = bars.of(bars.read(path), seconds=10, cuts=3, kills=10)
    assert _named(found)["lost, at the level that is claimed"] is False
    assert "MISSED" in bars.table(found)


def test_a_full_run_that_left_something_out_misses_its_bars() -> None:
    """N-proof: a skipped filesystem or writer is not a success."""
    found = _named(bars.of([_round(updates=bars.UPDATES)], seconds=600, cuts=300, kills=10_000))
    assert found.pop("outside updates") is True
    missed = {what for what, is_met in found.items() if is_met is False}
    assert {"filesystems", "kinds of outside writers", "power cuts", "kills, with saves afterwards"} <= missed


@pytest.mark.slow
def test_writers_in_c_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-proof: every way into a file that Python does not have."""
    monkeypatch.delenv(outsiders.PROGRAM, raising=False)
    if reason := compiled.compile_into(str(tmp_path)):
        pytest.skip(reason)
    monkeypatch.setenv(outsiders.PROGRAM, os.environ.pop(outsiders.PROGRAM))
    able = tuple(kind for kind in COMPILED if outsiders.unavailable(kind, str(tmp_path)) is None)
    assert len(able) >= 5
    for number in range(0, len(able), 4):
        kinds = able[number : number + 4]
        for account in arena.run(str(tmp_path / f"{number}"), Round(kinds, seconds=1.5, seed=SEED)):
            assert account.updates, account.kind
            # One that writes without a pause may leave no moment for a guard in so short a time.
            assert not plan.missed_bars(account._replace(commits=1), forced_level=None), account


@pytest.mark.slow
def test_what_was_saved_after_a_crash_stays(tmp_path: Path) -> None:
    """finding R4, N-proof: with guards that are killed at any step, and six ways to save."""
    done, wrong = after_crash.crash_often(str(tmp_path), SEED % 1000, 100)
    assert done == 100
    assert wrong == []


def test_a_recovery_that_takes_back_what_was_saved_since_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding R4: the trials can fail."""
    if not leases.SUPPORTED:
        pytest.skip("needs file leases")
    trial = Trial("write", "lease+exchange", False, 12, 0.0, "before-exchange", "patch", "write", 9_000)
    assert after_crash.attempt(str(tmp_path), trial) == []
    shutil.rmtree(tmp_path / "project")
    monkeypatch.setattr(recovery, "_is_half_restored", lambda _: True)
    assert "what was saved after the crash is not there" in after_crash.attempt(str(tmp_path), trial)[0]
