"""The real hosts, and projects to run them in."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.driver import HostDriver
from tests.e2e.drivers import DRIVERS
from tests.e2e.latency import TITLE
from tests.e2e.programs import MissingHostError
from tests.e2e.project import Project
from tests.e2e.scenarios import SCENARIOS, add_formatter
from tests.e2e.story import tell
from tests.e2e.table import WORST_FIRST, table


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table of hosts and scenarios; write it to the file that NOCLOBBER_E2E_TABLE names, if any."""
    written = table(
        (report.nodeid, outcome)
        for outcome in WORST_FIRST
        for report in terminalreporter.stats.get(outcome, [])
        if hasattr(report, "nodeid")
    )
    file = os.environ.get("NOCLOBBER_E2E_TABLE")
    if file and written:
        path = Path(file)
        _, title, latencies = path.read_text().partition(f"\n{TITLE}") if path.exists() else ("", "", "")
        path.write_text(f"{HEAD}{written}{title}{latencies}")
    elif written:
        terminalreporter.write(f"\n{written}")


HEAD = """# What was run in which host

Written by `make e2e-table` from a run of the real programs with a scripted model; `tests/e2e/scenarios.py` says what each scenario
is, and what must be true of the bytes on disk, of what the model received, of the ledger, and of the number of requests.
*yes*: as ruled. *otherwise*: the host behaves in a way of its own, named below. *open*: a known finding, marked in `tests/e2e/known.py`.

"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An empty project."""
    return Project.below(tmp_path)


def driver_or_skip(host: str) -> HostDriver:
    """Return a host's driver if its program is there; else skip, and say what helps."""
    try:
        DRIVERS[host].locate()
    except MissingHostError as missing:
        pytest.skip(f"{host}: {missing}")
    return DRIVERS[host]


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Mapping[str, BaseException | None]]:
    """How the scenarios ended in a host: one run of it, at the first call."""
    known: dict[str, Mapping[str, BaseException | None]] = {}

    def of(host: str) -> Mapping[str, BaseException | None]:
        driver = driver_or_skip(host)
        if host not in known:
            project = Project.below(tmp_path_factory.mktemp(host))
            project.install(host)
            add_formatter(driver, project)
            wanted = {name: one for name, one in SCENARIOS.items() if name not in driver.impossible}
            known[host] = tell(driver, project, wanted)
        return known[host]

    return of


@pytest.fixture
def run_claude(project: Project) -> Callable[..., subprocess.Popen[str]]:
    """Start Claude Code with a prompt against a model endpoint."""
    driver = driver_or_skip("claude-code")

    def run(url: str, prompt: str) -> subprocess.Popen[str]:
        return driver.start(project, url, prompt).process

    return run


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End what hosts leave running: Cline's hub outlives the run that started it."""
    base = str(session.config._tmp_path_factory.getbasetemp()).encode()  # type: ignore[attr-defined]
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            if b"--cline-hub-daemon" in command and base in command:
                os.kill(int(folder.name), signal.SIGTERM)
        except OSError:
            continue  # It ended by itself, or is not ours to look at.
