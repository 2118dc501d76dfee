"""Every scenario in every framework: guarded, and with the framework's own tools as a control."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.frameworks.drivers import driver
from tests.frameworks.scenarios import ONLY_GUARDED, SCENARIOS, Verdict, as_json

pytestmark = pytest.mark.wrong_errors  # Frameworks make errors of their own.


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_adapter_keeps_everybodys_work(
    framework: str, scenario: str, root: Path, note_line: Callable[[str], None]
) -> None:
    """N-frameworks, 009-FR-004, 009-FR-005: nothing is lost, and the model receives the exact object."""
    kind = driver(framework)
    if (reason := kind.lacks.get(scenario)) is not None:
        note_line(as_json(scenario, "guarded", Verdict(True, f"– {reason}")))
        pytest.skip(reason)
    playing = kind(root, guarded=True)
    try:
        verdict = SCENARIOS[scenario](playing, root)
    finally:
        playing.close()
    note_line(as_json(scenario, "guarded", verdict))
    verdict.demand()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_frameworks_own_tools_are_the_control(
    framework: str, scenario: str, root: Path, note_line: Callable[[str], None]
) -> None:
    """N-frameworks: the same script runs with them; what they lose is measured, not asserted."""
    kind = driver(framework)
    lacks = {**ONLY_GUARDED, **kind.lacks, **kind.own_lacks}
    if (reason := lacks.get(scenario, kind.own_lacks.get("*"))) is not None:
        note_line(as_json(scenario, "own", Verdict(True, f"– {reason}")))
        pytest.skip(reason)
    playing = kind(root, guarded=False)
    try:
        verdict = SCENARIOS[scenario](playing, root)
    finally:
        playing.close()
    note_line(as_json(scenario, "own", verdict))
