"""
Start a command in a private view.

A forked child makes the view and becomes the command. It tells by a pipe when the command begins, or why it
cannot; the pipe is closed by the `exec`. Making the view takes some milliseconds, in which our own process
has nothing to do: it loads what landing needs.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from noclobber.disk.removing import remove_tree
from noclobber.shell.git_folders import LAYERS, lay_out
from noclobber.shell.namespace import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, PrivateView, UnavailableError
from noclobber.shell.runs import LONGEST_TICK_S, MARKER, TICK_S

if TYPE_CHECKING:
    from noclobber.shell.process import CommandProcess, Ended
    from noclobber.shell.runs import RunFolder

GO, STOP = b"+", b"-"
NOT_FOUND, NOT_EXECUTABLE = 127, 126
PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
DEFAULT_AGAIN = (*FROM_TERMINAL, *PASSED_ON, signal.SIGPIPE, signal.SIGTSTP)


class Start(NamedTuple):
    """What is to be started, and where."""

    folder: RunFolder
    argv: Sequence[str]
    cwd: str
    environment: Mapping[str, str]
    first_ns: int
    """When the marker was touched first (`runs`)."""
    is_supervised: bool = True
    """If folders can be renamed in the view (`supervisor`)."""


def start(asked: Start, meanwhile: Iterator[None] | None = None) -> CommandProcess | Ended:
    """
    Start a command in a private view of the folder's root.

    While the view is made, `meanwhile` is worked off as far as it gets. `UnavailableError` if there can be no
    view: then nothing was run. `Ended` if the command does not exist.
    """
    hear_of_children()
    lay_out(asked.folder.root, asked.folder.path, asked.cwd, asked.argv, asked.environment)
    view = PrivateView(asked.folder.root, asked.folder.path)
    view.prctl(PR_SET_CHILD_SUBREAPER, 1)
    out_fd, in_fd = os.pipe()
    go_fd, let_go_fd = os.pipe()
    programs = _programs(asked.argv[0], asked.environment)
    parent = os.getpid()
    # Until `wait()` passes them on: one that came before would end us, and not the command.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (*PASSED_ON, *FROM_TERMINAL))
    pid = os.fork()
    if pid == 0:
        os.close(out_fd)
        os.close(let_go_fd)
        _become(asked, view, programs, parent, mask, in_fd, go_fd)
    os.close(in_fd)
    os.close(go_fd)
    from noclobber.shell.process import CommandProcess, Ended  # Here: while the child makes the view.

    try:
        began_ns, kind, text = _told(view, pid, out_fd, let_go_fd, meanwhile)
    finally:
        os.close(out_fd)
        os.close(let_go_fd)
    if began_ns and not kind:
        return CommandProcess(pid, view, began_ns, mask)
    os.waitpid(pid, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    view.prctl(PR_SET_CHILD_SUBREAPER, 0)  # What is run instead is nobody's parent but its own.
    view.supervisor.close()
    if kind == "unsupervised":  # No process may look into another here.
        work = f"{asked.folder.path}/work"
        remove_tree(work)  # An overlay uses one once.
        os.mkdir(work, 0o700)
        remove_tree(f"{asked.folder.path}/{LAYERS}")
        return start(asked._replace(is_supervised=False), meanwhile)
    if kind == "exec":
        number, _, why = text.partition(" ")
        missing = int(number) in (errno.ENOENT, errno.ENOTDIR)
        code = NOT_FOUND if missing else NOT_EXECUTABLE
        return Ended(code, 0, 0, began_ns=began_ns, complaint="command not found" if missing else why)
    if kind == "cwd":
        return Ended(NOT_EXECUTABLE, 0, 0, complaint=f"its folder cannot be entered ({text})")
    raise UnavailableError(text or "the process that makes the view was killed")


def hear_of_children() -> None:
    """
    Have the kernel keep how our children ended.

    Whoever started us may have had SIGCHLD ignored, and that is inherited. Then nobody could wait for a
    child: not for the command, and not for those that we fork ourselves.
    """
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _told(
    view: PrivateView, pid: int, out_fd: int, let_go_fd: int, meanwhile: Iterator[None] | None
) -> tuple[int, str, str]:
    """Return what the child says: when the command begins (0: not at all), and what went wrong, and why."""
    import select

    from noclobber.shell.process import has_two_cores

    poll = select.poll()
    poll.register(out_fd, select.POLLIN)
    told = b""
    if not has_two_cores():
        meanwhile = None
    while b"\n" not in told:
        if meanwhile is not None and not poll.poll(0):
            if next(meanwhile, STOP) is STOP:
                meanwhile = None
            continue
        piece = os.read(out_fd, 4096)
        if not piece:
            break
        told += piece
    began_ns, listener = [int(word) for word in told.partition(b"\n")[0].split()] or (0, -1)
    if listener >= 0:
        try:
            os.write(let_go_fd, GO if view.supervisor.take(pid, listener) else STOP)
        except BrokenPipeError:
            pass  # It was killed.
    while piece := os.read(out_fd, 4096):
        told += piece
    kind, _, text = told.partition(b"\n")[2].decode("utf-8", "replace").partition(" ")
    return began_ns, kind, text


def _programs(name: str, environment: Mapping[str, str]) -> list[str]:
    """Return where a program may be. (`os.execvpe` loads `warnings` to find that out.)"""
    if "/" in name:
        return [name]
    folders = environment.get("PATH", os.defpath).split(":")
    return [f"{folder}/{name}" if folder else name for folder in folders]


def _become(
    asked: Start,
    view: PrivateView,
    programs: list[str],
    parent: int,
    mask: set[int],
    in_fd: int,
    go_fd: int,
) -> None:
    """In the child: enter the view and become the command. Never returns."""
    try:
        view.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(137)
        marker_fd = os.open(asked.folder.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            view.enter()
        except UnavailableError as error:
            os.write(in_fd, f"\nunavailable {error}".encode())
            os._exit(NOT_EXECUTABLE)
        try:
            os.chdir(asked.cwd)  # By name: the descriptor that we have leads below the overlay.
        except OSError as error:
            os.write(in_fd, f"\ncwd {error.strerror}".encode())
            os._exit(NOT_EXECUTABLE)
        listener = view.supervisor.install() if asked.is_supervised else -1
        began_ns = _tick_after(marker_fd, asked.first_ns)
        os.write(in_fd, f"{began_ns} {listener}\n".encode())
        if listener >= 0 and os.read(go_fd, 1) != GO:
            os.write(in_fd, b"unsupervised ")
            os._exit(NOT_EXECUTABLE)
        for number in DEFAULT_AGAIN:
            if signal.getsignal(number) != signal.SIG_IGN or number == signal.SIGPIPE:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        try:
            _execute(programs, asked.argv, asked.environment)
        except OSError as error:
            os.write(in_fd, f"exec {error.errno} {error.strerror}".encode())
        except ValueError as error:
            os.write(in_fd, f"exec {errno.EINVAL} {error}".encode())
    except BaseException as error:
        os.write(in_fd, f"\nunavailable {error}".encode())
    finally:
        os._exit(NOT_EXECUTABLE)


def _execute(programs: list[str], argv: Sequence[str], environment: Mapping[str, str]) -> None:
    """Become the first program that can be run. OSError: none; that of one that exists."""
    trouble: OSError | None = None
    words, variables = list(argv), dict(environment)
    for program in programs:
        try:
            os.execve(program, words, variables)  # noqa: S606 - what was asked for
        except OSError as error:
            is_there = error.errno not in (errno.ENOENT, errno.ENOTDIR)
            if trouble is None or (is_there and trouble.errno in (errno.ENOENT, errno.ENOTDIR)):
                trouble = error
    if trouble is not None:
        raise trouble


def _tick_after(folder_fd: int, first_ns: int) -> int:
    """`RunFolder.tick_after`, by a descriptor: inside the view the folder's name is hidden."""
    for _ in range(int(LONGEST_TICK_S / TICK_S)):
        os.utime(MARKER, dir_fd=folder_fd)
        now_ns = os.stat(MARKER, dir_fd=folder_fd).st_ctime_ns
        if now_ns > first_ns:
            break
        time.sleep(TICK_S)
    return now_ns
