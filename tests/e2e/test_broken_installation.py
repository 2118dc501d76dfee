"""
A broken installation inside the real hosts: no endless turn, no blocked read, and a refusal that leads out.

The measure is the number of model requests: a host that is kept running asks its model again and again.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import noclobber
from tests.e2e.calls import Act, Edit, Read, Shell, Write
from tests.e2e.conftest import driver_or_skip
from tests.e2e.drivers import DRIVERS
from tests.e2e.model import ScriptedModel
from tests.e2e.project import Project

FIRST = "hello\nworld\n"
BREAKAGES = ("interpreter gone", "package gone", "killed while it answers")
_INSTALL = "import sys; sys.executable = sys.argv.pop(1); from noclobber.cli import main; sys.exit(main(sys.argv[1:]))"


def install_and_break(project: Project, host: str, how: str, place: Path) -> None:
    """Install hooks that run a copy of the package by a copy of the interpreter, and break what they run."""
    packages = place / "an environment" / "lib"
    package = packages / "noclobber"
    shutil.copytree(Path(noclobber.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    interpreter = place / "an environment" / "python"
    interpreter.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    interpreter.chmod(0o755)
    subprocess.run(
        [sys.executable, "-c", _INSTALL, str(interpreter), "install", host],
        cwd=project.root,
        env={**project.environment(), "PYTHONPATH": str(packages)},
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=60,
    )
    if how == "interpreter gone":
        interpreter.unlink()
    elif how == "package gone":
        shutil.rmtree(package)
    else:
        assert how == "killed while it answers"
        interpreter.write_text("#!/bin/sh\nprintf '{\"hookSpecificOutput\": {'\nkill -9 $$\n")


@pytest.mark.parametrize("how", BREAKAGES)
@pytest.mark.parametrize("host", DRIVERS)
def test_a_host_with_broken_hooks_reads_ends_its_turn_and_does_not_write(
    host: str, how: str, project: Project, tmp_path: Path
) -> None:
    """finding H3: as many requests as without hooks, reads and commands work, writes are refused with a way out."""
    driver = driver_or_skip(host)
    file = project.file("a.txt", FIRST)
    new, other = project.root / "new.txt", project.file("b.txt", FIRST)
    install_and_break(project, host, how, tmp_path)
    acts: list[Act] = [
        Read(file),
        Edit(file, "hello", "HELLO"),
        Write(new, "n\n"),
        Shell("echo on"),
        Read(other),
    ]
    with ScriptedModel(one=driver.script(acts)) as model:
        driver.run(project, model.url, "script:one")

    assert model.requests_of["one"] == len(acts) + 1
    told = model.told["one"]
    for seen in (told[0], told[4]):
        assert FIRST.strip() in str(driver.shown(seen))
    assert "on" in told[3]
    assert "noclobber" not in told[3]
    for refused in (told[1], told[2]):
        refusal = driver.refusal(refused)
        assert refusal.object["error_type"] == "HOOK_FAILED"
        assert f"noclobber install {host} --uninstall" in refusal.object["message"]
    assert file.read_text() == FIRST
    assert not new.exists()


def test_codex_with_broken_hooks_refuses_a_patch_in_a_shell_command(project: Project, tmp_path: Path) -> None:
    """finding H3: with the interpreter gone it once wrote unchecked."""
    driver = driver_or_skip("codex")
    file = project.file("a.txt", FIRST)
    install_and_break(project, "codex", "interpreter gone", tmp_path)
    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-hello\n+HELLO\n*** End Patch\n"
    with ScriptedModel(one=driver.script([Shell(f"apply_patch <<'EOF'\n{patch}EOF")])) as model:
        driver.run(project, model.url, "script:one")

    assert driver.refusal(model.told["one"][0]).object["error_type"] == "HOOK_FAILED"
    assert file.read_text() == FIRST
