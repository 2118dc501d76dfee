"""
What a host runs in the place of its shell.

| called as | by | the text |
|---|---|---|
| `… TEXT` | Claude Code's shell (`hosts/shell_prefix`) | `source … && … && eval 'COMMAND' … && pwd -P …` |
| `… SHELL TEXT` | a shell that has read a file of `hosts/shell_env` first | the command itself |

If the hook before the call has left a note about the command, the text runs in the guarded shell, as the
agent that the note names; its landing asks what that agent has seen. Otherwise it runs as it is.
Whatever goes wrong here, the command is run all the same: a guard that fails must not take the shell away.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noclobber.cli.run import Asked

HOST = "claude-code"
MARK = "NOCLOBBER_SHELL_"


def main(words: list[str]) -> int:
    """Run a text; return the exit code, or do not return."""
    text = words[-1] if words else ""
    host = os.environ.get(f"{MARK}HOST", HOST)
    session_id = os.environ.get(f"{MARK}SESSION") or os.environ.get("CLAUDE_CODE_SESSION_ID", "")
    launch = os.environ.get(f"{MARK}LAUNCH", "")  # By `noclobber start`: the notes are left under its id.
    command: str | None
    if len(words) > 1:  # A shell that has read our file first: it is named, and the text is the command.
        plain, command = [words[0], "-c", text], text
    else:
        plain, command = [os.environ.get("SHELL") or "/bin/sh", "-c", text], command_in(text)
        os.environ["NOCLOBBER_INSIDE_SHELL"] = (
            "1"  # The text has our line in it, which must not come here again.
        )
    asked = None
    try:
        if command is not None and (launch or session_id):
            asked = _asked(host, launch or session_id, command, plain, is_launched=bool(launch))
    except Exception as error:
        _say(f"this command is not guarded ({type(error).__name__}: {error}).")
    if len(words) > 1:
        _restore_environment(is_guarded=asked is not None)
    if asked is None:
        os.execv(plain[0], plain)  # noqa: S606 - running it is what was asked for
    from noclobber.cli import run

    return run.guarded(asked)


def _restore_environment(*, is_guarded: bool) -> None:
    """
    Give the command the environment that it would have had without us.

    What runs as it is may be a hook of ours, which has to know how its host was started.
    """
    for name in ("BASH_ENV", "ZDOTDIR"):
        own = os.environ.get(f"{MARK}{name}")
        if own:
            os.environ[name] = own
        else:
            os.environ.pop(name, None)
    kept = () if is_guarded else (f"{MARK}HOST", f"{MARK}LAUNCH")
    for name in [name for name in os.environ if name.startswith(MARK) and name not in kept]:
        del os.environ[name]


def _asked(
    host: str, session_id: str, command: str, plain: list[str], *, is_launched: bool = False
) -> Asked | None:
    """Return what to run guarded, None for a text that runs as it is."""
    from noclobber.shell.read_only import is_read_only

    if is_read_only(command, cwd=os.getcwd()):
        return None
    from noclobber.hook import guarded_calls

    call = guarded_calls.take(host, session_id, command, is_exact=is_launched)
    if call is None or call.is_plain:
        return None
    from noclobber.cli.run import Asked

    asked = Asked()
    asked.argv, asked.text = plain, call.command or command
    asked.root, asked.agent, asked.session, asked.host = call.root, call.agent_id, call.session_id, call.host
    asked.turn, asked.call = call.turn_id or "", call.call_id or ""
    asked.parent_agent, asked.guarded_call = call.parent_agent_id, call
    return asked


def command_in(text: str) -> str | None:
    """Return the command in a text for the shell, None if it has another shape."""
    _, mark, rest = text.partition("&& eval ")
    if not mark:
        return None
    pieces: list[str] = []
    at = 0
    while at < len(rest) and rest[at] not in " \t\n;&|<>":
        letter = rest[at]
        at += 1
        if letter in "'\"":
            end = rest.find(letter, at)
            if end < 0:
                return None
            inside = rest[at:end]
            if letter == '"' and any(sign in inside for sign in "\\$`"):
                return None
            pieces.append(inside)
            at = end + 1
        elif letter == "\\":
            pieces.append(rest[at : at + 1])
            at += 1
        else:
            pieces.append(letter)
    return "".join(pieces)


def _say(what: str) -> None:
    try:
        os.write(2, f"noclobber: {what}\n".encode("utf-8", "backslashreplace"))
    except OSError:
        pass


if __name__ == "__main__":
    # At the end of the path, so that no installed package can replace a part of the standard library.
    sys.path.append(os.path.abspath(__file__).rpartition("/noclobber/cli/")[0])
    sys.exit(main(sys.argv[1:]))
