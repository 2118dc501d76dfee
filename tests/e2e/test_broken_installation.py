"""
A broken installation inside the real hosts: no endless turn, no blocked read, and a refusal that leads out.

The measure is the number of model requests: a host that is kept running asks its model again and again. One run
of each host sees every breakage; the last one, at the end of the turn, is the one that made hosts run on.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import noclobber
from tests.e2e.calls import Act, Edit, Read, Shell, Write, after
from tests.e2e.conftest import driver_or_skip
from tests.e2e.drivers import DRIVERS
from tests.e2e.model import ScriptedModel
from tests.e2e.project import Project

FIRST = "hello\nworld\n"
_INSTALL = "import sys; sys.executable = sys.argv.pop(1); from noclobber.cli import main; sys.exit(main(sys.argv[1:]))"


class Environment:
    """A copy of the package and of the interpreter, for hooks to run, that can be broken in several ways."""

    def __init__(self, folder: Path) -> None:
        self.packages = folder / "an environment" / "lib"
        self.package = self.packages / "noclobber"
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(Path(noclobber.__file__).parent, self.package, ignore=ignored)
        self.interpreter = folder / "an environment" / "python"
        self._script(f'exec {sys.executable} "$@"')

    def _script(self, text: str) -> None:
        self.interpreter.write_text(f"#!/bin/sh\n{text}\n")
        self.interpreter.chmod(0o755)

    def install(self, project: Project, host: str) -> None:
        """Install hooks that run it."""
        subprocess.run(
            [sys.executable, "-c", _INSTALL, str(self.interpreter), "install", host],
            cwd=project.root,
            env={**project.environment(), "PYTHONPATH": str(self.packages)},
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=60,
        )

    def hang(self) -> None:
        """Let every hook wait for ever; and not for 25 seconds until it is ended, but for one."""
        start = self.package / "hook" / "start.py"
        assert "MOST_S = 25\n" in start.read_text()
        start.write_text(start.read_text().replace("MOST_S = 25\n", "MOST_S = 1\n"))
        (self.package / "hook" / "main.py").write_text("import time\ntime.sleep(600)\n")

    def kill(self) -> None:
        """Let every hook be killed in the middle of its answer."""
        self._script("printf '{\"hookSpecificOutput\": {'\nkill -9 $$")

    def remove_interpreter(self) -> None:
        """Leave nothing to start."""
        self.interpreter.unlink()

    def remove_package(self) -> None:
        """Leave an interpreter that finds no script: it exits with 2, as a hook does to refuse."""
        self._script(f'exec {sys.executable} "$@"')
        shutil.rmtree(self.package)


@pytest.mark.parametrize("host", DRIVERS)
def test_a_host_with_broken_hooks_reads_ends_its_turn_and_does_not_write(
    host: str, project: Project, tmp_path: Path
) -> None:
    """finding H3: as many requests as without hooks, reads and commands work, writes are refused with a way out."""
    driver = driver_or_skip(host)
    broken = Environment(tmp_path)
    broken.install(project, host)
    names = ("killed", "interpreter", "package", "hang")
    files = {name: project.file(f"{name}.txt", FIRST) for name in names}
    new = project.root / "new.txt"
    broken.hang()
    acts: list[Act] = [
        Read(files["hang"]),
        Edit(files["hang"], "hello", "HELLO"),
        after(broken.kill, Read(files["killed"])),
        Edit(files["killed"], "hello", "HELLO"),
        after(broken.remove_interpreter, Read(files["interpreter"])),
        Edit(files["interpreter"], "hello", "HELLO"),
        after(broken.remove_package, Read(files["package"])),
        Write(new, "n\n"),
        Shell("echo on"),
    ]
    with ScriptedModel(one=driver.script(acts)) as model:
        driver.run(project, model.url, "script:one")

    assert model.requests_of["one"] == len(acts) + 1
    told = model.told["one"]
    for seen in told[0:8:2]:
        assert FIRST.strip() in str(driver.shown(seen))
    for refused in told[1:8:2]:
        refusal = driver.refusal(refused)
        assert refusal.object["error_type"] == "HOOK_FAILED"
        assert f"noclobber install {host} --uninstall" in refusal.object["message"]
    assert "on" in told[8]
    assert "noclobber" not in told[8]
    assert [file.read_text() for file in files.values()] == [FIRST] * 4
    assert not new.exists()


def test_codex_with_broken_hooks_refuses_a_patch_in_a_shell_command(project: Project, tmp_path: Path) -> None:
    """finding H3: with the interpreter gone it once wrote unchecked."""
    driver = driver_or_skip("codex")
    file = project.file("a.txt", FIRST)
    broken = Environment(tmp_path)
    broken.install(project, "codex")
    broken.remove_interpreter()
    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-hello\n+HELLO\n*** End Patch\n"
    with ScriptedModel(one=driver.script([Shell(f"apply_patch <<'EOF'\n{patch}EOF")])) as model:
        driver.run(project, model.url, "script:one")

    assert driver.refusal(model.told["one"][0]).object["error_type"] == "HOOK_FAILED"
    assert file.read_text() == FIRST
