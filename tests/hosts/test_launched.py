"""What a host is started with, and what its shell and its hooks make of it."""

from __future__ import annotations

import os
import subprocess

import pytest

from noclobber.hosts import launched
from noclobber.hosts.command_line import command


def bash(text: str, **environment: str) -> str:
    """What a command prints that a started host runs."""
    started = {**os.environ, **launched.environment("gemini"), **environment}
    return subprocess.run(["bash", "-c", text], env=started, capture_output=True, text=True).stdout


def test_each_start_has_an_id_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """N-shell: hooks and shells of two starts do not meet, and a host does not take another's."""
    first, second = launched.environment("gemini"), launched.environment("gemini")
    assert first[launched.LAUNCH] != second[launched.LAUNCH]
    for name, value in first.items():
        monkeypatch.setenv(name, value)
    assert launched.launch_of("gemini") == first[launched.LAUNCH]
    assert launched.launch_of("qwen") == ""
    monkeypatch.delenv(launched.LAUNCH)
    assert launched.launch_of("gemini") == ""


def test_a_command_without_a_note_runs_as_it_is_and_finds_the_users_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]
) -> None:
    """N-shell: what brings shells to us is gone, and the user's own BASH_ENV is there. A hook may be run so."""
    own = os.path.join(tmp_path, "own.sh")
    with open(own, "w") as file:
        file.write("FROM_OWN=yes\n")
    monkeypatch.setenv("BASH_ENV", own)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    text = "echo $FROM_OWN $BASH_ENV; env | grep -o 'NOCLOBBER_SHELL_[A-Z_]*=' | sort"
    for notes in ("", f"{tmp_path}/noclobber/gemini."):  # By our program, and without it.
        said = bash(text, NOCLOBBER_SHELL_NOTES=notes)
        assert said == f"yes {own}\nNOCLOBBER_SHELL_HOST=\nNOCLOBBER_SHELL_LAUNCH=\n"


@pytest.mark.parametrize("portable", [False, True])
def test_a_hook_of_ours_still_knows_the_start(portable: bool) -> None:
    """N-shell: it leaves the note under that id; a hook that lost it would have the command run unguarded."""
    hook = command("gemini", "shell", portable=portable)
    said = bash(f"env | grep ^{launched.LAUNCH}=; : {hook}")
    assert said.startswith(f"{launched.LAUNCH}=")


def test_a_command_runs_if_noclobber_is_gone() -> None:
    """N-shell: a broken installation does not take the shell away."""
    assert bash("echo ran", NOCLOBBER_SHELL_PYTHON="/nowhere/python") == "ran\n"
    assert bash("echo ran", NOCLOBBER_SHELL_START="/nowhere/start.py") == "ran\n"


def test_cline_is_made_to_wait_for_the_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """finding H3: by itself it waits 4 seconds, and then works without, unprotected. What the user set stays."""
    name = "CLINE_PLUGIN_IMPORT_TIMEOUT_MS"
    monkeypatch.delenv(name, raising=False)
    assert launched.environment("cline")[name] == "60000"
    assert name not in launched.environment("gemini")
    monkeypatch.setenv(name, "9000")
    assert launched.environment("cline")[name] == "9000"
