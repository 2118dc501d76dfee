"""`noclobber demo`: what it shows is true, measured in this run, and fit for a pipe."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from noclobber.cli import main
from noclobber.demo import numbers, story
from noclobber.demo.numbers import Numbers, Row
from noclobber.demo.progress_bar import Bar
from noclobber.text.visible import fold


def run_demo(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run it as a user does, with an output that is not a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "noclobber", "demo", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(folder)},
    )


def test_the_story_ends_with_everybodys_lines_and_a_ledger_that_verifies(tmp_path: Path) -> None:
    """N-demo: the refusal, the exact JSON, the recovery, the ledger."""
    said: list[str] = []
    told = story.tell(str(tmp_path), said.append)

    lines = told.final_text.splitlines()
    assert lines[1:] == [
        "- agree on the goal",
        "- call Ada before Friday",
        "- and book a room",
        "- write the tests",
    ]
    assert told.to_controller["error_type"] == "STALE_FILE"
    assert told.transitions[0].startswith("RUNNING → RE_READ_REQUIRED")
    assert [event.split()[1] for event in told.events] == [
        "MUTATION_CONFLICT",
        "MUTATION_CONFLICT",
        "MUTATION",
    ]
    shown = "\n".join(said)
    assert json.dumps(told.to_controller["actual_hash"]) in shown
    assert '"recovery_hint"' in shown


def test_a_ctrl_c_in_the_terminal_does_not_reach_the_person_of_the_story(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No traceback reaches a user: a Python that is interrupted while it starts prints one."""
    person = tmp_path / "person"
    person.write_text(
        f"#!{sys.executable}\nimport os, sys\nopen(sys.argv[3], 'w').write(str(os.getsid(0)))\n"
    )
    person.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(person))
    story._person_saves(str(tmp_path / "session"), "- a line")
    assert int((tmp_path / "session").read_text()) != os.getsid(0)


@pytest.mark.slow
def test_the_demo_shows_that_plain_writes_lose_and_guarded_ones_do_not(tmp_path: Path) -> None:
    """N-demo: every kind of other writer, counted in this run, without an escape code in a pipe."""
    done = run_demo("--seconds", "8", "--json", folder=tmp_path)

    shown = json.loads(done.stdout)
    rows = {row["kind"]: row for row in shown["numbers"]["rows"]}
    assert {*rows} >= {"agents", "rename", "vim", "truncate", "append"}
    assert shown["numbers"]["totals"]["lost_plain"] > 0
    assert shown["numbers"]["totals"]["made"] > 100
    assert (done.returncode == 0) == (
        not any(row["lost"] for row in rows.values()) and not shown["numbers"]["faults"]
    )
    assert done.returncode == 0, done.stdout
    assert not list(tmp_path.iterdir()), "the scratch folder was left behind"


def test_a_pipe_gets_whole_lines_and_no_escape_codes() -> None:
    """N-demo: no escape codes when stdout is not a terminal."""
    out = io.StringIO()
    with Bar(out) as bar:
        bar(0.0, "first")
        bar(0.2, "first")
        bar(0.5, "second")

    assert out.getvalue() == "  0%  first\n 50%  second\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """N-demo: drawn over itself, without an escape code."""
    monkeypatch.setenv("COLUMNS", "100")
    out = Terminal()
    with Bar(out) as bar:
        bar(0.5, "half way")

    assert "[##############..............]  50%  half way" in out.getvalue()
    assert "\x1b" not in out.getvalue()


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_the_demo_fits_the_terminal(columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """finding U1: the bar, the story and the table; at 80 columns the table is the whole one."""
    monkeypatch.setenv("COLUMNS", str(columns))
    out = Terminal()
    with Bar(out) as bar:
        bar(0.1, "plain writes: truncate and write, truncate, write slowly, append " * 3)
        bar(0.2, "short")
    said: list[str] = []
    story.tell(str(tmp_path), said.append)
    row = Row("rename", "save by rename", 10, 9, 12, 0, 1, 3, ("lease+exchange",))
    many = row._replace(made_plain=12_401, lost_plain=12_306, made=12_300)  # As in half a minute.
    table = numbers.table(Numbers((row, many), ()), columns)

    drawn = out.getvalue().split("\r")
    assert max(map(len, drawn)) < columns
    assert drawn[2].rstrip() == drawn[2].rstrip(" …"), "the longer line before is covered"
    assert len(drawn[2]) >= len(drawn[1])
    assert max(len(line) for text in said for line in fold(text, columns).splitlines()) <= columns
    assert max(map(len, table.splitlines())) <= columns
    assert ("refused" in table) == (columns >= 80)


def test_a_loss_through_the_guard_makes_the_numbers_unclean() -> None:
    """N-demo: the demo cannot hide a loss."""
    row = Row("rename", "save by rename", 10, 9, 10, 0, 0, 3, ("lease+exchange",))

    assert Numbers((row,), ()).is_clean
    assert not Numbers((row._replace(lost=1),), ()).is_clean
    assert not Numbers((row,), ("g0 crashed",)).is_clean


def test_the_last_line_adds_up_the_others() -> None:
    """N-demo: the totals are of this run's rows."""
    row = Row("rename", "save by rename", 10, 9, 12, 0, 1, 3, ("lease+exchange",))
    totals = Numbers((row, row), ()).totals

    assert (totals.made_plain, totals.lost_plain, totals.made, totals.refused) == (20, 18, 24, 6)
    assert "together" in numbers.table(Numbers((row, row), ()))


@pytest.mark.parametrize(
    "words", [("--seconds", "0"), ("--seconds", "x"), ("--seconds", "nan"), ("--seed", "x")]
)
def test_a_wrong_option_is_a_usage_error(words: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and one line that says what is allowed."""
    assert main(["demo", *words]) == 2
    assert words[0] in capsys.readouterr().err
