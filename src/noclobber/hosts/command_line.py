"""
The command line that a host runs for an event: our hook, and what the host is told if the hook cannot run.

An installation breaks after it was made: an environment is moved or deleted, Python is upgraded, a disk is
full. Hosts disagree about what a failed hook means. Exit code 2 refuses a write in all of them, but it also
blocks reads in some, and after a turn it means "go on" in Codex, Gemini CLI and Qwen Code, so that a broken
hook keeps the agent running for ever. A command that is not found lets the write through in Codex and Qwen.

So the command answers for a hook that fails, in the host's own words and with exit code 0:

| duty | if the hook fails |
|---|---|
| `check` | a denial that says what is broken, how to repair it, and how to work without it |
| `shell` | the same, if the command may contain a patch; otherwise nothing: reads come this way too |
| `note` | what the host takes for "nothing to say": no note blocks, delays or repeats anything |
| `auto` | as the hook leaves it: an event that was not read does not say whether a write waits |

The hook's answer is collected before it is passed on. A hook that is killed while it prints would otherwise
leave half an answer in front of the denial, and the host would understand neither.

The hook is asked for by `hook/ask.sh`, which has it answered by a process that stands by, or runs it.

It is one call of `/bin/sh`, with everything else as its arguments, so that every shell that a host may use
(fish too) reads it in the same way. The names of the variables are long because Gemini CLI and Qwen Code
replace `$NAME` in their settings if the environment has that name.
"""

from __future__ import annotations

import os
import shlex
import sys

from noclobber.errors import HookFailedError
from noclobber.hosts import load
from noclobber.hosts.event import Event

START = f"{os.path.dirname(os.path.dirname(os.path.abspath(__file__)))}/hook/start.py"
ASK = f"{os.path.dirname(START)}/ask.sh"

_ANSWER = 'noclobber_else=$1; shift; if noclobber_said=$("$@"); then printf %s "$noclobber_said"; '
_CHECK = 'else printf %s "$noclobber_else"; fi || exit 2'  # Nobody reads the answer: refused by the code.
_NOTE = 'else printf %s "$noclobber_else"; fi; exit 0'
# A hook that could not start has left the event on stdin. If nothing is there, the hook was killed after it
# read the event, and only a command with a patch takes long enough for that.
_PATCH = (
    'else noclobber_patch=unknown; while IFS= read -r noclobber_line || test -n "$noclobber_line"; '
    'do test $noclobber_patch = yes || noclobber_patch=no; case "$noclobber_line" in '
    "*apply_patch*) noclobber_patch=yes;; esac; done; "
    'test $noclobber_patch = no || printf %s "$noclobber_else"; fi || exit 2'
)


def command(
    host: str, duty: str, *, portable: bool = False, event: str = "", is_of_a_read: bool = False
) -> str:
    """
    Return the command line for a duty; `event` is the host's name for the event, if that matters to it.

    A check of a read (there are those, of lock files) denies nothing if it cannot run.
    """
    words = hook_words(host, duty, portable=portable)
    if duty == "auto":
        return shlex.join(words)
    if not portable:
        words = ["/bin/sh", ASK, *words]
    as_if = "note" if is_of_a_read else duty
    script = _ANSWER + {"check": _CHECK, "note": _NOTE, "shell": _PATCH}[as_if]
    return shlex.join(["/bin/sh", "-c", script, "noclobber", fallback(host, as_if, event), *words])


def hook_words(host: str, duty: str, *, portable: bool = False) -> list[str]:
    """Return the hook alone: for this machine, or for any that has `noclobber` on its path."""
    if portable:
        return ["noclobber", "hook", host, duty]
    return [os.path.realpath(sys.executable), "-I", "-S", START, host, duty]


def fallback(host: str, duty: str, event: str = "") -> str:
    """Return what a host is told if the hook cannot run."""
    module = load(host)
    if duty == "note":
        return module.phrase(Event(host, "other", name=event), None).stdout
    asked = next(iter(module.CHECK_EVENT.values()), "")
    return module.phrase(Event(host, "pre", name=asked), HookFailedError("", _way_out(host))).stdout


def _way_out(host: str) -> str:
    """No quotes, backslashes or exclamation marks: shells differ in what they make of them."""
    return (
        "noclobber could not check this write, so the write was refused and nothing was written: its hook "
        "does not run (the program was moved, removed or damaged, or it took too long). Reading files still "
        "works. Do not write the file in another way. Ask the user to repair it: install noclobber again, "
        f"run `noclobber install {host}`, then `noclobber doctor`. To work without the check, the user can "
        f"run `noclobber install {host} --uninstall`, or delete every hook that mentions noclobber from the "
        f"configuration in {load(host).TRACES[0]} (of the project and of the home folder)."
    )
