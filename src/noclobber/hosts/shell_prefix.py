"""
How Claude Code's shell comes to us, so that commands that may write are guarded.

A hook at the start of a session is given the name of a file, CLAUDE_ENV_FILE. What it writes there, Claude
Code puts into the text of every command of that session, before the command itself. We write one line: the
shell that reads it becomes our program, which is given the whole text and runs it, guarded or as it is, in a
shell again. There the line does nothing. The command is untouched, so the user's permission rules judge the
original (docs/decisions/guarded-shell.md).

Nothing of it is in a configuration. If noclobber is gone, the line does nothing; other programs that Claude
Code starts (hooks, MCP servers) never meet it.
"""

from __future__ import annotations

import os
import sys

from noclobber.disk import small_file

FILE = "CLAUDE_ENV_FILE"
START = f"{os.path.dirname(os.path.dirname(os.path.abspath(__file__)))}/cli/shell_prefix.py"
INSIDE = "NOCLOBBER_INSIDE_SHELL"
"""Set for the shell that our program starts, which takes it away again: what it starts is outside."""
OLD_VARIABLE = "CLAUDE_CODE_SHELL_PREFIX"
"""In `env` of the settings, until it was seen that Claude Code cannot start MCP servers with it."""

_TEXT = "${BASH_EXECUTION_STRING:-${ZSH_EXECUTION_STRING:-}}"


def line() -> str:
    """
    Return what a session's shells read first, for bash and zsh.

    Two installations write two lines. `noclobber_here` keeps the second from starting all over again.
    """
    from noclobber.shell.syntax import quote

    python, start = quote(os.path.realpath(sys.executable)), quote(START)
    return (
        f'if test -n "${{{INSIDE}:-}}"; then unset {INSIDE}; noclobber_here=1; '
        f'elif test -z "${{noclobber_here:-}}" && test -n "{_TEXT}" && test -x {python} && test -r {start}; '
        f'then export {INSIDE}=1; exec {python} -I -S {start} "{_TEXT}"; fi\n'
    )


def write_line() -> str | None:
    """Write the line where this session's host says; return that file, None if it says nothing."""
    path = os.environ.get(FILE, "")
    if not path.startswith("/"):
        return None
    if has_line(path):
        return path
    try:
        small_file.append(path, line().encode())
    except OSError:
        return None  # Then commands are watched.
    return path


def has_line(path: str) -> bool:
    """True if a session's file has our line, whole."""
    try:
        with open(path, "rb") as file:
            return line().encode() in file.read(1 << 20)
    except OSError:
        return False
