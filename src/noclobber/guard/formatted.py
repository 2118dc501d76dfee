"""
Formatters: the first answer to a stale change. Was it a formatter that changed the agent's own last write?

A user's hook or editor may rewrite a file after each edit of an agent. Who did it cannot be known. So the
change counts as a formatter's only if all of this holds (ruling 28):

- it came within `RIGHT_AFTER_S` of the agent's own write;
- the ledger has no write of another agent to the file since;
- the file's grammar proves that nothing but layout differs (`text/layout`), or a formatter that the option
  `formatters` or the host's own configuration names, run again on what the agent wrote, gives exactly what is
  there.

Everything else is stale. A formatter is a program, and a cloned folder must not choose what is run: one is
run again only in folders that the user trusts (`core/trust`).

Nothing is lost even if it was a person. An edit is made by the host in what is there now, so all of it stays.
A whole-file write over a version that a formatter left and the agent has not read replaces it; then that
version is kept (`.noclobber/kept`), and is on record. docs/decisions/formatters.md has the reasons.

Notes that this uses: `wrote`, the agent's last own version and when it was noted; `formatted`, the version
that a formatter left and that the agent has not read since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noclobber.guard.stale_change import OwnWrite, Resolution, StaleChange

if TYPE_CHECKING:
    from noclobber.core.options import Options
    from noclobber.disk.reading import FileState
    from noclobber.guard.memory import Memory

RIGHT_AFTER_S = 10.0
FORMATTER_PATIENCE_S = 5.0


def follow_formatter(change: StaleChange) -> Resolution | None:
    """Return the version that a formatter made of the agent's own write; None if it may be anybody's."""
    own, current = change.own, change.current
    if own is None or isinstance(change.base, str) or current.content is None:
        return None
    if abs(current.changed_at_s - own.at_s) > RIGHT_AFTER_S:
        return None
    if not (_is_layout(change, change.base) or _is_run_again(change, change.base)):
        return None
    from noclobber.ledger.last_writer import is_written_by_others  # Here: most changes end before.

    # Our own write is on record about when it was noted; one of others in that moment may be what is there.
    since_s = own.since_s - RIGHT_AFTER_S
    if is_written_by_others(change.root, current.path, own.owner, since_s) is not False:
        return None
    return Resolution(current.sha256)


def is_formatters_work(
    memory: Memory, options: Options, root: str, state: FileState, made: str | None, own: OwnWrite
) -> bool:
    """True if what is there is what the agent's call left (a hash), but for what a formatter does."""
    base = memory.held(made)
    if base is None or base == state.content:
        return False
    return follow_formatter(StaleChange(root, options, state, base, own=own)) is not None


def _is_layout(change: StaleChange, base: bytes) -> bool:
    if change.options.layout != "follow":
        return False
    from noclobber.text.layout import is_same_but_layout

    return is_same_but_layout(base, change.current.content or b"", change.current.path)


def _is_run_again(change: StaleChange, base: bytes) -> bool:
    """True if one of the user's formatters makes of the agent's version exactly what is there."""
    if not change.options.formatters:
        return False
    from noclobber.core.trust import is_trusted

    if not is_trusted(change.root):
        return False
    return any(
        _formatted(command, change, base) == change.current.content for command in change.options.formatters
    )


def _formatted(command: str, change: StaleChange, base: bytes) -> bytes | None:
    """
    Return what a formatter makes of the agent's version; None if it fails.

    `{copy}` in its command: it formats a file in place, and is given a copy, in the project because it may
    look for its settings in the folders above. Otherwise it formats its input.
    """
    import os
    import shlex
    import subprocess
    from tempfile import TemporaryDirectory

    from noclobber.core.project import STATE_FOLDER

    path = change.current.path
    try:
        with TemporaryDirectory(prefix="formatting-", dir=f"{change.root}/{STATE_FOLDER}") as folder:
            copy = f"{folder}/{os.path.basename(path)}"
            with open(copy, "wb") as file:
                file.write(base)
            done = subprocess.run(
                [word.replace("{file}", path).replace("{copy}", copy) for word in shlex.split(command)],
                input=base,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=change.root,
                timeout=FORMATTER_PATIENCE_S,
                check=False,
            )
            with open(copy, "rb") as file:
                left = file.read() if "{copy}" in command else done.stdout
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None  # No such program, or it hangs: nothing is proven.
    return left if done.returncode == 0 else None
