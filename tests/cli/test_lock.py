"""`noclobber lock`: what people and scripts see, and the exit codes they branch on."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

import pytest

from noclobber.cli import lock_caller
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
    assert (status["state"], status["holder"]) == ("live", "me")
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
    assert (
        "the id is wrong, or its lock has ended; the folder is locked by b" in complaint
    )  # finding U13: nobody took it over.
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
    os.utime(tmp_path / ".lock", (0, 0))
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


def test_the_id_is_shown_once_and_to_its_holder_only(tmp_path: Path) -> None:
    """finding S12, finding S7: not by status, list, a refusal, the lock file or its record."""
    code, text, _ = noclobber("lock", "acquire", tmp_path, "--holder", "me", "--json")
    taken = json.loads(text)
    assert (code, taken["holder"], len(taken["lock_id"])) == (0, "me", 32)
    shown = [noclobber("lock", *words)[1:] for words in (
        ("status", tmp_path), ("status", tmp_path, "--json"), ("list", tmp_path), ("list", tmp_path, "--json"),
        ("acquire", tmp_path), ("acquire", tmp_path, "--json"), ("retire", tmp_path, "--json"),
        ("renew", tmp_path, "--id", "0" * 32), ("release", tmp_path, "--id", taken["public_id"]),
    )]  # fmt: skip
    record = (tmp_path / ".lock").read_text()
    shown.append((record, (tmp_path / ".lock-ledger.jsonl").read_text()))
    assert not [words for words in shown if taken["lock_id"] in "".join(words)]
    assert json.loads(record)["secret_sha256"] == sha256(taken["lock_id"].encode()).hexdigest()
    assert noclobber("lock", "release", tmp_path, "--id", taken["lock_id"])[0] == 0


def test_a_wrong_id_is_not_called_a_take_over(tmp_path: Path) -> None:
    """finding D13: nobody took anything over."""
    with DeliverableLock(tmp_path, holder="builder-1"):
        code, _, told = noclobber("lock", "renew", tmp_path, "--id", "bogus")
    assert code == 3
    assert "the id is wrong" in told
    assert "taken over" not in told


def test_the_holder_retires_with_its_id(tmp_path: Path) -> None:
    """finding D13, REQ-LOCK-012: without it that is contention."""
    lock_id = noclobber("lock", "acquire", tmp_path)[1]
    assert noclobber("lock", "retire", tmp_path)[0] == 75
    assert noclobber("lock", "retire", tmp_path, "--id", lock_id)[0] == 0
    assert not (tmp_path / ".lock").exists()


AGENT = """
import subprocess, sys
shell = 'id=$("$1" -m noclobber lock acquire "$2" --holder agent) && echo "$id"'
said = subprocess.run(["sh", "-c", shell, "sh", sys.executable, sys.argv[1]], capture_output=True, text=True)
print(said.stdout.strip() or said.stderr, flush=True)
sys.stdin.read()
"""


def test_a_shell_agents_lock_lives_as_long_as_the_agent_and_no_longer(tmp_path: Path) -> None:
    """finding D12: not as long as the shell that ran the command, and not for its whole lease after a crash."""
    agent = python(AGENT, tmp_path)
    assert agent.stdout is not None
    lock_id = agent.stdout.readline().strip()
    assert len(lock_id) == 32
    status = DeliverableLock(tmp_path).status()
    assert (status.state, status.pid) == ("live", agent.pid)
    agent.kill()
    agent.communicate()
    assert DeliverableLock(tmp_path).status().state == "dead"
    assert noclobber("lock", "acquire", tmp_path, "--lease-only")[0] == 0
    assert DeliverableLock(tmp_path).status().pid == 1


@pytest.mark.parametrize(
    ("above", "expected"),
    [
        ([("bash", "-c", "x"), ("claude",)], 2),
        ([("/bin/bash", "-lc", "x"), ("timeout", "9", "x"), ("node", "agent.js")], 3),
        ([("bash",), ("bash",), ("xterm",)], 2),
        ([("-zsh",), ("login",)], 1),
        ([("bash", "build.sh"), ("make",)], 1),
        ([("sh", "-c", "x"), ("sshd: me@notty",)], None),
        ([("sh", "-c", "x")], None),
    ],
)
def test_the_agent_is_found_above_passing_shells(
    monkeypatch: pytest.MonkeyPatch, above: list[tuple[str, ...]], expected: int | None
) -> None:
    """finding D12: too long is safe, too short is not; where it cannot be told, the lease counts."""
    tree = {n + 11: lock_caller.Ancestor(n + 11, n + 12, words) for n, words in enumerate(above)}
    last = max(tree)
    tree[last] = tree[last]._replace(parent=1)
    monkeypatch.setattr(lock_caller, "look_up", tree.get)
    monkeypatch.setattr(os, "getppid", lambda: 11)
    assert lock_caller.calling_process() == (None if expected is None else expected + 10)


def test_no_escape_sequence_reaches_the_terminal(tmp_path: Path) -> None:
    """finding S18: whatever a lock file, a folder's name or a command says."""
    evil = "evil\x1b[2J\x9b31m"
    folder = tmp_path / evil
    folder.mkdir()
    put_record(folder, dead_process(), holder=evil, deliverable_id=evil)
    told = [noclobber("lock", *words)[1:] for words in (
        ("status", folder), ("list", tmp_path), ("recover", folder), ("acquire", folder, "--lease", 0),
        ("retire", folder), ("run", folder, "--", tmp_path / f"no-{evil}"), ("acquire", folder),
        ("acquire", folder), ("run", folder, "--", "true"), ("renew", folder, "--id", evil),
        ("acquire", tmp_path / f"missing-{evil}"),
    )]  # fmt: skip
    assert any("x1b" in "".join(said) for said in told), "nothing was told"
    assert not [said for said in told if {"\x1b", "\x9b"} & set("".join(said))]


def test_the_lock_commands_keep_lock_files_out_of_git_and_the_library_writes_nothing_there(
    tmp_path: Path,
) -> None:
    """finding D7, REQ-LOCK-010, REQ-LOCK-008: the repository's exclude file; another user's is left alone."""
    info = tmp_path / ".git/info"
    info.mkdir(parents=True)
    folder = tmp_path / "d"
    folder.mkdir()
    with DeliverableLock(folder):
        pass
    assert list(info.iterdir()) == []
    assert noclobber("lock", "run", folder, "--", "true")[0] == 0
    assert ".lock" in (info / "exclude").read_text().splitlines()
    (info / "exclude").unlink()
    assert noclobber("lock", "recover", folder)[0] == 0
    assert ".lock" in (info / "exclude").read_text().splitlines()
    (info / "exclude").unlink()
    info.chmod(0o500)
    code, lock_id, _ = noclobber("lock", "acquire", folder)
    assert (code, len(lock_id)) == (0, 32), "a repository that says no is no reason not to lock"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user, so only root can set it up")
def test_an_unreadable_lock_is_called_unreadable_with_owner_and_remedy(tmp_path: Path) -> None:
    """finding D11, X-003: by list and doctor; neither says that recover clears it."""
    code = """
import contextlib, io, os, pwd, sys
from noclobber.cli import main
with contextlib.redirect_stdout(io.StringIO()):  # Loads everything: the other user may not see this interpreter.
    main(sys.argv[1:])
os.setuid(65534)
sys.exit(main(sys.argv[1:]))
"""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        os.chmod(place, 0o777)
        folder = Path(place) / "d"
        folder.mkdir()
        put_record(folder)
        (folder / ".lock").chmod(0o600)
        _, table, _ = finish(python(code, "lock", "list", place, cwd=place))
        _, listed, _ = finish(python(code, "lock", "list", place, "--json", cwd=place))
        findings = crash_leftovers_as_nobody(place)
    if not listed:
        pytest.skip("the other user cannot run this interpreter")
    (status,) = json.loads(listed)
    assert status["state"] == "unreadable"
    assert "root (uid 0)" in status["detail"]
    assert "Ask root" in table
    assert "recover" not in table + listed
    assert "unreadable lock" in findings
    assert "recover" not in findings


def crash_leftovers_as_nobody(root: str) -> str:
    code = """
import os, pwd, sys
from noclobber.cli.doctor.crash_leftovers import _orphan_locks
from noclobber.core.clock import SYSTEM_CLOCK
_orphan_locks(sys.argv[1], SYSTEM_CLOCK)
os.setuid(65534)
print(_orphan_locks(sys.argv[1], SYSTEM_CLOCK))
"""
    return finish(python(code, root, cwd=root))[1]
