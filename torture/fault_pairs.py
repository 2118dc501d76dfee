"""
One system call fails, and then another one: every pair of a trial, or as many as there is time for.

`python -m torture.fault_pairs` (make faults). The first fault takes an operation off its usual way, and the
second one meets it while it cleans up or recovers. A failure names its trial and its plan, and `--only NAME
--plan 5:EIO,9:ENOSPC` repeats it.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from noclobber.errors import NoclobberError
from torture.fault_trials import TRIALS
from torture.faults import CODES, Faults

MOST_CALLS = 400
ENOUGH_FAILURES = 5
NAMES = {code: name for name, code in CODES.items()}


def spelled(plan: Mapping[int, int]) -> str:
    """Return a plan as `--plan` takes it."""
    return ",".join(f"{number}:{NAMES[code]}" for number, code in plan.items())


def parsed(text: str) -> dict[int, int]:
    """The other way round."""
    found = (word.split(":") for word in text.split(","))
    return {int(number): CODES[name] for number, name in found}


def run(
    folder: Path, faults: Faults, name: str, plan: Mapping[int, int], *, only: str = ""
) -> tuple[int, int]:
    """Try one plan; return how many faults struck, and how many calls there were; `only`: of one kind."""
    trial = TRIALS[name](folder)
    faults.set(plan, only=only)
    refusal = None
    try:
        trial.act()
    except NoclobberError as error:
        refusal = error
    except BaseException as error:
        faults.stop()
        what = f"{type(error).__name__} came out: {error}"
        raise AssertionError(_told(name, plan, faults, what)) from error
    struck, calls = list(faults.struck), faults.count
    faults.stop()
    if refusal is not None:
        refusal.__traceback__ = refusal.__context__ = refusal.__cause__ = None  # Frames keep files open.
    try:
        trial.check(refusal, struck)
    except (AssertionError, NoclobberError, OSError) as error:
        raise AssertionError(
            _told(name, plan, faults, f"{type(error).__name__}: {error}; it had answered {refusal!r}")
        ) from error
    trial.close()
    return len(struck), calls


def _told(name: str, plan: Mapping[int, int], faults: Faults, what: str) -> str:
    return (
        f"{what}\nfailed calls: {', '.join(faults.struck)}\n"
        f"repeat with python -m torture.fault_pairs --only '{name}' --plan {spelled(plan)}"
    )


class Search:
    """Every single fault and every pair of a trial, or about `most` of them, chosen by the seed."""

    def __init__(self, name: str, seed: int, *, most: int) -> None:
        self.name, self.most = name, most
        self.singles, self.pairs, self.is_whole = 0, 0, False
        self.failures: list[str] = []
        self._chance = random.Random(f"{seed} {name}")
        self._codes = list(CODES.values())

    def run(self) -> None:
        """Search until there is nothing left to try, or enough has failed."""
        gc.collect()
        gc.freeze()  # Collections look only at what the trials make: each of them needs one.
        try:
            self._run()
        finally:
            gc.unfreeze()

    def _run(self) -> None:
        with tempfile.TemporaryDirectory() as scratch, Faults().installed() as faults:
            folder, chance = os.path.realpath(scratch), self._chance
            calls = self._try(folder, faults, {MOST_CALLS: self._codes[0]})
            assert self.failures or 1 < calls < MOST_CALLS, f"{self.name}: {calls} calls"
            self.is_whole = calls * calls // 2 <= self.most
            firsts = range(1, calls + 1)
            for first in firsts if self.is_whole else chance.choices(firsts, k=max(1, self.most // 5)):
                plan = {first: chance.choice(self._codes)}
                # How many calls there are after a first fault is seen by trying it.
                seconds = range(first + 1, self._try(folder, faults, plan) + 1)
                for second in seconds if self.is_whole else chance.sample(seconds, min(4, len(seconds))):
                    self._try(folder, faults, {**plan, second: chance.choice(self._codes)})
                    if len(self.failures) >= ENOUGH_FAILURES:
                        return

    def _try(self, folder: str, faults: Faults, plan: Mapping[int, int]) -> int:
        """Try one plan; return how many calls there were."""
        own = tempfile.mkdtemp(dir=folder)  # What has failed before may be in use.
        try:
            struck, calls = run(Path(own), faults, self.name, plan)
        except AssertionError as error:
            faults.stop()
            self.failures.append(str(error))
            return 0
        self.singles, self.pairs = self.singles + (struck == 1), self.pairs + (struck == 2)
        os.rmdir(own)
        return calls


def main(argv: list[str] | None = None) -> int:
    """Return 0 if everything held, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m torture.fault_pairs", description=__doc__)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED") or random.randrange(1 << 30)))
    most = int(os.environ.get("MOST") or 4000)
    parser.add_argument("--most", type=int, default=most, help="about how many plans of a trial")
    parser.add_argument("--only", help="only trials whose name contains this; with --plan, this one")
    parser.add_argument("--plan", type=parsed, help="only this plan")
    args = parser.parse_args(argv)
    if args.plan:
        with tempfile.TemporaryDirectory() as scratch, Faults().installed() as faults:
            run(Path(os.path.realpath(scratch)), faults, args.only, args.plan)
        print("held")
        return 0
    print(f"faults: seed {args.seed}")
    broken = 0
    for name in TRIALS:
        if args.only and args.only not in name:
            continue
        search = Search(name, args.seed, most=args.most)
        begun_s = time.monotonic()
        search.run()
        broken += len(search.failures)
        which = "pairs: all" if search.is_whole else "pairs"
        print(
            f"{name:36} {search.singles:6,} single {search.pairs:7,} {which:10}"
            f" {time.monotonic() - begun_s:6.1f} s  {'BROKEN' if search.failures else 'held'}",
            flush=True,
        )
        for failure in search.failures:
            print(failure + "\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
