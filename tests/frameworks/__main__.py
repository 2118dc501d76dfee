"""
`make frameworks`: each framework in an environment of its own, the suite in it, and the table of all.

    python -m tests.frameworks [--write FILE] [name …]

Packages are installed with uv, which takes seconds where pip takes minutes, or with pip where uv does not work.
Environments are kept in `.venv/frameworks/<name>` and made anew when what they need has changed. Two frameworks
are worked on at a time: while one downloads, the other one's tests run.

A test whose program was too slow is run once more at the end, when nothing runs beside it, and failing twice counts.
Not so a test that counted something, lost work above all: once is enough there. `once_more` says which is which.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.frameworks.drivers import FRAMEWORKS
from tests.frameworks.scenarios import SCENARIOS

PROJECT = Path(__file__).parents[2]
ENVIRONMENTS = Path(os.environ.get("VENV", ".venv")).absolute() / "frameworks"
TESTS = "tests/frameworks"
TEST_PACKAGES = ("pytest>=8", "pytest-timeout>=2", "jsonschema>=4.20")
AT_ONCE = 2
UV_NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_EXTRA_INDEX_URL",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
}
# A test that hangs is ended by its own time limit. 190 s of tests took 465 s on a busy machine.
INSTALL_S, TESTS_S = 900, 1800


class Outcome(NamedTuple):
    """What a framework's run gave."""

    name: str
    cells: dict[tuple[str, str], dict[str, Any]]
    """By scenario and mode."""
    versions: str
    problem: str
    """Why it counts as failed; empty if it does not."""
    took: str
    late: tuple[str, ...] = ()
    """The tests that failed, if every one of them may be run once more."""
    forgiven: tuple[str, ...] = ()
    """What tests said that failed the first time only. It is printed: whoever sees it often has to look."""


def requirements(name: str) -> list[str]:
    """What an environment needs: the extra's packages, the control's, and the tests' own."""
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return [*extras.get(name, ()), *FRAMEWORKS[name], *TEST_PACKAGES]


def environment(name: str) -> Path:
    """Return the interpreter of a framework's environment, made if need be."""
    folder, wanted = ENVIRONMENTS / name, requirements(name)
    python, stamp = folder / "bin" / "python", folder / ".installed"
    key = hashlib.sha256("\n".join([sys.version, *wanted]).encode()).hexdigest()
    if not stamp.exists() or stamp.read_text() != key:
        stamp.unlink(missing_ok=True)
        try:
            _must([sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)], INSTALL_S)
            uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(python)]
            _must([*uv, *wanted], INSTALL_S, {**os.environ, **_sources()})
        except subprocess.SubprocessError as error:  # No uv here, or it does not reach what pip reaches.
            print(f"{name}: with pip, because {error}", file=sys.stderr)
            _must([sys.executable, "-m", "venv", "--clear", str(folder)], INSTALL_S)
            pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            _must([*pip, *wanted], INSTALL_S)
        stamp.write_text(key)
    return python


def _sources() -> dict[str, str]:
    """Return where pip is told to look for packages, as uv wants to be told; it does not read pip's settings."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    found = {"UV_INDEX_STRATEGY": "unsafe-best-match"}  # As pip does: the best version, wherever it is.
    for line in listed.stdout.splitlines():
        key, _, value = line.partition("=")
        name = UV_NAMES.get(key.rpartition(".")[2])
        if name is not None:
            places = value.strip("'\"").split()
            found[name] = ("," if name == "UV_FIND_LINKS" else " ").join(places)
    return found


def play(name: str) -> Outcome:
    """Install a framework, run the suite in it, and return what came out."""
    started = time.monotonic()
    late: tuple[str, ...] = ()
    try:
        ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
        _lines(name).unlink(missing_ok=True)
        python = environment(name)
        installed = time.monotonic()
        done = _pytest(name, python, [TESTS])
        problem = _problem(done)
        took = f"{installed - started:.0f} s to install, {time.monotonic() - installed:.0f} s to run"
        if done.returncode == pytest.ExitCode.TESTS_FAILED:
            late = _late(_noted(name))
    except (OSError, subprocess.SubprocessError) as error:
        problem, took = f"{error}\n{getattr(error, 'stderr', '') or ''}", ""
    noted = _noted(name)
    versions = next((line["versions"] for line in noted if "versions" in line), "not run")
    return Outcome(name, _cells(noted), versions, problem, took, late)


def play_once_more(first: Outcome) -> Outcome:
    """Run those tests again whose programs were too slow; what fails now counts."""
    said = tuple(f"{line['failed']}: {line['said']}" for line in _noted(first.name) if "failed" in line)
    try:
        done = _pytest(first.name, environment(first.name), first.late)
        problem = _problem(done)
    except (OSError, subprocess.SubprocessError) as error:
        problem = str(error)
    cells = _cells(_noted(first.name))  # The later line counts.
    if problem:
        return first._replace(cells=cells, problem=f"{first.problem}\n\nOnce more, alone:\n{problem}")
    return first._replace(cells=cells, problem="", forgiven=said)


def play_all(names: list[str]) -> list[Outcome]:
    """Play frameworks, two at a time; then, one by one, what may be played once more."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = list(pool.map(play, names))
    return [play_once_more(outcome) if outcome.late else outcome for outcome in outcomes]


def _pytest(name: str, python: Path, targets: Sequence[str]) -> subprocess.CompletedProcess[str]:
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "filterwarnings=default")
    return subprocess.run(
        [
            *(str(python), *words),
            *("--basetemp", str(ENVIRONMENTS / f"{name}.tmp"), "--framework", name, *targets),
        ],
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": "src", "NOCLOBBER_FRAMEWORKS_TABLE": str(_lines(name))},
        capture_output=True,
        text=True,
        timeout=TESTS_S,
        check=False,
    )


def _problem(done: subprocess.CompletedProcess[str]) -> str:
    return "" if done.returncode == 0 else f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"


def _lines(name: str) -> Path:
    return ENVIRONMENTS / f"{name}.jsonl"


def _noted(name: str) -> list[dict[str, Any]]:
    """What the tests of a framework have noted."""
    lines = _lines(name)
    return [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []


def _late(noted: list[dict[str, Any]]) -> tuple[str, ...]:
    """The tests that failed, if a program was too slow in each of them; none if one failure counts at once."""
    failed = [line for line in noted if "failed" in line]
    is_known = {"all_failed": len(failed)} in noted  # A run that was killed has noted less than what failed.
    if not is_known or not all(line["is_late"] for line in failed):
        return ()
    return tuple({line["failed"]: None for line in failed})


def _cells(noted: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(line["scenario"], line["mode"]): line for line in noted if "scenario" in line}


def table(outcomes: list[Outcome]) -> str:
    """Return the table: scenarios and frameworks, own tools and noclobber."""
    names = [outcome.name for outcome in outcomes]
    rows = [
        f"| scenario | {' | '.join(names)} |",
        f"|---|{'---|' * len(names)}",
    ]
    notes: list[str] = []
    for scenario in SCENARIOS:
        row = []
        for outcome in outcomes:
            own, ours = (_cell(outcome, scenario, mode, notes) for mode in ("own", "guarded"))
            row.append(f"{own} → **{ours}**")
        rows.append(f"| {scenario.replace('_', ' ')} | {' | '.join(row)} |")
    numbered = [f"{number}. {note}" for number, note in enumerate(notes, 1)]
    return "\n".join([*rows, "", *numbered])


def _cell(outcome: Outcome, scenario: str, mode: str, notes: list[str]) -> str:
    line = outcome.cells.get((scenario, mode))
    if line is None:
        return "NOT RUN"
    words = str(line["words"]).replace("|", "\\|").replace("\n", " ")
    words = re.sub(r"/[^\s'\"]*/frameworks/[^\s'\"]*", "…", words)  # The folder of this run.
    if words.startswith("– "):
        note = words[2:]
        if note not in notes:
            notes.append(note)
        return f"– ({notes.index(note) + 1})"
    return words[:120] if line["kept"] or mode == "own" else f"FAILED: {words[:120]}"


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="make frameworks")
    parser.add_argument("names", nargs="*", help="frameworks; all of them by default")
    parser.add_argument("--write", type=Path, help="write the table to this file as well")
    given = parser.parse_args()
    names = [name for each in given.names for name in each.split(",") if name] or list(FRAMEWORKS)
    if unknown := set(names) - set(FRAMEWORKS):
        parser.error(f"no such framework: {', '.join(sorted(unknown))}. There are: {', '.join(FRAMEWORKS)}")
    outcomes = play_all(names)
    shown = table(outcomes)
    versions = "\n".join(f"- {outcome.name}: {outcome.versions}" for outcome in outcomes)
    print(f"\nOwn tools → **with noclobber**, measured in this run.\n\n{shown}\n\n{versions}")
    if given.write:
        given.write.write_text(HEAD.format(table=shown, versions=versions))
    for outcome in outcomes:
        print(f"{outcome.name}: {outcome.took}{', FAILED' if outcome.problem else ''}")
        for said in outcome.forgiven:
            print(f"  failed at first, and not when it was run once more, alone: {said}")
    for outcome in outcomes:
        if outcome.problem:
            print(f"\n== {outcome.name}\n{outcome.problem}")
    return 1 if any(outcome.problem for outcome in outcomes) else 0


HEAD = """# What was run in which framework

Written by `make frameworks-table` from a run of the real packages, each with its scripted model. Left of the arrow: the framework's own
file tools; right of it, in bold: with noclobber. `tests/frameworks/scenarios.py` says what each scenario is. A number in brackets
leads to the reason, below the table, why a scenario was not played.

{table}

## Versions

{versions}
"""


def _must(command: list[str], timeout_s: float, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout_s, check=False, env=environment
    )
    if done.returncode:
        raise subprocess.SubprocessError(
            f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        )


if __name__ == "__main__":
    sys.exit(main())
