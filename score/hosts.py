"""Coding agents: the real program, driven by a scripted model on loopback (tests/e2e has the drivers)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.e2e.calls import Call, Calls, Read, Shell, Write
from tests.e2e.driver import HostDriver
from tests.e2e.drivers import DRIVERS
from tests.e2e.model import ScriptedModel
from tests.e2e.programs import MissingHostError
from tests.e2e.project import Project

from score.rounds import SHELL, TOOL, Conversation, ReadFile, RunCommand, Score, Tally, ToolUse, plans, play
from score.rounds import WriteFile as Whole

SUBJECTS = tuple(DRIVERS)
MOST_S = 600


def score(name: str, seed: int, repetitions: int, *, guarded: bool) -> Score:
    """Play all rounds in one session of a host."""
    driver = DRIVERS[name]
    try:
        version = driver.locate().version
    except MissingHostError as error:
        return Score(name, "host", "", guarded, (), str(error))
    tallies: list[Tally] = []
    with tempfile.TemporaryDirectory(prefix="nc-score-", ignore_cleanup_errors=True) as folder:
        project = Project.below(Path(folder))
        if guarded:
            project.install(name)
        planned = plans(seed, repetitions, (TOOL, SHELL))
        script = _script(play(project.root, planned, driver.shown, tallies))
        problem = ""
        try:
            with ScriptedModel(main=driver.script(script)) as model:
                done = driver.start(project, model.url, "script:main").wait(MOST_S)
            if done.returncode:
                problem = f"it ended with {done.returncode}"
        except AssertionError as error:
            problem = str(error)[:300]
        if not problem and len(tallies) < len(planned):
            problem = f"it ended after {len(tallies)} of {len(planned)} rounds"
    return Score(name, "host", version, guarded, tuple(tallies), problem)


def _script(conversation: Conversation) -> Callable[[list[str]], Calls | None]:
    """Return the script: what a generator asks for, one call a message."""
    begun = False

    def next_calls(told: list[str]) -> Calls | None:
        nonlocal begun
        try:
            use = conversation.send(told[-1]) if begun else next(conversation)
        except StopIteration:
            return None
        begun = True
        return _call(use)

    return next_calls


def _call(use: ToolUse) -> Call:
    match use:
        case ReadFile(path):
            return Read(path)
        case Whole(path, content):
            return Write(path, content)
        case RunCommand(command):
            return Shell(command)


__all__ = ["SUBJECTS", "HostDriver", "score"]
