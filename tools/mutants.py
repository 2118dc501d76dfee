"""
Change the decisions one operator at a time, and see whether a test notices.

`python tools/mutants.py [NAME …]`: each name is a key of `TARGETS`; without any, all. cosmic-ray makes the
mutants in a scratch copy of the checkout, so an interrupted run leaves nothing behind. A mutant that no test
notices must be explained in docs/mutants.md, by the line that it makes; otherwise the exit code is 1.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

PROJECT = Path(__file__).resolve().parents[1]
EXPLAINED = PROJECT / "docs/mutants.md"


class Target(NamedTuple):
    """A module that decides, and the tests that should notice when it decides otherwise."""

    module: str
    tests: tuple[str, ...]


TARGETS = {
    "liveness": Target("lock/liveness.py", ("tests/lock/test_liveness.py",)),
    "limits": Target("lock/limits.py", ("tests/lock/test_limits.py",)),
    "options": Target("core/options.py", ("tests/core/test_options.py", "tests/core/test_options_file.py")),
    "policies": Target("guard/policies.py", ("tests/guard/test_policies.py",)),
}

NOT_TRIED = [
    # `int | None` in an annotation is never evaluated, and no target combines bits.
    "core/ReplaceBinaryOperator_BitOr_.*",
    # Whether two equal constants are one object is the interpreter's business.
    "core/ReplaceComparisonOperator_(Eq_Is|NotEq_IsNot|Is_Eq|IsNot_NotEq)",
]

# A test that is slower than this on a mutant is stuck, and has noticed.
TIMEOUT_S = 60.0


class Survivor(NamedTuple):
    """A mutant that no test noticed."""

    line: int
    before: str
    after: str


def run_target(target: Target, scratch: Path) -> tuple[int, list[Survivor]]:
    """Return how many mutants there were, and those that survived."""
    for part in ("src", "tests", "pyproject.toml", "README.md", "docs"):
        copy = shutil.copytree if (PROJECT / part).is_dir() else shutil.copy
        copy(PROJECT / part, scratch / part)
    tests = [name for name in target.tests if (PROJECT / name).exists()]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
    config = scratch / "mutants.toml"
    config.write_text(
        f"[cosmic-ray]\n"
        f'module-path = "src/noclobber/{target.module}"\n'
        f"timeout = {TIMEOUT_S}\n"
        f"excluded-modules = []\n"
        f"test-command = {json.dumps(' '.join(command))}\n"
        f'[cosmic-ray.distributor]\nname = "local"\n'
        f"[cosmic-ray.filters.operators-filter]\n"
        f"exclude-operators = {json.dumps(NOT_TRIED)}\n"
    )
    # Before site-packages, where the checkout itself is installed.
    env = {**os.environ, "PYTHONPATH": f"{scratch / 'src'}:{scratch}", "PYTHONDONTWRITEBYTECODE": "1"}
    # Without the mutants the tests must pass, or every mutant would seem to be noticed.
    subprocess.run(command, cwd=scratch, env=env, check=True, stdout=subprocess.DEVNULL)
    programs = Path(sys.executable).parent
    for step in (
        ("cosmic-ray", "init", "mutants.toml", "session.sqlite"),
        ("cr-filter-operators", "session.sqlite", "mutants.toml"),
        ("cosmic-ray", "exec", "mutants.toml", "session.sqlite"),
    ):
        subprocess.run([programs / step[0], *step[1:]], cwd=scratch, env=env, check=True)
    dumped = subprocess.run(
        [programs / "cosmic-ray", "dump", "session.sqlite"],
        cwd=scratch,
        check=True,
        capture_output=True,
        text=True,
    )
    results = [json.loads(line) for line in dumped.stdout.splitlines()]
    tried = [
        (item, outcome) for item, outcome in results if outcome and outcome["worker_outcome"] == "normal"
    ]
    return len(tried), sorted(survivors(tried))


def survivors(tried: list[tuple[Any, Any]]) -> Iterator[Survivor]:
    """Pick the mutants whose tests passed out of what cosmic-ray has recorded."""
    for item, outcome in tried:
        if outcome["test_outcome"] != "survived" or "TYPE_CHECKING" in str(outcome["diff"]):
            continue  # The latter is for type checkers only.
        [mutation] = item["mutations"]
        changed = [
            line
            for line in str(outcome["diff"]).splitlines()[2:]
            if line[:1] in "+-" and line[1:2] not in "+-"
        ]
        before = " ".join(line[1:].strip() for line in changed if line[0] == "-")
        after = " ".join(line[1:].strip() for line in changed if line[0] == "+")
        yield Survivor(int(mutation["start_pos"][0]), before, after)


def main(names: list[str]) -> int:
    """Run the named targets; print what survived and whether docs/mutants.md explains it."""
    if unknown := set(names) - set(TARGETS):
        print(
            f"no such target: {', '.join(sorted(unknown))}; there are: {', '.join(TARGETS)}", file=sys.stderr
        )
        return 2
    explained = EXPLAINED.read_text() if EXPLAINED.exists() else ""
    open_count = 0
    for name in names or TARGETS:
        with tempfile.TemporaryDirectory(prefix="noclobber-mutants-") as scratch:
            count, alive = run_target(TARGETS[name], Path(scratch))
        print(f"{name}: {count} mutants, {count - len(alive)} noticed, {len(alive)} survived")
        for survivor in alive:
            known = f"`{survivor.after}`" in explained
            open_count += not known
            print(f"  line {survivor.line}{' (explained)' if known else ''}")
            print(f"    - {survivor.before}\n    + {survivor.after}")
    verdict = f"{open_count} survivors need a test or an explanation" if open_count else "all explained"
    print(verdict)
    return 1 if open_count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
