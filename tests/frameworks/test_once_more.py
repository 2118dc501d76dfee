"""Which failures `make frameworks` forgives once, seen from its own run of tests that fail."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from noclobber.core.wire import to_json
from noclobber.errors import StaleFileError, UnreadFileError, claimed_error
from tests.frameworks import __main__ as frameworks
from tests.frameworks.driver import Call, FrameworkDriver, Received, write
from tests.frameworks.once_more import TooLateError, is_late
from tests.frameworks.scenarios import LOST, one_of_two

PROJECT = Path(__file__).parents[2]
LATE = "raise TimeoutError('the model did not answer')"
WORK_LOST = "Verdict(False, 'LOST: what somebody had saved').demand()"


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> Path:
    """A project with a suite of its own in the place of the frameworks'; a file counts how often a test was run."""
    if pytestconfig.getoption("--framework", default=None):
        pytest.skip("part of `make test`")
    folder = tmp_path / "tests" / "frameworks"
    folder.mkdir(parents=True)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {PROJECT} {PROJECT / 'src'}\ntimeout = 5\n")
    (folder / "conftest.py").write_text("from tests.frameworks.conftest import *\n")
    monkeypatch.setattr(frameworks, "PROJECT", tmp_path)
    monkeypatch.setattr(frameworks, "ENVIRONMENTS", tmp_path / "environments")
    monkeypatch.setattr(frameworks, "environment", lambda name: Path(sys.executable))
    return folder


def played(suite: Path, **tests: str) -> tuple[frameworks.Outcome, dict[str, int]]:
    """Play a framework that has these tests; return the outcome, and how often each test was run."""
    body = "\n".join(
        f"def test_{name}():\n"
        f"    runs = Path({str(suite)!r}, {name!r})\n"
        "    runs.write_text((runs.read_text() if runs.exists() else '') + '.')\n"
        "    is_first = runs.read_text() == '.'\n"
        f"    {what}\n"
        for name, what in tests.items()
    )
    imports = (
        "import threading, pytest\nfrom pathlib import Path\nfrom tests.frameworks.scenarios import Verdict\n"
    )
    (suite / "test_it.py").write_text(imports + body)
    [outcome] = frameworks.play_all(["deepagents"])
    return outcome, {name: len((suite / name).read_text()) for name in tests}


def test_a_test_whose_program_was_too_slow_is_run_once_more_alone(suite: Path) -> None:
    """
    N-frameworks: a busy machine decides nothing; only that test is run again, and what it said is shown.

    The second one is ended by pytest-timeout, in the words of a failed test.
    """
    outcome, runs = played(
        suite,
        late=f"if is_first: {LATE}",
        ended="if is_first: threading.Event().wait()",
        fine="pass",
    )

    assert outcome.problem == ""
    assert runs == {"late": 2, "ended": 2, "fine": 1}
    late, ended = (said.partition("::")[2] for said in outcome.forgiven)
    assert late == "test_late: TimeoutError: the model did not answer"
    assert ended.startswith("test_ended: Failed: Timeout ")


def test_a_program_that_is_too_slow_twice_has_failed(suite: Path) -> None:
    """N-frameworks: what never works is not forgiven."""
    outcome, runs = played(suite, late=LATE)

    assert "the model did not answer" in outcome.problem
    assert "Once more, alone" in outcome.problem
    assert runs == {"late": 2}


def test_what_a_test_counted_counts_at_once(suite: Path) -> None:
    """009-SC-001: a race that loses work once in a hundred runs would not do it again. Nothing is run again."""
    outcome, runs = played(suite, lost=f"if is_first: {WORK_LOST}", late=f"if is_first: {LATE}")

    assert "LOST: what somebody had saved" in outcome.problem
    assert outcome.forgiven == ()
    assert runs == {"lost": 1, "late": 1}


def test_a_run_that_ends_in_the_middle_is_not_run_again(suite: Path) -> None:
    """N-frameworks: nobody has noted what failed in it."""
    outcome, runs = played(suite, late=f"if is_first: {LATE}", crash="import os; os._exit(1)")

    assert outcome.problem != ""
    assert runs == {"late": 1, "crash": 1}


def _caused(error: Exception) -> Exception:
    error.__cause__ = TimeoutError()
    return error


@pytest.mark.parametrize(
    "error",
    [
        TooLateError("one agent waited in vain"),
        TimeoutError(),
        threading.BrokenBarrierError(),
        subprocess.TimeoutExpired("claude", 60),
        ConnectionResetError(),
        ExceptionGroup("tasks", [TimeoutError(), ConnectionRefusedError()]),
        _caused(Exception("Control request timeout: initialize")),
    ],
)
def test_waiting_in_vain_is_late(error: BaseException) -> None:
    """N-frameworks: nothing was counted."""
    assert is_late(error)


@pytest.mark.parametrize(
    "error",
    [
        AssertionError("UNREAD_FILE instead of STALE_FILE"),
        _caused(AssertionError(LOST)),
        pytest.fail.Exception("DID NOT RAISE"),
        ValueError("not enough values to unpack"),
        IndexError(),
        ExceptionGroup("tasks", [TimeoutError(), AssertionError(LOST)]),
        OSError(28, "No space left on device"),
    ],
)
def test_every_other_failure_counts(error: BaseException) -> None:
    """009-SC-001: what is not known to be a matter of time is none."""
    assert not is_late(error)


class SaidDriver(FrameworkDriver):
    """A framework of which only what it says counts."""

    def run(self, *args: Any, **more: Any) -> list[Received]:
        raise NotImplementedError

    async def arun(self, *args: Any, **more: Any) -> list[Received]:
        raise NotImplementedError

    def arguments(self, call: Call) -> tuple[str, dict[str, Any]]:
        raise NotImplementedError


SAYS = {
    "done": "written",
    "stale": to_json(StaleFileError("/plan.md", "a" * 64, "b" * 64)),
    "busy": to_json(claimed_error("/plan.md", "claude-code/s/a", 20)),
    "unread": to_json(UnreadFileError("/plan.md", "This turn has not read the file.")),
}


@pytest.mark.parametrize(
    ("left", "told", "met", "expected"),
    [
        ("- one\n- a\n", ("done", "stale"), True, "kept"),
        ("- one\n- a\n", ("done", "done"), True, "lost"),
        ("- one\n", ("done", "stale"), True, "lost"),
        ("- a\n", ("done", "stale"), True, "lost"),
        ("- one\n- b\n", ("done", "done"), False, "lost"),
        ("- one\n- a\n", ("done", "unread"), True, "counts"),
        ("- one\n", ("stale", "stale"), True, "counts"),
        ("- one\n", ("busy", "busy"), True, "counts"),
        ("- one\n- a\n", ("done", "busy"), True, "late"),
        ("- one\n- b\n", ("stale", "done"), False, "late"),
        ("- one\n- b\n", ("done",), False, "lost"),
        ("- one\n", (), False, "late"),
    ],
)
def test_of_two_agents_that_were_told_done_both_are_in_the_file(
    tmp_path: Path, left: str, told: tuple[str, ...], met: bool, expected: str
) -> None:
    """009-SC-001: a line that was reported as written and is gone is lost, however late anybody was."""
    answers = {
        line: Received(write("plan.md", ""), SAYS[word], is_error=False)
        for line, word in zip(("- a\n", "- b\n"), told, strict=False)
    }
    verdict = one_of_two(SaidDriver(tmp_path, guarded=True), left.encode(), answers, met=met)

    found = "late" if verdict.is_late else "kept" if verdict.kept else "counts"
    assert ("lost" if verdict.words.startswith(LOST) and found == "counts" else found) == expected
    if expected != "kept":
        with pytest.raises(TooLateError if expected == "late" else AssertionError):
            verdict.demand()
