"""A folder that the user has not trusted: whether the project's own hooks run there, host by host."""

from __future__ import annotations

import pytest

from tests.e2e.calls import Edit, Read, after
from tests.e2e.conftest import driver_or_skip
from tests.e2e.drivers import DRIVERS
from tests.e2e.model import ScriptedModel
from tests.e2e.project import Project
from tests.e2e.scenarios import FIRST, THEIRS


@pytest.mark.parametrize(
    "host", [host for host in DRIVERS if host != "cline"]
)  # It knows no trust in folders.
def test_hooks_of_a_folder_that_is_not_trusted(host: str, project: Project) -> None:
    """finding H11: where the host skips them, the stale edit lands; its page says so, and `doctor` does."""
    driver = driver_or_skip(host)
    file = project.file("a.txt", FIRST)
    project.install(host)
    stale = after(lambda: file.write_text(THEIRS), Edit(file, "hello", "HELLO"))
    with ScriptedModel(one=driver.script([Read(file), stale])) as model:
        driver.run(project, model.url, "script:one", is_trusted=False)

    told = model.told["one"][1]
    if "untrusted" in driver.limits:
        assert "error_type" not in told, told
        assert project.ledger() == []
        return
    assert driver.refusal(told).object["error_type"] == "STALE_FILE"
    assert file.read_text() == THEIRS
