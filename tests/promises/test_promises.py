"""Every promise of the specifications, by every way in: one table (docs/promises.md)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from noclobber.guard import claims
from noclobber.postgres.coordinator import _connection
from noclobber.shell.roots import why_not
from tests.promises.agent import Stand
from tests.promises.cells import Cell, cells
from tests.promises.scenarios import FILE, SCENARIOS, V1, VARIANTS
from tests.promises.ways import WAYS
from tests.promises.zygote import TAKE_OVER_S, Zygote
from tests.rigs import postgres
from tests.rigs.hooks import HookRig


def played() -> Iterator[pytest.ParameterSet]:
    """Every cell that makes sense; what is open or not promised must fail."""
    for variant in VARIANTS:
        for cell in cells(variant):
            if cell.why_not is not None:
                continue
            reason = cell.finding or cell.not_promised
            marks = [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
            if "MCP" in cell.way.name or cell.way.name == "run_command":
                marks.append(pytest.mark.xdist_group("promises by MCP"))
            yield pytest.param(cell, id=cell.id, marks=marks)


@pytest.fixture
def stand(
    root: Path, tmp_path: Path, rig: HookRig, zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stand]:
    """A project with one file, and its options still to be written."""
    monkeypatch.setattr(claims, "TAKE_OVER_S", TAKE_OVER_S)
    (root / FILE).write_bytes(V1)
    (root / "docs").mkdir()
    found = Stand(root, rig, zygote, {"XDG_RUNTIME_DIR": str(rig.runtime)})
    yield found
    found.close()
    _connection.cache_clear()


@pytest.mark.parametrize("cell", list(played()))
def test_the_promise_is_kept(stand: Stand, cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    """C12, N-shell, N-hosts: one rule, whoever asks. The scenario's own ids are in the table."""
    if cell.way.group == "commands" and (reason := why_not(str(stand.root))) is not None:
        pytest.skip(reason)
    if cell.variant == "coordinator":
        _set(stand, monkeypatch, NOCLOBBER_COORDINATOR=postgres.coordinator())
    (stand.root / "noclobber.toml").write_text(VARIANTS[cell.variant] + cell.scenario.options)
    stand.make = cell.way.make
    cell.scenario.play(stand, cell.way.make(stand, "ann"))


@pytest.mark.parametrize("way", ["own executor", "Claude Code", "noclobber run"])
def test_a_workspace_with_a_name_begins_without_a_state_folder(
    stand: Stand, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-register: the record is on a server, and claims and commands have their folder all the same."""
    if way == "noclobber run" and (reason := why_not(str(stand.root))) is not None:
        pytest.skip(reason)
    name = f"promises-{os.urandom(4).hex()}"
    _set(stand, monkeypatch, NOCLOBBER_COORDINATOR=postgres.coordinator(), NOCLOBBER_WORKSPACE=name)
    SCENARIOS["unchanged"].play(stand, WAYS[way].make(stand, "ann"))


def _set(stand: Stand, monkeypatch: pytest.MonkeyPatch, **environment: str) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    stand.environment |= environment
