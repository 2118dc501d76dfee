"""Real file watchers beside landings: each tells of every change. tests/test_watchers.py has the kernel's events alone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from noclobber.shell.roots import why_not
from tests.e2e.programs import MissingHostError
from tests.e2e.project import REPOSITORY
from tests.e2e.watchers import WATCHERS
from tests.rigs.landings import LANDINGS, lay_out

PATIENCE_S = 10  # Waited only for what does not come.
POLL_S = 0.05
PROBE = "probe.txt"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these watchers are run on Linux")


class Running:
    """A watcher at work, and what it told."""

    def __init__(self, command: list[str], watched: list[str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=REPOSITORY,
            env={**os.environ, "WATCHED": ":".join(watched)},
        )
        self._told: list[tuple[str, str]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, _, path = line.rstrip("\n").partition(" ")
            self._told.append((path, kind))

    def last(self) -> dict[str, str]:
        """What it told last of each path."""
        return dict(self._told)

    def told(self, path: str, kinds: tuple[str, ...]) -> bool:
        """True if the last that it told of a path is one of these."""
        return self.last().get(path) in kinds

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


def eventually(is_so: Callable[[], bool]) -> bool:
    end_s = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > end_s:
            return False
        time.sleep(POLL_S)
    return True


@contextmanager
def running(watcher: str, folder: Path, watched: list[str]) -> Iterator[Running]:
    """Start a watcher, and wait until it has told of a file that a plain program writes."""
    try:
        command = WATCHERS[watcher](folder)
    except MissingHostError as missing:
        pytest.skip(f"{watcher}: {missing}")
    probe = folder / PROBE
    found = Running(command, [PROBE, *watched])

    def is_told() -> bool:
        probe.write_text(str(time.monotonic()))
        time.sleep(POLL_S)
        return str(probe) in found.last()

    try:
        assert eventually(is_told), f"{watcher} tells nothing, not even of a plain write"
        yield found
    finally:
        found.end()


@pytest.mark.parametrize("watcher", WATCHERS)
def test_a_watcher_tells_of_every_file_that_landed(watcher: str, tmp_path: Path) -> None:
    """Finding G9: @parcel/watcher told nothing of a file that was replaced, and nsfw that it was deleted."""
    if (reason := why_not(str(tmp_path))) is not None:
        pytest.skip(reason)
    projects = {name: tmp_path / name.replace(" ", "-") for name in LANDINGS}
    for name, project in projects.items():
        (project / ".noclobber").mkdir(parents=True)
        lay_out(project)
        LANDINGS[name].prepare(project)
    paths = {
        name: [project / change for change in LANDINGS[name].changes] for name, project in projects.items()
    }
    watched = [str(path.relative_to(tmp_path)) for of_one in paths.values() for path in of_one]
    missed = []
    with running(watcher, tmp_path, watched) as seen:
        for name, project in projects.items():
            LANDINGS[name].do(project)
            for path in paths[name]:
                wanted = ("there" if path.exists() else "gone", "changed")
                if not eventually(partial(seen.told, str(path), wanted)):
                    missed.append((name, path.name, seen.last().get(str(path))))
    assert not missed, f"{watcher} did not tell of {missed}"
