"""
A broken installation inside the real hosts: no endless turn, no blocked read, and a refusal that leads out.

The measure is the number of model requests: a host that is kept running asks its model again and again.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import noclobber
from tests.e2e.conftest import Project
from tests.e2e.model import ScriptedModel, ScriptedResponses, Use
from tests.e2e.test_codex import run_codex as run_codex

FIRST = "hello\nworld\n"
BREAKAGES = ("interpreter gone", "package gone", "package damaged", "killed while it answers")


@pytest.fixture
def file(project: Project) -> Path:
    """A file that the agent will read."""
    path = project.root / "a.txt"
    path.write_text(FIRST)
    return path


def install_and_break(project: Project, host: str, how: str, place: Path) -> None:
    """Install hooks that run a copy of the package by a copy of the interpreter, and break what they run."""
    environment = place / "an environment" / "lib"
    package = environment / "noclobber"
    shutil.copytree(Path(noclobber.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    interpreter = place / "an environment" / "python"
    interpreter.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    interpreter.chmod(0o755)
    program = (
        "import sys; sys.executable = sys.argv.pop(1); from noclobber.cli import main; "
        "sys.exit(main(sys.argv[1:]))"
    )
    subprocess.run(
        [sys.executable, "-c", program, str(interpreter), "install", host],
        cwd=project.root,
        env={**project.environment(), "PYTHONPATH": str(environment)},
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=60,
    )
    if how == "interpreter gone":
        interpreter.unlink()
    elif how == "package gone":
        shutil.rmtree(package)
    elif how == "package damaged":
        (package / "hook" / "main.py").write_text("this is not Python\n")
    elif how == "killed while it answers":
        interpreter.write_text("#!/bin/sh\nprintf '{\"hookSpecificOutput\": {'\nkill -9 $$\n")


@pytest.mark.parametrize("how", BREAKAGES)
def test_claude_code_goes_on_reading_and_ends_its_turn(
    how: str, file: Path, project: Project, tmp_path: Path, run_claude: Callable[..., subprocess.Popen[str]]
) -> None:
    """finding H3: as many requests as without hooks; the write is refused with the way out."""
    script = [
        Use("Read", {"file_path": str(file)}),
        Use("Edit", {"file_path": str(file), "old_string": "hello", "new_string": "HELLO"}),
        Use("Read", {"file_path": str(file)}),
    ]
    counts = []
    for is_installed in (False, True):
        if is_installed:
            install_and_break(project, "claude-code", how, tmp_path)
        file.write_text(FIRST)
        with ScriptedModel(one=list(script)) as model:
            out, err = run_claude(model.url, "script:one").communicate(timeout=120)
            assert json.loads(out)["is_error"] is False, err
        counts.append(model.requests)

    assert counts[1] == counts[0]
    assert "hello" in model.told["one"][0]
    assert "hello" in model.told["one"][2]
    assert_leads_out(model.told["one"][1], "claude-code")
    assert file.read_text() == FIRST


@pytest.mark.parametrize("how", BREAKAGES)
def test_codex_goes_on_reading_and_ends_its_turn(
    how: str,
    file: Path,
    project: Project,
    tmp_path: Path,
    run_codex: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """finding H3: it once made 1 170 requests in 100 seconds, and with the interpreter gone it wrote unchecked."""
    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-hello\n+HELLO\n*** End Patch\n"
    script = [
        Use("exec_command", {"cmd": "cat a.txt"}),
        Use("apply_patch", {"patch": patch}),
        Use("exec_command", {"cmd": f"apply_patch <<'EOF'\n{patch}EOF"}),
        Use("exec_command", {"cmd": "cat a.txt"}),
    ]
    install_and_break(project, "codex", how, tmp_path)
    with ScriptedResponses(one=list(script)) as model:
        run_codex(model.url, "script:one")

    assert model.requests == len(script) + 1
    assert "hello" in model.told["one"][0]
    assert "hello" in model.told["one"][3]
    assert_leads_out(model.told["one"][1], "codex")
    assert_leads_out(model.told["one"][2], "codex")
    assert file.read_text() == FIRST


def assert_leads_out(told: str, host: str) -> None:
    """What the model got is the whole object, and it says what to do."""
    refusal, _ = json.JSONDecoder().raw_decode(told[told.index('{"error_type') :])
    assert refusal["error_type"] == "HOOK_FAILED"
    assert f"noclobber install {host} --uninstall" in refusal["message"]
