"""
Commands that a framework's agent runs: each is one transaction, as in `turn.run` (docs/shell.md).

A command works in a private view of the workspace. What it changed lands all together, or not at all: it is
refused if somebody else changed one of those files since the agent read it, or while the command ran.

Where there can be no private view, a command is refused and not run. `commands="plain"` runs it as the
framework does, unguarded: also for commands that go on in the background, which a transaction ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from noclobber.aio import stoppable
from noclobber.errors import BadRequestError, NoclobberError, ShellUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from noclobber.guard.commands import CommandStop
    from noclobber.guard.turn import Turn

Commands = Literal["guarded", "plain"]


class Ran(NamedTuple):
    """What became of a command."""

    exit_code: int
    stdout: str
    stderr: str
    timed_out: bool
    """True if it was ended because its time was over. Then nothing of it landed."""


def checked_choice(commands: str) -> bool:
    """Return whether commands are guarded; `BadRequestError` for a word that is not known."""
    if commands not in ("guarded", "plain"):
        raise BadRequestError(
            "", f"commands is 'guarded' or 'plain', not {commands!r}.", parameter="commands"
        )
    return commands == "guarded"


def run(
    turn: Turn,
    command: str | Sequence[str],
    *,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    call_id: str | None = None,
    stop: CommandStop | None = None,
) -> Ran:
    """
    Run a command and land what it changed. A refusal is an exception.

    `cwd` is the workspace's folder, if it is not said.
    """
    try:
        with turn.called(call_id):
            # A view is required: a model is told that its command landed whole or not at all.
            done = turn.run(
                command, cwd=cwd, environment=environment, timeout_s=timeout_s, stop=stop, require=True
            )
    except ShellUnavailableError as error:
        raise ShellUnavailableError(
            error.path, f"{error} Give commands='plain' to the adapter to run commands unguarded."
        ) from None
    except NoclobberError as error:
        if not getattr(error, "timed_out", False):
            raise
        out, err = getattr(error, "stdout", b""), getattr(error, "stderr", b"")
        return Ran(getattr(error, "exit_code", 143), _text(out), _text(err), True)
    return Ran(done.exit_code, _text(done.stdout), _text(done.stderr), done.timed_out)


async def run_async(turn: Callable[[], Turn], command: str | Sequence[str], **more: Any) -> Ran:
    """The same in a thread. Cancelled, the command is ended, and nothing of it lands."""
    return await stoppable(lambda stop: run(turn(), command, stop=stop, **more))


def _text(output: bytes) -> str:
    return output.decode("utf-8", "replace")
