"""
One round: a workspace, an outsider for each file, a few agents that visit all the files, perhaps a watcher,
for some seconds; then the accounting.

Every process gets a time at which to start and one at which to end, so that a round is bounded even if
this process dies. A process that has not ended a while later hangs: it is killed, named, and
counted as a fault.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from noclobber.core.project import KEPT_FOLDER, SWAP_FOLDER, state_folder
from torture import accounting, outsiders, weaker_guards

if TYPE_CHECKING:
    from collections.abc import Callable

    from torture.accounting import Account

START_DELAY_S = 0.35  # Interpreters take that long to start; all must run when the round begins.
GRACE_S = 30.0


class Round(NamedTuple):
    """What to run. Each kind of outsider gets a file of its own; the agents write to all of them."""

    kinds: tuple[str, ...]
    guard: str = weaker_guards.REAL
    seconds: float = 2.0
    seed: int = 1
    agents: int = 2
    under_fire: bool = False
    """Agents are killed with SIGKILL at random moments, and restarted. For one kind only."""
    watched: bool = True
    """A watcher reads the first file all the time."""
    flushing: str = "none"
    """Which agents have every write flushed to the disk: none, every other one ("some"), or all."""
    eagerness: float = 0.7
    """Share of the outsider's updates that follow the last one at once."""

    def guard_of(self, number: int) -> str:
        """Which guard an agent uses."""
        flushes = self.flushing == "all" or (self.flushing == "some" and number % 2)
        return weaker_guards.FLUSHING if flushes else self.guard


class OutsiderFile(NamedTuple):
    """One outsider's file, and the logs of everybody who writes to it."""

    kind: str
    path: str
    logs: str

    def log(self, name: str) -> str:
        return os.path.join(self.logs, f"{name}.log")


class Arena:
    """The folder of a round: the workspace, and the logs beside it."""

    def __init__(self, folder: str, round_: Round) -> None:
        self.round = round_
        self.folder, self.root = folder, os.path.join(folder, "workspace")
        self.places = [
            OutsiderFile(
                kind, os.path.join(self.root, kind, "shared.txt"), os.path.join(folder, "logs", kind)
            )
            for kind in round_.kinds
        ]
        for place in self.places:
            os.makedirs(os.path.dirname(place.path))
            os.makedirs(place.logs)
            outsiders.prepare(place.kind, place.path, round_.seconds)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> float:
        """Start everybody; return the time (monotonic) at which they end."""
        begin_s = time.monotonic() + START_DELAY_S
        until_s = begin_s + self.round.seconds
        times = (f"{begin_s:.6f}", f"{until_s:.6f}")
        round_, first = self.round, self.places[0]
        for number, place in enumerate(self.places):
            if outsiders.KINDS[place.kind].step:
                how = (str(round_.seed + number), *times, str(round_.eagerness))
                name = f"outsider-{place.kind}"
                self._spawn(name, "outsiders", place.kind, place.path, place.log("outsider"), *how)
        if round_.watched:
            self._spawn("watcher", "agents", "watch", first.path, first.log("watcher"), *times)
        names = [f"g{number}" for number in range(round_.agents)]
        if round_.under_fire:
            logs = ",".join(first.log(name) for name in names)
            who = (first.path, ",".join(names), logs, str(round_.seed))
            guards = ";".join(round_.guard_of(number) for number in range(round_.agents))
            self._spawn("agents", "agents", "under-fire", guards, self.root, *who, *times)
            return until_s
        paths = ",".join(place.path for place in self.places)
        for number, name in enumerate(names):
            logs = ",".join(place.log(name) for place in self.places)
            who = (paths, name, logs, str(round_.seed * 100 + number))
            self._spawn(name, "agents", "agent", round_.guard_of(number), self.root, *who, *times)
        return until_s

    def _spawn(self, name: str, module: str, *words: str) -> None:
        home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        paths = [os.path.join(home, "src"), home, *filter(None, [os.environ.get("PYTHONPATH")])]
        with open(os.path.join(self.folder, f"{name}.err"), "wb") as errors:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", f"torture.{module}", *words],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                start_new_session=True,  # So that a supervisor can be killed together with its agents.
            )

    def finish(self, until_s: float, tick: Callable[[], None] | None = None) -> list[Account]:
        """Wait for everybody, then account: one account for each file."""
        faults = self._wait(until_s, tick)
        kept, left = self._recover()
        return [
            accounting.settle(place.kind, place.logs, _final(place.path), kept, [*faults, *left])
            for place in self.places
        ]

    def _wait(self, until_s: float, tick: Callable[[], None] | None) -> list[str]:
        faults: list[str] = []
        try:
            while any(each.poll() is None for each in self._processes.values()):
                if time.monotonic() > until_s + GRACE_S:
                    break
                time.sleep(0.02)
                if tick:
                    tick()
        finally:
            for name, process in self._processes.items():
                if process.poll() is None:
                    faults.append(f"{name} hung: still running {GRACE_S:.0f} s after the end")
                    _kill_session(process)
                elif process.returncode:
                    faults.append(f"{name} ended with {process.returncode}: {self._last_words(name)}")
        return faults

    def _last_words(self, name: str) -> str:
        with open(os.path.join(self.folder, f"{name}.err"), errors="replace") as file:
            return " | ".join(file.read().strip().splitlines()[-4:])

    def _recover(self) -> tuple[list[str], list[str]]:
        """Let the real guard finish what killed agents left; return what it kept aside, and what is wrong."""
        if self.round.guard != weaker_guards.REAL:
            return [], []
        from noclobber.disk.file_guard import FileGuard

        homes = [os.path.dirname(place.path) for place in self.places]
        folders = [*homes, *filter(os.path.isdir, [os.path.join(home, "elsewhere") for home in homes])]
        faults: list[str] = []
        try:
            for _ in range(2):  # The first finishes what was left, the second sweeps what that displaced.
                guard = FileGuard(self.root, clock=AnHourLater())
                for folder in folders:  # A commit in a folder finishes what was left there.
                    guard.write(os.path.join(folder, "after.txt"), b"over\n", expected=None)
                guard.sweep()
        except Exception as error:
            faults.append(f"recovery failed: {type(error).__name__}: {error}")
        state = state_folder(self.root)
        if left := os.listdir(os.path.join(state, SWAP_FOLDER)):
            faults.append(f"{len(left)} files left behind: {' '.join(sorted(left)[:3])}")
        kept = os.path.join(state, KEPT_FOLDER)
        return [os.path.join(kept, name) for name in os.listdir(kept)], faults


def _final(path: str) -> bytes | None:
    for place in (path, os.path.join(path, "index")):
        with suppress(IsADirectoryError, FileNotFoundError, NotADirectoryError), open(place, "rb") as file:
            return file.read()
    return None


class AnHourLater:
    """A clock for the recovery at the end, by which everything that is left is old."""

    monotonic_s = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)

    @staticmethod
    def now_s() -> float:
        return time.time() + 3600


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # Its own session: nobody else is in that group.
    process.wait()


def run(folder: str, round_: Round, tick: Callable[[], None] | None = None) -> list[Account]:
    """Run one round in an empty folder; return an account for each of its kinds."""
    arena = Arena(folder, round_)
    return arena.finish(arena.start(), tick)
