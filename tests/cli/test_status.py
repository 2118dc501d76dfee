"""`noclobber status` and `watch`: what a person sees of turns in other processes, locks, refusals and leftovers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from noclobber import StaleFileError, Workspace
from noclobber.guard import open_turns
from noclobber.lock.lock import DeliverableLock
from tests.rigs.commands import Terminal, environment, noclobber_command, python, run
from tests.rigs.hooks import HookRig
from tests.view.scene import refused_run

WORKER = """
import sys
from noclobber import Workspace
ws = Workspace(sys.argv[1])
turn = ws.turn(agent_id=sys.argv[2], session_id="s-1", host="claude-code")
if sys.argv[3] == "write":
    turn.write_file("made.md", "x")
print("ready", flush=True)
sys.stdin.readline()
turn.end()
print("ended", flush=True)
sys.stdin.readline()
"""


@contextmanager
def worker(root: Path, agent: str = "builder-1", act: str = "write") -> Iterator[subprocess.Popen[str]]:
    """A process with an open turn. A line on its stdin ends the turn, another one the process."""
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(root), agent, act],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate(timeout=60)


def step(process: subprocess.Popen[str]) -> None:
    """Let a worker go on, and wait until it has."""
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "ended\n"


def status(root: Path, *words: str) -> Any:
    done = run("status", "--json", "--root", str(root), *words)
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out)


# Turns


def test_a_turn_of_another_process_is_seen_while_it_is_open(root: Path) -> None:
    """N-cli: turns live in memory; status sees them all the same."""
    with worker(root) as process:
        [turn] = status(root)["turns"]
        assert (turn["agent_id"], turn["session_id"], turn["host"]) == ("builder-1", "s-1", "claude-code")
        assert (turn["pid"], turn["state"]) == (process.pid, "running")
        assert "builder-1" in run("status", "--root", str(root)).out

        step(process)
        assert status(root)["turns"] == []


def test_the_turn_of_a_killed_process_is_not_shown_as_open(root: Path) -> None:
    """N-cli: judged by the process, not by the file that it left."""
    with worker(root) as process:
        process.send_signal(signal.SIGKILL)
        process.wait(60)

        seen = status(root)
        assert seen["turns"] == []
        assert len(seen["leftovers"]["turns"]) == 1
        assert run("doctor", str(root)).code == 0
        assert os.listdir(root / ".noclobber" / "turns") == []


def test_a_workspace_that_is_only_read_is_left_as_it_was(root: Path) -> None:
    """N-cli: neither a turn nor status creates anything."""
    (root / "a.md").write_text("x")
    with worker(root, act="read"):
        assert status(root)["turns"] == []
        run("doctor", "--no-repair", str(root))
    assert os.listdir(root) == ["a.md"]


def test_the_first_write_shows_turns_that_were_open_before(root: Path) -> None:
    """N-cli: there was no place for them until then."""
    with Workspace(root) as workspace:
        reader, writer = workspace.turn(agent_id="reader"), workspace.turn(agent_id="writer")
        assert open_turns.look(workspace.state_folder) == []
        writer.write_file("a.md", "x")
        assert {turn.agent_id for turn in open_turns.look(workspace.state_folder)} == {"reader", "writer"}
        reader.end()
        assert [turn.agent_id for turn in open_turns.look(workspace.state_folder)] == ["writer"]
        writer.end()
    assert os.listdir(f"{workspace.state_folder}/turns") == []


def test_a_turn_that_is_dropped_without_an_end_is_hidden(root: Path) -> None:
    """N-cli: nobody can end it any more."""
    workspace = Workspace(root)
    with workspace.turn() as turn:
        turn.write_file("a.md", "x")
    turn = workspace.turn(agent_id="dropped")
    assert len(open_turns.look(workspace.state_folder)) == 1
    del turn
    assert open_turns.look(workspace.state_folder) == []


def test_turns_are_seen_again_after_the_state_folder_was_removed(root: Path) -> None:
    """N-cli: `git clean -fdx` takes .noclobber along."""
    with Workspace(root) as workspace, workspace.turn(agent_id="ana") as turn:
        turn.write_file("a.md", "x")
        shutil.rmtree(workspace.state_folder)
        turn.write_file("b.md", "x")
        assert [turn.agent_id for turn in open_turns.look(workspace.state_folder)] == ["ana"]


def test_a_forked_child_does_not_end_its_parents_turn(root: Path) -> None:
    """N-cli: the child has a copy of the turn, and it is not the child's."""
    with Workspace(root) as workspace, workspace.turn(agent_id="parent") as turn:
        turn.write_file("a.md", "x")
        child = os.fork()
        if child == 0:
            # The child's copies of our descriptors are closed, and a file of its own may get such a number.
            strangers = [os.open(root / "a.md", os.O_RDWR) for _ in range(64)]
            turn.end()
            untouched = os.pread(strangers[0], 9, 0) == b"x"
            mine = workspace.turn(agent_id="child")
            seen = {present.agent_id for present in open_turns.look(workspace.state_folder)}
            mine.end()
            workspace.close()
            os._exit(0 if untouched and seen == {"parent", "child"} else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert [present.agent_id for present in open_turns.look(workspace.state_folder)] == ["parent"]


def test_a_link_in_the_boards_place_is_not_followed(root: Path, tmp_path: Path) -> None:
    """N-cli: our files stay in our folder."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with Workspace(root) as workspace, workspace.turn() as turn:
        turn.write_file("a.md", "x")
    os.rmdir(f"{workspace.state_folder}/turns")
    os.symlink(elsewhere, f"{workspace.state_folder}/turns")
    with Workspace(root) as workspace, workspace.turn() as turn:
        turn.write_file("a.md", "y")  # Unseen, but it works.
        assert os.listdir(elsewhere) == []


@pytest.mark.parametrize("name", ["\udcff", "日本" * 100, "\x1b[2J" * 50, "x" * 5000])
def test_any_name_of_an_agent_leaves_the_turn_working(root: Path, name: str) -> None:
    """N-cli: a courtesy, never a condition."""
    with Workspace(root) as workspace, workspace.turn(agent_id="first") as turn:
        turn.write_file("a.md", "x")
        with workspace.turn(agent_id=name):
            done = run("status", "--root", str(root))
            assert done.code == 0
            assert "\x1b" not in done.out


# Refusals, locks, kept files, troubles


def make_refusals(root: Path, count: int) -> None:
    with Workspace(root) as workspace, workspace.turn(agent_id="ana") as turn:
        for number in range(count):
            turn.write_file(f"{number}.md", "x")
            (root / f"{number}.md").write_text("somebody else")
            with pytest.raises(StaleFileError):
                turn.write_file(f"{number}.md", "y")


def test_the_last_refusals_are_shown_with_who_and_what(root: Path) -> None:
    """011-SC-004 made visible: one line for each, the newest last."""
    make_refusals(root, 7)
    seen = status(root)["refusals"]
    assert [os.path.basename(refusal["path"]) for refusal in seen] == ["2.md", "3.md", "4.md", "5.md", "6.md"]
    assert {(refusal["agent_id"], refusal["error_type"]) for refusal in seen} == {("ana", "STALE_FILE")}
    assert len(status(root, "-n", "7")["refusals"]) == 7
    assert status(root, "-n", "0")["refusals"] == []
    assert "STALE_FILE  6.md" in run("status", cwd=root).out


def test_locks_below_the_workspace_are_shown(root: Path) -> None:
    """REQ-LOCK-010: status is one of the calls that may show what a lock file says."""
    (root / "q3").mkdir()
    with DeliverableLock(str(root / "q3"), holder="ana", deliverable_id="Q3"):
        [lock] = status(root)["locks"]
        assert (lock["holder"], lock["state"], lock["folder"]) == ("ana", "live", str(root / "q3"))
    assert status(root)["locks"] == []


def test_kept_files_are_shown_by_their_own_names(root: Path) -> None:
    """009-SC-001: bytes that were kept aside must be found by the person they are for."""
    kept = root / ".noclobber" / "kept"
    kept.mkdir(parents=True)
    (kept / f"kept-0a1b-{'c' * 64}~plan.md").write_text("late words")
    [file] = status(root)["kept"]
    assert (file["name"], file["replaced_sha256"], file["size_bytes"]) == ("plan.md", "c" * 64, 10)
    assert "plan.md" in run("status", cwd=root).out


def test_refused_commands_are_among_what_needs_a_person(root: Path) -> None:
    """N-cli, N-shell: they wait to be run again or dropped, and `run list` is not where one looks first."""
    (root / ".noclobber").mkdir()
    refused_run(root)

    [command] = status(root)["runs"]

    assert command["error_type"] == "STALE_FILE"
    shown = run("status", cwd=root).out
    assert "refused commands" in shown
    assert command["run_id"] in shown
    assert command["command"].split()[0] in shown


def test_a_part_that_cannot_be_had_does_not_take_the_others_along(root: Path) -> None:
    """N-cli: who asks for the status does so because something is odd."""
    make_refusals(root, 1)
    (root / "noclobber.toml").write_text("unreed = 'deny'\n")
    (root / "q3").mkdir()
    with DeliverableLock(str(root / "q3"), holder="ana"):
        ledger = root / ".noclobber" / "agent_trace.jsonl"
        ledger.unlink()
        ledger.mkdir()
        seen = status(root)
    assert len(seen["locks"]) == 1
    assert any("Did you mean 'unread'?" in trouble for trouble in seen["troubles"])
    assert any("agent_trace.jsonl" in trouble for trouble in seen["troubles"])


def test_a_sub_folder_finds_its_workspace_as_git_does(root: Path) -> None:
    """N-cli: the nearest one upwards; a repository if there is none; else the folder itself."""
    deep = root / "a" / "b"
    deep.mkdir(parents=True)
    assert json.loads(run("status", "--json", cwd=deep).out)["root"] == str(deep)
    (root / "a" / ".git").mkdir()
    assert json.loads(run("status", "--json", cwd=deep).out)["root"] == str(root / "a")
    (root / "pyproject.toml").write_text("[tool.noclobber]\n")
    assert json.loads(run("status", "--json", cwd=deep).out)["root"] == str(root)
    assert json.loads(run("status", "--json", "--root", ".", cwd=deep).out)["root"] == str(deep)


# Coding agents


def test_sessions_and_claims_of_coding_agents_are_shown(rig: HookRig, root: Path) -> None:
    """R-hook: who knows which files, and who is about to write one."""
    for name in ("a.md", "b.md"):
        (root / name).write_text("x\n")
        rig.read(root / name)
    (root / "a.md").write_text("y\n")
    rig.edit(root / "a.md", "x", "z")  # Refused, so the session's name is on record.
    assert rig.ask("Write", {"file_path": str(root / "b.md"), "content": "z"}, tool_use_id="toolu_9") == {}

    seen = status(root)
    [session] = seen["sessions"]
    assert (session["host"], session["session_id"], session["agent_id"]) == ("claude-code", "s1", "main")
    assert session["file_count"] == 2
    [claim] = seen["claims"]
    assert (claim["path"], claim["holder"]) == (str(root / "b.md"), "claude-code/s1/main")
    assert 0 < claim["remaining_s"] <= 30
    text = run("status", cwd=root).out
    assert "claude-code" in text
    assert "b.md" in text
    (root / "elsewhere").mkdir()
    assert status(root / "elsewhere")["sessions"] == []


def test_a_memory_that_others_may_write_is_not_believed(rig: HookRig, root: Path) -> None:
    """R-hook: as the hooks themselves have it."""
    (root / "a.md").write_text("x\n")
    rig.read(root / "a.md")
    assert len(status(root)["sessions"]) == 1
    (rig.runtime / "noclobber").chmod(0o777)
    assert status(root)["sessions"] == []


# Watching


def test_watch_on_a_pipe_is_one_object_for_each_change(root: Path) -> None:
    """N-cli: a program learns of a turn, of its end, and of nothing in between."""
    with worker(root) as process, subprocess.Popen(
        noclobber_command("watch", "--interval", "0.05", "--root", str(root)),
        stdout=subprocess.PIPE, text=True, env=environment(),
    ) as watch:  # fmt: skip
        first = json.loads(watch.stdout.readline())
        assert [turn["agent_id"] for turn in first["turns"]] == ["builder-1"]
        step(process)
        second = json.loads(watch.stdout.readline())
        assert second["turns"] == []
        watch.send_signal(signal.SIGINT)
        assert watch.stdout.read() == ""
        assert watch.wait(60) == 0


def test_watch_ends_when_its_reader_goes_away(root: Path) -> None:
    """N-cli: even if nothing ever changes again."""
    command = f"{' '.join(noclobber_command('watch', '--root', str(root)))} | head -n 1 >/dev/null; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=environment(), timeout=60
    )
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_watch_redraws_on_a_terminal_and_leaves_it_as_it_was(root: Path) -> None:
    """N-cli: live, within the screen, and the cursor is back afterwards."""
    make_refusals(root, 30)
    with (
        worker(root) as process,
        Terminal("watch", "--interval", "0.05", "-n", "30", cwd=root, rows=20) as terminal,
    ):
        picture = terminal.read_until("Ctrl-C ends")
        assert "builder-1" in picture
        assert picture.count("\n") <= 20
        assert "late.md" not in picture
        with Workspace(root) as workspace, workspace.turn(agent_id="late") as turn:
            turn.write_file("late.md", "late\n")
        terminal.read_until("late.md")
        step(process)
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.read_all().endswith("\x1b[?25h")
        assert terminal.process.returncode == 0


def test_the_passing_of_time_is_no_change(root: Path) -> None:
    """N-cli: the seconds that a lease has left do not make a new picture every second."""
    (root / "q3").mkdir()
    code = (
        "import sys\nfrom noclobber.view.workspace_state import read_state\n"
        "class Clock:\n"
        "    def __init__(self, s): self.s = s\n"
        "    def now_s(self): return self.s\n"
        "import time; now = time.time()\n"
        "one, two = (read_state(sys.argv[1], Clock(now + later)) for later in (0, 7))\n"
        "assert one != two and one.locks[0]['lease_remaining_s'] != two.locks[0]['lease_remaining_s']\n"
        "assert one.what_is_new() == two.what_is_new()\n"
    )
    with DeliverableLock(str(root / "q3"), holder="ana"):
        done = python(code, str(root))
    assert done.code == 0, done.err


def test_the_whole_disk_is_not_searched_for_locks(tmp_path: Path) -> None:
    """N-cli: in `/`, or at home, nobody waits for a walk through everything; it says so."""
    (tmp_path / "work").mkdir()
    with DeliverableLock(str(tmp_path / "work"), holder="ana"):
        found = json.loads(run("status", "--json", cwd="/").out)
        home = json.loads(run("status", "--json", "--root", str(tmp_path), HOME=str(tmp_path)).out)
        inside = json.loads(run("status", "--json", "--root", str(tmp_path), HOME="/nowhere").out)

    assert [found["locks"], home["locks"], len(inside["locks"])] == [[], [], 1]
    assert ["--root" in told["troubles"][-1] for told in (found, home)] == [True, True]
    assert inside["troubles"] == []


def test_where_nothing_of_noclobbers_is_status_says_so_and_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding U10: "nothing yet" is another answer than "you are somewhere else"."""
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    seen = run("status", cwd=folder)
    assert (seen.code, "is not a workspace" in seen.out) == (1, True)
    assert run("status", "--json", cwd=folder).code == 1
    (folder / "noclobber.toml").write_text("")
    seen = run("status", cwd=folder)
    assert (seen.code, "no guarded write was made here yet" in seen.out) == (0, True)
