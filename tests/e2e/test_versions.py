"""Taking back what an agent did in the real hosts: the bytes that the host wrote over are kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.calls import Act, Edit, Read, Write
from tests.e2e.conftest import driver_or_skip
from tests.e2e.drivers import DRIVERS
from tests.e2e.model import ScriptedModel
from tests.e2e.project import REPOSITORY, Project

BEFORE = "one\ntwo\nthree\n"
EDITED = "one\nTWO\nthree\n"


def noclobber(project: Project, *words: str) -> str:
    """Run a command in the project, with no git there to find bytes in."""
    done = subprocess.run(
        [sys.executable, "-m", "noclobber", *words],
        cwd=project.root,
        env={**project.environment(), "PYTHONPATH": str(REPOSITORY / "src")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done
    return done.stdout


@pytest.mark.parametrize("host", DRIVERS)
def test_what_an_agent_wrote_over_comes_back_by_undo(host: str, tmp_path: Path) -> None:
    """N-versions, ruling 19: a whole file, two edits, and a new file; and what a person wrote since stays."""
    driver = driver_or_skip(host)
    project = Project.below(tmp_path)
    project.install(host)
    whole, edited = project.file("whole.txt", BEFORE), project.file("edited.txt", BEFORE)
    new = project.root / "new.txt"
    script: list[Act] = [
        Read(whole),
        Read(edited),
        lambda: Write(whole, "all\nis\nnew\n"),
        Edit(edited, "two", "TWO"),
        Edit(edited, "one", "ONE"),
        lambda: Write(new, "new\n"),
    ]
    with ScriptedModel(one=driver.script(script)) as model:
        driver.run(project, model.url, "script:one")
    assert (whole.read_text(), new.read_text()) == ("all\nis\nnew\n", "new\n"), model.told
    assert edited.read_text() == EDITED.replace("one", "ONE"), model.told
    edited.write_text(f"{edited.read_text()}a person's line\n")

    assert "ONE" in noclobber(project, "blame", str(edited))
    # Lines next to each other count as the same, so a person's line at the end is not in the way.
    noclobber(project, "undo", "--agent", "main")

    assert whole.read_text() == BEFORE
    assert edited.read_text() == f"{BEFORE}a person's line\n"
    assert not new.exists()
    sessions = {event["identity"].get("session_id") for event in project.ledger()} - {None}
    assert len(sessions) == 1, sessions
