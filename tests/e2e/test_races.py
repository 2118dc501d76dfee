"""Sessions that work on the same files at the same time: of one host, of two, and with a person who saves."""

from __future__ import annotations

import os

import pytest

from tests.e2e.adders import Agent, race
from tests.e2e.conftest import driver_or_skip
from tests.e2e.drivers import DRIVERS
from tests.e2e.project import Project

WRITES = int(os.environ.get("NOCLOBBER_E2E_WRITES", "6"))
"""How many writes a session makes where an editor saves; `make e2e-bars` asks for 50."""
BAR_WRITES = 50
NOT_RUN = {
    "cline": "it lets a call through if a plugin takes 3 seconds, so on a busy machine a race proves nothing"
}
PAIRS = [("claude-code", "codex"), ("gemini", "qwen"), ("copilot", "opencode")]


@pytest.mark.parametrize("host", [host for host in DRIVERS if host not in NOT_RUN])
def test_two_sessions_lose_nothing(host: str, project: Project) -> None:
    """009-SC-001: every line that a session was told had been written is there at the end, once."""
    driver = driver_or_skip(host)
    project.install(host)
    file = project.file("shared.txt", "begin\n")

    account = race(project, [Agent(driver, "left"), Agent(driver, "right")], [file], 4, editor=False)

    assert (account.landed, account.lost, account.twice) == (8, [], []), account
    assert account.refusals, f"the sessions never met, so this run proves nothing: {account}"


@pytest.mark.parametrize("hosts", PAIRS, ids="-and-".join)
def test_two_hosts_lose_nothing(hosts: tuple[str, str], project: Project) -> None:
    """009-SC-001: nor do sessions of two different hosts, in one project with both installed."""
    agents = [Agent(driver_or_skip(host), word) for host, word in zip(hosts, ("left", "right"), strict=True)]
    for host in hosts:
        project.install(host)
    file = project.file("shared.txt", "begin\n")

    account = race(project, agents, [file], 4, editor=False)

    assert (account.landed, account.lost, account.twice) == (8, [], []), account
    assert account.refusals, f"the hosts never met, so this run proves nothing: {account}"


@pytest.mark.parametrize("hosts", PAIRS[: 3 if WRITES > 20 else 1], ids="-and-".join)
def test_two_hosts_with_two_sessions_each_and_an_editor_lose_nothing(
    hosts: tuple[str, str], project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """009-SC-001, finding H4: lost 0; every save of the editor is in a file, or kept and on record."""
    agents = [Agent(driver_or_skip(host), f"{host}{at}".replace("-", "")) for host in hosts for at in (1, 2)]
    for host in hosts:
        project.install(host)
    files = [project.file(name, "begin\n") for name in ("one.txt", "two.txt", "three.txt")]

    account = race(project, agents, files, WRITES, editor=True)

    with capsys.disabled():
        print(f"\n{' and '.join(hosts)}, two sessions each, {WRITES} writes a session: {account}")
    assert (account.landed, account.lost) == (4 * WRITES, []), account
    if account.saves_lost and WRITES < BAR_WRITES:
        pytest.xfail(
            f"finding H4: of {account.saves} saves {len(account.saves_lost)} are neither in a file nor kept: "
            "a host that writes within the same millisecond is let in together with the save"
        )
    assert account.saves_lost == [], account
    assert account.saves_kept <= account.races
    assert account.refusals, f"the sessions never met, so this run proves nothing: {account}"
