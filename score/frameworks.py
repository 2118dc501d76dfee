"""
Agent frameworks: the real package with its own scripted model, in an environment of its own.

`make score` asks for one framework at a time, in that framework's environment (`make frameworks` makes them):

    .venv/frameworks/deepagents/bin/python -m score.frameworks deepagents SEED REPETITIONS own|guarded
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.frameworks.driver import Call, FrameworkDriver, Received, Script, read, write
from tests.frameworks.drivers import FRAMEWORKS, PROBES, driver

from score.rounds import TOOL, Conversation, ReadFile, Score, Tally, WriteFile, plans, play

SUBJECTS = tuple(name for name in FRAMEWORKS if PROBES[name])
PROJECT = Path(__file__).parents[1]
MOST_S = 600


def score(name: str, python: Path, seed: int, repetitions: int, *, guarded: bool) -> Score:
    """Play all rounds in a framework's own environment."""
    words = [str(python), "-W", "ignore", "-m", "score.frameworks", name, str(seed), str(repetitions)]
    words.append("guarded" if guarded else "own")
    try:
        done = subprocess.run(
            words,
            cwd=PROJECT,
            env={**os.environ, "PYTHONPATH": "src"},
            capture_output=True,
            text=True,
            timeout=MOST_S,
        )
        if done.returncode:
            raise OSError((done.stderr.strip().splitlines() or ["it said nothing"])[-1][:200])
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired) as error:
        return Score(name, "framework", "", guarded, (), f"it could not be played: {error}")
    tallies = tuple(Tally(**each) for each in found["tallies"])
    return Score(name, "framework", found["version"], guarded, tallies, found["problem"])


def _play(name: str, seed: int, repetitions: int, *, guarded: bool) -> dict[str, Any]:
    tallies: list[Tally] = []
    problem = ""
    with tempfile.TemporaryDirectory(prefix="nc-score-") as folder:
        root = Path(folder, "project")
        root.mkdir()
        framework = driver(name)(root, guarded=guarded)
        try:
            # A run for each round: frameworks bound how many steps one run may take.
            for plan in plans(seed, repetitions, (TOOL,)):
                conversation = play(root, [plan], framework.shown, tallies)
                framework.run(_Following(conversation, framework), agent="model")
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"[:300]
        finally:
            framework.close()
    return {
        "version": version(PROBES[name]),
        "tallies": [each._asdict() for each in tallies],
        "problem": problem,
    }


class _Following(Script):
    """A script that asks a generator for each next step."""

    def __init__(self, conversation: Conversation, framework: FrameworkDriver) -> None:
        super().__init__(*[self._step] * 100, name="score")
        self._conversation, self._begun = conversation, False

    def _step(self, received: list[Received]) -> list[Call]:
        try:
            use = self._conversation.send(received[-1].text) if self._begun else next(self._conversation)
        except StopIteration:
            return []
        self._begun = True
        match use:
            case ReadFile(path):
                return [read(path.name)]
            case WriteFile(path, content):
                return [write(path.name, content)]
        raise AssertionError(use)


if __name__ == "__main__":
    _, chosen, given_seed, given_repetitions, mode = sys.argv
    print(json.dumps(_play(chosen, int(given_seed), int(given_repetitions), guarded=mode == "guarded")))
