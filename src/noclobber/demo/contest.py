"""
One round of the demo: two agents and somebody else keep changing one file; then the lines are counted.

Everybody adds numbered lines, one a change, and writes down in a log of its own which changes were made. A
line that is in a log and not in the file was lost. `torture` has the exact accounting, and many more ways to
save a file.
"""

from __future__ import annotations

import os
import random
import time
import traceback
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from noclobber.core.project import KEPT_FOLDER, state_folder
from noclobber.disk.file_guard import FileGuard
from noclobber.errors import NoclobberError

if TYPE_CHECKING:
    from collections.abc import Callable

AGENTS = 2
WAIT_S = 0.25
THINKING_S = (0.0005, 0.002, 0.006)
FIRST = b"the file that everybody changes\n"


def by_rename(path: str, line: bytes) -> None:
    """Save as most editors do: another file, and then its name."""
    text = _read(path) + line
    _write(f"{path}.new", text)
    os.rename(f"{path}.new", path)


def as_vim(path: str, line: bytes) -> None:
    """Save as vim does: the old file becomes the backup, and a new one is written."""
    text = _read(path) + line
    os.rename(path, f"{path}~")
    _write(path, text)


def by_truncating(path: str, line: bytes) -> None:
    """Empty the file, and write all of it."""
    with open(path, "r+b") as file:
        text = file.read() + line
        file.seek(0)
        file.truncate()
        file.write(text)


def by_appending(path: str, line: bytes) -> None:
    """Add to the end, as a log does."""
    with open(path, "ab") as file:
        file.write(line)


KINDS: dict[str, tuple[str, Callable[[str, bytes], None] | None]] = {
    "agents": ("other agents", None),
    "rename": ("save by rename", by_rename),
    "vim": ("save as vim does", as_vim),
    "truncate": ("empty and write", by_truncating),
    "append": ("append a line", by_appending),
}


class Count(NamedTuple):
    """What became of the lines of one round."""

    made: int
    lost: int
    kept: int
    """Not in the file, but kept aside and reported."""
    refused: int
    levels: tuple[str, ...]
    faults: tuple[str, ...]


def run(
    folder: str, kind: str, *, guarded: bool, seconds: float, seed: int, tick: Callable[[], None]
) -> Count:
    """Let everybody write for some seconds; count the other writer's lines, or else the agents'."""
    root = os.path.join(folder, "workspace")
    os.makedirs(root)
    path = os.path.join(root, "shared.txt")
    _write(path, FIRST)
    save = KINDS[kind][1]
    until_s = time.monotonic() + seconds
    logs, children = [os.path.join(folder, f"agent-{number}.log") for number in range(AGENTS)], []
    # Forked before anything of the guard was used: children inherit neither a lock nor a lease.
    for number, log in enumerate(logs):
        chance = random.Random(seed * 100 + number)  # noqa: S311 - replayable, not a secret
        children.append(_fork(log, partial(_agent, path, log, chance, until_s, guarded)))
    if save is not None:
        logs.append(os.path.join(folder, "other.log"))
        chance = random.Random(seed)  # noqa: S311
        children.append(_fork(logs[-1], partial(_other, path, logs[-1], save, chance, until_s)))
    while time.monotonic() < until_s:
        time.sleep(0.02)
        tick()
    for child in children:
        os.waitpid(child, 0)
    return _count(root, path, logs[:AGENTS], logs[AGENTS:] or logs, guarded)


def _fork(log: str, work: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException:
        _note(log, "X " + traceback.format_exc().strip().splitlines()[-1])
    finally:
        os._exit(0)


def _agent(path: str, log: str, chance: random.Random, until_s: float, guarded: bool) -> None:
    """Read, think, write; again if it is refused."""
    guard = FileGuard(os.path.dirname(path), wait_s=WAIT_S)
    name, number = os.path.basename(log), 0
    while time.monotonic() < until_s:
        line = f"{name} {number}\n".encode()
        try:
            seen = guard.read(path)
        except NoclobberError:
            continue  # In the middle of somebody's save there may be no file.
        time.sleep(chance.choice(THINKING_S))
        number += 1
        if not guarded:
            _write(path, seen.content + line)
            _note(log, f"C {line.decode().strip()}")
            continue
        try:
            done = guard.write(path, seen.content + line, expected=seen.sha256)
            _note(log, f"C {line.decode().strip()}")
            _note(log, f"L {done.level}")
        except NoclobberError as refusal:
            _note(log, f"R {refusal.code}")


def _other(
    path: str, log: str, save: Callable[[str, bytes], None], chance: random.Random, until_s: float
) -> None:
    number = 0
    while time.monotonic() < until_s:
        time.sleep(chance.choice(THINKING_S))
        number += 1
        line = f"other {number}\n".encode()
        try:
            save(path, line)
        except FileNotFoundError:
            continue  # A plain writer has it between two names.
        _note(log, f"C {line.decode().strip()}")


def _count(root: str, path: str, agents: list[str], counted: list[str], guarded: bool) -> Count:
    kept_lines: set[str] = set()
    if guarded:
        guard = FileGuard(root)
        guard.sweep()
        guard.close()
        kept = os.path.join(state_folder(root), KEPT_FOLDER)
        for name in os.listdir(kept) if os.path.isdir(kept) else ():
            kept_lines |= set(_read(os.path.join(kept, name)).decode("utf-8", "replace").splitlines())
    notes = {log: _read(log).decode().splitlines() for log in {*agents, *counted} if os.path.exists(log)}
    made = [note[2:] for log in counted for note in notes.get(log, ()) if note.startswith("C ")]
    there = set(_read(path).decode("utf-8", "replace").splitlines())
    gone = [line for line in made if line not in there]
    by_agents = [note for log in agents for note in notes.get(log, ())]
    return Count(
        len(made),
        sum(line not in kept_lines for line in gone),
        sum(line in kept_lines for line in gone),
        sum(note.startswith("R ") for note in by_agents),
        tuple(sorted({note[2:] for note in by_agents if note.startswith("L ")})),
        tuple(note[2:] for told in notes.values() for note in told if note.startswith("X ")),
    )


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)


def _note(log: str, text: str) -> None:
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"{text}\n")
