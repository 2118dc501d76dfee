"""
Run a command without a private view, and wait for it: terminal, stdin, signals and exit code as ever.

Only the command itself is waited for. What it leaves in the background goes on, as it would after any shell.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Sequence

from noclobber.shell.process import ChildCommand, Ended
from noclobber.shell.starting import DEFAULT_AGAIN, NOT_EXECUTABLE, NOT_FOUND, hear_of_children


class PlainProcess(ChildCommand):
    """A command that runs in the real tree."""

    def wait(self) -> Ended:
        """Wait for the command."""
        before = self._take_signals()
        try:
            status = self._wait_for_command()
        finally:
            for number, handler in before:
                signal.signal(number, handler)
        code = os.waitstatus_to_exitcode(status)
        return Ended(code if code >= 0 else 128 - code, max(0, -code), 0)


def start_plainly(argv: Sequence[str]) -> PlainProcess | Ended:
    """Start a command in this folder; `Ended` if it cannot be run."""
    hear_of_children()
    out_fd, in_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(argv, in_fd)
    os.close(in_fd)
    told = b""
    while piece := os.read(out_fd, 4096):
        told += piece
    os.close(out_fd)
    if not told:  # The pipe was closed by the `exec`.
        return PlainProcess(pid)
    os.waitpid(pid, 0)
    number, _, why = told.decode("utf-8", "replace").partition(" ")
    is_missing = int(number) in (errno.ENOENT, errno.ENOTDIR)
    return Ended(
        NOT_FOUND if is_missing else NOT_EXECUTABLE,
        0,
        0,
        complaint="command not found" if is_missing else why,
    )


def _become(argv: Sequence[str], in_fd: int) -> None:
    """In the child: become the command. Never returns."""
    try:
        for number in DEFAULT_AGAIN:
            if signal.getsignal(number) != signal.SIG_IGN or number == signal.SIGPIPE:
                signal.signal(number, signal.SIG_DFL)
        os.execvp(argv[0], list(argv))  # noqa: S606 - running it is what was asked for
    except OSError as error:
        os.write(in_fd, f"{error.errno} {error.strerror}".encode())
    except BaseException as error:
        os.write(in_fd, f"{errno.EINVAL} {error}".encode())
    finally:
        os._exit(NOT_EXECUTABLE)
