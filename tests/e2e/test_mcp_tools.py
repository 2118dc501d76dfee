"""Tools of other MCP servers inside the real hosts: what plainly writes a file is checked, all else is let be."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.calls import Calls, Native, Read, Shell
from tests.e2e.conftest import driver_or_skip
from tests.e2e.drivers import DRIVERS
from tests.e2e.model import ScriptedModel
from tests.e2e.project import Project
from tests.e2e.story import LANDED, REFUSED, stale

SERVER = [sys.executable, str(Path(__file__).with_name("file_server.py"))]
FIRST, THEIRS = "hello\nworld\n", "hello\nworld\na person's line\n"


@pytest.mark.parametrize("host", DRIVERS)
def test_a_tool_of_another_server_that_writes_a_file_is_checked(host: str, project: Project) -> None:
    """finding S9: a stale write is refused, what the server's own read showed counts, and no other tool is stopped."""
    driver = driver_or_skip(host)
    project.install(host)
    listed = project.home / "listed"
    driver.add_server(project, "files", [*SERVER, str(listed)])
    file = project.file("a.txt", FIRST)

    def use(tool: str, **given: Any) -> Calls:
        return Native(driver.server_tool.format(server="files", tool=tool), given)

    def after(act: Callable[[], object], tool: str, **given: Any) -> Callable[[], Calls]:
        def step() -> Calls:
            act()
            return use(tool, **given)

        return step

    def steps(told: list[str]) -> Calls | None:
        wanted: list[Callable[[], Calls]] = [
            # Claude Code does not wait for its servers before it asks the model.
            lambda: Shell(f"until test -e {listed}; do sleep 0.1; done"),
            lambda: Read(file),
            after(lambda: file.write_text(THEIRS), "write_file", path=str(file), content="mine\n"),
            lambda: use("create_issue", title="a.txt is stale"),
            lambda: use("read_text_file", path=str(file)),
            lambda: use("write_file", path=str(file), content="mine\n"),
        ]
        return wanted[len(told)]() if len(told) < len(wanted) else None

    with ScriptedModel(one=driver.script(steps)) as model:
        done = driver.run(project, model.url, "script:one", ENABLE_TOOL_SEARCH="false")

    told = model.told["one"][1:]
    assert len(told) == 5, (told, done.out[-500:], done.err[-500:])
    assert driver.refusal(told[1]).object == stale(file, FIRST, THEIRS)
    assert "created" in told[2]
    assert "a person's line" in told[3]
    assert "written" in told[4]
    assert file.read_text() == "mine\n"
    assert project.record(file) == [REFUSED, LANDED]
