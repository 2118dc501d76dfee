"""
Real processes, driven through every interleaving of their named steps up to a bound.

Each process stops at each step (`disk/steps.py`) and waits for its turn, so a schedule is a list of numbers:
whose turn it is. The search goes depth first through all of them. Writers are guarded; editors save by rename
without looking; with `kill` the first writer is killed at one of its steps, and whoever comes next recovers.

A failure names its schedule, and `run(folder, plan, schedule)` repeats it.
"""

from __future__ import annotations

import os
import shutil
import signal
from typing import NamedTuple

from noclobber.disk import steps
from noclobber.errors import NoclobberError
from noclobber.guard.direct import OptimisticGuard

FIRST = b"first\n"


class Plan(NamedTuple):
    """Who takes part."""

    writers: int = 1
    editors: int = 1
    kill_at: int = -1
    """The first writer is killed at its n-th step."""


class _Process:
    """One process, stopped at a step until `go()`."""

    def __init__(self, root: str, number: int, plan: Plan) -> None:
        said, self._say = os.pipe()
        self._hear, go = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(said)
            os.close(go)
            self._work(root, number, number < plan.writers)
        os.close(self._say)
        os.close(self._hear)
        self.said, self._go = said, go
        self.steps, self.is_over, self.has_landed = 0, False, False
        self.is_inside = False

    def _work(self, root: str, number: int, is_writer: bool) -> None:
        def stop(step: str) -> None:
            os.write(self._say, b".")
            os.read(self._hear, 1)

        answer = b"r"
        try:
            if is_writer:
                guard = OptimisticGuard(root)
                seen = guard.read("a.md")
                steps.observer = stop
                stop("start")
                try:
                    guard.write("a.md", seen.content + b"w%d\n" % number, expected=seen.sha256)
                    answer = b"l"
                except NoclobberError:
                    pass
                steps.observer = None
                guard.sweep()
            else:
                stop("start")
                with open(f"{root}/.e{number}", "wb") as file:
                    file.write(b"e%d\n" % number)
                os.rename(f"{root}/.e{number}", f"{root}/a.md")
            os.write(self._say, answer)
        except BaseException:
            os.write(self._say, b"!")
        finally:
            os._exit(0)

    def hear(self) -> None:
        """Wait until it stops again, or is over."""
        said = os.read(self.said, 1)
        assert said not in (b"!", b""), "a process failed"
        if said == b".":
            self.steps += 1
            return
        self.has_landed = said == b"l"
        self._end()

    def go(self) -> None:
        os.write(self._go, b".")

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self._end()

    def _end(self) -> None:
        self.is_over = True
        os.waitpid(self.pid, 0)
        os.close(self.said)
        os.close(self._go)


def run(folder: str, plan: Plan, schedule: list[int]) -> list[tuple[int, int]]:
    """Follow a schedule, then the first choice; check; return (choice, how many there were) of every turn."""
    root = f"{folder}/root"
    os.mkdir(root)
    with open(f"{root}/a.md", "wb") as file:
        file.write(FIRST)
    everyone = [_Process(root, number, plan) for number in range(plan.writers + plan.editors)]
    for process in everyone:
        process.hear()
    turns: list[tuple[int, int]] = []
    last_save = FIRST
    try:
        while True:
            inside = [process for process in everyone if process.is_inside and not process.is_over]
            ready = [
                number
                for number, process in enumerate(everyone)
                # A writer that is inside holds the mutex, so another one would only wait for it.
                if not process.is_over and (not inside or process in inside or number >= plan.writers)
            ]
            if not ready:
                break
            choice = schedule[len(turns)] if len(turns) < len(schedule) else 0
            turns.append((choice, len(ready)))
            number = ready[choice]
            process = everyone[number]
            process.is_inside = number < plan.writers
            if number == 0 and process.steps == plan.kill_at:
                process.kill()
                continue
            process.go()
            process.hear()
            if number >= plan.writers:
                last_save = b"e%d\n" % number
        _check(root, plan, everyone, last_save)
    except AssertionError as error:
        raise AssertionError(
            f"{error}\nrepeat with run(folder, {plan}, {[turn[0] for turn in turns]})"
        ) from error
    finally:
        for process in everyone:
            if not process.is_over:
                process.kill()
        shutil.rmtree(root)
    return turns


def _check(root: str, plan: Plan, everyone: list[_Process], last_save: bytes) -> None:
    guard = OptimisticGuard(root)
    content = guard.read("a.md").content
    assert content.startswith(last_save), f"the last save was {last_save!r}, and the file has {content!r}"
    lines = content[len(last_save) :].splitlines(keepends=True)
    written = [b"w%d\n" % number for number in range(plan.writers)]
    assert set(lines) <= set(written), f"not a whole version: {content!r}"
    assert len(set(lines)) == len(lines), f"twice: {content!r}"
    for number, line in enumerate(written):
        if plan.kill_at < 0 or number:
            landed = everyone[number].has_landed
            assert landed or line not in lines, f"{line!r} was refused and is in the file: {content!r}"
            assert not landed or plan.editors or line in lines, f"{line!r} landed and is lost: {content!r}"
    guard.write("b.md", b"x", expected=None)
    guard.sweep()
    if plan.kill_at < 0:
        assert os.listdir(f"{root}/.noclobber/swap") == [], "something was left behind"


def explore(folder: str, plan: Plan, *, most: int = 100_000) -> int:
    """Go through every schedule, or the first `most`; return how many there were."""
    schedule: list[int] = []
    for count in range(1, most + 1):
        turns = run(folder, plan, schedule)
        while turns and turns[-1][0] + 1 >= turns[-1][1]:
            turns.pop()
        if not turns:
            return count
        schedule = [choice for choice, _ in turns[:-1]] + [turns[-1][0] + 1]
    return most


def main() -> None:
    """Every plan of `make explore`."""
    import tempfile

    plans = [Plan(1, 1), Plan(1, 2), Plan(2, 0), Plan(2, 1), Plan(3, 0), Plan(3, 1)]
    plans += [
        Plan(writers, editors, kill_at) for kill_at in range(1, 12) for writers, editors in ((1, 1), (2, 1))
    ]
    with tempfile.TemporaryDirectory() as folder:
        for plan in plans:
            print(plan, explore(os.path.realpath(folder), plan), "schedules", flush=True)


if __name__ == "__main__":
    main()
