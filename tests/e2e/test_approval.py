"""A person saves while the host's approval dialogue is open, or says no. The check has already been made by then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from noclobber import Workspace
from tests.e2e.calls import Edit, Read, Write
from tests.e2e.conftest import driver_or_skip
from tests.e2e.drivers import DRIVERS
from tests.e2e.known import marks
from tests.e2e.project import Project
from tests.e2e.scenarios import FIRST, THEIRS
from tests.e2e.story import FAILED, REFUSED, Stage, Story, demand, tell_attended

Outcomes = Mapping[str, BaseException | None]


def saves(file: Path) -> Callable[[], bool]:
    """Return what a person does who saves the file in their editor, and then says yes."""

    def decide() -> bool:
        file.write_text(THEIRS)
        return True

    return decide


def assert_not_lost(stage: Stage, file: Path) -> None:
    """The person's save is in the file, or it is kept, and then the race is on record."""
    record = stage.project.record(file)
    if file.read_text() == THEIRS:
        assert record in ([], [REFUSED], [FAILED]), record
        return
    assert "a person's line" in file.read_text() or THEIRS.encode() in stage.project.kept()
    assert record == [("MUTATION_RACE", "RACED")]


def approved_edit(stage: Stage) -> Story:
    """finding H4: a save between the check and the edit."""
    file = stage.file(FIRST)
    yield Read(file)
    stage.person.decide = saves(file)
    yield Edit(file, "hello", "HELLO")
    assert_not_lost(stage, file)


def approved_write(stage: Stage) -> Story:
    """finding H4: a save between the check and a write of the whole file."""
    file = stage.file(FIRST)
    yield Read(file)
    stage.person.decide = saves(file)
    yield Write(file, "mine\n")
    assert_not_lost(stage, file)


def declined_edit(stage: Stage) -> Story:
    """finding H8: what a person declined is no write, and keeps no other writer out."""
    file = stage.file(FIRST)
    yield Read(file)
    stage.person.decide = lambda: False
    told = yield Edit(file, "hello", "HELLO")
    assert told is None or not stage.driver.is_success(told), told
    assert file.read_text() == FIRST
    stage.assert_record(file)
    with Workspace(stage.project.root, wait_s=0.5) as workspace, workspace.turn(agent_id="other") as turn:
        turn.read_file(file)
        turn.write_file(file, THEIRS)
    assert file.read_text() == THEIRS


ATTENDED = {scenario.__name__: scenario for scenario in (approved_edit, approved_write, declined_edit)}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Outcomes]:
    """How the scenarios ended in a host: one run of it, at the first call."""
    known: dict[str, Outcomes] = {}

    def of(host: str) -> Outcomes:
        driver = driver_or_skip(host)
        if host not in known:
            project = Project.below(tmp_path_factory.mktemp(f"{host}-attended"))
            project.install(host)
            try:
                known[host] = tell_attended(driver, project, ATTENDED)
            except NotImplementedError as reason:
                pytest.skip(str(reason))
        return known[host]

    return of


@pytest.mark.parametrize(
    ("host", "scenario"),
    [
        pytest.param(host, scenario, id=f"{host}-{scenario}", marks=marks(host, scenario))
        for host in DRIVERS
        if host != "cline"  # Nobody has attended it yet; its page says so.
        for scenario in ATTENDED
    ],
)
def test_the_dialogue_costs_nobody_their_work(
    host: str, scenario: str, told: Callable[[str], Outcomes]
) -> None:
    """finding H4, finding H8: an outsider's save between check and write is never lost silently."""
    demand(told(host)[scenario])
