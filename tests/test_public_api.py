"""What type checkers make of a program that uses public names only, and of one with mistakes in it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("public_api_program.py")

MISTAKES = """\
from pathlib import Path

from noclobber import AgentController, Attempt, Turn, Workspace, aio

Workspace(".", unraed="deny")
Workspace(".", unread="never")
Workspace.find(".", partail="deny")
turn: Turn = Workspace(".").turn(write_scope=7)
aio.Workspace(".", durrable=True)
aio.Workspace(".").turn(scope="day")
waiting = aio.Workspace(".").turn().write_file("a.md", 7)
AgentController(turn, resubmitted="no")
number: str = AgentController(turn).run(lambda attempt: attempt.number)
"""
WRONG_LINES = [number for number, line in enumerate(MISTAKES.splitlines(), 1) if line and number >= 5]


def pyright_complaints(folder: Path, program: Path) -> dict[int, str]:
    """Return what pyright's strict mode says about a program, by line."""
    pytest.importorskip("basedpyright", reason="the type checker is not installed")
    config = folder / "pyrightconfig.json"
    config.write_text(
        json.dumps(
            {
                "include": [str(program)],
                "typeCheckingMode": "strict",
                "venvPath": str(Path(sys.prefix).parent),
                "venv": Path(sys.prefix).name,
            }
        )
    )
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", "--project", str(config)],
        capture_output=True,
        text=True,
        check=False,
    )
    answer = json.loads(done.stdout)
    assert answer["summary"]["filesAnalyzed"] == 1
    return {
        found["range"]["start"]["line"] + 1: found["message"]
        for found in answer["generalDiagnostics"]
        if found["severity"] in ("error", "warning")
    }


def mypy_complaints(folder: Path, program: Path) -> dict[int, str]:
    """Return what mypy's strict mode says about a program, by line."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(folder / "cache"), str(program)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert done.stderr == ""
    return {int(line): said for line, said in re.findall(r"^[^:]+:(\d+): error: (.*)$", done.stdout, re.M)}


Complaints = Callable[[Path, Path], dict[int, str]]
CHECKERS = pytest.mark.parametrize("complaints", [mypy_complaints, pyright_complaints])


@CHECKERS
def test_a_program_with_public_names_only_is_clean(tmp_path: Path, complaints: Complaints) -> None:
    """N-typed, finding U8: also what comes back has a type; a controller returns what its step returns."""
    assert complaints(tmp_path, PROGRAM) == {}


@CHECKERS
def test_a_misspelled_option_is_found_before_the_program_runs(tmp_path: Path, complaints: Complaints) -> None:
    """finding U8: names and values, of a workspace, a turn, a controller and the asyncio twins."""
    program = tmp_path / "mistakes.py"
    program.write_text(MISTAKES)
    found = complaints(tmp_path, program)
    assert sorted(set(found) & set(WRONG_LINES)) == WRONG_LINES


def test_the_program_runs(tmp_path: Path) -> None:
    """N-typed: what type checkers accept is what works."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
