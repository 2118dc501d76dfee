"""`noclobber lock`: what people and scripts see, and the exit codes they branch on."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from noclobber.lock.lock import DeliverableLock
from tests.rigs.locks import dead_process, finish, noclobber, put_record, python


def test_acquire_prints_an_id_that_renews_and_releases(tmp_path: Path) -> None:
    """N-cli: the command exits, the lock stays, the id is all that is needed."""
    code, lock_id, told = noclobber("lock", "acquire", tmp_path, "--lease", 60, "--holder", "me")
    assert (code, len(lock_id)) == (0, 32)
    assert "locked for 60 s" in told
    assert noclobber("lock", "status", tmp_path)[0] == 0
    assert noclobber("lock", "renew", tmp_path, "--id", lock_id, "--lease", 90)[0] == 0
    code, text, _ = noclobber("lock", "status", tmp_path, "--json")
    status = json.loads(text)
    assert (status["state"], status["holder"], status["lock_id"]) == ("live", "me", lock_id)
    assert status["lease_remaining_s"] > 60
    assert noclobber("lock", "release", tmp_path, "--id", lock_id)[0] == 0
    assert noclobber("lock", "status", tmp_path)[0] == 1


def test_contention_is_exit_code_75_and_a_report(tmp_path: Path) -> None:
    """REQ-LOCK-007: for people a sentence, for machines the exact object."""
    with DeliverableLock(tmp_path, holder="builder-1"):
        for words in (
            ["acquire", tmp_path],
            ["run", tmp_path, "--", "true"],
            ["recover", tmp_path],
            ["retire", tmp_path],
        ):
            code, _, complaint = noclobber("lock", *words)
            assert code == 75, words
            assert "locked by builder-1" in complaint
            assert "Traceback" not in complaint
            words.insert(2, "--json")
            code, text, _ = noclobber("lock", *words)
            assert code == 75
            assert sorted(json.loads(text)) == [
                "contention_time", "deliverable_id", "error_type", "holder", "lease_remaining_s",
            ]  # fmt: skip


def test_a_former_owner_is_told_and_changes_nothing(tmp_path: Path) -> None:
    """REQ-LOCK-005: exit code 3, and the error object with --json."""
    lock = DeliverableLock(tmp_path, holder="b").acquire()
    code, _, complaint = noclobber("lock", "release", tmp_path, "--id", "0" * 32)
    assert code == 3
    assert "or the id is wrong; the folder is locked by b" in complaint  # finding U13: nobody took it over.
    code, text, _ = noclobber("lock", "release", tmp_path, "--id", "0" * 32, "--json")
    assert (code, json.loads(text)["error_type"]) == (3, "LOCK_LOST")
    lock.release()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["lock"], 2), (["lock", "acquire"], 2), (["lock", "acquire", "{}", "--lease", "0"], 2),
        (["lock", "acquire", "{}", "--lease", "90000"], 2), (["lock", "release", "{}"], 2),
        (["lock", "run", "{}"], 2), (["lock", "acquire", "{}/missing"], 3), (["lock", "status", "{}/missing"], 3),
        (["lock", "acquire", "{}", "--pid", "2147483600"], 2), (["lock", "list", "{}/missing"], 3),
    ],
)  # fmt: skip
def test_calls_that_are_wrong_say_so_in_a_line(tmp_path: Path, words: list[str], expected: int) -> None:
    """Documented exit codes, and never a traceback."""
    code, _, complaint = noclobber(*[word.replace("{}", str(tmp_path)) for word in words])
    assert code == expected, complaint
    assert complaint
    assert "Traceback" not in complaint


def test_recover_and_retire_clear_orphans_and_say_whose(tmp_path: Path) -> None:
    """REQ-LOCK-006, REQ-LOCK-012: by hand, recorded."""
    put_record(tmp_path, dead_process(), holder="crashed-1")
    code, said, _ = noclobber("lock", "status", tmp_path)
    assert code == 1
    assert "dead" in said
    code, said, _ = noclobber("lock", "recover", tmp_path)
    assert code == 0
    assert "crashed-1" in said
    assert "pid_dead" in said
    (tmp_path / ".lock").write_text("")
    code, said, _ = noclobber("lock", "retire", tmp_path, "--json")
    assert (code, json.loads(said)["recovered"]["recovery_reason"]) == (0, "corrupt")


def test_list_is_a_table_for_people_and_a_list_for_machines(tmp_path: Path) -> None:
    """N-cli: holder, age, remaining lease, state."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    assert "nothing is locked" in noclobber("lock", "list", tmp_path)[1]
    put_record(tmp_path / "b", dead_process(), holder="evil\x1b[2Jname")
    with DeliverableLock(tmp_path / "a", holder="builder-1", deliverable_id="DEL-1"):
        code, table, _ = noclobber("lock", "list", tmp_path)
        code_json, text, _ = noclobber("lock", "list", tmp_path, "--json")
    assert code == code_json == 0
    lines = table.splitlines()
    assert lines[0].lower().split() == ["state", "holder", "age", "remaining", "pid", "deliverable", "folder"]
    assert lines[1].split()[:2] == ["live", "builder-1"]
    assert "\x1b" not in table, "a lock file drives the terminal"
    assert [status["state"] for status in json.loads(text)] == ["live", "dead"]


def test_run_passes_the_exit_code_and_tells_the_child_its_id(tmp_path: Path) -> None:
    """N-cli: held while it runs, free when it has ended."""
    code = "import os, json; print(os.environ['NOCLOBBER_LOCK_ID'], os.environ['NOCLOBBER_LOCK_FOLDER'], os.getpid());" \
           "print(json.load(open(os.environ['NOCLOBBER_LOCK_FOLDER'] + '/.lock'))['pid']); raise SystemExit(41)"  # fmt: skip
    returned, said, complaint = noclobber("lock", "run", tmp_path, "--", sys.executable, "-c", code)
    assert returned == 41, complaint
    lock_id, folder, pid, locked_pid = said.split()
    assert len(lock_id) == 32
    assert folder == str(tmp_path)
    assert pid == locked_pid, "the lock is bound to the command, not to us"
    assert not (tmp_path / ".lock").exists()


@pytest.mark.parametrize(
    ("command", "expected"),
    [(["/nowhere/to/be/found"], 127), (["/etc/hostname"], 126), (["sh", "-c", "kill -9 $$"], 137)],
)
def test_run_ends_as_a_shell_would(tmp_path: Path, command: list[str], expected: int) -> None:
    """127 not found, 126 not executable, 128 + n by signal."""
    assert noclobber("lock", "run", tmp_path, "--", *command)[0] == expected
    assert not (tmp_path / ".lock").exists()


CLI = "import sys; from noclobber.cli import main; sys.exit(main(sys.argv[1:]))"
CATCHER = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("got it"), sys.exit(5)))
signal.signal(signal.SIGINT, signal.SIG_DFL)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGTERM, 5), (signal.SIGINT, 130)])
def test_run_passes_signals_on(tmp_path: Path, number: signal.Signals, expected: int) -> None:
    """The command decides what they mean."""
    process = python(
        CLI, "lock", "run", tmp_path, "--", sys.executable, "-c", CATCHER, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.kill(process.pid, number)
    code, said, complaint = finish(process)
    assert code == expected, complaint
    assert ("got it" in said) == (number == signal.SIGTERM)
    assert not (tmp_path / ".lock").exists()


def test_when_run_is_killed_its_command_ends_and_the_lock_is_an_orphan(tmp_path: Path) -> None:
    """Never two in one folder: the lock is bound to the command, and on Linux the command is told to end."""
    if not sys.platform.startswith("linux"):
        pytest.skip(
            "only Linux tells a child that its parent died; elsewhere the lock stays until the command ends"
        )
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    process = python(CLI, "lock", "run", tmp_path, "--", sys.executable, "-c", code)
    assert process.stdout is not None
    process.stdout.readline()
    process.kill()
    process.wait()
    with DeliverableLock(tmp_path, holder="next").acquire(timeout_s=10):
        pass
    finish(process)


def test_run_says_where_the_command_belongs(tmp_path: Path) -> None:
    """N-cli: the dashes are what people forget."""
    code, _, complaint = noclobber("lock", "run", tmp_path, "echo", "hi")
    assert code == 2
    assert "FOLDER -- echo hi" in complaint


def test_run_ends_a_command_whose_lock_was_lost(tmp_path: Path) -> None:
    """REQ-LOCK-013: a holder that lost its lock is told."""
    code = "import time; print('ready', flush=True); time.sleep(60)"
    process = python(CLI, "lock", "run", tmp_path, "--lease", 1, "--", sys.executable, "-c", code)
    assert process.stdout is not None
    process.stdout.readline()
    (tmp_path / ".lock").unlink()
    returned, _, complaint = finish(process)
    assert returned == 3
    assert "the lock was lost" in complaint
