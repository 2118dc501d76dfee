"""What a command shows of files counts as read, where its text and its output show it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from noclobber import Workspace
from noclobber.errors import UNKNOWN, ReservedFileError, StaleFileError
from noclobber.mcp import dispatch
from noclobber.mcp.connection import ClientConnection, Workspaces
from noclobber.mcp.roots import Roots
from noclobber.mcp.tools import WITH_COMMANDS
from noclobber.shell.roots import why_not
from tests.conftest import sha256
from tests.rigs.commands import run


@pytest.fixture(autouse=True)
def guarded(root: Path) -> None:
    if (reason := why_not(str(root))) is not None:
        pytest.skip(reason)


@pytest.fixture
def file(root: Path) -> Path:
    path = root / "f.txt"
    path.write_text("one\ntwo\n")
    return path


@pytest.mark.parametrize(
    "command", ["cat f.txt", ["cat", "f.txt"], "cd . && cat f.txt", "sed -n '1,2p' f.txt"]
)
def test_a_file_that_a_command_shows_was_read(root: Path, file: Path, command: Any) -> None:
    """Finding E9: a person's change after it makes a write stale, and a read after that lets it land."""
    with Workspace(root) as workspace, workspace.turn(unread="deny") as turn:
        turn.run(command)
        file.write_text("one\ntwo\nthree\n")
        with pytest.raises(StaleFileError) as refused:
            turn.write_file("f.txt", "mine\n")
        assert refused.value.expected == sha256(b"one\ntwo\n")
        turn.run("cat f.txt")
        turn.write_file("f.txt", "mine\n")


@pytest.mark.parametrize(
    "command",
    ["cat f.txt > /dev/null", "cat f.txt | wc -l", "sh -c 'cat f.txt' > out", "sh show.sh", "cat f.txt &"],
)
def test_what_a_command_does_not_show_was_not_read(root: Path, file: Path, command: str) -> None:
    """Findings E9, H16: a script's `cat` is not in the text, and a redirected one is not in the output."""
    (root / "show.sh").write_text("cat f.txt; echo and more\n")
    with Workspace(root) as workspace, workspace.turn() as turn:
        turn.run(command)
        assert turn.context.expected_for(str(file), str(file)) is None


def test_only_what_an_mcp_client_is_shown_was_read(root: Path, file: Path) -> None:
    """Findings E9, H16: the tool's answer leaves out the middle of a long output."""
    (root / "long.txt").write_text("".join(f"line {number}\n" for number in range(9_000)))
    workspaces = Workspaces()
    try:
        connection = ClientConnection(workspaces, Roots([str(root)]), is_session=True, is_process=True)

        def call(tool: str, **given: Any) -> bool:
            return dispatch.call(connection, tool, given, lambda *_: None, WITH_COMMANDS).is_error

        for name in ("f.txt", "long.txt"):
            assert not call("run_command", command=f"cat {name}")
        turn = connection.turn(connection.roots.locate("f.txt"))
        seen = turn.context.coverage_for(str(file), str(file))
        assert seen is not None
        assert seen.is_whole
        long = str(root / "long.txt")
        assert turn.context.expected_for(long, long) in (None, UNKNOWN)
        file.write_text("a person's\n")
        assert call("write_file", path="f.txt", content="mine\n")
        assert file.read_text() == "a person's\n"
    finally:
        workspaces.close()


@pytest.mark.parametrize("command", ["cat .lock", "cd sub && cat .lock", "head -3 sub/.lock"])
def test_a_command_that_shows_a_lock_file_is_not_run(root: Path, command: str) -> None:
    """Finding E9, REQ-LOCK-010: as with tools that read."""
    (root / "sub").mkdir()
    with Workspace(root) as workspace, workspace.turn() as turn:
        with pytest.raises(ReservedFileError):
            turn.run(command)
        with pytest.raises(ReservedFileError):
            turn.run(["cat", "sub/.lock"])
        turn.run("cat > notes <<'E'\nThe name is .lock\nE\n")
    done = run("run", "--", "sh", "-c", command, cwd=root)
    assert done.code == 75
    assert "belongs to a deliverable's lock" in done.err


INNER = """
import sys
from noclobber import Workspace
from noclobber.guard.commands import CommandStop
with Workspace(sys.argv[1]) as workspace, workspace.turn() as turn:
    done = turn.run("echo begun; sleep 60", timeout_s=0.5)
    print(done.level, done.timed_out, done.exit_code, done.stdout)
    print(turn.run("exit 3").exit_code, turn.run(["no-such-program"]).exit_code)
    stop = CommandStop()
    stop.ask()
    print(turn.run("sleep 60", stop=stop).timed_out)
"""


def test_a_time_limit_holds_inside_of_a_guarded_command(root: Path, tmp_path: Path) -> None:
    """Finding C11: it raised `TimeoutExpired`; it ends the command and says so, as outside."""
    script = tmp_path / "inner.py"
    script.write_text(INNER)
    with Workspace(root) as workspace:
        workspace.recorder.prepare()
    done = subprocess.run(
        [sys.executable, "-m", "noclobber", "run", "--require", "--", sys.executable, str(script), str(root)],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.stdout.splitlines() == ["joined True 143 b'begun\\n'", "3 127", "True"], done.stderr
