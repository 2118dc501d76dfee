"""Copilot CLI, the real one: refusals that hold, two configurations, GPT's patches, folders that are not trusted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.calls import Edit, Read
from tests.e2e.conftest import driver_or_skip
from tests.e2e.driver import HostDriver
from tests.e2e.drivers.codex import patch
from tests.e2e.drivers.copilot import CopilotGpt
from tests.e2e.model import ScriptedModel, Step
from tests.e2e.project import Project
from tests.e2e.protocols import Use

FIRST, THEIRS = "hello\nworld\n", "hello\nworld\na person's line\n"


@pytest.fixture
def driver() -> HostDriver:
    """The host."""
    return driver_or_skip("copilot")


@pytest.fixture
def file(project: Project) -> Path:
    """A file that the agent reads."""
    return project.file("a.txt", FIRST)


def stale(driver: HostDriver, file: Path) -> list[Step]:
    """Read, somebody saves, edit."""

    def edit() -> Use:
        file.write_text(THEIRS)
        return driver.use(Edit(file, "hello", "HELLO"))

    return [driver.use(Read(file)), edit]


def run(driver: HostDriver, project: Project, *script: Step, is_trusted: bool = True) -> list[str]:
    """Run a script; return what the model was told."""
    with ScriptedModel(one=list(script)) as model:
        driver.run(project, model.url, "script:one", is_trusted=is_trusted)
    return model.told["one"]


def test_its_own_hooks_obey_the_flat_form_only(driver: HostDriver, project: Project, file: Path) -> None:
    """finding H1, finding S2: a denial in Claude's form, nested, is ignored, and the stale edit lands."""
    project.install("copilot")
    config = project.root / ".github" / "hooks" / "noclobber.json"
    denied = {"hookEventName": "preToolUse", "permissionDecision": "deny", "permissionDecisionReason": "no"}
    for answer, is_obeyed in (({"hookSpecificOutput": denied}, False), (denied, True)):
        hooks = {
            "preToolUse": [{"type": "command", "bash": f"echo '{json.dumps(answer)}'", "matcher": "edit"}]
        }
        config.write_text(json.dumps({"version": 1, "hooks": hooks}))
        told = run(driver, project, *stale(driver, file))
        assert (driver.refusal_before in told[1]) is is_obeyed
        assert ("HELLO" in file.read_text()) is not is_obeyed
        file.write_text(FIRST)


def test_with_claudes_settings_beside_its_own_hooks_each_event_counts_once(
    driver: HostDriver, project: Project, file: Path
) -> None:
    """finding S2: it runs both, for one and the same call."""
    project.install("copilot")
    project.install("claude-code")
    edit = driver.use(Edit(file, "hello", "HELLO"))
    told = run(driver, project, *stale(driver, file), driver.use(Read(file)), edit)

    assert driver.refusal(told[1]).object["error_type"] == "STALE_FILE"
    assert driver.is_success(told[3])
    assert project.record(file) == [("MUTATION_CONFLICT", "DENIED"), ("MUTATION", "APPLIED")]


def test_the_patches_of_gpt_models_are_understood(project: Project, file: Path) -> None:
    """finding H2: they arrive as raw text; a patch that fails is an event with an error and no result."""
    driver = CopilotGpt()
    driver_or_skip("copilot")
    project.install("copilot")

    def change(old: str, new: str) -> Use:
        return patch("*** Update File: a.txt", "@@", f"-{old}", f"+{new}")

    def late() -> Use:
        file.write_text(THEIRS)
        return change("hello", "HELLO")

    made = patch("*** Add File: new.txt", "+new")
    told = run(
        driver,
        project,
        driver.use(Read(file)),
        change("hello", "HELLO"),
        change("nowhere", "x"),
        [change("HELLO", "hello"), made],
        late,
    )

    assert told[1].startswith("Modified 1 file(s)")
    assert told[2].startswith("Failed to apply patch")
    assert (told[3][:8], told[4][:5]) == ("Modified", "Added")
    assert driver.refusal(told[5]).object["error_type"] == "STALE_FILE"
    assert file.read_text() == THEIRS
    landed, refused = ("MUTATION", "APPLIED"), ("MUTATION_CONFLICT", "DENIED")
    assert project.record(file) == [landed, landed, refused]
    assert project.record(project.root / "new.txt") == [landed]


@pytest.mark.parametrize("scope", ["project", "user"])
def test_in_a_folder_that_is_not_trusted_only_the_users_own_hooks_run(
    driver: HostDriver, project: Project, file: Path, scope: str
) -> None:
    """finding H11: with `-p`, hooks of the project are not even loaded; `install --user` helps."""
    project.install("copilot", *(["--user"] if scope == "user" else []))
    told = run(driver, project, *stale(driver, file), is_trusted=False)

    assert (driver.refusal_before in told[1]) is (scope == "user")
    assert file.read_text() == (THEIRS if scope == "user" else THEIRS.replace("hello", "HELLO"))
