"""Every host through the table of scenarios, with our hooks as `noclobber install` writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from tests.e2e.drivers import DRIVERS
from tests.e2e.known import marks
from tests.e2e.scenarios import SCENARIOS
from tests.e2e.story import REQUESTS, demand

Outcomes = Mapping[str, BaseException | None]


def cells() -> list[object]:
    """
    Return a parameter set for each host and scenario, with the findings that are still open.

    One worker has all scenarios of a host: they are one run of it.
    """
    return [
        pytest.param(
            host,
            scenario,
            id=f"{host}-{scenario}",
            marks=[*marks(host, scenario), pytest.mark.xdist_group(f"scenarios-{host}")],
        )
        for host in DRIVERS
        for scenario in (*SCENARIOS, REQUESTS)
    ]


@pytest.mark.parametrize(("host", "scenario"), cells())
def test_the_scenario_ends_as_ruled(host: str, scenario: str, told: Callable[[str], Outcomes]) -> None:
    """009-SC-001, 009-SC-002: bytes on disk, what the model received, the record, the number of requests."""
    reason = DRIVERS[host].impossible.get(scenario)
    if reason is not None:
        pytest.skip(f"impossible in {host}: {reason}")
    demand(told(host)[scenario])
