"""
The cells of the table: which scenario is played by which way in, with which settings, and what is known of it.

A cell that makes no sense is not played, and has a reason (`Way.cannot`). One that is not promised, or not yet
kept, is played all the same and must fail: then the table is wrong as soon as it holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.promises import collisions
from tests.promises.agent import Way
from tests.promises.scenarios import SCENARIOS, Scenario
from tests.promises.ways import WAYS

assert collisions.AGENTS, "its scenarios are in the table"


class Cell(NamedTuple):
    """One scenario by one way in, with one variant of the settings."""

    scenario: Scenario
    way: Way
    variant: str = ""

    @property
    def id(self) -> str:
        """The cell's name among the tests."""
        variant = f"{self.variant}-" if self.variant else ""
        return f"{variant}{self.way.name.replace(' ', '_')}-{self.scenario.name}"

    @property
    def why_not(self) -> str | None:
        """Why the cell makes no sense; None if it is played."""
        return next((self.way.cannot[need] for need in self.scenario.needs if need in self.way.cannot), None)

    @property
    def finding(self) -> str | None:
        """What is open: the finding, and the cell must fail until it is fixed."""
        return _found(OPEN, self)

    @property
    def not_promised(self) -> str | None:
        """The key of the sentence that says why it is not promised."""
        return _found(NOT_PROMISED, self)


COMMANDS = ("noclobber run", "turn.run", "run_command", "Claude's Bash")
OPEN: dict[tuple[str, str], str] = {}
"""By scenario and way in."""

NOT_PROMISED: dict[tuple[str, str], str] = {
    **{("deleted_before_it_was_opened", way): "opened later" for way in COMMANDS},
    **{("touched_meanwhile", way): "touched" for way in COMMANDS},
}
"""By scenario and way in: the key of the reason."""
REASONS = {
    "opened later": "a file that somebody deletes while a command runs, before the command opens it for "
    "writing, is created again: to the command it is gone",
    "touched": "a file that somebody only touches while a command runs counts as changed: changed and changed back "
    "looks the same",
}
"""As docs/guarantees.md says it."""


def _found(table: dict[tuple[str, str], str], cell: Cell) -> str | None:
    name = cell.scenario.name
    return table.get((name, cell.way.name)) or table.get((name, f"{cell.way.name}/{cell.variant}"))


def cells(variant: str = "") -> Iterator[Cell]:
    """Every cell of one variant, those that are not played among them."""
    for scenario in SCENARIOS.values():
        if variant in scenario.variants or (not variant and "only" not in scenario.variants):
            yield from (Cell(scenario, way, variant) for way in WAYS.values())
