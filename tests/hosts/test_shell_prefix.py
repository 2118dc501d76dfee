"""The prefix of Claude Code's shell: what it runs, and that it never takes the shell away."""

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
from noclobber.hosts.plugin_source import source

SHELL_ENV = Path(shell_prefix.__file__).parent / "shell_env"
TEXT = "printf '%s|' \"it's\" \"$0\" 'two  words'; exit 3"


def run(prefix: str | None, text: str = TEXT, **environment: str) -> tuple[str, int]:
    """Run a text as Claude Code does: the program, its arguments after the last ` -`, and the text as one word."""
    assert prefix is not None
    at = prefix.rindex(" -")
    line = f"{shlex.quote(prefix[:at])} {prefix[at + 1 :]} {shlex.quote(text)}"
    done = subprocess.run(
        ["/bin/sh", "-c", line],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout, done.returncode


@pytest.mark.parametrize("is_portable", [False, True])
def test_commands_of_hooks_and_servers_run_as_they_are(is_portable: bool) -> None:
    """N-shell: Claude Code puts its prefix before them as well."""
    prefix = shell_prefix.prefix(portable=is_portable)
    assert run(prefix, SHELL="/nonexistent") == ("it's|/bin/sh|two  words|", 3)


@pytest.mark.parametrize("is_portable", [False, True])
def test_a_broken_installation_leaves_the_shell(tmp_path: Path, is_portable: bool) -> None:
    """N-shell, finding H3: without noclobber the text is run as it is, by the shell that the host has chosen."""
    prefix = shell_prefix.prefix(portable=is_portable)
    assert prefix is not None
    broken = prefix.replace(shell_prefix.START, f"{tmp_path}/gone.py")
    said = run(broken, CLAUDE_CODE_EXECPATH="x", SHELL="/bin/bash", PATH="/usr/bin:/bin")
    assert said == ("it's|/bin/bash|two  words|", 3)


def test_a_text_without_a_note_is_run_as_it_is(tmp_path: Path) -> None:
    """N-shell: by our own program, which finds nothing to do."""
    said = run(
        shell_prefix.prefix(),
        f"source /dev/null && eval {shlex.quote(TEXT)} < /dev/null && pwd",
        CLAUDE_CODE_EXECPATH="x",
        CLAUDE_CODE_SESSION_ID="s",
        SHELL="/bin/bash",
        XDG_RUNTIME_DIR=str(tmp_path),
    )
    assert said == ("it's|/bin/bash|two  words|", 3)


def test_a_prefix_that_claude_code_would_misread_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """N-shell: it takes what is after the last ` -` for the arguments."""
    monkeypatch.setattr(shell_prefix, "START", "/home/a -b/shell_prefix.py")
    assert shell_prefix.prefix() is None


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
