"""
One round: the model reads a file, the rival acts, the model writes. And the account of all rounds.

The model is a good one. It writes what it has read with one line more, or one more on a counter. If the file
is not written by that, or not with its line, it was refused: it reads again and tries once more, up to
`MOST_TRIES` times. What the disk has is what counts; the words of a tool are never parsed.
"""

from __future__ import annotations

import random
import shlex
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from score.rivals import CONTROLS, RIVALS, Rival

MOST_TRIES = 4
LINES = 12
TICK_NS = 20_000_000


class ReadFile(NamedTuple):
    """The model looks at a file."""

    path: Path


class WriteFile(NamedTuple):
    """The model writes a whole file."""

    path: Path
    content: str


class RunCommand(NamedTuple):
    """The model runs a command."""

    command: str


ToolUse = ReadFile | WriteFile | RunCommand
Conversation = Generator[ToolUse, str, None]
"""Yields what the model calls, and is sent what the tool returned."""

TOOL, SHELL = "write tool", "shell"


class Tally(NamedTuple):
    """What became of one round."""

    rival: str
    way: str
    """`write tool` or `shell`: how the model wrote."""
    updates: int
    """Updates that were made: the rival's, and the model's if it landed."""
    lost: int
    refused: bool
    falsely_refused: bool
    recovery_calls: int
    """Tool calls after the first refusal, until the line was in the file."""
    gave_up: bool


class Plan(NamedTuple):
    """One round to play."""

    rival: type[Rival]
    way: str
    number: int


def plans(seed: int, repetitions: int, ways: Sequence[str]) -> list[Plan]:
    """Return the rounds in an order that the seed decides."""
    kinds = [(rival, way) for rival in (*RIVALS, *CONTROLS) for way in ways for _ in range(repetitions)]
    random.Random(seed).shuffle(kinds)
    return [Plan(rival, way, number) for number, (rival, way) in enumerate(kinds)]


def play(
    folder: Path, planned: Sequence[Plan], shown: Callable[[str], str | None], tallies: list[Tally]
) -> Conversation:
    """Play rounds in one conversation; `shown` makes a file's text of a read's answer."""
    for plan in planned:
        yield from _round(folder, plan, shown, tallies)


def _round(
    folder: Path, plan: Plan, shown: Callable[[str], str | None], tallies: list[Tally]
) -> Conversation:
    file = folder / f"round{plan.number}.txt"
    file.write_text("".join(f"line {number} of round {plan.number}\n" for number in range(LINES)))
    rival, own = plan.rival(file, plan.number), f"model-{plan.number}"
    rival.prepare()
    answer = yield ReadFile(file)
    text = _text(answer, shown, file)
    rival.act()
    calls, refused = 0, False
    landed = False
    for _ in range(MOST_TRIES):
        before, wanted = _stamp(file), rival.wanted(text, own)
        yield _use(file, wanted, plan.way)
        calls += refused
        landed = _stamp(file) != before and _has(file, wanted)
        if landed:
            break
        refused = True
        answer = yield ReadFile(file)
        calls += 1
        text = _text(answer, shown, file)
    tallies.append(
        Tally(
            rival.name,
            plan.way,
            updates=rival.makes_an_update + landed,
            lost=int(rival.is_lost(landed=landed)),
            refused=refused,
            falsely_refused=refused and not rival.makes_an_update,
            recovery_calls=calls,
            gave_up=not landed,
        )
    )


def _use(file: Path, content: str, way: str) -> ToolUse:
    if way == TOOL:
        return WriteFile(file, content)
    return RunCommand(f"cat > {shlex.quote(str(file))} <<'END_OF_FILE'\n{content}END_OF_FILE")


def _text(answer: str, shown: Callable[[str], str | None], file: Path) -> str:
    """What the model believes to be in the file. Where an answer cannot be understood, the file itself."""
    text = shown(answer)
    if text is None or f"of {file.stem.replace('round', 'round ')}" not in text:
        text = file.read_text()
    return text if text.endswith("\n") else f"{text}\n"


def _has(file: Path, wanted: str) -> bool:
    """True if the last line of what the model wanted is in the file: its own, or what it has counted."""
    last = wanted.splitlines()[-1].rstrip()
    return any(found.rstrip() == last for found in file.read_text().splitlines())


def _stamp(file: Path) -> tuple[int, int]:
    """Say which write of a file this is: equal content says nothing, and times tick in milliseconds."""
    status = file.stat()
    while abs(time.time_ns() - status.st_mtime_ns) < TICK_NS:
        time.sleep(TICK_NS / 1e9)
    return status.st_ino, status.st_mtime_ns


class Score(NamedTuple):
    """One subject, with or without noclobber."""

    subject: str
    kind: str
    """`host`, `framework` or `MCP server`."""
    version: str
    guarded: bool
    tallies: tuple[Tally, ...]
    problem: str = ""
    """Why it could not be played."""

    def totals(self, way: str | None = None) -> dict[str, Any]:
        """Return the sums, of all rounds or of one way of writing."""
        played = [each for each in self.tallies if way in (None, each.way)]
        refused = [each for each in played if each.refused and not each.falsely_refused]
        return {
            "rounds": len(played),
            "updates": sum(each.updates for each in played),
            "lost": sum(each.lost for each in played),
            "refused": sum(each.refused for each in played),
            "falsely_refused": sum(each.falsely_refused for each in played),
            "gave_up": sum(each.gave_up for each in played),
            "recovery_calls": round(sum(each.recovery_calls for each in refused) / len(refused), 1)
            if refused
            else 0,
        }
