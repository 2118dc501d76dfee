"""`noclobber start`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CLI = [sys.executable, "-m", "noclobber", "start"]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that prints what it was started with."""
    path = tmp_path / "agent"
    path.write_text(
        '#!/bin/sh\nprintf "%s|" "$@"\nenv | grep -E "^(BASH_ENV|NOCLOBBER_SHELL_)" | sort\nexit 7\n'
    )
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(("host", "first"), [("qwen", ""), ("copilot", "--bash-env|on|")])
def test_the_agent_is_started_with_its_own_words(program: Path, host: str, first: str) -> None:
    """N-shell: whatever they are; its exit code is the command's."""
    words = [host, "--program", str(program), "--", "-p", "two words", "--json", "--", "x"]
    done = subprocess.run([*CLI, *words], capture_output=True, text=True)
    assert done.returncode == 7
    told, *variables = done.stdout.splitlines()
    assert told.startswith(f"{first}-p|two words|--json|--|x|BASH_ENV=")
    assert any(each == f"NOCLOBBER_SHELL_HOST={host}" for each in variables)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["claude-code"], "noclobber install"),
        (["nonsense"], "cline, copilot, gemini, qwen"),
        (["gemini", "--program", "/nowhere/gemini"], "--program PATH"),
        ([], "HOST"),
    ],
)
def test_a_wrong_call_says_what_helps(words: list[str], says: str) -> None:
    """N-shell: and nothing is started."""
    done = subprocess.run([*CLI, *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_what_would_be_set_can_be_seen(program: Path) -> None:
    """N-shell: as one document; nothing is started."""
    done = subprocess.run(
        [*CLI, "gemini", "--program", str(program), "--json"], capture_output=True, text=True, check=True
    )
    shown = json.loads(done.stdout)
    assert shown["program"] == str(program)
    assert os.path.isfile(shown["environment"]["BASH_ENV"])
