"""What is true of Gemini CLI alone."""

from __future__ import annotations

from tests.e2e.calls import Edit, Read
from tests.e2e.conftest import driver_or_skip
from tests.e2e.driver import HostDriver
from tests.e2e.model import ScriptedModel
from tests.e2e.project import Project
from tests.e2e.scenarios import FIRST


def test_an_editor_that_drives_it_goes_unguarded(project: Project) -> None:
    """finding H11: under `--acp` it runs no hooks at all; its page says so. If this fails, that sentence can go."""
    driver = driver_or_skip("gemini")
    file = project.file("a.txt", FIRST)
    project.install("gemini")
    with ScriptedModel(one=driver.script([Read(file), Edit(file, "hello", "HELLO")])) as model:
        HostDriver.attend(driver, project, model.url, ["script:one"], lambda: True)

    assert driver.is_success(model.told["one"][1])
    assert project.ledger() == []
