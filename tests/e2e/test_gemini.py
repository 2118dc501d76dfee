"""What is true of Gemini CLI alone."""

from __future__ import annotations

from tests.e2e.calls import Edit, Read, Shell
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


def test_a_file_of_ours_that_guards_its_shell_would_hide_the_users_own(project: Project) -> None:
    """
    N-shell: why its commands are only watched (docs/decisions/guarded-shell.md).

    Its shell does read what `.gemini/.env` names as BASH_ENV. But it reads one such file only, and users keep
    their keys in theirs. If this fails, there may be a way.
    """
    driver = driver_or_skip("gemini")
    project.install("gemini")
    marker = project.file("first.sh", "echo read > was-read.txt\n")
    own = project.home / ".gemini"
    own.mkdir(exist_ok=True)
    (own / ".env").write_text("KEY_OF_THE_USER=1\n")
    (project.root / ".gemini/.env").write_text(f"BASH_ENV={marker}\n")
    with ScriptedModel(one=driver.script([Shell("echo ${KEY_OF_THE_USER-none} > seen.txt")])) as model:
        driver.run(project, model.url, "script:one")

    assert (project.root / "was-read.txt").read_text() == "read\n"
    assert (project.root / "seen.txt").read_text() == "none\n"
