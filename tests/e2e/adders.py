"""Agents that add lines to shared files, an editor that saves in between, and the account of who lost what."""

from __future__ import annotations

import os
import queue
import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.e2e.calls import Calls, Read, Write
from tests.e2e.driver import HostDriver
from tests.e2e.model import ScriptedModel
from tests.e2e.project import Project

MESSAGES_A_WRITE = 30
MEET_TIMEOUT_S = 100


class Agent(NamedTuple):
    """One session of one host, and the word that its lines begin with."""

    driver: HostDriver
    word: str


class Adder:
    """The script of one agent: it reads a file and writes it back with one more line, file after file, until done."""

    def __init__(
        self,
        agent: Agent,
        files: Sequence[Path],
        writes: int,
        all_have_read: threading.Barrier,
        notice: Callable[[Path], object],
    ) -> None:
        self.landed: list[str] = []
        """The lines that the agent was told are written, or saw in the file."""
        self.refusals = 0
        self._driver, self._word = agent
        self._files, self._writes, self._all_have_read = files, writes, all_have_read
        self._notice = notice
        self._last: Calls | None = None

    def __call__(self, told: list[str]) -> Calls | None:
        """Return what the agent does next."""
        if isinstance(self._last, Write):
            if self._driver.is_success(told[-1]):
                self.landed.append(self._line)
            else:
                self.refusals += 1
        if len(told) > self._writes * MESSAGES_A_WRITE:
            return None
        shown = self._driver.shown(told[-1]) if isinstance(self._last, Read) else None
        # It was told of a race, or could not tell: the line counts if it is there.
        if shown is not None and len(self.landed) < self._writes and self._line in shown.splitlines():
            self.landed.append(self._line)
            shown = None
        if len(self.landed) >= self._writes:
            return None
        if shown is None:
            self._last = Read(self._file)
            return self._last
        if not self.landed and not self.refusals:
            # No first write before everybody has read: one host may be done before another has started.
            self._all_have_read.wait(MEET_TIMEOUT_S)
        self._notice(self._file)
        self._last = Write(self._file, f"{shown.rstrip()}\n{self._line}\n")
        return self._last

    @property
    def _line(self) -> str:
        return f"{self._word}-{len(self.landed)}"

    @property
    def _file(self) -> Path:
        return self._files[len(self.landed) % len(self._files)]


class Editor(threading.Thread):
    """
    A person who saves: a line at the end of a file that an agent is about to write, at one write in four.

    The pauses are random, so that saves fall before the check, between check and write, and after the write. A person who
    saves by the clock would keep a busy machine's agents from ever finishing.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.saved: list[str] = []
        self._random = random.Random(7)
        self._wanted: queue.SimpleQueue[Path | None] = queue.SimpleQueue()

    def notice(self, file: Path) -> None:
        """Hear that an agent is about to write a file."""
        if self._random.random() < 0.25:
            self._wanted.put(file)

    def run(self) -> None:
        """Save until told to stop. One system call a save: what it adds to is what is there at that moment."""
        while (file := self._wanted.get()) is not None:
            threading.Event().wait(self._random.uniform(0, 0.3))
            line = f"editor-{len(self.saved)}"
            descriptor = os.open(file, os.O_WRONLY | os.O_APPEND)
            os.write(descriptor, f"{line}\n".encode())
            os.close(descriptor)
            self.saved.append(line)

    def stop(self) -> None:
        """Stop, and wait until it has."""
        self._wanted.put(None)
        self.join()


class Account(NamedTuple):
    """What became of the lines."""

    landed: int
    lost: list[str]
    """Lines of agents that are in no file."""
    lost_kept: int
    """How many of these are kept: somebody wrote over them, and that is on record."""
    twice: list[str]
    refusals: int
    saves: int
    saves_lost: list[str]
    """Saves of the editor that are neither in a file nor kept."""
    saves_kept: int
    """Saves that are no longer in a file, and kept."""
    races: int
    """Races on record."""


def race(
    project: Project, agents: Sequence[Agent], files: Sequence[Path], writes: int, *, editor: bool
) -> Account:
    """Run the agents at the same time, and return the account."""
    together = threading.Barrier(len(agents))
    person = Editor()
    notice = person.notice if editor else _nobody
    adders = {agent.word: Adder(agent, files, writes, together, notice) for agent in agents}
    with ScriptedModel(**{agent.word: agent.driver.script(adders[agent.word]) for agent in agents}) as model:
        for driver in {agent.driver.name: agent.driver for agent in agents}.values():
            driver.before_a_race(project, model.url)
        running = [agent.driver.start(project, model.url, f"script:{agent.word}") for agent in agents]
        if editor:
            person.start()
        try:
            for one in running:
                done = one.wait(max(500, 30 * writes))
                assert done.returncode == 0, done
        finally:
            if editor:
                person.stop()
    lines = [line for file in files for line in file.read_text().splitlines()]
    kept = b"\n".join(project.kept()).decode(errors="replace").splitlines()
    wanted = [line for adder in adders.values() for line in adder.landed]
    gone = [line for line in person.saved if line not in lines]
    return Account(
        landed=len(wanted),
        lost=(lost := [line for line in wanted if line not in lines]),
        lost_kept=sum(line in kept for line in lost),
        twice=[line for line in wanted if lines.count(line) > 1],
        refusals=sum(adder.refusals for adder in adders.values()),
        saves=len(person.saved),
        saves_lost=[line for line in gone if line not in kept],
        saves_kept=sum(line in kept for line in gone),
        races=sum(event["action_type"] == "MUTATION_RACE" for event in project.ledger()),
    )


def _nobody(_: Path) -> None:
    """Save nothing."""
