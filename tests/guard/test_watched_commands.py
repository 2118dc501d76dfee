"""`noclobber run` where there can be no private view: the command is watched."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from noclobber import Workspace

# The kernel's answer to the one system call, as `_call` sees it; everything else is what a user runs.
WITHOUT_VIEWS = """
import os, sys
from noclobber.shell import namespace
name, code = sys.argv[1], int(sys.argv[2])
real = namespace.PrivateView._call
def fail(self, called, *args):
    if called == name and (called != "mount" or args[2] == b"overlay"):
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return real(self, called, *args)
namespace.PrivateView._call = fail
from noclobber.cli import run
sys.exit(run.main(sys.argv[3:]))
"""
NO_NAMESPACES = ("unshare", errno.EPERM)


def watched(
    root: Path, text: str, *options: str, failure: tuple[str, int] = NO_NAMESPACES, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command by `noclobber run`, in a place that makes no private views."""
    name, code = failure
    words = [name, str(code), "--agent", "me", *options, "--", "sh", "-c", text]
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_VIEWS, *words],
        cwd=root,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )


def sha256(text: str) -> str:
    """Return the hash of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def events(root: Path) -> list[dict[str, Any]]:
    ledger = root / ".noclobber/agent_trace.jsonl"
    return [json.loads(line) for line in ledger.read_text().splitlines()] if ledger.exists() else []


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    with Workspace(root) as workspace:
        workspace.recorder.prepare()
    (root / "plan.md").write_text("one\n")
    return root


@pytest.mark.parametrize(
    "failure", [("unshare", errno.EPERM), ("unshare", errno.ENOSPC), ("mount", errno.EINVAL)]
)
def test_where_no_view_can_be_made_a_command_is_watched(project: Path, failure: tuple[str, int]) -> None:
    """N-shell: it runs, what it changed is on record with the level, and the level and the reason are told."""
    report = project.parent / "report.json"
    done = watched(
        *(project, "cat >> plan.md; echo x > new.md; exit 7", "--report", str(report)),
        failure=failure,
        stdin="two\n",
    )

    assert (done.returncode, (project / "plan.md").read_text()) == (7, "one\ntwo\n")
    assert os.strerror(failure[1]) in done.stderr
    assert "the command is only watched" in done.stderr
    found = {event["payload"]["target_file"]: event for event in events(project)}
    assert set(found) == {"plan.md", "new.md"}
    assert {event["payload"]["level"] for event in found.values()} == {"watched"}
    assert {event["identity"]["agent_id"] for event in found.values()} == {"me"}
    told = json.loads(report.read_text())
    assert (told["level"], told["exit_code"], told["refused"]) == ("watched", 7, None)
    assert [str(project / "new.md"), "ABSENT", sha256("x\n")] in told["landed"]
    assert os.listdir(project / ".noclobber/run") == []


@pytest.mark.parametrize("text", ["sed -i s/one/two/ plan.md", "echo mine > plan.md", "rm plan.md"])
def test_a_certain_target_that_is_stale_is_refused_and_nothing_runs(project: Path, text: str) -> None:
    """N-shell: the exact object on the first line after the notice, one conflict on record, exit code 75."""
    (project / "plan.md").write_text("a person's\n")

    done = watched(project, f"touch ran; {text}", "--expect", f"plan.md={sha256('one' + chr(10))}")

    assert done.returncode == 75
    told = json.loads(done.stderr.splitlines()[1])
    assert told["error_type"] == "STALE_FILE"
    assert told["details"]["current_disk_hash"] == sha256("a person's\n")
    assert not (project / "ran").exists()
    assert (project / "plan.md").read_text() == "a person's\n"
    assert [event["action_type"] for event in events(project)] == ["MUTATION_CONFLICT"]


def test_what_a_script_wrote_over_is_kept_and_told(project: Path) -> None:
    """N-shell: nobody can tell what a script writes; the version that the agent had not seen is not lost."""
    (project / "plan.md").write_text("a person's\n")
    (project / "fix.py").write_text("open('plan.md', 'w').write('mine')\n")

    done = watched(project, "python3 fix.py", "--expect", f"plan.md={sha256('one' + chr(10))}")

    assert done.returncode == 0
    assert json.loads(done.stderr.splitlines()[1])["error_type"] == "MUTATION_RACE"
    [kept] = (project / ".noclobber/kept").iterdir()
    assert kept.read_text() == "a person's\n"
    assert [event["action_type"] for event in events(project)] == ["MUTATION_RACE"]


def test_with_require_nothing_is_run(project: Path) -> None:
    """N-shell: whoever wants the guard or nothing gets nothing."""
    done = watched(project, "touch ran", "--require")
    assert (done.returncode, (project / "ran").exists()) == (69, False)


def test_signals_and_missing_commands_are_as_in_a_shell(project: Path) -> None:
    """N-shell: exit codes as if the command had been run plainly."""
    assert watched(project, "kill -TERM $$").returncode == -signal.SIGTERM  # A shell says 143.
    assert watched(project, "no-such-command-here").returncode == 127


def test_git_that_takes_anothers_work_away_is_refused(project: Path) -> None:
    """N-shell: the list of files and owners; nothing ran, and the other agent's change is still there."""
    for words in (["init", "-q"], ["add", "plan.md"], ["commit", "-qm", "first"]):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words], cwd=project, check=True
        )
    with Workspace(project) as workspace, workspace.turn(agent_id="rival") as turn:
        turn.read_file("plan.md")
        turn.write_file("plan.md", "the rival's\n")

    done = watched(project, "git stash")

    told = json.loads(done.stderr.splitlines()[1])
    assert (done.returncode, told["error_type"]) == (75, "OTHERS_WORK")
    assert "plan.md" in json.dumps(told)
    assert "rival" in json.dumps(told)
    assert (project / "plan.md").read_text() == "the rival's\n"
