"""`noclobber` without a command: what it sees, and the next step."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from noclobber import StaleFileError, Workspace
from noclobber.cli import first_look
from tests.rigs.commands import Terminal, environment, run


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    return project


def commands(out: str) -> list[str]:
    """The commands that a page offers."""
    return [line.strip().split("  ")[0] for line in out.partition("next\n")[2].splitlines()]


def test_a_project_without_set_up_is_told_apart_and_gets_the_next_step(project: Path, home: Path) -> None:
    """N-install: in a project that Claude Code is used in, the next step is `install`."""
    (project / ".claude").mkdir()
    done = run(cwd=project, HOME=str(home))

    assert (done.code, done.err) == (0, "")
    assert f"project  {project} (a git repository)" in done.out
    assert "claude-code (here, no hooks)" in done.out
    assert commands(done.out)[0] == "noclobber install"
    assert not (project / ".noclobber").exists()


def test_every_step_that_is_offered_can_be_taken(project: Path, home: Path) -> None:
    """N-install: and after it the next look offers something else."""
    (project / ".claude").mkdir()
    assert run("install", cwd=project, HOME=str(home)).code == 0
    done = run(cwd=project, HOME=str(home))

    assert "claude-code (hooks installed)" in done.out
    assert "noclobber install" not in done.out
    assert commands(done.out)[0] == "noclobber doctor"


def test_where_no_agent_is_known_other_ways_in_are_shown(project: Path, home: Path) -> None:
    """N-install."""
    done = run(cwd=project, HOME=str(home))
    assert "no coding agent's files" in done.out
    assert commands(done.out)[:2] == ["noclobber run -- COMMAND …", "noclobber install HOST"]


def test_a_project_with_a_record_is_pointed_to_it(project: Path, home: Path) -> None:
    """N-install: also for programs; and a record that cannot be read is said plainly."""
    (project / "plan.md").write_text("one\n")
    with Workspace(project) as workspace, workspace.turn(agent_id="a") as turn:
        turn.read_file("plan.md")
        (project / "plan.md").write_text("two\n")
        with pytest.raises(StaleFileError):
            turn.write_file("plan.md", b"three\n")
    seen = json.loads(run("--json", cwd=project, HOME=str(home)).out)
    assert (seen["events"], seen["refused"]) == (1, 1)
    assert {"noclobber status", "noclobber ledger tail"} <= {step["command"] for step in seen["next"]}

    ledger = workspace.ledger.path
    Path(ledger).unlink()
    Path(ledger).mkdir()
    told = run(cwd=project, HOME=str(home))
    assert told.code == 0
    assert "record   cannot be read" in told.out
    assert commands(told.out)[0] == "noclobber doctor"


def test_on_a_terminal_nothing_but_styles_is_added(project: Path, home: Path) -> None:
    """N-cli."""
    with Terminal(cwd=project, HOME=str(home), NO_COLOR="1") as terminal:
        assert "\x1b" not in terminal.read_all()


def test_on_a_narrow_terminal_a_command_and_its_reason_are_not_mixed() -> None:
    """Finding U1: the reason was folded below the command as if it were one."""
    steps = [
        {"command": "noclobber install", "why": "guard what codex writes here"},
        {"command": "noclobber --help", "why": "every command"},
    ]
    assert first_look._steps(steps, 80) == [
        "  noclobber install  guard what codex writes here",
        "  noclobber --help   every command",
    ]
    assert first_look._steps(steps, 40) == [
        "  noclobber install",
        "      guard what codex writes here",
        "  noclobber --help",
        "      every command",
    ]


def test_names_are_listed_as_people_do() -> None:
    """N-cli."""
    assert first_look._and(["a"]) == "a"
    assert first_look._and(["a", "b", "c"]) == "a, b and c"


def test_the_home_folder_is_no_project_and_gets_no_project_hooks(tmp_path: Path, home: Path) -> None:
    """N-install: hooks in a home folder would look like hooks for all projects; that is `--user`."""
    (home / ".claude").mkdir()
    done = run(cwd=home, HOME=str(home))
    assert "(your home folder: no project)" in done.out
    assert commands(done.out)[:2] == ["cd PROJECT", "noclobber install --user"]

    refused = run("install", cwd=home, HOME=str(home))
    assert refused.code == 2
    assert "noclobber install --user" in refused.err
    assert not list((home / ".claude").iterdir())
    (home / "noclobber.toml").write_text("")
    assert run("install", cwd=home, HOME=str(home)).code == 0


def test_a_host_that_is_nearly_named_is_suggested(project: Path, home: Path) -> None:
    """N-install."""
    done = run("install", "claude", cwd=project, HOME=str(home))
    assert (done.code, done.out) == (2, "")
    assert "Did you mean 'claude-code'?" in done.err


def test_hooks_go_where_this_program_looks_for_them(project: Path, home: Path) -> None:
    """N-install, ruling 16: from a folder below, too; `--root` names another."""
    (project / ".claude").mkdir()
    (project / "below").mkdir()
    assert run("install", "claude-code", cwd=project / "below", HOME=str(home)).code == 0
    assert "claude-code (hooks installed)" in run(cwd=project / "below", HOME=str(home)).out
    assert not (project / "below/.claude").exists()
    assert run("install", "claude-code", "--root", ".", cwd=project / "below", HOME=str(home)).code == 0
    assert (project / "below/.claude").exists()


def test_a_folder_that_is_gone_is_said_plainly(tmp_path: Path, home: Path) -> None:
    """N-cli."""
    gone = tmp_path / "gone"
    gone.mkdir()
    program = f"import os, sys; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r}); sys.argv = ['noclobber', 'status']; "
    done = subprocess.run(
        [sys.executable, "-c", program + "from noclobber.cli import main; sys.exit(main())"],
        capture_output=True,
        text=True,
        env=environment(HOME=str(home)),
    )
    assert done.returncode == 3
    assert "no longer exists" in done.stderr
