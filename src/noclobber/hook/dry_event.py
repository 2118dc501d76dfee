"""
An event without consequences, through an installed command, as its host would send it.

The command is run by the shell that the host uses, with the variables that the host sets and the event on
stdin. The event asks for a check of a call that names no tool, so that a hook that works refuses it, in words
of its own. It names no session and a scratch folder as the working directory, and what hooks remember goes
into that folder, too: nothing is left in a ledger or in a memory.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile

from noclobber.hosts import load, traits

TIMEOUT_S = 30
SENTINEL = "noclobber's hook did not run"


def trouble_with(host: str, line: str) -> str:
    """Send a dry event through an installed command line; return what is wrong, empty if the hook works."""
    words, about = words_of(line), traits.of(host)
    is_note = words[-1:] not in (["check"], ["shell"], ["auto"])
    with tempfile.TemporaryDirectory(prefix="noclobber-dry-") as scratch:
        event = {"cwd": scratch} if is_note else {**load(host).CHECK_EVENT, "cwd": scratch}
        try:
            done = subprocess.run(
                # A note that does not run says what a note that runs says: nothing. So it is given a word.
                [*about.hook_shell, with_sentinel(line) if is_note else line],
                input=json.dumps(event),
                capture_output=True,
                text=True,
                errors="replace",
                cwd=scratch,
                # Nothing is to stay behind in the scratch folder.
                env={
                    **os.environ,
                    **{name: text.format(folder=scratch) for name, text in about.hook_variables.items()},
                    "XDG_RUNTIME_DIR": scratch,
                    "NOCLOBBER_STANDBY": "off",
                },
                timeout=TIMEOUT_S,
            )
        except FileNotFoundError as error:
            return f"there is no {error.filename}, by which {host} runs its hooks"
        except subprocess.TimeoutExpired:
            return f"the hook did not answer within {TIMEOUT_S} seconds"
    said = done.stderr.strip().splitlines()
    why = said[-1][:300] if said else "it ended without a word"
    if done.returncode != 0 or SENTINEL in done.stdout:
        return why
    if is_note or _is_refusal_by_the_hook(done.stdout, words):
        return ""
    return why if said else f"it did not refuse a call that cannot be checked, and said {done.stdout[:200]!r}"


def with_sentinel(line: str) -> str:
    """Return the command with another answer for a hook that does not run, which tells it from an answer."""
    words = words_of(line)
    if _is_wrapped(words):
        words[4] = SENTINEL
        return shlex.join(words)
    return line


def _is_wrapped(words: list[str]) -> bool:
    return len(words) > 5 and words[:2] == ["/bin/sh", "-c"] and words[3].startswith("noclobber")


def words_of(line: str) -> list[str]:
    """Return a command line's words, none if a shell could not read it."""
    try:
        return shlex.split(line)
    except ValueError:
        return []


def _is_refusal_by_the_hook(stdout: str, words: list[str]) -> bool:
    is_fallback = _is_wrapped(words) and stdout == words[4]
    return not is_fallback and '"deny"' in stdout and "error_type" in stdout
