"""What the run of the table shares, and the page that it writes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.promises.servers import StdioAgent
from tests.promises.table import page
from tests.promises.zygote import Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """The process whose children are commands and hooks."""
    found = Zygote()
    yield found
    found.close()
    StdioAgent.end_all()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Write the page to the file that NOCLOBBER_PROMISES names, if any."""
    if file := os.environ.get("NOCLOBBER_PROMISES"):
        outcomes = {
            found[1]: outcome
            for outcome in ("passed", "xfailed", "skipped", "xpassed", "failed", "error")
            for report in terminalreporter.stats.get(outcome, [])
            if (found := re.search(r"::test_the_promise_is_kept\[(.*)\]$", getattr(report, "nodeid", "")))
        }
        Path(file).write_text(page(outcomes))
