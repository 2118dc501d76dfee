"""
Check the models in `models/` with Spin: every one must hold, and every mutation of it must be convicted.

`make model` runs all of them and prints a table. `--short` runs those that take a second each; `--only` those
of one model. The search is exhaustive (no bit states, no depth limit that is reached), so "holds" means every
interleaving.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

MODELS = Path(__file__).parents[1] / "models"
MISSING = (
    "the models need Spin and a C compiler, and {} is missing. Debian and Ubuntu: apt-get install spin gcc; "
    "macOS: brew install spin."
)
COMPILE = ("-w", "-DSAFETY", "-DCOLLAPSE", "-DMEMLIM=6000", "-DVECTORSZ=2048")
DEEPEST = 2_000_000


class Run(NamedTuple):
    """One search: a model, what is defined in it, and what has to come out."""

    model: str
    defines: tuple[str, ...]
    is_short: bool = False

    @property
    def mutation(self) -> str:
        return next((name for name in self.defines if name.startswith("MUTATE_")), "")


class Found(NamedTuple):
    """What a search came to."""

    states: int
    error: str
    is_complete: bool
    seconds: float
    trail: str


def runs() -> list[Run]:
    """Return every search of `make model`."""
    found = [
        Run("commit", ("WRITERS=2", "EDITOR"), is_short=True),
        Run("commit", ("WRITERS=2", "READER", "APPENDS")),
        Run("commit", ("WRITERS=2", "EDITOR", "APPENDS")),
        Run("commit", ("WRITERS=3", "EDITOR")),
        Run("commit", ("WRITERS=3", "APPENDS")),
        Run("commit", ("WRITERS=2", "EDITOR", "CRASHES=2")),
        Run("commit", ("WRITERS=2", "TRUNCATES"), is_short=True),
        Run("commit", ("WRITERS=2", "EDITOR", "TRUNCATES")),
        Run("commit", ("WRITERS=2", "APPENDS", "TRUNCATES")),
        Run("commit", ("WRITERS=3", "TRUNCATES")),
        Run("many", ("WRITERS=2", "EDITOR"), is_short=True),
        Run("many", ("WRITERS=2", "SINGLE"), is_short=True),
        Run("many", ("WRITERS=3", "EDITOR")),
        Run("many", ("WRITERS=3", "SINGLE")),
        Run("many", ("WRITERS=3", "SINGLE", "EDITOR", "CRASHES=2")),
        Run("lock", ("PROCESSES=2",), is_short=True),
        Run("lock", ("PROCESSES=2", "NO_FLOCK"), is_short=True),
        Run("lock", ("PROCESSES=2", "OUTSIDER")),
        Run("lock", ("PROCESSES=3",)),
        Run("lock", ("PROCESSES=3", "NO_FLOCK")),
        Run("nested", ("PROCESSES=2",), is_short=True),
        Run("nested", ("PROCESSES=3",), is_short=True),
        Run("nested", ("PROCESSES=3", "CRASHES=3")),
    ]
    commit, many, lock = (
        ("WRITERS=2", "READER", "EDITOR", "APPENDS"),
        ("WRITERS=2", "EDITOR"),
        ("PROCESSES=2",),
    )
    found += [
        Run("commit", (*commit, f"MUTATE_{name}"), is_short=name == "NO_SECOND_LOOK")
        for name in (
            "NO_SECOND_LOOK", "NO_LEASE", "RENAME_BACK", "NO_MUTEX", "NO_RECOVERY", "BLIND_SWEEP",
        )
    ]  # fmt: skip
    found.append(Run("commit", ("WRITERS=2", "APPENDS", "TRUNCATES", "MUTATE_BLIND_UNDO")))
    found += [
        Run("many", (*many, *(("SINGLE",) if name == "NO_MEMBER" else ()), f"MUTATE_{name}"), is_short=True)
        for name in ("NO_NOTE", "NO_MEMBER", "NO_TAKE_BACK", "UNSORTED")
    ]
    found += [
        Run("lock", (*lock, *more, f"MUTATE_{name}"), is_short=True)
        for name, more in (
            ("NO_BID", ("NO_FLOCK",)),
            ("NO_LOOK_UNDER_BID", ("NO_FLOCK",)),
            ("ID_ONLY", ("NO_FLOCK",)),
            ("CREATE_BY_RENAME", ("NO_FLOCK",)),
            ("NO_FENCE", ()),
            ("NO_BREAKING", ()),
        )
    ]
    found += [
        Run("nested", ("PROCESSES=2", f"MUTATE_{name}"), is_short=True)
        for name in ("NO_SECOND_LOOK", "LOOK_THEN_PUBLISH", "NO_WAIT_BELOW", "WAIT_ABOVE")
    ]
    return found


def missing() -> str:
    """Return what to install, or nothing."""
    for tool in ("spin", "gcc"):
        if shutil.which(tool) is None:
            return MISSING.format(tool)
    return ""


def check(run: Run) -> Found:
    """Search every interleaving of a model, until the first error."""
    with tempfile.TemporaryDirectory(prefix="noclobber-model-") as folder:
        flags = [f"-D{name}" for name in run.defines]
        model = str(MODELS / f"{run.model}.pml")
        made = subprocess.run(["spin", "-a", *flags, model], cwd=folder, capture_output=True, text=True)
        if made.returncode or "Error" in made.stdout:
            raise SystemExit(f"spin does not accept {model} {flags}:\n{made.stdout}{made.stderr}")
        # Most short searches take less time than their compilation: without -O2 0.9 s instead of 6.5 s.
        speed = "-O0" if run.is_short and "READER" not in run.defines else "-O2"
        subprocess.run(["gcc", speed, *COMPILE, "-o", "pan", "pan.c"], cwd=folder, check=True)
        begun_s = time.monotonic()
        searched = subprocess.run(["./pan", f"-m{DEEPEST}"], cwd=folder, capture_output=True, text=True)
        seconds = time.monotonic() - begun_s
        text = searched.stdout
        states = re.search(r"^ *([\d.e+]+) states, stored", text, re.M)
        error = re.search(r"^pan:\d+: (.*?) \(at depth", text, re.M)
        is_complete = "errors: 0" in text and not re.search(
            r"max search depth|out of memory|Interrupted", text
        )
        trail = ""
        if error:
            shown = subprocess.run(
                ["spin", "-k", f"{run.model}.pml.trail", "-p", *flags, model],
                cwd=folder, capture_output=True, text=True,
            )  # fmt: skip
            trail = shown.stdout
        return Found(
            int(float(states.group(1))) if states else 0,
            error.group(1) if error else "",
            is_complete,
            seconds,
            trail,
        )


def verdict(run: Run, found: Found) -> tuple[bool, str]:
    """Return whether a search came out as it must, and in words."""
    if run.mutation:
        return bool(found.error), "convicted" if found.error else "NOT CONVICTED"
    if found.error:
        return False, f"VIOLATED: {found.error}"
    return found.is_complete, "holds" if found.is_complete else "NOT COMPLETE: more memory is needed"


def main(argv: list[str] | None = None) -> int:
    """Return 0 if everything came out as it must, 1 if not, 2 if Spin is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="only those that take a second each")
    parser.add_argument("--only", choices=("commit", "many", "lock", "nested"), help="only this model")
    args = parser.parse_args(argv)
    if reason := missing():
        print(reason, file=sys.stderr)
        return 2
    ok = True
    print(f"{'model':7} {'defines':58} {'states':>11} {'s':>6}  result")
    for run in runs():
        if (args.short and not run.is_short) or (args.only and args.only != run.model):
            continue
        found = check(run)
        fine, words = verdict(run, found)
        ok = ok and fine
        print(
            f"{run.model:7} {' '.join(run.defines):58} {found.states:11,} {found.seconds:6.1f}  {words}",
            flush=True,
        )
        if not fine and found.trail:
            print(found.trail)
    print("every model holds, every mutation was convicted" if ok else "NOT AS IT MUST BE; see above")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
