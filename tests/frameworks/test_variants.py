"""Other ways into a framework keep the same promise: every scenario, with each driver that its module lists."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tests.frameworks.driver import FrameworkDriver
from tests.frameworks.drivers import driver
from tests.frameworks.scenarios import SCENARIOS

pytestmark = pytest.mark.wrong_errors  # Frameworks make errors of their own.


def variants(framework: str) -> list[type[FrameworkDriver]]:
    """The drivers of a framework besides the one of the table."""
    return list(getattr(importlib.import_module(driver(framework).__module__), "VARIANTS", ()))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_way_in_keeps_everybodys_work(framework: str, scenario: str, root: Path) -> None:
    """N-frameworks, 009-FR-004, 009-FR-005: nothing is lost, and the model receives the exact object."""
    kinds = [kind for kind in variants(framework) if scenario not in kind.lacks]
    if not kinds:
        pytest.skip("the framework has one way in, or none for this scenario")
    for number, kind in enumerate(kinds):
        folder = root / f"{number}" / "workspace"
        folder.mkdir(parents=True)
        playing = kind(folder, guarded=True)
        try:
            verdict = SCENARIOS[scenario](playing, folder)
        finally:
            playing.close()
        verdict.demand(f"{kind.__name__}: ")
