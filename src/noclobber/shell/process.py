"""
Wait for a command in a private view, as if it were run plainly: terminal, stdin, signals, exit code.

The command is a child of ours in our own process group, so the terminal's keys reach it. Signals that are
sent to us alone are passed on. It is over when the command has ended *and* everything that it started: we
are the subreaper, so what loses its parent becomes our child. Who is still there after a while is ended,
with a message.

If we are killed, the kernel kills the command; what it had started by then is in a view of its own and can
change nothing real. The next guarded command removes it (`runs.tidy`).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from noclobber.shell.git_folders import has_written
from noclobber.shell.namespace import PR_SET_CHILD_SUBREAPER, PR_SET_DUMPABLE, PrivateView
from noclobber.shell.starting import FROM_TERMINAL, PASSED_ON

GRACE_S = 2.0
TERM_S = 0.5
MOST_PAUSE_S = 0.05
KEEP_AFTER_S = 0.03  # From when on a command may have looked at many files.
EARLY_S = 0.004
MOST_ROUNDS = 200  # Of ending processes that go on making new ones.


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
    replaced: tuple[str, ...] = ()
    """Names below the root that were there, and that the command renamed, or renamed something to."""
    ways_out: tuple[str, ...] = ()
    """How the command asked to leave its view, by rights of root's: what it wrote then was not guarded."""

    @property
    def left_view(self) -> str:
        """Say that the command left its view; empty if it did not ask for that."""
        if not self.ways_out:
            return ""
        return (
            f"the command asked to {' and to '.join(self.ways_out)}, as root may: what it wrote from there"
            " was neither guarded nor recorded. Look at what it changed."
        )


class ChildCommand:
    """A command that is a child of ours, in our own process group."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def _wait_for_command(self) -> int:
        while True:
            ended, status = self._next_change()
            if ended != self.pid:
                continue
            if not os.WIFSTOPPED(status):
                return status
            # As a shell would see it: stopped together, continued together.
            os.kill(os.getpid(), signal.SIGSTOP)
            os.kill(self.pid, signal.SIGCONT)

    def _next_change(self) -> tuple[int, int]:
        """Wait until a child has ended or was stopped."""
        return os.waitpid(-1, os.WUNTRACED)

    def _take_signals(self) -> list[tuple[int, Any]]:
        def pass_on(number: int, frame: object) -> None:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass

        def from_terminal(number: int, frame: object) -> None:
            """The terminal sends it to the whole group; whoever sends it to us alone means the command."""
            if not _is_in_foreground():
                pass_on(number, frame)

        before: list[tuple[int, Any]] = []
        for number in (*PASSED_ON, *FROM_TERMINAL):
            old = signal.getsignal(number)
            if old is signal.SIG_IGN or old == signal.SIG_IGN:
                continue  # `nohup`: the command ignores it, too.
            before.append((number, old))
            signal.signal(number, from_terminal if number in FROM_TERMINAL else pass_on)
        return before


class CommandProcess(ChildCommand):
    """A command that runs in a private view."""

    def __init__(self, pid: int, view: PrivateView, began_ns: int, mask: set[int]) -> None:
        """`mask` is the signal mask to be restored when signals are passed on."""
        super().__init__(pid)
        self._view, self._began_ns, self._mask = view, began_ns, mask
        self._keeper = self._keeper_life_fd = 0
        self._is_kept = False
        self._wake_fd, self._waker_fd = os.pipe()  # Can be read when a child has ended or was stopped.
        os.set_blocking(self._wake_fd, False)
        os.set_blocking(self._waker_fd, False)

    def wait(self, grace_s: float = GRACE_S, meanwhile: Iterator[None] | None = None) -> Ended:
        """
        Wait for the command and for everything that it started.

        Meanwhile what is needed to land its changes is loaded, part by part: in its first milliseconds, when
        even a command with many threads has only one, and as soon as it has written something.
        """
        before = self._take_signals()
        before.append((signal.SIGCHLD, signal.signal(signal.SIGCHLD, lambda number, frame: None)))
        waker_before = signal.set_wakeup_fd(self._waker_fd, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        try:
            if meanwhile is not None:
                self._work_off(meanwhile)
            status = self._wait_for_command()
            left, is_over = self._end_left_behind(grace_s)
            self._end_view()
        finally:
            self._view.prctl(PR_SET_CHILD_SUBREAPER, 0)  # What others leave behind is not ours to wait for.
            signal.set_wakeup_fd(waker_before)
            for number, handler in before:
                signal.signal(number, handler)
            self._view.supervisor.close()
            for descriptor in (self._wake_fd, self._waker_fd, self._keeper_life_fd):
                if descriptor:
                    os.close(descriptor)
        code = os.waitstatus_to_exitcode(status)
        asked = self._view.supervisor
        return Ended(
            code if code >= 0 else 128 - code,
            max(0, -code),
            left,
            is_over,
            self._began_ns,
            replaced=tuple(asked.replaced),
            ways_out=tuple(asked.ways_out),
        )

    def _serve(self, timeout_s: float | None) -> None:
        """Answer what the command asks, until a child has ended or the time is over."""
        self._view.supervisor.serve(self._wake_fd, timeout_s)
        try:
            os.read(self._wake_fd, 4096)
        except BlockingIOError:
            pass

    def _work_off(self, meanwhile: Iterator[None]) -> None:
        until_s = time.monotonic() + (EARLY_S if has_two_cores() else 0.0)
        while time.monotonic() < until_s and not self._has_ended():
            next(meanwhile, None)
            self._serve(0.0)
        if self._writes_before_it_ends():
            for _ in meanwhile:
                self._serve(0.0)

    def _has_ended(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None

    def _next_change(self) -> tuple[int, int]:
        while True:
            ended, status = self._reaped(os.WUNTRACED | os.WNOHANG)
            if ended:
                return ended, status
            self._serve(None if self._is_kept else KEEP_AFTER_S)
            self._keep_view()

    def _reaped(self, flags: int) -> tuple[int, int]:
        ended, status = os.waitpid(-1, flags)
        if ended and ended == self._keeper:  # It came too late: the command had ended.
            self._keeper = 0
        return ended, status

    def _writes_before_it_ends(self) -> bool:
        """Wait until the command has ended, or has written something; return which."""
        pause_s = 0.0003
        while True:
            if has_written(self._view.run_folder):
                return True
            if self._has_ended():
                return has_written(self._view.run_folder)
            if pause_s > MOST_PAUSE_S:
                return False  # It takes its time; `wait()` does not poll.
            self._serve(pause_s)
            pause_s *= 1.3
            if pause_s > KEEP_AFTER_S / 5:  # Some KEEP_AFTER_S in all by now.
                self._keep_view()

    # The end of the view. The kernel forgets every name that was looked up in it, and whoever was in it
    # last waits for that: a millisecond for each 500 names. After a command that changed nothing, nobody
    # has to wait.

    def _keep_view(self) -> None:
        """Fork a process that keeps the view a little longer than the command, and takes it down alone."""
        if self._is_kept or not self._view.supervisor.space_fds or self._has_ended():
            return
        self._is_kept = True
        if not _children(os.getpid()):
            return  # A kernel that does not say who our children are. Then it could not be told from others.
        life_fd, self._keeper_life_fd = os.pipe()
        self._keeper = os.fork()
        if self._keeper == 0:
            try:
                os.setsid()
                self._view.prctl(PR_SET_DUMPABLE, 0)
                close_all_but({life_fd, *self._view.supervisor.space_fds})
                os.read(life_fd, 1)  # Until our process lets go of it, or is killed.
            finally:
                os._exit(0)
        os.close(life_fd)

    def _end_view(self) -> None:
        self._view.supervisor.leave_view()
        if self._keeper and has_written(self._view.run_folder):
            os.kill(self._keeper, signal.SIGKILL)
            os.waitpid(self._keeper, 0)
            self._keeper = 0

    def _end_left_behind(self, grace_s: float) -> tuple[int, bool]:
        """Wait for processes that have become ours, then end them; return how many, and if all have ended."""
        deadline, number, ended_ones = time.monotonic() + grace_s, signal.SIGTERM, set[int]()
        pause_s, rounds = 0.0005, 0
        while True:
            try:
                ended, _ = self._reaped(os.WNOHANG)
            except ChildProcessError:
                return len(ended_ones), True
            if ended:
                continue
            if self._keeper and _children(os.getpid()) == [self._keeper]:
                return len(ended_ones), True
            if time.monotonic() > deadline:
                rounds += 1
                if rounds > MOST_ROUNDS:
                    return len(ended_ones), False
                for child in all_below(os.getpid()):
                    if child == self._keeper:
                        continue
                    try:
                        os.kill(child, number)
                        ended_ones.add(child)
                    except ProcessLookupError:
                        pass
                deadline = time.monotonic() + (TERM_S if number == signal.SIGTERM else 0.0)
                number = signal.SIGKILL
            self._serve(pause_s)
            pause_s = min(0.01, pause_s * 2)


def has_two_cores() -> bool:
    """With one, whatever is done while the view is made or the command runs delays it."""
    return len(os.sched_getaffinity(0)) > 1


def close_all_but(needed: set[int]) -> None:
    """Keep nothing open that somebody waits for, or that leads anywhere."""
    nothing_fd = os.open(os.devnull, os.O_RDWR)
    for standard_fd in (0, 1, 2):
        os.dup2(nothing_fd, standard_fd)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in needed:
            try:
                os.close(int(name))
            except OSError:
                pass  # The one of the list itself.


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
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
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
