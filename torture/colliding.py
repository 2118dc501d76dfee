"""
Values that collide: what several agents write is equal, so only exact accounting shows what was lost.

In `torture.shell` every change carries a token of its own. These do not: counters, a database's row, a line
that all append, tickets, and operations that only one of all may succeed with. Every command that was
reported as landed counts exactly once:

| kind | what must be true when all is over |
|---|---|
| `counter`, `sqlite`, `line` | the value is the number of commands that landed; a killed one may count |
| `ticket` | each command that landed has drawn one number, and no number was drawn twice |
| exclusive ones | of all who tried one name exactly one has won; none if everybody who could was killed |
| `moved` | in a folder that an outsider moves to and fro: line and folder are there once |
| `nested` | in a repository below the project: the line and the commit are there once |
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from torture.shell_commands import Done

SORT = "collide"
FOLDER = "collide"
DATABASE = f"{FOLDER}/rows.db"
MOVES = ("moves-here", "moves-there")
NESTED = "nested"
ROUNDS = 400
ALL_OR_NOTHING = "{{ {text}; }} || kill -9 $$"  # As for git: one that fails is refused, and lands nothing.

# Each adds one to something. A command that fails half-way must land nothing.
COUNTING = {
    "counter": f"n=$(cat {FOLDER}/counter) && echo $((n+1)) > {FOLDER}/counter",
    "sqlite": f"sqlite3 {DATABASE} 'UPDATE row SET n = n + 1'",
    "line": f"echo the same line >> {FOLDER}/lines",
}
TICKET = f"n=$(cat {FOLDER}/next) && echo {{token}} > {FOLDER}/drawn/$n && echo $((n+1)) > {FOLDER}/next"
# `{name}` is tried by all agents, at about the same time.
EXCLUSIVE = {
    "mkdir": f"mkdir {FOLDER}/won/{{name}}",
    "set -C": f"set -C; (: > {FOLDER}/won/{{name}})",
    "ln": f"ln -s owner {FOLDER}/won/{{name}}",
    "mv": f"mv {FOLDER}/jobs/{{name}} {FOLDER}/taken/{{name}}.{{token}}",
    "rm": f"rm {FOLDER}/jobs/{{name}}",
}
BESIDE = {
    "moved": f"F={MOVES[0]}; [ -d $F ] || F={MOVES[1]}; [ -f $F/f ] && echo {{token}} >> $F/f",
    "nested": f"cd {NESTED} && echo {{token}} >> t.txt && git commit -qam {{token}}",
}
WAYS = (*COUNTING, "ticket", *EXCLUSIVE, *BESIDE)


class Chosen(NamedTuple):
    """A command, and what the log says of it."""

    kind: str
    text: str
    name: str


class Account(NamedTuple):
    """What was found."""

    lost: int
    mixed: int
    ghosts: int
    """What is there, and was reported as refused."""
    rounds: int
    """Names of exclusive operations that were tried."""
    winners: int
    """How many of them had exactly one winner, or nobody who could win."""
    evidence: tuple[str, ...]


def prepare(root: Path) -> None:
    """Make what is counted, drawn, won and moved."""
    for name in ("won", "jobs", "taken", "drawn"):
        (root / FOLDER / name).mkdir(parents=True)
    for name, text in (("counter", "0\n"), ("lines", ""), ("next", "1\n")):
        (root / FOLDER / name).write_text(text)
    for way in ("mv", "rm"):
        for number in range(ROUNDS):
            (root / FOLDER / "jobs" / f"{way}-{number}").write_text("work\n")
    making = f"sqlite3 {DATABASE} 'CREATE TABLE row (n); INSERT INTO row VALUES (0)'"
    git = f"mkdir {NESTED} && cd {NESTED} && git init -q -b main . && git config user.email a@b"
    git += " && git config user.name a && git config gc.auto 0 && echo begin > t.txt && git add t.txt"
    git += " && git commit -qm begin"
    for command in (making, git):
        subprocess.run(["sh", "-c", command], cwd=root, check=True)
    (root / MOVES[0]).mkdir()
    (root / MOVES[0] / "f").write_text("begin\n")


def chosen(rng: random.Random, token: str, tried: Counter[str]) -> Chosen:
    """Return a command. `tried` counts an agent's own attempts, so that all agents try the same names."""
    way = rng.choice(WAYS)
    name = ""
    if way in EXCLUSIVE:
        name = f"{way}-{tried[way] % ROUNDS}".replace(" ", "")
        tried[way] += 1
        text = EXCLUSIVE[way].format(name=name, token=token)
    else:
        text = {**COUNTING, **BESIDE, "ticket": TICKET}[way].format(token=token)
    return Chosen(f"{SORT} {way}", ALL_OR_NOTHING.format(text=text), name)


def move(root: Path, until_s: float, is_over: object) -> None:
    """Move a folder to and fro, as an outsider does."""
    here, there = (root / name for name in MOVES)
    while time.monotonic() < until_s and not (callable(is_over) and is_over()):
        time.sleep(random.random() * 1.5)
        if here.exists():
            os.rename(here, there)
        elif there.exists():
            os.rename(there, here)


def settle(root: Path, done: list[Done]) -> Account:
    """Count everything."""
    by_way: dict[str, list[Done]] = {}
    for each in done:
        sort, _, way = each.kind.partition(" ")
        if sort == SORT:
            by_way.setdefault(way, []).append(each)
    lost = mixed = ghosts = 0
    evidence: list[str] = []
    for way, found in _values(root).items():
        landed, may = _landed(by_way.get(way, [])), _may_have(by_way.get(way, []))
        lost, ghosts = lost + max(0, landed - found), ghosts + max(0, found - landed - may)
        if not landed <= found <= landed + may:
            evidence.append(f"{way}: {found}, and {landed} to {landed + may} commands landed")
    for place, way, is_there in _tokens(root):
        for each in by_way.get(way, []):
            count = is_there[each.token]
            if count > 1:
                mixed += 1
            elif each.how == "landed" and not count:
                lost += 1
            elif each.how == "refused" and count:
                ghosts += 1
            else:
                continue
            evidence.append(f"{place}: {count} times, {each}")
    rounds = winners = 0
    for way in EXCLUSIVE:
        for name, tries in _by_name(by_way.get(way, [])).items():
            won, may = _landed(tries), _may_have(tries)
            rounds += 1
            if won == 1 or (won == 0 and may):
                winners += 1
            else:
                evidence.append(f"{way}, {name}: {won} winners of {len(tries)}")
    if all((root / name).exists() for name in MOVES):
        mixed += 1
        evidence.append("the folder that an outsider moves is there twice")
    fsck = subprocess.run(["git", "fsck", "--strict"], cwd=root / NESTED, capture_output=True, text=True)
    if fsck.returncode:
        mixed += 1
        evidence.append(f"git fsck in {NESTED}: {fsck.stderr}")
    return Account(lost, mixed, ghosts, rounds, winners, tuple(evidence))


def _landed(tries: list[Done]) -> int:
    return sum(each.how == "landed" for each in tries)


def _may_have(tries: list[Done]) -> int:
    """How many ended so that nobody can say whether they landed."""
    return sum(each.how not in ("landed", "refused") for each in tries)


def _by_name(tries: list[Done]) -> dict[str, list[Done]]:
    found: dict[str, list[Done]] = {}
    for each in tries:
        found.setdefault(each.file, []).append(each)
    return found


def _values(root: Path) -> dict[str, int]:
    told = subprocess.run(
        ["sqlite3", str(root / DATABASE), "SELECT n FROM row"], capture_output=True, text=True
    )
    return {
        "counter": int((root / FOLDER / "counter").read_text() or "0"),
        "sqlite": int(told.stdout or "0"),
        "line": (root / FOLDER / "lines").read_text().count("the same line\n"),
    }


def _tokens(root: Path) -> list[tuple[str, str, Counter[str]]]:
    """Where tokens are, by the way of the commands that put them there."""
    drawn = Counter(path.read_text().strip() for path in (root / FOLDER / "drawn").iterdir())
    taken = Counter(path.name.rpartition(".")[2] for path in (root / FOLDER / "taken").iterdir())
    moved = next((root / name / "f" for name in MOVES if (root / name / "f").exists()), None)
    log = subprocess.run(
        ["git", "log", "--format=%s"], cwd=root / NESTED, capture_output=True, text=True
    ).stdout
    return [
        ("a ticket", "ticket", drawn),
        ("a job", "mv", taken),
        ("a moved folder", "moved", Counter((moved.read_text() if moved else "").split())),
        ("a nested file", "nested", Counter((root / NESTED / "t.txt").read_text().split())),
        ("a nested commit", "nested", Counter(log.split())),
    ]
