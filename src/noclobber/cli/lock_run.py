"""
`noclobber lock run FOLDER -- command …`: hold a lock exactly as long as a command runs.

The lock is bound to the command's process, not to ours, and is taken before the command starts: the child
is forked first and waits for a byte. So if we are killed with `kill -9`, the lock does not become an
orphan while the command still works in the folder. On Linux the command also gets SIGTERM when we die.

Signals that we get are passed on; Ctrl-C and Ctrl-\\ in a terminal reach the command directly. If the lock is
lost while the command runs, we say so and send the command SIGTERM: it must not go on writing in a folder
that another agent has locked.

With `--json` stdout has one document at the end, and the command's output goes to stderr (`run_document`).
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable
    from types import FrameType

    from noclobber.errors import LockLost

PASSED_ON = ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGWINCH")
FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH)
_PR_SET_PDEATHSIG = 1


def run_locked(args: Namespace) -> int:
    """Run a command under a folder's lock, say how it ended if a program asks, and return the exit code."""
    if not args.json:
        return _run_locked(args).exit_code
    from noclobber.cli.run_document import output_on_stderr, print_answer

    with output_on_stderr():
        ended = _run_locked(args)
    if ended.lost is not None:
        raise ended.lost
    print_answer(
        {
            "folder": os.path.realpath(args.folder),
            "holder": ended.holder,
            "exit_code": ended.exit_code,
            "released": ended.is_released,
        }
    )
    return ended.exit_code


class EndedRun(NamedTuple):
    """A command that has run under a lock."""

    exit_code: int
    holder: str
    is_released: bool
    """False if the lock could not be released, or another agent had taken it over after the end."""
    lost: LockLost | None = None
    """The lock was lost while the command ran."""


def _run_locked(args: Namespace) -> EndedRun:
    from noclobber.cli.lock import default_holder
    from noclobber.cli.terminal import visible
    from noclobber.errors import BadRequestError, LockLost, NoclobberError
    from noclobber.lock.git_exclude import keep_lock_files_out_of_git
    from noclobber.lock.lock import DeliverableLock
    from noclobber.lock.names import ENVIRONMENT_FOLDER, ENVIRONMENT_ID, ENVIRONMENT_TOKEN

    command = args.command
    if not command:
        raise BadRequestError("", "lock run: write the command to run after --")
    folder = os.path.realpath(args.folder)
    pid, start = _fork_waiting(command)
    lost: list[LockLost] = []

    def tell(error: LockLost) -> None:
        if not lost:
            lost.append(error)
            print(f"noclobber: {visible(str(error))}\nnoclobber: ending the command", file=sys.stderr)
            _signal_child(pid, signal.SIGTERM)

    holder = args.holder or default_holder()
    lock = DeliverableLock(
        folder,
        deliverable_id=args.deliverable_id,
        holder=holder,
        lease_duration_s=args.lease,
        pid=pid,
        heartbeat=True,
        on_lost=tell,
    )
    try:
        lock.acquire(timeout_s=args.timeout)
    except BaseException:
        start(None)
        os.waitpid(pid, 0)
        raise
    # From here on the lock lasts as long as the command; signals are passed on.
    _pass_signals_on(pid)
    keep_lock_files_out_of_git(folder)
    token = {} if lock.fencing_token is None else {ENVIRONMENT_TOKEN: str(lock.fencing_token)}
    start({ENVIRONMENT_ID: lock.lock_id or "", ENVIRONMENT_FOLDER: folder, **token})
    code = _wait(pid)
    try:
        lock.release()
    except LockLost as error:
        # Between the command's end and our release another agent may have found its process gone and
        # rightly taken over. Only a loss during the run counts.
        if lost:
            print(f"noclobber: {visible(str(error))}", file=sys.stderr)
            return EndedRun(3, holder, is_released=False, lost=lost[0])
        return EndedRun(code, holder, is_released=False)
    except NoclobberError as error:
        told = f"the command has ended, but releasing the lock failed: {error}"
        print(f"noclobber: {visible(told)}", file=sys.stderr)
        return EndedRun(code, holder, is_released=False)
    return EndedRun(code, holder, is_released=True)


def _fork_waiting(command: list[str]) -> tuple[int, Callable[[dict[str, str] | None], None]]:
    """
    Fork a child that waits; return its pid, and what starts it with more environment, or (None) ends it.
    """
    # Before the fork: the child imports nothing.
    from noclobber.cli.terminal import columns_wide, is_terminal
    from noclobber.text.visible import fold, visible

    columns = columns_wide() if is_terminal(sys.stderr) else 0

    def complain(why: str | None) -> None:
        told = f"noclobber: lock run: {visible(command[0])}: {why}"
        print(fold(told, columns) if columns else told, file=sys.stderr)

    prctl = _load_prctl()
    parent = os.getpid()
    gate_out, gate_in = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        code = 126
        try:
            os.close(gate_in)
            if prctl is not None:
                prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
            message = _read_all(gate_out)
            if message and os.getppid() == parent:
                for line in message.decode("utf-8", "surrogateescape").split("\0")[:-1]:
                    name, _, value = line.partition("=")
                    os.environ[name] = value
                os.execvp(command[0], command)  # noqa: S606 - running it is what was asked for
            code = 0
        except FileNotFoundError:
            complain("command not found")
            code = 127
        except OSError as error:
            complain(error.strerror)
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(gate_out)

    def start(environment: dict[str, str] | None) -> None:
        try:
            if environment is not None:
                text = "".join(f"{name}={value}\0" for name, value in environment.items())
                os.write(gate_in, text.encode("utf-8", "surrogateescape"))
        except BrokenPipeError:
            pass  # The child was killed while it waited; wait() will say so.
        finally:
            os.close(gate_in)

    return pid, start


def _read_all(descriptor: int) -> bytes:
    """Read to the end: the environment to run with, or nothing if the command must not run."""
    message = b""
    while piece := os.read(descriptor, 65536):
        message += piece
    os.close(descriptor)
    return message


def _load_prctl() -> Callable[..., int] | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        import ctypes

        function: Callable[..., int] = ctypes.CDLL(None).prctl
        return function
    except (ImportError, OSError, AttributeError):
        return None


def _pass_signals_on(pid: int) -> None:
    def handler(number: int, frame: FrameType | None) -> None:
        if number in FROM_TERMINAL and _is_from_terminal():
            return  # The terminal sent it to the whole group, the command included.
        _signal_child(pid, number)

    for name in PASSED_ON:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def _is_from_terminal() -> bool:
    """True if we are in the foreground of a terminal, whose keys then reach the command as well."""
    try:
        descriptor = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _signal_child(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _wait(pid: int) -> int:
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
