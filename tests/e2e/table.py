"""The table of hosts and scenarios, written from a run: what passed, what is an open finding, what a host does otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from tests.e2e.drivers import DRIVERS
from tests.e2e.programs import MissingHostError
from tests.e2e.scenarios import SCENARIOS

BY_HOST = {
    "test_two_sessions_lose_nothing": "two_sessions",
    "test_two_hosts_lose_nothing": "two_hosts",
    "test_two_hosts_with_two_sessions_each_and_an_editor_lose_nothing": "two_hosts_and_an_editor",
    "test_hooks_of_a_folder_that_is_not_trusted": "untrusted",
    "test_a_host_with_broken_hooks_reads_ends_its_turn_and_does_not_write": "broken_installation",
}
WORST_FIRST = ("failed", "error", "xfailed", "skipped", "xpassed", "passed")
CELLS = {"failed": "NO", "error": "NO", "xfailed": "open", "skipped": "not run"}


def cells(node_id: str) -> list[tuple[str, str]]:
    """Return the hosts and scenarios that a test is about."""
    found = re.search(r"::(\w+)\[(.*)\]$", node_id)
    if found is None:
        return []
    test, about = found.groups()
    hosts = [host for host in DRIVERS if re.search(rf"(^|-){host}(-|$)", about)]
    if test in BY_HOST:
        return [(host, BY_HOST[test]) for host in hosts]
    if test in ("test_the_scenario_ends_as_ruled", "test_the_dialogue_costs_nobody_their_work"):
        return [(host, about.removeprefix(f"{host}-")) for host in hosts]
    return []


def table(outcomes: Iterable[tuple[str, str]]) -> str:
    """Return the table for the outcomes of tests, by their ids."""
    worst: dict[tuple[str, str], str] = {}
    for node_id, outcome in outcomes:
        for cell in cells(node_id):
            known = worst.get(cell, "passed")
            worst[cell] = min(known, outcome, key=WORST_FIRST.index)
    if not worst:
        return ""
    order = [*SCENARIOS, *(scenario for _, scenario in worst)]
    scenarios = sorted({scenario for _, scenario in worst}, key=order.index)
    hosts = [host for host in DRIVERS if any(cell[0] == host for cell in worst)]
    lines = [
        f"Run on {datetime.now(UTC):%Y-%m-%d} with {', '.join(f'{host} {_version(host)}' for host in hosts)}.",
        "",
        f"| scenario | {' | '.join(hosts)} |",
        f"|---|{'---|' * len(hosts)}",
    ]
    for scenario in scenarios:
        row = [_cell(host, scenario, worst) for host in hosts]
        lines.append(f"| {scenario.replace('_', ' ')} | {' | '.join(row)} |")
    lines += ["", "What a host does otherwise (the scenario asserts it):", ""]
    lines += [
        f"- {host}, {scenario.replace('_', ' ')}: {reason}."
        for host in hosts
        for scenario, reason in {**DRIVERS[host].limits, **DRIVERS[host].impossible}.items()
    ]
    return "\n".join(lines) + "\n"


def _cell(host: str, scenario: str, worst: Mapping[tuple[str, str], str]) -> str:
    outcome = worst.get((host, scenario))
    if outcome is None:
        return ""
    is_limited = any(scenario.startswith(name) for name in DRIVERS[host].limits)
    return CELLS.get(outcome, "otherwise" if is_limited else "yes")


def _version(host: str) -> str:
    try:
        return DRIVERS[host].locate().version
    except MissingHostError:
        return "(not here)"
