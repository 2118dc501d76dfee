"""Which frameworks this environment has, and where the table's lines go."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator
from importlib.metadata import version
from pathlib import Path

import pytest

import noclobber
from tests.frameworks.drivers import FRAMEWORKS, driver, is_installed
from tests.frameworks.once_more import is_late


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--framework NAME`: that one must be there, and the others are left out."""
    parser.addoption("--framework", default=None, help="run the scenarios of this framework only")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """
    Run tests that ask for a framework with the one that was named; skip the others, and say why.

    Not with whatever happens to be installed: one of them is a requirement of the tests of hosts, in a version
    that their environment chose.
    """
    if "framework" not in metafunc.fixturenames:
        return
    chosen = metafunc.config.getoption("--framework", default=None)
    names = [chosen] if chosen else list(FRAMEWORKS)
    missing = pytest.mark.skip(
        reason="frameworks have environments of their own; `make frameworks` runs this"
    )
    metafunc.parametrize(
        "framework",
        [pytest.param(name, marks=() if chosen and is_installed(name) else missing) for name in names],
    )


def _note(line: str) -> None:
    if file := os.environ.get("NOCLOBBER_FRAMEWORKS_TABLE"):
        with Path(file).open("a", encoding="utf-8") as table:
            table.write(f"{line}\n")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Note which versions are run."""
    name = session.config.getoption("--framework", default=None)
    if name is not None and is_installed(name):
        packages = [*driver(name).packages, "noclobber"]
        said = [
            f"{each} {noclobber.__version__ if each == 'noclobber' else version(each)}" for each in packages
        ]
        _note(json.dumps({"versions": ", ".join(said)}))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Note that the run came to its end: until then there may be failures that nobody has noted."""
    _note(json.dumps({"all_failed": session.testsfailed}))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note which tests failed, and whether that counts at once."""
    report = yield
    if report.failed and call.excinfo is not None:
        error = call.excinfo.value
        said = f"{type(error).__name__}: {error}"[:500]
        _note(json.dumps({"failed": item.nodeid, "is_late": is_late(error), "said": said}))
    return report


@pytest.fixture
def note_line() -> Callable[[str], None]:
    """Append a line to the file that NOCLOBBER_FRAMEWORKS_TABLE names, if it names one."""
    return _note
