"""Is that the same process, and does it run? (REQ-LOCK-006)"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from lock_room import dead_process, finish, python
from noclobber.disk import processes
from noclobber.disk.processes import GONE, RUNNING, UNKNOWN, fate, identify


def test_a_process_knows_itself_and_is_known():
    """REQ-LOCK-006."""
    me = identify()
    assert me.pid == os.getpid()
    assert fate(me) == RUNNING
    code = "from noclobber.disk.processes import *; import sys;" \
           "print(fate(identify(int(sys.argv[1]))), identify(int(sys.argv[1])).started)"  # fmt: skip
    assert finish(python(code, os.getpid()))[1] == f"{RUNNING} {me.started}"


def test_a_killed_process_is_gone_and_a_reused_pid_is_another_process():
    """REQ-LOCK-006: pid and start time together."""
    assert fate(dead_process()) == GONE
    me = identify()
    assert fate(me._replace(started=(me.started or 0) + 1)) == GONE
    parent = identify(os.getppid())
    assert fate(parent) == RUNNING
    assert fate(parent._replace(started=(parent.started or 0) + 1)) == GONE


@pytest.mark.parametrize("where", ["host", "boot_id", "pid_namespace"])
def test_a_process_elsewhere_is_unknown_even_if_its_pid_runs_here(where):
    """REQ-LOCK-006: foreign hosts, boots and namespaces."""
    for process in (identify(), dead_process()):
        assert fate(process._replace(**{where: "other"})) == UNKNOWN
        if where != "host":
            assert fate(process._replace(**{where: None})) == UNKNOWN
    assert fate(identify()._replace(started=None)) == UNKNOWN


def test_pids_that_would_address_groups_are_never_asked_about():
    """kill(0) and kill(-1) address everybody."""
    for pid in (0, -1):
        assert fate(identify()._replace(pid=pid)) == UNKNOWN
        with pytest.raises(ProcessLookupError):
            identify(pid)


def test_a_process_that_is_hidden_from_us_counts_as_running(monkeypatch):
    """REQ-LOCK-006: /proc mounted with hidepid has no entry for it; only ESRCH means gone."""
    parent = identify(os.getppid())
    monkeypatch.setattr(processes, "_look_up", lambda _: None)
    assert fate(parent) == RUNNING
    assert fate(dead_process_without_look(parent)) == GONE


def dead_process_without_look(like: processes.ProcessIdentity) -> processes.ProcessIdentity:
    process = subprocess.Popen(["true"])
    process.wait()
    return like._replace(pid=process.pid)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_command_name_full_of_parentheses_does_not_shift_the_fields(tmp_path):
    """REQ-LOCK-006: the name in /proc/<pid>/stat may hold anything."""
    program = tmp_path / ") R 1 (x)"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([str(program), "100"])
    try:
        assert fate(identify(process.pid)) == RUNNING
        assert identify(process.pid).started >= identify().started
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="pid namespaces are Linux's")
def test_another_pid_namespace_is_recognised():
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
