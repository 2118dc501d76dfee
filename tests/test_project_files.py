"""The project's own files agree with each other: versions, targets, tools, supported Pythons."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import noclobber

PROJECT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text())


def text_of(name: str) -> str:
    """Return a file of the project."""
    return (PROJECT / name).read_text()


def names_in(requirements: str) -> set[str]:
    """Return the packages that a requirements file names."""
    lines = [line.split("#")[0].strip() for line in requirements.splitlines()]
    found = [re.match(r"[A-Za-z0-9._-]+", line) for line in lines if line and not line.startswith("-")]
    return {match.group().lower().replace("_", "-").replace(".", "-") for match in found if match}


def test_the_version_is_written_in_one_place() -> None:
    """N-release: pyproject.toml takes it from the package, and the changelog knows it."""
    assert PYPROJECT["project"]["dynamic"] == ["version"]
    assert PYPROJECT["tool"]["hatch"]["version"]["path"] == "src/noclobber/__init__.py"
    assert f"## {noclobber.__version__}, " in text_of("CHANGELOG.md")


def test_the_workflow_runs_every_supported_python_on_both_systems() -> None:
    """N-release: what the classifiers claim is what is tested; the macOS job runs the whole suite, too."""
    workflow = text_of(".github/workflows/ci.yml")
    claimed = [
        line.rsplit(" ", 1)[1]
        for line in PYPROJECT["project"]["classifiers"]
        if re.search(r":: 3\.\d+$", line)
    ]
    tested = re.search(r"python: \[(.*)\]", workflow)
    assert tested
    assert re.findall(r"[\d.]+", tested.group(1)) == claimed
    assert re.search(r"os: \[ubuntu-[\d.]+, macos-\d+\]", workflow)
    assert "make test" in workflow
    assert "secrets." not in workflow


def test_the_lock_file_holds_everything_that_the_ranges_ask_for() -> None:
    """N-release: `make lock` was run after the last change of the ranges or the extras."""
    extras = PYPROJECT["project"]["optional-dependencies"]
    asked = names_in(text_of("requirements-dev.txt"))
    # The frameworks' extras are apart: each is installed into an environment of its own.
    for extra in {"all", *re.findall(r"\w+", extras["all"][0])[1:]}:
        packages = extras[extra]
        asked |= names_in("\n".join(packages))
    assert asked - {"noclobber"} - names_in(text_of("requirements-dev.lock")) == set()


def test_the_lock_file_has_a_hash_for_each_package_and_names_no_server() -> None:
    """N-release: it installs from any mirror, and only what was locked."""
    lock = text_of("requirements-dev.lock")
    assert "://" not in lock
    entries = re.split(r"\n(?=[a-z0-9])", lock.split("make lock\n", 1)[1])
    assert len(entries) > 30
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []


def test_every_target_of_the_makefile_is_explained() -> None:
    """N-documented: `make help` leaves none out."""
    makefile = text_of("Makefile")
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.M)
    assert phony
    explained = set(re.findall(r'@echo "make ([\w-]+) ', makefile))
    assert set(phony.group(1).split()) - {"python", "help"} == explained


def test_a_commit_is_checked_by_the_same_tools_as_make_lint() -> None:
    """N-release: pre-commit takes them from the project's environment, so there is one version of each."""
    hooks = re.findall(r"entry: (.*)", text_of(".pre-commit-config.yaml"))
    assert [hook.split()[:3] for hook in hooks] == [
        [".venv/bin/python", "-m", tool] for tool in ("ruff", "ruff", "mypy")
    ]


def test_whoever_starts_the_tests_they_have_the_signals_that_they_need() -> None:
    """Finding R19: under `nohup` one test waited four minutes for a process that ignored SIGHUP."""
    numbers = [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD]
    before = {number: signal.getsignal(number) for number in numbers}
    program = (
        "import signal, tests.conftest\n"
        f"print(*[signal.getsignal(number) != signal.SIG_IGN for number in {[int(one) for one in numbers]}],"
        " not signal.pthread_sigmask(signal.SIG_BLOCK, ()))"
    )
    try:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        started = subprocess.Popen(
            [sys.executable, "-c", program], cwd=PROJECT, stdout=subprocess.PIPE, text=True
        )
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert started.communicate(timeout=120)[0].split() == ["True"] * 7
