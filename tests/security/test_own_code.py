"""A guarded command and noclobber's own code, where it is installed in the project (finding S28)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import noclobber
from tests.shell.test_process import is_available

pytestmark = pytest.mark.skipif(not is_available(), reason="no namespaces here")
PACKAGES = ".venv/lib/python3/site-packages"


@pytest.fixture
def project(root: Path) -> Path:
    """A project with noclobber in its `.venv`, which runs from there."""
    shutil.copytree(Path(noclobber.__file__).parent, root / PACKAGES / "noclobber")
    (root / ".venv/bin").mkdir()
    (root / ".venv/bin/noclobber").write_text("#!python\n")
    return root


def guarded(project: Path, text: str) -> subprocess.CompletedProcess[str]:
    script = f"import sys; sys.path.insert(0, {str(project / PACKAGES)!r}); import noclobber.cli;"
    words = [sys.executable, "-I", "-c", f"{script} sys.exit(noclobber.cli.main(sys.argv[1:]))"]
    environment = {name: text for name, text in os.environ.items() if name != "NOCLOBBER_RUN"}
    return subprocess.run(
        [*words, "run", "--require", "--", "sh", "-c", text],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "text",
    [
        f"echo evil >> {PACKAGES}/noclobber/core/switches.py",
        f"echo evil > {PACKAGES}/noclobber/core/new.py",
        f"rm {PACKAGES}/noclobber/core/switches.py",
        f"rm -r {PACKAGES}/noclobber",
        f"mv {PACKAGES}/noclobber {PACKAGES}/x; mkdir {PACKAGES}/noclobber; echo evil > {PACKAGES}/noclobber/a.py",
        "echo evil > .venv/bin/noclobber",
        "rm -r .venv",
        f"mv .venv other; cp -r other .venv; echo evil >> {PACKAGES}/noclobber/core/switches.py",
        "ln -s .venv way; echo evil >> way/lib/python3/site-packages/noclobber/core/switches.py",
    ],
)
def test_a_command_does_not_replace_the_code_that_guards_it(project: Path, text: str) -> None:
    """finding S28: what is in `.venv` was not asked about."""
    before = {path: path.read_bytes() for path in (project / PACKAGES).rglob("*.py")}
    done = guarded(project, text)

    assert done.returncode == 75, done.stderr
    assert "RESERVED" in done.stderr
    assert {path: path.read_bytes() for path in (project / PACKAGES).rglob("*.py")} == before
    assert (project / ".venv/bin/noclobber").read_text() == "#!python\n"


def test_other_packages_are_installed_and_no_bytecode_of_ours_lands(project: Path) -> None:
    """finding S28: byte code is code; whoever runs a Python there is not refused for its caches."""
    cache = f"{PACKAGES}/noclobber/core/__pycache__"
    done = guarded(
        project,
        f"mkdir -p {PACKAGES}/other {cache}; echo ok > {PACKAGES}/other/a.py; echo x > {cache}/evil.pyc",
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert (project / PACKAGES / "other/a.py").read_text() == "ok\n"
    assert not (project / cache / "evil.pyc").exists()
