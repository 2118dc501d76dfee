"""
Real processes, driven through every interleaving of their named steps up to a bound.

A plan says who takes part (`exploring`); a schedule is a list of numbers, whose turn it is. The search goes
depth first through all schedules, and if there are more than `most`, through as many again that the seed
chooses. With `kill_at` the first process is killed at one of its stops, and whoever comes next recovers.

A failure names its schedule, and `run(folder, plan, schedule)` repeats it.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from noclobber.errors import NoclobberError
from torture.exploring import PARTS, Part, check
from torture.stepping import Stepper

MOST_TURNS = 400


class Plan(NamedTuple):
    """Who takes part: names of `PARTS`; the first is killed at its n-th stop, if that is not negative."""

    parts: tuple[str, ...]
    kill_at: int = -1


class Scene:
    """One run: the processes, and what has been seen of them."""

    def __init__(self, root: str, plan: Plan) -> None:
        self.root, self.plan = root, plan
        self.parts: list[Part] = []
        for number, name in enumerate(plan.parts):
            self.parts.append(PARTS[name](root, number))
        self.parts[0].prepare()
        folders = [found for found, _, _ in os.walk(root)]
        self.folders = {os.stat(folder).st_ino: folder for folder in folders}
        self.steppers = [Stepper(f"{part.name} {part.number}", part.work) for part in self.parts]

    def turn(self, number: int) -> None:
        """Let one process do one step, and look at what must hold at every moment."""
        stepper, part = self.steppers[number], self.parts[number]
        if number == 0 and stepper.stops == self.plan.kill_at + 1:
            stepper.kill()
        else:
            stepper.go()
        part.is_over, part.has_landed, part.was_killed = (
            stepper.is_over,
            stepper.has_landed,
            stepper.was_killed,
        )
        part.reached(stepper.at.step if not stepper.is_over else "")
        part.look(self.parts)

    def end(self) -> None:
        for stepper in self.steppers:
            if not stepper.is_over:
                stepper.kill()


def run(
    folder: str, plan: Plan, schedule: Sequence[int], choose: Callable[[int], int] = lambda _: 0
) -> list[tuple[int, int]]:
    """Follow a schedule, then what `choose` says; check; return (choice, of how many) for each turn."""
    root = tempfile.mkdtemp(dir=folder)
    turns: list[tuple[int, int]] = []
    scene = Scene(root, plan)
    try:
        while True:
            ready = [
                number for number, stepper in enumerate(scene.steppers) if stepper.is_ready(scene.folders)
            ]
            if not ready:
                waiting = [stepper.name for stepper in scene.steppers if not stepper.is_over]
                assert not waiting, f"these wait for each other: {waiting}"
                break
            assert len(turns) < MOST_TURNS, "no end"
            choice = schedule[len(turns)] if len(turns) < len(schedule) else choose(len(ready))
            turns.append((choice, len(ready)))
            scene.turn(ready[choice])
        check(root, scene.parts)
    except (AssertionError, NoclobberError) as error:
        raise AssertionError(
            f"{error}\nrepeat with run(folder, {plan}, {[turn[0] for turn in turns]})"
        ) from error
    finally:
        scene.end()
        shutil.rmtree(root, ignore_errors=True)
    return turns


def explore(
    folder: str, plan: Plan, *, most: int = 100_000, seed: int = 0, until_s: float = math.inf
) -> tuple[int, bool]:
    """
    Go through every schedule, or `most` and as many by chance; return how many, and whether it was all.

    `until_s`: on the clock of `time.monotonic`; then it is enough.
    """
    schedule: list[int] = []
    for count in range(1, most + 1):
        if time.monotonic() > until_s:
            return count - 1, False
        turns = run(folder, plan, schedule)
        while turns and turns[-1][0] + 1 >= turns[-1][1]:
            turns.pop()
        if not turns:
            return count, True
        schedule = [choice for choice, _ in turns[:-1]] + [turns[-1][0] + 1]
    chance = random.Random(f"{seed} {plan}")
    for count in range(most):
        if time.monotonic() > until_s:
            return most + count, False
        run(folder, plan, [], chance.randrange)
    return 2 * most, False


def stops_of(folder: str, plan: Plan) -> int:
    """Return at how many stops the first process can be killed: as many as it makes when it goes first."""
    root = tempfile.mkdtemp(dir=folder)
    scene = Scene(root, plan)
    try:
        while not scene.steppers[0].is_over:
            scene.turn(0)
        return scene.steppers[0].stops - 1
    finally:
        scene.end()
        shutil.rmtree(root, ignore_errors=True)


TOGETHER: tuple[tuple[str, ...], ...] = (
    ("write", "editor"), ("write", "editor", "editor"), ("write", "write"), ("write", "write", "editor"),
    ("write", "write", "write"),
    ("many", "many"), ("many", "write"), ("many", "editor"), ("many", "many", "many"),
    ("many", "write", "editor"), ("many", "write y"), ("many", "many", "write y"),
    ("patch", "editor"), ("patch", "write"), ("patch", "write y"), ("patch", "many"), ("patch", "patch"),
    ("tree", "editor"), ("tree", "write"), ("tree", "write y"), ("tree", "many"), ("tree", "tree"),
    ("delete", "write"), ("delete", "editor"), ("delete", "delete"), ("delete", "many", "editor"),
    ("move", "write"), ("move", "editor"), ("move", "delete"), ("move", "many"),
    ("create", "create"), ("create", "create", "create"),
    ("lock", "lock"), ("lock", "lock", "lock"), ("outer", "inner"), ("outer", "inner", "inner"),
    ("outer", "inner", "outer"), ("late", "taker"), ("late", "taker", "taker"), ("lock", "recover"),
    ("lock", "recover", "lock"),
)  # fmt: skip


def plans(folder: str, *, together: Sequence[tuple[str, ...]] = TOGETHER) -> Iterator[Plan]:
    """Yield every plan: those who meet, undisturbed and with a kill of the first at each of its stops."""
    for parts in together:
        yield Plan(parts)
        for kill_at in range(stops_of(folder, Plan(parts))):
            yield Plan(parts, kill_at)


def main(argv: list[str] | None = None) -> int:
    """Explore every plan; print how many schedules there were."""
    parser = argparse.ArgumentParser(prog="python -m torture.explore", description=__doc__)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED") or random.randrange(1 << 30)))
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("SECONDS") or 600))
    parser.add_argument("--most", type=int, default=1000, help="schedules of a plan, and as many by chance")
    parser.add_argument("--only", help="only plans in which this takes part")
    args = parser.parse_args(argv)
    print(f"explore: seed {args.seed}, {args.seconds:g} s")
    total, begun_s = 0, time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        folder = os.path.realpath(scratch)
        chosen = [parts for parts in TOGETHER if not args.only or args.only in parts]
        for parts in chosen:
            counts, wholes = [], 0
            found = list(plans(folder, together=[parts]))
            for plan in found:
                until_s = time.monotonic() + args.seconds / len(chosen) / len(found)
                count, is_all = explore(folder, plan, most=args.most, seed=args.seed, until_s=until_s)
                counts.append(count)
                wholes += is_all
            total += sum(counts)
            print(
                f"{', '.join(parts):26} {sum(counts):7,} schedules of {len(found):2} plans, {wholes:2} whole",
                flush=True,
            )
    print(f"{total:,} schedules in {time.monotonic() - begun_s:.0f} s; everything held")
    return 0


if __name__ == "__main__":
    sys.exit(main())
