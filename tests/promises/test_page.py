"""The page with the table says what the cells say, and nothing is left out silently."""

from __future__ import annotations

import re
from pathlib import Path

from tests.promises import agent
from tests.promises.cells import NOT_PROMISED, OPEN, REASONS, cells
from tests.promises.scenarios import SCENARIOS, VARIANTS
from tests.promises.table import page
from tests.promises.ways import WAYS
from tests.test_requirements import register

DOCS = Path(__file__).parents[2] / "docs"
ELSEWHERE = {
    "009-SC-003": "a time: tests/guard/test_turn.py and `make bench`",
    "010-SC-004": "a time: tests/guard/test_snapshot.py",
    "011-US1": "its first half; the second is 011-FR-005",
}


def test_the_page_is_up_to_date() -> None:
    """N-register: `make promises` writes it; every scenario and every way in is on it."""
    text = (DOCS / "promises.md").read_text()
    assert text == page(), "run `make promises`"
    assert all(f"| {scenario.promise} |" in text for scenario in SCENARIOS.values())
    assert all(re.search(rf"\| {re.escape(way)} \|", text) for way in WAYS)


def test_every_requirement_about_behaviour_has_a_scenario() -> None:
    """009-SC-001, 010-SC-001, 011-SC-001: all of the three specifications, times aside."""
    wanted = {each for each in register() if re.match(r"0(09|10|11)-", each)}
    named = set(re.findall(r"0(?:09|10|11)-[\w-]+", " ".join(each.ids for each in SCENARIOS.values())))
    assert wanted - named - set(ELSEWHERE) == set()
    assert named <= wanted


def test_every_ability_is_known() -> None:
    """A misspelled need would leave nothing out, and a misspelled inability nothing in."""
    known = set(re.findall(r"^\| `(\w+)` \|", agent.__doc__ or "", re.M))
    assert {need for each in SCENARIOS.values() for need in each.needs} <= known
    assert {ability for way in WAYS.values() for ability in way.cannot} <= known
    assert {variant for each in SCENARIOS.values() for variant in each.variants} <= {*VARIANTS, "only"}


def test_what_is_marked_is_there_to_be_marked() -> None:
    """Of a scenario or a way in that was renamed, the mark would be without effect."""
    played = {
        (cell.scenario.name, name)
        for variant in VARIANTS
        for cell in cells(variant)
        if cell.why_not is None
        for name in (cell.way.name, f"{cell.way.name}/{variant}")
    }
    assert {*OPEN, *NOT_PROMISED} <= played


def test_what_is_not_promised_is_in_the_guarantees() -> None:
    """N-register: word for word, so that neither page says more than the other."""
    guarantees = (DOCS / "guarantees.md").read_text()
    assert set(NOT_PROMISED.values()) == set(REASONS)
    assert [reason for reason in REASONS.values() if reason not in guarantees] == []
