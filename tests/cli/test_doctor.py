"""`noclobber doctor`: what it finds after real crashes, what it finishes, and what it leaves to people."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from noclobber import BadRequestError, OptimisticGuard, Workspace
from noclobber.cli.doctor.crash_leftovers import check_leftovers
from noclobber.cli.doctor.workspace_checks import check_commands
from noclobber.lock.lock import DeliverableLock
from tests.conftest import sha256
from tests.rigs.commands import environment, run
from tests.rigs.locks import ToldClock

# A process that writes through the guard and is killed, or stops, when it reaches a step.
VICTIM = """
import os, signal, sys
from noclobber.disk import steps
from noclobber.disk.commit.committer import Committer
from noclobber import OptimisticGuard
from noclobber.disk.commit.rows import Change
root, wanted, how, act = sys.argv[1:5]
guard = OptimisticGuard(root)
def observe(step):
    if step == wanted:
        steps.observer = None
        print("reached", flush=True)
        os.kill(os.getpid(), getattr(signal, how))
if act == "one":
    expected = guard.digest("a.md")
    steps.observer = observe
    guard.write("a.md", b"new", expected=expected)
elif act == "beside":
    steps.observer = observe
    Committer(None).replace(f"{root}/a.md", guard.digest("a.md"), b"new")
else:
    changes = [Change(name, b"new", guard.digest(name)) for name in ("a.md", "sub/b.md")]
    steps.observer = observe
    guard.commit(changes)
"""


def crash(root: Path, step: str, act: str = "one", how: str = "SIGKILL") -> subprocess.Popen[str]:
    """Let a writer die at a step, with `old` in its files; return the process."""
    (root / "sub").mkdir(exist_ok=True)
    for name in ("a.md", "sub/b.md"):
        (root / name).write_text("old")
    process = subprocess.Popen(
        [sys.executable, "-c", VICTIM, str(root), step, how, act],
        stdout=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    assert process.stdout.readline() == "reached\n", f"{step} was never reached"
    if how == "SIGKILL":
        process.communicate(timeout=60)
    return process


def doctor(folder: Path, *words: str) -> Any:
    done = run("doctor", "--json", str(folder), *words)
    assert done.err == ""
    answer = json.loads(done.out)
    assert done.code == (0 if answer["healthy"] else 1)
    assert answer["healthy"] == all(finding["ok"] for finding in answer["findings"])
    return answer


def named(answer: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [finding for finding in answer["findings"] if finding["name"] == name]


def test_a_healthy_folder_is_called_healthy_and_left_as_it_was(root: Path) -> None:
    """X-002: every primitive was tried, in a scratch folder that is gone."""
    (root / "a.md").write_text("x")
    answer = doctor(root)
    assert answer["healthy"]
    assert answer["findings"][0]["name"] == "level"
    names = {finding["name"] for finding in answer["findings"]}
    assert {"flock", "exchange-rename", "leases", "lock cycle", "recovery", "ledger", "options"} <= names
    assert os.listdir(root) == ["a.md"]
    assert run("doctor", str(root)).out.endswith("\nhealthy\n")


@pytest.mark.parametrize(
    ("step", "stands"),
    [
        ("staged", "old"),
        ("noted", "old"),
        ("before-exchange", "old"),
        ("exchanged", "new"),
        ("settled", "new"),
    ],
)
def test_a_commit_that_was_cut_off_is_finished(root: Path, step: str, stands: str) -> None:
    """N-crash: kill -9 at each step; afterwards old or new stands, and nothing is left."""
    crash(root, step)
    assert not doctor(root, "--no-repair")["healthy"]
    assert (root / ".noclobber" / "notes").exists()

    answer = doctor(root)
    assert answer["healthy"], answer
    assert (root / "a.md").read_text() == stands
    again = doctor(root, "--no-repair")
    assert again["healthy"]
    assert named(again, "leftovers")[0]["detail"].startswith("none in")
    assert os.listdir(root / ".noclobber" / "swap") == []


def test_a_commit_of_several_files_is_all_or_none_after_doctor(root: Path) -> None:
    """N-crash: the folders of a cut-off commit are taken together, whichever note is met first."""
    crash(root, "one-visible", "many")
    answer = doctor(root)
    assert answer["healthy"], answer
    assert (root / "a.md").read_text() == (root / "sub" / "b.md").read_text()
    assert named(doctor(root), "cut-off commit") == []


def test_what_an_open_turn_has_not_put_away_is_no_fault(root: Path) -> None:
    """X-002: a session that had written a minute ago was called unhealthy, and the live view asked for a person."""
    a_minute_later = ToldClock(time.time() + 120)
    with Workspace(root) as workspace, workspace.turn(agent_id="ana") as turn:
        turn.write_file("a.md", "one\n")
        turn.write_file("a.md", "two\n")
        [finding] = [
            each
            for each in check_leftovers(str(root), a_minute_later, repair=False)
            if each.name == "swap files"
        ]
    assert finding.ok, finding
    assert "turns are open" in finding.detail


def test_the_note_of_a_folder_that_is_gone_does_not_stay_for_ever(root: Path) -> None:
    """N-crash: nobody will ever enter its section again."""
    import shutil

    crash(root, "one-visible", "many")
    shutil.rmtree(root / "sub")
    doctor(root)
    assert doctor(root, "--no-repair")["healthy"]


def test_files_beside_a_target_are_found_and_finished(root: Path) -> None:
    """N-crash: without a workspace the files of a commit stand among the user's."""
    crash(root, "exchanged", "beside")
    assert any(name.startswith(".noclobber-") for name in os.listdir(root))
    [finding] = named(doctor(root, "--no-repair"), "files beside")
    assert str(root) in finding["detail"]

    doctor(root)
    assert (root / "a.md").read_text() == "new"
    assert not [name for name in os.listdir(root) if name.startswith(".noclobber-")]


def test_a_writer_that_is_stopped_in_the_middle_is_named_and_left_alone(root: Path) -> None:
    """N-crash: its commit is not dead; finishing it would be a second writer."""
    victim = crash(root, "exchanged", how="SIGSTOP")
    try:
        answer = doctor(root)
        [finding] = named(answer, "busy")
        assert not finding["ok"]
        assert str(victim.pid) in finding["remedy"]
    finally:
        victim.send_signal(signal.SIGCONT)
        assert victim.wait(60) == 0
        victim.stdout.close()
    assert (root / "a.md").read_text() == "new"
    assert named(doctor(root), "busy") == []


def test_a_kept_file_is_listed_with_its_origin_and_what_to_do(root: Path) -> None:
    """009-SC-001: somebody's late words wait for a person, so the folder is not healthy; and they stay."""
    with Workspace(root) as workspace, workspace.turn(agent_id="ana") as turn:
        turn.write_file("docs/plan.md", "old")
        turn.read_file("docs/plan.md")
        turn.write_file("docs/plan.md", "new")
    kept = root / ".noclobber" / "kept" / f"kept-0a-{sha256(b'old')}~plan.md"
    kept.write_text("old, and late words")
    answer = doctor(root)
    [finding] = named(answer, "kept file")
    assert not finding["ok"]
    assert str(kept) in finding["detail"]
    assert str(root / "docs" / "plan.md") in finding["remedy"]
    assert "-> compare it with" in run("doctor", str(root)).out
    assert kept.read_text() == "old, and late words"
    kept.unlink()
    assert doctor(root)["healthy"]


def test_a_displaced_version_that_was_written_to_is_kept_not_swept(root: Path) -> None:
    """009-SC-001: an orphan of a dead process with other bytes than were verified."""
    crash(root, "settled")
    swap = root / ".noclobber" / "swap"
    doctor(root)
    late = swap / f"swap-0b-{sha256(b'old')}~a.md"
    late.write_text("old, and late words")
    same = swap / f"swap-0c-{sha256(b'old')}~a.md"
    same.write_text("old")
    hour_ago_s = time.time() - 3600
    assert named(doctor(root), "kept file") == []  # Young: its commit may be under way.
    for path in (late, same):
        os.utime(path, (hour_ago_s, hour_ago_s))
    # The age that counts is the change of the inode, which nobody can set; so look from an hour later.
    from noclobber.cli.doctor import crash_leftovers

    class Later:
        monotonic_s, sleep = staticmethod(time.monotonic), staticmethod(time.sleep)

        @staticmethod
        def now_s() -> float:
            return time.time() + 3600

    findings = crash_leftovers.check_leftovers(str(root), Later, repair=True)
    assert [finding.ok for finding in findings if finding.name == "kept file"] == [False]
    assert os.listdir(swap) == []


def test_an_orphan_lock_is_mentioned_and_is_no_fault(root: Path) -> None:
    """REQ-LOCK-006: the next to acquire takes it over."""
    (root / "q3").mkdir()
    code = (
        "import os, sys; from noclobber.lock.lock import DeliverableLock\n"
        "DeliverableLock(sys.argv[1], holder='ana').acquire(); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(root / "q3")], env=environment(), timeout=60)
    answer = doctor(root)
    [finding] = named(answer, "orphan lock")
    assert answer["healthy"]
    assert "lock recover" in finding["remedy"]
    with DeliverableLock(str(root / "q3"), holder="ben"):
        assert named(doctor(root), "orphan lock") == []


@pytest.mark.parametrize("wrong", ["config", "ledger", "state", "link"])
def test_what_keeps_turns_from_working_is_unhealthy_and_has_a_remedy(root: Path, wrong: str) -> None:
    """N-cli: a wrong options file, a broken chain, something in the state folder's place."""
    with Workspace(root) as workspace, workspace.turn() as turn:
        turn.write_file("a.md", "x")
        turn.write_file("a.md", "y")
    state = root / ".noclobber"
    if wrong == "config":
        (root / "noclobber.toml").write_text("unreed = 1\n")
    elif wrong == "ledger":
        ledger = state / "agent_trace.jsonl"
        ledger.write_bytes(ledger.read_bytes().replace(b"a.md", b"b.md", 1))
    else:
        state.rename(root / "away")
        state.write_text("") if wrong == "state" else state.symlink_to(root / "away")
    bad = [finding for finding in doctor(root)["findings"] if not finding["ok"]]
    assert bad
    assert all(finding["remedy"] for finding in bad)


def test_a_level_that_is_none_is_a_finding_and_a_clear_error(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-cli: a mistyped variable; the error names it."""
    done = run("doctor", "--json", str(root), NOCLOBBER_LEVEL="frob")
    [finding] = named(json.loads(done.out), "level asked for")
    assert (finding["ok"], done.code) == (False, 1)
    monkeypatch.setenv("NOCLOBBER_LEVEL", "frob")
    with pytest.raises(BadRequestError, match="NOCLOBBER_LEVEL is 'frob'"):
        OptimisticGuard(root)


def test_a_lower_level_is_said_to_be_one(root: Path) -> None:
    """N-level: who holds a process to a level finds it here."""
    done = run("doctor", "--json", str(root), NOCLOBBER_LEVEL="plain")
    [finding] = named(json.loads(done.out), "level asked for")
    assert "NOCLOBBER_LEVEL=plain" in finding["detail"]


def test_a_folder_that_cannot_be_written_is_unhealthy(root: Path, is_root: bool) -> None:
    """X-003: a clear finding, no traceback."""
    if is_root:
        folder = "/proc/self"  # Not even root may write here.
    else:
        root.chmod(0o500)
        folder = str(root)
    done = run("doctor", folder)
    assert done.code == 1
    assert "nothing can be written here" in done.out


def test_missing_hooks_are_found_and_named(root: Path) -> None:
    """R-hook: a project that a coding agent works in, without our hooks."""
    (root / ".claude").mkdir()
    answer = doctor(root)
    [finding] = named(answer, "hooks of claude-code")
    assert not finding["ok"]
    assert "noclobber install claude-code" in finding["remedy"]
    assert run("install", "claude-code", "--root", str(root)).code == 0
    assert all(finding["ok"] for finding in named(doctor(root), "hooks of claude-code"))


def test_it_says_which_level_commands_get_without_any_hook(tmp_path: Path, monkeypatch: Any) -> None:
    """N-shell: which level this place gives, and why. It was said only where hooks were installed."""
    (found,) = check_commands(str(tmp_path))
    assert found.ok
    assert found.detail.startswith(("guarded: ", "watched: there can be no private view here ("))
    assert os.listdir(tmp_path) == []
    monkeypatch.setenv("HOME", str(tmp_path))
    (found,) = check_commands(str(tmp_path))
    assert found.detail.startswith("watched: ")
    assert "home folder" in found.detail
    assert "plain: " in check_commands("/")[0].detail
    assert [each["ok"] for each in named(doctor(tmp_path), "noclobber run")] == [True]
