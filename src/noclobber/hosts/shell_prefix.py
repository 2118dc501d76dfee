"""
The command that Claude Code puts before every shell command, so that those that may write are guarded.

`CLAUDE_CODE_SHELL_PREFIX` is the one way that leaves the user's permission rules alone: they go on judging
the original command (docs/decisions/guarded-shell.md). The prefix is followed by one word, the whole text for
the shell. Claude Code also puts it before the commands of hooks and MCP servers; those are told by their
environment, and run as they are.

If noclobber is gone (an environment was deleted, the project was moved), the text is run as it is: a broken
installation must not take the shell away. So all of it is here, in one call of `/bin/sh`, and no file of ours
has to be found.

Claude Code takes what is after the last ` -` for the arguments of the program before it. So there is a tab
before every other dash.
"""

from __future__ import annotations

import os
import shlex
import sys

VARIABLE = "CLAUDE_CODE_SHELL_PREFIX"
START = f"{os.path.dirname(os.path.dirname(os.path.abspath(__file__)))}/cli/shell_prefix.py"
# A tool's shell has CLAUDE_CODE_EXECPATH and the shell's name; hooks and MCP servers have neither of both.
_OTHERS = 'test\t-n "$CLAUDE_CODE_EXECPATH"||exec /bin/sh\t-c "$noclobber_text";'
_PLAIN = 'exec "${SHELL:=/bin/sh}"\t-c "$noclobber_text"'


def prefix(*, portable: bool = False) -> str | None:
    """
    Return the value of the variable: for this machine, or for any that has `noclobber` on its path.

    None: Claude Code could not read it, because of the name of a folder in it.
    """
    if portable:
        run = 'command\t-v noclobber>/dev/null&&exec noclobber hook claude-code run\t-- "$noclobber_text";'
        words = ["noclobber"]
    else:
        run = 'test\t-x "$1"&&test\t-r "$2"&&exec "$1"\t-I\t-S "$2" "$noclobber_text";'
        words = ["noclobber", os.path.realpath(sys.executable), START]
    take = f"noclobber_text=${len(words)};"
    script = f"{take}{_OTHERS}{run}{_PLAIN}"
    found = f"/bin/sh -c {shlex.quote(script)} {shlex.join(words)}"
    return found if found.count(" -") == 1 else None  # A folder that begins with a dash, after a blank.
