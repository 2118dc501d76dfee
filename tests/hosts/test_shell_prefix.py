"""The prefix of Claude Code's shell: what it runs, and that it never takes the shell away."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from noclobber.hosts import shell_prefix

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
