"""How the shells of Claude Code and opencode come to us: what they run, and that nothing takes a shell away."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from noclobber.hosts import shell_prefix
from noclobber.hosts.hook_entries import source

SHELL_ENV = Path(shell_prefix.__file__).parent / "shell_env"
TEXT = "printf '%s|' \"it's\" \"$0\" 'two  words'; exit 3"


def run(line: str, text: str = TEXT, **environment: str) -> tuple[str, int]:
    """Run a command as Claude Code does: our line is in the text, before the command."""
    whole = f"source /dev/null || true && {line}: && eval {shlex.quote(text)} < /dev/null && pwd"
    done = subprocess.run(
        ["/bin/bash", "-c", whole],
        env={"PATH": os.environ["PATH"], "SHELL": "/bin/bash", **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout, done.returncode


AS_IT_IS = ("it's|/bin/bash|two  words|", 3)


@pytest.mark.parametrize("lines", [1, 2])
def test_a_text_without_a_note_is_run_as_it_is(tmp_path: Path, lines: int) -> None:
    """N-shell: by our own program, which finds nothing to do. Two installations write two lines."""
    known = {"CLAUDE_CODE_SESSION_ID": "s", "XDG_RUNTIME_DIR": str(tmp_path)}
    assert run(shell_prefix.line() * lines, **known) == AS_IT_IS


def test_a_broken_installation_leaves_the_shell(tmp_path: Path) -> None:
    """N-shell, finding H3: without noclobber the text is run as it is, by the shell that the host has chosen."""
    line = shell_prefix.line()
    assert run(line.replace(shell_prefix.START, f"{tmp_path}/gone.py")) == AS_IT_IS
    assert run(line.replace(os.path.realpath(sys.executable), f"{tmp_path}/python")) == AS_IT_IS


def test_what_a_command_starts_does_not_count_as_inside(tmp_path: Path) -> None:
    """N-shell: another agent that is started by a command has a shell of its own, which comes to us again."""
    said, _ = run(shell_prefix.line(), "env", XDG_RUNTIME_DIR=str(tmp_path))
    assert "SHELL=/bin/bash" in said
    assert shell_prefix.INSIDE not in said


def test_the_line_is_written_once_and_only_where_the_host_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-shell: beside what others wrote there; never through a link, and never to a relative name."""
    file = tmp_path / "hook-0.sh"
    file.write_text("export THEIRS=1\n")
    monkeypatch.setenv(shell_prefix.FILE, str(file))
    assert shell_prefix.write_line() == shell_prefix.write_line() == str(file)
    assert file.read_text() == f"export THEIRS=1\n{shell_prefix.line()}"

    other = tmp_path / "other"
    other.write_text("x\n")
    (tmp_path / "link").symlink_to(other)
    for name in (str(tmp_path / "link"), "relative.sh", "", str(tmp_path / "none" / "x.sh")):
        monkeypatch.setenv(shell_prefix.FILE, name)
        assert shell_prefix.write_line() is None
    assert other.read_text() == "x\n"


@pytest.mark.parametrize("shell", ["bash", "zsh"])
@pytest.mark.parametrize("is_broken", [False, True])
def test_a_shell_that_reads_our_file_first_runs_a_command_without_a_note_as_it_is(
    tmp_path: Path, shell: str, is_broken: bool
) -> None:
    """N-shell: opencode's shell; also if noclobber is gone. The user's own first file is read as ever."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} here")
    (tmp_path / ".zshenv").write_text("export OWN=own\n")
    own = {"BASH_ENV": str(tmp_path / ".zshenv"), "ZDOTDIR": str(tmp_path)}
    mine = {
        "HOST": "opencode",
        "SESSION": "s",
        "FOLDER": str(SHELL_ENV),
        "PYTHON": sys.executable,
        "START": "/gone" if is_broken else shell_prefix.START,
        **own,
    }
    done = subprocess.run(
        [program, "-c", "printf '%s|' \"it's\" $OWN; exit 3"],
        env={
            "PATH": os.environ["PATH"],
            "XDG_RUNTIME_DIR": str(tmp_path),
            "BASH_ENV": f"{SHELL_ENV}/bash_env.sh",
            "ZDOTDIR": str(SHELL_ENV),
            **{f"NOCLOBBER_SHELL_{name}": value for name, value in mine.items()},
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.returncode) == ("it's|own|", 3), done.stderr


def test_the_plugin_of_opencode_knows_where_the_files_are() -> None:
    """N-shell: one for any machine knows no paths, and its commands are watched."""
    text = source("opencode")
    assert json.dumps(str(SHELL_ENV)) in text
    assert (SHELL_ENV / "bash_env.sh").exists()
    assert (SHELL_ENV / ".zshenv").exists()
    assert "const SHELL = null" in source("opencode", portable=True)
