"""Is that the same process, and does it run? (REQ-LOCK-006)"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from noclobber.disk import processes
from noclobber.disk.processes import GONE, RUNNING, UNKNOWN, fate, identify
from tests.rigs.locks import dead_process, finish, python


def test_a_process_knows_itself_and_is_known() -> None:
    """REQ-LOCK-006."""
    me = identify()
    assert me.pid == os.getpid()
    assert fate(me) == RUNNING
    code = "from noclobber.disk.processes import *; import sys;" \
           "print(fate(identify(int(sys.argv[1]))), identify(int(sys.argv[1])).started)"  # fmt: skip
    assert finish(python(code, os.getpid()))[1] == f"{RUNNING} {me.started}"


def test_a_killed_process_is_gone_and_a_reused_pid_is_another_process() -> None:
    """REQ-LOCK-006: pid and start time together."""
    assert fate(dead_process()) == GONE
    me = identify()
    assert fate(me._replace(started=(me.started or 0) + 1)) == GONE
    parent = identify(os.getppid())
    assert fate(parent) == RUNNING
    assert fate(parent._replace(started=(parent.started or 0) + 1)) == GONE


@pytest.mark.parametrize("where", ["host", "boot_id", "pid_namespace"])
def test_a_process_elsewhere_is_unknown_even_if_its_pid_runs_here(where: str) -> None:
    """REQ-LOCK-006: foreign hosts, boots and namespaces."""
    for process in (identify(), dead_process()):
        other: Any = {where: "other"}
        assert fate(process._replace(**other)) == UNKNOWN
        if where != "host":
            other = {where: None}
            assert fate(process._replace(**other)) == UNKNOWN
    assert fate(identify()._replace(started=None)) == UNKNOWN


def test_pids_that_would_address_groups_are_never_asked_about() -> None:
    """kill(0) and kill(-1) address everybody."""
    for pid in (0, -1):
        assert fate(identify()._replace(pid=pid)) == UNKNOWN
        with pytest.raises(ProcessLookupError):
            identify(pid)


def test_a_process_that_is_hidden_from_us_counts_as_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """REQ-LOCK-006: /proc mounted with hidepid has no entry for it; only ESRCH means gone."""
    parent = identify(os.getppid())
    monkeypatch.setattr(processes, "_look_up", lambda _: None)
    assert fate(parent) == RUNNING
    assert fate(dead_process_without_look(parent)) == GONE


def dead_process_without_look(like: processes.ProcessIdentity) -> processes.ProcessIdentity:
    process = subprocess.Popen(["true"])
    process.wait()
    return like._replace(pid=process.pid)


def test_who_asks_again_and_again_hears_of_the_end_at_once() -> None:
    """REQ-LOCK-006: also of a zombie, which its parent has not waited for."""
    process = subprocess.Popen(["sleep", "100"])
    identity = identify(process.pid)
    try:
        assert {fate(identity) for _ in range(20)} == {RUNNING}
    finally:
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert fate(identity) == GONE
    process.wait()
    assert fate(identity) == GONE


def test_a_forked_child_sees_the_same_processes() -> None:
    """REQ-LOCK-006: what is remembered of the parent itself is not taken for the child's."""
    me = identify()
    child = os.fork()
    if child == 0:
        os._exit(0 if fate(me) == fate(identify()) == RUNNING and identify().pid == os.getpid() else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_command_name_full_of_parentheses_does_not_shift_the_fields(tmp_path: Path) -> None:
    """REQ-LOCK-006: the name in /proc/<pid>/stat may hold anything."""
    program = tmp_path / ") R 1 (x)"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([str(program), "100"])
    try:
        assert fate(identify(process.pid)) == RUNNING
        started, own_start = identify(process.pid).started, identify().started
        assert started is not None
        assert own_start is not None
        assert started >= own_start
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="pid namespaces are Linux's")
def test_another_pid_namespace_is_recognised() -> None:
    """REQ-LOCK-006: containers share a volume, not pids. Needs the right to make a namespace."""
    code = "from noclobber.disk.processes import surroundings; print(surroundings().pid_namespace)"
    probe = ["unshare", "--fork", "--pid", "--mount-proc", sys.executable, "-c", code]
    try:
        result = subprocess.run(
            probe, capture_output=True, text=True, timeout=30, check=False, env=os.environ
        )
    except FileNotFoundError:
        pytest.skip("there is no unshare(1) here")
    if result.returncode != 0:
        pytest.skip(f"no namespaces here: {result.stderr.strip()[:80]}")
    assert result.stdout.strip() != processes.surroundings().pid_namespace
    assert result.stdout.startswith("pid:[")
