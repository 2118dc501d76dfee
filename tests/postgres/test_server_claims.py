"""Claims and commands on a volume that several machines share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import noclobber
from noclobber import cli
from noclobber.core.actions import DELETE, WRITE, Action
from noclobber.errors import ClaimedError, ShellUnavailableError
from noclobber.guard import claims
from noclobber.guard.replaced_tool import ReplacedTool
from noclobber.hook.turn import HookTurn
from noclobber.hosts.event import Event
from noclobber.postgres import sections, shared_volume
from noclobber.postgres.coordinator import _connection
from tests.postgres.test_sections import PROGRAM
from tests.rigs import postgres
from tests.rigs.hooks import HookRig


@pytest.fixture
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that counts as a shared volume, with one file in it."""
    monkeypatch.setenv("NOCLOBBER_COORDINATOR", postgres.coordinator())
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(shared_volume, "is_shared_volume", lambda root: True)
    monkeypatch.setattr(sections, "SECTION_S", 0.2)
    (tmp_path / "p/.noclobber").mkdir(parents=True)
    (tmp_path / "p/a.txt").write_text("first\n")
    yield tmp_path / "p"
    _connection.cache_clear()


def test_a_hosts_write_holds_up_other_machines_until_it_is_over(volume: Path) -> None:
    """N-claim, N-machines: the hook's claim is a row; what the host left is the newest version."""
    host, file = HookRig(volume, volume.parent), volume / "a.txt"
    host.read(file)
    given = {"file_path": str(file), "content": "host's\n"}
    assert host.ask("Write", given, tool_use_id="1") == {}
    with noclobber.Workspace(volume, wait_s=0.05) as workspace, workspace.turn() as turn:
        turn.read_file("a.txt")
        file.write_text("host's\n")  # So the claim does not end by itself.
        with pytest.raises(ClaimedError):
            turn.write_file("a.txt", "x\n")
    host.told("Write", given, tool_use_id="1")
    assert claims.live(str(volume)) == []
    with noclobber.Workspace(volume) as workspace, workspace.turn() as turn:
        turn.read_file("a.txt")
        assert turn.write_file("a.txt", "second\n").level == "section"


def test_a_hook_waits_longer_than_a_commit_before_it_takes_a_claim_over(
    volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-claim, N-machines: as with claims that are files. A host may take a while from its check to its write."""
    monkeypatch.setattr(claims, "TAKE_OVER_S", 100.0)
    monkeypatch.setattr(claims, "LIFE_S", 10_000.0)
    root, file = str(volume), str(volume / "a.txt")
    assert claims.acquire(root, file, "one", "1", patience_s=0.0).owner == "one"
    postgres.pass_time(postgres.coordinator(), 150.0)
    with pytest.raises(ClaimedError):
        claims.acquire(root, file, "two", "2", patience_s=0.0)
    postgres.pass_time(postgres.coordinator(), 200.0)
    assert claims.acquire(root, file, "two", "2", patience_s=0.0).owner == "two"


def test_a_host_that_puts_an_earlier_version_back_is_no_old_cache(volume: Path) -> None:
    """N-machines: the server is told what a host has left, so guarded writes go on after an agent's undo."""
    file = volume / "a.txt"
    with noclobber.Workspace(volume) as workspace, workspace.turn() as turn:
        turn.read_file("a.txt")
        turn.write_file("a.txt", "second\n")
        turn.write_file("a.txt", "third\n")
    claims.acquire(str(volume), str(file), "host", "call")
    file.write_text("second\n")
    assert claims.release(str(volume), str(file), "host")
    with noclobber.Workspace(volume) as workspace, workspace.turn() as turn:
        turn.read_file("a.txt")
        turn.write_file("a.txt", "fourth\n")
    assert file.read_text() == "fourth\n"


def test_a_claim_settles_the_section_of_a_dead_writer_first(volume: Path) -> None:
    """N-claim, N-machines: its rename must not come after the hook's look."""
    words = [sys.executable, "-c", PROGRAM, str(volume), "write", "section-checked", "SIGSTOP"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            os.waitpid(process.pid, os.WUNTRACED)
            claims.acquire(str(volume), str(volume / "a.txt"), "host", "call", patience_s=60.0)
            (volume / "a.txt").write_text("host's\n")
            process.send_signal(18)
            assert process.communicate(timeout=60)[0] == "ClaimedError\n"
        finally:
            process.kill()
    assert (volume / "a.txt").read_text() == "host's\n"


def test_a_command_that_writes_is_refused_before_it_runs(
    volume: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """N-shell, N-machines: it would write beside the server's order; one that only reads may run."""
    monkeypatch.chdir(volume)
    assert cli.main(["run", "--", "sh", "-c", "echo x > a.txt"]) == 69
    assert "share this volume through a coordinator" in capfd.readouterr().err
    with noclobber.Workspace(volume) as workspace, workspace.turn() as turn:
        with pytest.raises(ShellUnavailableError, match="was not run"):
            turn.run("echo x > a.txt")
        assert turn.run("cat a.txt").stdout == b"first\n"
    assert (volume / "a.txt").read_text() == "first\n"
    assert cli.main(["run", "--", "cat", "a.txt"]) == 0


def test_a_tool_that_is_replaced_writes_in_a_section(volume: Path) -> None:
    """N-machines, N-hosts: where a plugin writes for its host, the server orders that, all or none."""
    (volume / "b.txt").write_text("b\n")
    host = HookRig(volume, volume.parent)
    for name in ("a.txt", "b.txt"):
        host.read(volume / name)
    event = Event("claude-code", "pre", session_id="s1", call_id="1", tool="Write", cwd=str(volume))
    actions = (
        Action(WRITE, str(volume / "a.txt"), content="second\n"),
        Action(DELETE, str(volume / "b.txt")),
    )

    def step() -> ReplacedTool:
        turn = HookTurn(event)
        return ReplacedTool(turn, turn.call(), actions)

    step().commit(step().plan())
    assert (volume / "a.txt").read_text() == "second\n"
    assert not (volume / "b.txt").exists()
    with noclobber.Workspace(volume) as workspace:
        levels = [event["payload"].get("level") for event in workspace.ledger.events()]
    assert levels[-2:] == ["section", "section"]
