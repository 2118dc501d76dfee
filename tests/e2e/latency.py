"""
What our hooks add to a tool call, as the host's model sees it: `make e2e-latency` prints a table, and asserts nothing.

The time of a call is from the model's answer to the host's next request. Each host is run with and without hooks, in turn, on
one script of reads and edits; the table has the medians and their difference. Beside it: how long a Python interpreter that does nothing takes, in
the same run, because that is most of a hook. With NOCLOBBER_E2E_TABLE the table takes the place of the one in that file.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.e2e.calls import Call, Calls, Edit, Read
from tests.e2e.driver import HostDriver
from tests.e2e.drivers import DRIVERS
from tests.e2e.model import ScriptedModel
from tests.e2e.programs import MissingHostError
from tests.e2e.project import Project

CALLS = 24
ROUNDS = 2


class PromptModel(ScriptedModel):
    """A model that adds nothing of its own to a call."""

    answers_at_once = True


class Clock:
    """A script that reads and edits in turn, and notes how long each call took."""

    def __init__(self, file: Path) -> None:
        self.took_s: dict[str, list[float]] = {"Read": [], "Edit": []}
        self._file = file
        self._asked: Call | None = None
        self._at = 0.0

    def __call__(self, told: list[str]) -> Calls | None:
        """Return the next call."""
        # The first read and the first edit load programs and files that the others find in memory.
        if self._asked is not None and len(told) > 2:
            self.took_s[type(self._asked).__name__].append(time.perf_counter() - self._at)
        number = len(told)
        if number >= CALLS:
            return None
        edit = Edit(self._file, f"line {number:02} 0", f"line {number:02} 1")
        self._asked = edit if number % 2 else Read(self._file)
        self._at = time.perf_counter()
        return self._asked


def measure(driver: HostDriver, *, is_guarded: bool) -> dict[str, list[float]]:
    """Return how long the calls of one run took."""
    with tempfile.TemporaryDirectory() as folder:
        project = Project.below(Path(folder))
        if is_guarded:
            project.install(driver.name)
        file = project.file("a.txt", "".join(f"line {number:02} 0\n" for number in range(CALLS)))
        clock = Clock(file)
        with PromptModel(one=driver.script(clock)) as model:
            driver.run(project, model.url, "script:one")
        return clock.took_s


def bare_ms() -> float:
    """Return how long an interpreter that does nothing takes here and now."""
    command = [os.path.realpath(sys.executable), "-I", "-S", "-c", "pass"]
    took_s = []
    for _ in range(15):
        start_s = time.perf_counter()
        subprocess.run(command, check=True)
        took_s.append(time.perf_counter() - start_s)
    return statistics.median(took_s) * 1000


def row(host: str) -> str:
    """Return a host's row: medians, and their difference."""
    driver = DRIVERS[host]
    try:
        version = driver.locate().version
    except MissingHostError as missing:
        return f"| {host} | not here: {missing} | | | | | | |"
    took: dict[tuple[str, bool], list[float]] = {}
    try:
        for _ in range(ROUNDS):
            for is_guarded in (False, True):
                for kind, times in measure(driver, is_guarded=is_guarded).items():
                    took.setdefault((kind, is_guarded), []).extend(times)
    except AssertionError as failed:
        return f"| {host} | {version}: it did not end ({str(failed)[:60]!r}) | | | | | | |"
    cells = []
    for kind in ("Read", "Edit"):
        alone, guarded = (statistics.median(took[kind, is_guarded]) * 1000 for is_guarded in (False, True))
        cells += [f"{alone:.0f}", f"{guarded:.0f}", f"**{guarded - alone:.0f}**"]
    return f"| {host} | {version} | {' | '.join(cells)} |"


TITLE = "## What the hooks add to a call"
HEAD = """
In milliseconds, medians of {count} reads and {count} edits of a small file, from the model's answer to the host's next request, with and without hooks
in turn. An interpreter that does nothing took {bare:.0f} ms in the same run.

| host | version | read: alone | with hooks | added | edit: alone | with hooks | added |
|---|---|---|---|---|---|---|---|
"""


def main(hosts: list[str]) -> None:
    """Print the table, and put it into a file if one is named."""
    head = HEAD.format(count=ROUNDS * (CALLS // 2 - 1), bare=bare_ms())
    print(head, end="", flush=True)
    rows = []
    for host in hosts or DRIVERS:
        rows.append(row(host))
        print(rows[-1], flush=True)
    if file := os.environ.get("NOCLOBBER_E2E_TABLE"):
        path = Path(file)
        before = path.read_text().partition(f"\n{TITLE}")[0] if path.exists() else ""
        path.write_text(f"{before}\n{TITLE}\n{head}" + "".join(f"{one}\n" for one in rows))


if __name__ == "__main__":
    main(sys.argv[1:])
