"""`noclobber ledger`, as a person and a script call it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from noclobber import StaleFileError, Workspace
from noclobber.cli import main
from noclobber.ledger import AgentTraceLedger
from noclobber.lock.lock import DeliverableLock
from tests.rigs.commands import run


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[AgentTraceLedger]:
    os.mkdir(tmp_path / ".noclobber")
    with AgentTraceLedger(tmp_path / ".noclobber" / "agent_trace.jsonl") as ledger:
        for number in range(5):
            ledger.append(
                {
                    "action_type": "MUTATION_CONFLICT",
                    "payload": {
                        "tool_name": "write_file",
                        "target_file": f"/w/{number}\x1b[2J.md",
                        "baseline_hash": "ABSENT",
                        "current_hash": "UNREADABLE",
                    },
                    "result": {"status": "DENIED", "error_type": "STALE_FILE"},
                    "identity": {"agent_id": "ana"},
                }
            )
        yield ledger


def damage(ledger: AgentTraceLedger, line: int, data: bytes = b"garbage\n") -> None:
    with open(ledger.path, "rb") as file:
        lines = file.read().splitlines(keepends=True)
    lines[line - 1] = data
    with open(ledger.path, "wb") as file:
        file.write(b"".join(lines))


def test_verify_prints_the_head_and_exits_with_0(
    ledger: AgentTraceLedger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-ledger: every report carries head and count; --root and PATH name the same ledger."""
    for where in (["--root", str(tmp_path)], [ledger.path]):
        assert main(["ledger", "verify", *where]) == 0
        out, err = capsys.readouterr()
        assert ledger.head in out
        assert "events  5" in out
        assert err == ""


@pytest.mark.broken_ledger
def test_verify_names_the_broken_line_and_exits_with_1(
    ledger: AgentTraceLedger, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-ledger: for a person and for a machine."""
    damage(ledger, 3)

    assert main(["ledger", "verify", ledger.path]) == 1
    assert "line 3 is broken: it is not JSON" in capsys.readouterr().out
    assert main(["ledger", "verify", "--json", ledger.path]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["ok"], answer["line"], answer["event_count"]) == (False, 3, 2)


def test_verify_with_a_saved_head_sees_a_cut_tail(
    ledger: AgentTraceLedger, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-ledger: the head that `verify --json` printed is the one that --head takes."""
    main(["ledger", "verify", "--json", ledger.path])
    head = json.loads(capsys.readouterr().out)["head"]
    assert main(["ledger", "verify", "--head", head, ledger.path]) == 0
    assert "line 5" in capsys.readouterr().out
    damage(ledger, 5, b"")

    assert main(["ledger", "verify", ledger.path]) == 0
    assert main(["ledger", "verify", "--head", head, ledger.path]) == 1
    assert main(["ledger", "verify", "--head", "nonsense", ledger.path]) == 2


@pytest.mark.broken_ledger
def test_a_torn_tail_is_mentioned_and_is_no_failure(
    ledger: AgentTraceLedger, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-ledger: reported, never silent."""
    damage(ledger, 5, b'{"seq":5')

    assert main(["ledger", "verify", ledger.path]) == 0
    assert "8 bytes are torn" in capsys.readouterr().out


def test_a_mistyped_path_is_not_an_empty_chain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """R-ledger: `verify` of nothing does not say OK."""
    assert main(["ledger", "verify", str(tmp_path / "nope.jsonl")]) == 3
    assert "nothing is recorded here yet" in capsys.readouterr().err
    assert main(["ledger", "verify", str(tmp_path)]) == 3
    assert main(["ledger", "tail", "--root", str(tmp_path)]) == 3
    assert main(["ledger"]) == 2


def test_tail_shows_the_last_events_and_sends_no_escapes_to_the_terminal(
    ledger: AgentTraceLedger, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-ledger: a path may hold anything; what a person sees is printable."""
    assert main(["ledger", "tail", "-n", "2", ledger.path]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["4", "5"]
    assert all("ana" in line and "\\x1b" in line and "\x1b" not in line for line in lines)

    assert main(["ledger", "tail", "--jsonl", "-n", "99", ledger.path]) == 0
    assert [json.loads(line)["seq"] for line in capsys.readouterr().out.splitlines()] == [1, 2, 3, 4, 5]
    assert main(["ledger", "tail", "-n", "0", ledger.path]) == 0
    assert capsys.readouterr().out == ""
    assert main(["ledger", "tail", "-n", "-1", ledger.path]) == 2


@pytest.mark.broken_ledger
@pytest.mark.parametrize("how", ["--json", "--jsonl"])
def test_a_line_that_is_no_utf8_is_no_event(
    how: str, ledger: AgentTraceLedger, capsys: pytest.CaptureFixture[str]
) -> None:
    """N-fuzz: found by it; `json.loads` takes half a letter from bytes, and printing it was a traceback."""
    damage(ledger, 3, b'{"seq":3,"time":"x","action_type":"HALF\xed\xa0\x80"}\n')
    for words in (["show"], ["tail"]):
        assert main(["ledger", *words, how, ledger.path]) == 1
        told = capsys.readouterr()
        assert "not a ledger entry" in told.err
        assert "HALF" not in told.out


@pytest.mark.broken_ledger
def test_tail_shows_what_stands_around_a_garbage_line(
    ledger: AgentTraceLedger, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-ledger: and says that there is one."""
    damage(ledger, 4, b"[1]\n")

    assert main(["ledger", "tail", ledger.path]) == 1
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 4
    assert "not a ledger entry" in err


def test_a_terminal_gets_a_progress_bar_and_a_pipe_gets_none(ledger: AgentTraceLedger) -> None:
    """R-ledger: progress is shown where somebody looks."""
    command = [sys.executable, "-m", "noclobber", "ledger", "verify", ledger.path]
    piped = subprocess.run(command, capture_output=True, timeout=60)
    assert (piped.returncode, piped.stderr) == (0, b"")

    leader, terminal = pty.openpty()
    shown = subprocess.run(command, stdout=subprocess.PIPE, stderr=terminal, timeout=60)
    os.close(terminal)
    assert shown.returncode == 0
    assert "100 %" in os.read(leader, 4096).decode()
    os.close(leader)


def test_who_looks_for_locks_in_the_workspaces_ledger_is_told_where_they_are(root: Path) -> None:
    """N-cli: a lock's events are in the locked folder's own ledger."""
    with Workspace(root) as workspace, workspace.turn(agent_id="ana") as turn:
        turn.write_file("a.md", "one\n")
    (root / "work").mkdir()
    with DeliverableLock(str(root / "work"), holder="ana"):
        pass

    done = run("ledger", "show", "--kind", "LOCK_*", cwd=root)

    assert "noclobber ledger show --locks" in done.err
    there = run("ledger", "show", "work/.lock-ledger.jsonl", "--kind", "LOCK_*", cwd=root)
    assert ("LOCK_ACQUIRED" in there.out, there.err) == (True, "")


def test_two_sessions_that_are_both_called_main_are_told_apart(root: Path) -> None:
    """finding U5: by the beginning of the session's id, in the ledger and in the status."""
    (root / "plan.md").write_text("one\n")
    with Workspace(root) as workspace:
        for session in ("4f2a91c3-aaaa", "77d01be2-bbbb"):
            with workspace.turn(agent_id="main", session_id=session) as turn:
                turn.read_file("plan.md")
                (root / "plan.md").write_text(f"before {session}\n")
                with pytest.raises(StaleFileError):
                    turn.write_file("plan.md", b"mine\n")
    for words in (("ledger", "show"), ("ledger", "tail"), ("status",)):
        shown = run(*words, "--root", str(root)).out
        assert "main 4f2a91c3" in shown, words
        assert "main 77d01be2" in shown, words
        assert "aaaa" not in shown
