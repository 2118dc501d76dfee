"""
Run a command in a private view, as if it were run plainly: terminal, stdin, signals, exit code.

The command is a child of ours in our own process group, so the terminal's keys reach it. Signals that are
sent to us alone are passed on. It is over when the command has ended *and* everything that it started: we
are the subreaper, so what loses its parent becomes our child. Who is still there after a while is ended,
with a message.

If we are killed, the kernel kills the command; what it had started by then is in a view of its own and can
change nothing real. The next guarded command removes it (`runs.tidy`).
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` loads `enum`.
import errno
import os
import time

from noclobber.shell.namespace import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, PrivateView, UnavailableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import NamedTuple

    from noclobber.shell.runs import RunFolder
else:
    from noclobber.core.light.named_tuples import NamedTuple

GRACE_S = 2.0
TERM_S = 0.5
MOST_PAUSE_S = 0.05
MOST_ROUNDS = 200  # Of ending processes that go on making new ones.
NOT_FOUND, NOT_EXECUTABLE = 127, 126
PASSED_ON = (_signal.SIGTERM, _signal.SIGHUP, _signal.SIGUSR1, _signal.SIGUSR2)
FROM_TERMINAL = (_signal.SIGINT, _signal.SIGQUIT)
DEFAULT_AGAIN = (*FROM_TERMINAL, *PASSED_ON, _signal.SIGPIPE, _signal.SIGTSTP)


class Ended(NamedTuple):
    """How a command ended."""

    exit_code: int
    """As a shell says it: 128 and the signal's number, if a signal ended it."""
    signal: int
    """The signal that ended it; 0 if it ended by itself."""
    left_behind: int
    """How many processes it left, which were ended."""
    is_over: bool = True
    """False if it left processes that could not be ended."""
    began_ns: int = 0
    """The marker's ctime: see `runs`."""
    complaint: str = ""
    """Why the command could not be run at all."""


class ChildCommand:
    """A command that is a child of ours, in our own process group."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def _wait_for_command(self) -> int:
        while True:
            ended, status = os.waitpid(-1, os.WUNTRACED)
            if ended != self.pid:
                continue
            if not os.WIFSTOPPED(status):
                return status
            # As a shell would see it: stopped together, continued together.
            os.kill(os.getpid(), _signal.SIGSTOP)
            os.kill(self.pid, _signal.SIGCONT)

    def _take_signals(self) -> list[tuple[int, object]]:
        def pass_on(number: int, frame: object) -> None:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass

        def from_terminal(number: int, frame: object) -> None:
            """The terminal sends it to the whole group; whoever sends it to us alone means the command."""
            if not _is_in_foreground():
                pass_on(number, frame)

        before: list[tuple[int, object]] = []
        for number in (*PASSED_ON, *FROM_TERMINAL):
            old = _signal.getsignal(number)
            if old is _signal.SIG_IGN or old == _signal.SIG_IGN:
                continue  # `nohup`: the command ignores it, too.
            before.append((number, old))
            _signal.signal(number, from_terminal if number in FROM_TERMINAL else pass_on)
        return before


class CommandProcess(ChildCommand):
    """A command that runs in a private view."""

    def __init__(self, pid: int, view: PrivateView, helper: int, began_ns: int) -> None:
        super().__init__(pid)
        self._view, self._helper, self._began_ns = view, helper, began_ns

    def wait(self, grace_s: float = GRACE_S, meanwhile: Callable[[], None] | None = None) -> Ended:
        """Wait for the command and for everything that it started; `meanwhile` is called first."""
        before = self._take_signals()
        try:
            if meanwhile is not None:
                meanwhile()
            status = self._wait_for_command()
            left, is_over = end_left_behind(grace_s, self._helper)
        finally:
            self._view.prctl(PR_SET_CHILD_SUBREAPER, 0)  # What others leave behind is not ours to wait for.
            self._view.renames.close()
            for number, handler in before:
                _signal.signal(number, handler)
        code = os.waitstatus_to_exitcode(status)
        return Ended(code if code >= 0 else 128 - code, max(0, -code), left, is_over, self._began_ns)

    def writes_before_it_ends(self, upper: str) -> bool:
        """Wait until the command has ended, or has written something; return which."""
        pause_s = 0.0003
        while True:
            if os.listdir(upper):
                return True
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
                return bool(os.listdir(upper))
            if pause_s > MOST_PAUSE_S:
                return False  # It takes its time; `wait()` does not poll.
            time.sleep(pause_s)
            pause_s *= 1.3


def start(
    folder: RunFolder,
    argv: Sequence[str],
    *,
    cwd: str,
    environment: Mapping[str, str],
    first_ns: int,
) -> CommandProcess | Ended:
    """
    Start a command in a private view of the folder's root.

    `UnavailableError` if there can be none: then nothing was run. `Ended` if the command does not exist.
    """
    view = PrivateView(folder.root, folder.path)
    view.prctl(PR_SET_CHILD_SUBREAPER, 1)
    out_fd, in_fd = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(folder, view, argv, cwd, environment, parent, first_ns, (out_fd, in_fd))
    os.close(in_fd)
    told = b""
    while piece := os.read(out_fd, 4096):
        told += piece
    os.close(out_fd)
    began, _, rest = told.partition(b"\n")
    kind, _, text = rest.decode("utf-8", "replace").partition(" ")
    numbers = [int(word) for word in began.split()]
    helper = numbers[1] if numbers else 0
    if numbers and not kind:
        return CommandProcess(pid, view, helper, numbers[0])
    os.waitpid(pid, 0)
    end_left_behind(0.0, helper)
    view.prctl(PR_SET_CHILD_SUBREAPER, 0)  # What is run instead is nobody's parent but its own.
    view.renames.close()
    if kind == "exec":
        number, _, why = text.partition(" ")
        missing = int(number) in (errno.ENOENT, errno.ENOTDIR)
        code = NOT_FOUND if missing else NOT_EXECUTABLE
        return Ended(code, 0, 0, began_ns=numbers[0], complaint="command not found" if missing else why)
    if kind == "cwd":
        return Ended(NOT_EXECUTABLE, 0, 0, complaint=f"its folder cannot be entered ({text})")
    raise UnavailableError(text or "the process that makes the view was killed")


def _become(
    folder: RunFolder,
    view: PrivateView,
    argv: Sequence[str],
    cwd: str,
    environment: Mapping[str, str],
    parent: int,
    first_ns: int,
    pipe: tuple[int, int],
) -> None:
    """In the child: enter the view and become the command. Never returns."""
    out_fd, in_fd = pipe
    try:
        os.close(out_fd)
        view.prctl(PR_SET_PDEATHSIG, _signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(137)
        marker_fd = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            view.enter()
        except UnavailableError as error:
            os.write(in_fd, f"\nunavailable {error}".encode())
            os._exit(126)
        try:
            os.chdir(cwd)  # By name: the descriptor that we have leads below the overlay.
        except OSError as error:
            os.write(in_fd, f"\ncwd {error.strerror}".encode())
            os._exit(126)
        helper = view.renames.begin()
        began_ns = _tick_after(marker_fd, first_ns)
        os.write(in_fd, f"{began_ns} {helper}\n".encode())
        for number in DEFAULT_AGAIN:
            if _signal.getsignal(number) != _signal.SIG_IGN or number == _signal.SIGPIPE:
                _signal.signal(number, _signal.SIG_DFL)
        try:
            os.execvpe(argv[0], list(argv), dict(environment))  # noqa: S606 - what was asked for
        except OSError as error:
            os.write(in_fd, f"exec {error.errno} {error.strerror}".encode())
        except ValueError as error:
            os.write(in_fd, f"exec {errno.EINVAL} {error}".encode())
    except BaseException as error:
        os.write(in_fd, f"\nunavailable {error}".encode())
    finally:
        os._exit(126)


def _tick_after(folder_fd: int, first_ns: int) -> int:
    """`RunFolder.tick_after`, by a descriptor: inside the view the folder's name is hidden."""
    from noclobber.shell.runs import LONGEST_TICK_S, TICK_S

    for _ in range(int(LONGEST_TICK_S / TICK_S)):
        os.utime("marker", dir_fd=folder_fd)
        now_ns = os.stat("marker", dir_fd=folder_fd).st_ctime_ns
        if now_ns > first_ns:
            break
        time.sleep(TICK_S)
    return now_ns


def end_left_behind(grace_s: float, helper: int = 0) -> tuple[int, bool]:
    """
    Wait for processes that have become ours, then end them; return how many, and if all have ended.

    `helper` is our own (`folder_renames`): it is ended when it is the last one.
    """
    deadline, number, ended_ones = time.monotonic() + grace_s, _signal.SIGTERM, set[int]()
    pause_s, rounds = 0.0005, 0
    while True:
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return len(ended_ones), True
        if ended:
            continue
        if helper and _children(os.getpid()) == [helper]:
            os.kill(helper, _signal.SIGKILL)
            os.waitpid(helper, 0)
            helper = 0
            continue
        if time.monotonic() > deadline:
            rounds += 1
            if rounds > MOST_ROUNDS:
                return len(ended_ones), False
            for child in all_below(os.getpid()):
                if child == helper:
                    continue
                try:
                    os.kill(child, number)
                    ended_ones.add(child)
                except ProcessLookupError:
                    pass
            deadline = time.monotonic() + (TERM_S if number == _signal.SIGTERM else 0.0)
            number = _signal.SIGKILL
        time.sleep(pause_s)
        pause_s = min(0.01, pause_s * 2)


def all_below(pid: int) -> list[int]:
    """Return every process below one, by what the kernel says of each one's children."""
    found, to_ask = [], [pid]
    while to_ask:
        children = _children(to_ask.pop())
        found += children
        to_ask += children
    return found


def _children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def _is_in_foreground() -> bool:
    try:
        terminal_fd = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal_fd) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal_fd)
