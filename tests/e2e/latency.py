"""
What our hooks add to a tool call, as the host's model sees it: `make e2e-latency` prints a table, and asserts nothing.

The time of a call is from the model's answer to the host's next request. Each host is run with and without hooks, in turn, on
one script of reads and edits; the table has the medians and their difference.
"""

from __future__ import annotations

import statistics
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
        with ScriptedModel(one=driver.script(clock)) as model:
            driver.run(project, model.url, "script:one")
        return clock.took_s


def main(hosts: list[str]) -> None:
    """Print the table."""
    print("| host | version | read: alone | with hooks | added | edit: alone | with hooks | added |")
    print("|---|---|---|---|---|---|---|---|")
    for host in hosts or DRIVERS:
        driver = DRIVERS[host]
        try:
            version = driver.locate().version
        except MissingHostError as missing:
            print(f"| {host} | not here: {missing} | | | | | | |")
            continue
        took: dict[tuple[str, bool], list[float]] = {}
        for _ in range(ROUNDS):
            for is_guarded in (False, True):
                for kind, times in measure(driver, is_guarded=is_guarded).items():
                    took.setdefault((kind, is_guarded), []).extend(times)
        cells = []
        for kind in ("Read", "Edit"):
            alone, guarded = (
                statistics.median(took[kind, is_guarded]) * 1000 for is_guarded in (False, True)
            )
            cells += [f"{alone:.0f}", f"{guarded:.0f}", f"**{guarded - alone:.0f} ms**"]
        print(f"| {host} | {version} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
