"""What starting a command and the end of its view leave behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shell.test_process import is_available, noclobber_run, project, shell

__all__ = ["project"]
pytestmark = pytest.mark.skipif(not is_available(), reason="no namespaces here")


def holders(view: str, mark: bytes) -> list[str]:
    """
    Processes with a mark in their environment that are in a view, or keep it by a descriptor.

    The mark, because the kernel gives the number of a view that is gone to the next: another test's.
    """
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark not in Path(f"/proc/{name}/environ").read_bytes():
                continue
            links = [f"/proc/{name}/ns/mnt"]
            links += [f"/proc/{name}/fd/{descriptor}" for descriptor in os.listdir(f"/proc/{name}/fd")]
            found += [name for link in links if os.readlink(link) == view]
        except OSError:
            continue
    return found


@pytest.mark.parametrize("then", ["", "; echo two > plan.md"])
def test_nobody_keeps_the_view_of_a_long_command(
    project: Path, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-shell: the process that takes a large view down ends by itself; after changes it is waited for."""
    monkeypatch.setenv("NOCLOBBER_TEST_VIEW_OF", str(project))
    mark = os.fsencode(project)
    done = shell(project, f"readlink /proc/self/ns/mnt; sleep 0.2{then}")
    view = done.stdout.strip()
    assert (done.returncode, view[:5]) == (0, "mnt:[")
    for _ in range(1 if then else 2000):
        if not holders(view, mark):
            break
        os.sched_yield()
    assert holders(view, mark) == []
    assert os.listdir(project / ".noclobber/run") == []


def test_a_command_is_looked_for_as_a_shell_looks(project: Path, tmp_path: Path) -> None:
    """N-shell: the first on the PATH that can be run; a folder or a file without the right is passed over."""
    for name, text, mode in (("one", "", 0o600), ("two", "#!/bin/sh\necho found\n", 0o700)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tool").write_text(text)
        (tmp_path / name / "tool").chmod(mode)
    environment = {**os.environ, "PATH": f"{tmp_path}/none:{tmp_path}/one:{tmp_path}/two"}
    run = [sys.executable, "-m", "noclobber", "run", "--"]
    done = subprocess.run([*run, "tool"], cwd=project, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "found\n")
    environment["PATH"] = f"{tmp_path}/none:{tmp_path}/one"
    done = subprocess.run([*run, "tool"], cwd=project, env=environment, capture_output=True, text=True)
    assert (done.returncode, "Permission denied" in done.stderr) == (126, True)
    assert noclobber_run(project, "no-such-tool").returncode == 127


def test_no_descriptor_reaches_the_command(project: Path) -> None:
    """N-shell: pipes and listeners of ours are not the command's."""
    plain = subprocess.run(
        ["sh", "-c", "ls /proc/self/fd"], stdin=subprocess.PIPE, capture_output=True, text=True
    )
    assert shell(project, "ls /proc/self/fd").stdout == plain.stdout
