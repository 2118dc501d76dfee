"""
A process that stands by for a host's next event, with everything loaded.

Most of the time that a hook takes goes into starting an interpreter and loading modules. So the first hook of
a session leaves a process behind that has done both. It forks processes that wait, each for one event that
`ask.sh` brings. Such a process does what a hook does: it has the caller's environment and folder, reads the
event, answers, and ends. Nothing is shared between two events that two hooks would not share, so the order of
events means what it meant.

Whoever asks must be alike: in the same namespaces (it sees the same files and processes), with the same
rights, and of the same installation. It names itself, and must have our FIFO open, so nobody can name
another. All others are left without an answer, and their hook runs in a process of its own.

It ends when its host has ended, when nothing was asked for `IDLE_S`, and when one of the files that it has
loaded, or the interpreter, is no longer the same: after an upgrade, or when an installation is broken. What
happens then is what `ask.sh` does without it.

It is not there where there are no `/proc` and no pidfds, and with NOCLOBBER_STANDBY=off.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING

from noclobber.disk import small_file
from noclobber.disk.small_file import closing
from noclobber.errors import NoclobberError

if TYPE_CHECKING:
    from noclobber.hosts.event import Answer

FOLDER = "standby"
PLACES = 2  # How many may ask in the same moment; an accepted one makes room for the next. ask.sh knows it.
OUTDATED = 255  # What a process at a place tells instead of its number.
IDLE_S = 900
LEFT_S = 30.0  # Whoever took a place and has not asked by then was ended in between. Then all begins anew.
MOST_HELLO_BYTES = 4096
MOST_LINE_BYTES = 8192  # A shell reads a line byte by byte, so what is longer goes into a file.
NAMESPACES = ("mnt", "pid", "user", "net")
RIGHTS = (b"Uid", b"Gid", b"Groups", b"CapEff", b"NoNewPrivs", b"Seccomp", b"Umask")
# What the events of a session load: without the rarer parts, which are loaded by the event that needs them.
LOADED = (
    "core.options",
    "disk.processes",
    "disk.signals",
    "disk.version_keeper",
    "guard.approval",
    "guard.claims",
    "guard.facts",
    "guard.fence",
    "guard.host_versions",
    "guard.outside",
    "guard.policies",
    "guard.recording",
    "guard.shown",
    "guard.snapshot",
    "hook.commands",
    "hook.held_bytes",
    "hook.notices",
    "hook.turn",
    "ledger.last_writer",
    "ledger.ledger",
    "ledger.line",
    "ledger.open_file",
    "ledger.root",
    "ledger.tail",
    "lock.names",
    "shell.read_only",
    "text.host_edits",
)


def start(host: str) -> None:
    """Leave a process behind, unless there is one. Returns in the parent only; never raises."""
    from noclobber.disk import forks
    from noclobber.disk.processes import host_of

    try:
        host_pid = host_of(os.getppid())
        if not host_pid or not hasattr(os, "pidfd_open"):
            return
        folder_fd = _own_folder()
    except (OSError, NoclobberError):
        return
    if folder_fd is not None:
        forks.beside(lambda: _stand_by(host, folder_fd, host_pid), folder_fd)  # It has the lock.


def _stand_by(host: str, folder_fd: int, host_pid: int) -> None:
    _forget_server()
    _load(host)
    Standby(folder_fd, host_pid).serve()


def _own_folder() -> int | None:
    """Return the folder, locked and empty; None if a process stands by already."""
    from noclobber.hook.session_memory import open_runtime

    with small_file.closing(open_runtime()) as runtime_fd:
        folder_fd = small_file.open_folder(FOLDER, runtime_fd, make=True)
    try:
        fcntl.flock(folder_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(folder_fd)
        return None
    _empty(folder_fd)
    return folder_fd


def _empty(folder_fd: int) -> None:
    for name in os.listdir(folder_fd):
        try:
            os.unlink(name, dir_fd=folder_fd)
        except OSError:
            pass  # Nothing of ours.


def _forget_server() -> None:
    """The event before may have asked a coordinator. Its connection was closed with everything else."""
    coordinator = sys.modules.get("noclobber.postgres.coordinator")
    if coordinator is not None:
        coordinator.forget_connections()


def _load(host: str) -> None:
    from importlib import import_module

    from noclobber.hosts import load

    load(host)
    for name in LOADED:
        import_module(f"noclobber.{name}")


class AskingPlace:
    """A pair of FIFOs for one who asks, used once, and the process that waits there."""

    def __init__(self, folder_fd: int, number: int) -> None:
        self._folder_fd, self._number = folder_fd, number
        self.in_fd = self.out_fd = -1

    def open(self) -> None:
        """
        Make another pair; then the place is free.

        In this order: whoever takes the place opens the new pair, and the one before them has theirs open.
        Until then it is taken, at first by us: a name alone would let in one who asks, and then another one.
        """
        os.close(self._opened("taken", os.O_WRONLY | os.O_CREAT))
        for name in ("in", "out"):
            self._unlink(name)
            os.mkfifo(f"{self._number}.{name}", 0o600, dir_fd=self._folder_fd)
        self.in_fd = self._opened("in", os.O_RDONLY | os.O_NONBLOCK)
        self.out_fd = self._opened("out", os.O_RDWR)

    def is_open_to_all(self) -> None:
        """Let the next one take it: the process that waits is there."""
        self._unlink("taken")

    def close(self) -> None:
        """Close this process's ends."""
        for descriptor in (self.in_fd, self.out_fd):
            if descriptor >= 0:
                os.close(descriptor)
        self.in_fd = self.out_fd = -1

    def is_left(self, now_s: float) -> bool:
        """True if somebody took it and did not ask."""
        try:
            taken_s = os.stat(f"{self._number}.taken", dir_fd=self._folder_fd).st_mtime
        except OSError:
            return False
        return now_s - taken_s > LEFT_S

    def _opened(self, name: str, flags: int) -> int:
        return os.open(f"{self._number}.{name}", flags | os.O_CLOEXEC, 0o600, dir_fd=self._folder_fd)

    def _unlink(self, name: str) -> None:
        try:
            os.unlink(f"{self._number}.{name}", dir_fd=self._folder_fd)
        except FileNotFoundError:
            pass


class Standby:
    """The process that stays, and has one at each place that waits to be asked."""

    def __init__(self, folder_fd: int, host_pid: int) -> None:
        self._folder_fd = folder_fd
        self._host_fd = os.pidfd_open(host_pid)
        self._loaded = _loaded_files()
        self._places = [AskingPlace(folder_fd, number) for number in range(1, PLACES + 1)]
        self._news_fd, self._tell_fd = os.pipe()
        # Those who wait see its end when this process ends, however it does.
        self._end_fd, self._life_fd = os.pipe()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # The kernel buries the children.

    def serve(self) -> None:
        """Answer until it is time to end."""
        asked_s = time.monotonic()
        try:
            for index in range(PLACES):
                self._fill(index)
            poll = select.poll()
            poll.register(self._host_fd, select.POLLIN)
            poll.register(self._news_fd, select.POLLIN)
            while time.monotonic() < asked_s + IDLE_S:
                found = dict(poll.poll(LEFT_S * 1000))
                if self._host_fd in found or any(place.is_left(time.time()) for place in self._places):
                    return
                if self._news_fd in found:
                    asked_s = time.monotonic()
                    for index in os.read(self._news_fd, 64):
                        if index == OUTDATED:
                            return
                        self._fill(index)
        finally:
            _empty(self._folder_fd)

    def _fill(self, index: int) -> None:
        """Put a process at a place. Only that process has the place's FIFOs open: its end is their end."""
        place = self._places[index]
        place.open()
        if os.fork():
            place.close()
            place.is_open_to_all()
            return
        try:
            os.close(self._host_fd)
            os.close(self._news_fd)
            os.close(self._life_fd)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if self._is_asked(place):
                is_outdated = self._loaded != _loaded_files()
                os.write(self._tell_fd, bytes((OUTDATED if is_outdated else index,)))
                if not is_outdated:
                    _answer(place, self._folder_fd)
        except BaseException:  # noqa: S110 - as a hook that is killed: the caller's command answers for it
            pass
        finally:
            os._exit(0)

    def _is_asked(self, place: AskingPlace) -> bool:
        """Wait; False if there is nobody left to wait for."""
        poll = select.poll()
        poll.register(place.in_fd, select.POLLIN)
        poll.register(self._end_fd, select.POLLIN)
        found = dict(poll.poll())
        return self._end_fd not in found


def _loaded_files() -> list[tuple[int, int, int]]:
    """Return which files this process consists of; a missing one has no numbers."""
    files = [module.__file__ for name, module in list(sys.modules.items()) if name.startswith("noclobber.")]
    found = []
    for file in (sys.executable, *files):
        try:
            status = os.stat(file or "")
            found.append((status.st_ino, status.st_size, status.st_mtime_ns))
        except OSError:
            found.append((0, 0, 0))
    return found


# -- the child ----------------------------------------------------------------------------------------------


def _answer(place: AskingPlace, folder_fd: int) -> None:
    """Be the hook of whoever asks here."""
    from noclobber.hook import main
    from noclobber.hook.start import MOST_S, end_after
    from noclobber.hook.turn import HookTurn

    end_after(MOST_S)
    os.set_blocking(place.in_fd, True)
    hello = b""
    while hello.count(b"\n") < 3 and len(hello) < MOST_HELLO_BYTES:
        piece = os.read(place.in_fd, MOST_HELLO_BYTES)
        if not piece:
            return
        hello += piece
    first, python, script = os.fsdecode(hello).split("\n")[:3]
    number, host, duty = first.split(" ")
    pid = int(number)
    folder = os.path.dirname(os.path.abspath(__file__))
    if (python, script) != (sys.executable, f"{folder}/start.py") or not _is_alike(pid, place.in_fd):
        return
    _take_over_surroundings(pid)
    HookTurn.asked_by = pid

    def send(*lines: str) -> None:
        data = "".join(f"{pid} {line}\n" for line in lines).encode("utf-8", "backslashreplace")
        while data:
            data = data[os.write(place.out_fd, data) :]

    def deliver(answer: Answer) -> None:
        lines = [f"aside {line}" for line in answer.stderr.splitlines()]
        if len(answer.stdout) > MOST_LINE_BYTES:
            text = answer.stdout.encode("utf-8", "backslashreplace")
            small_file.write_over(f"{pid}.said", text, folder_fd)
            lines.append("file")
        elif answer.stdout:
            lines += [f"said {line}" for line in answer.stdout.split("\n")]
        send(*lines, f"end {answer.code}")

    send("ready")
    main.carry_out(host, duty, place.in_fd, deliver)


def _is_alike(pid: int, in_fd: int) -> bool:
    """True if a process has our FIFO open, sees what we see, and may do what we may."""
    try:
        if not os.path.samestat(os.stat(f"/proc/{pid}/fd/4"), os.fstat(in_fd)):
            return False
        if not os.path.samestat(os.stat(f"/proc/{pid}/root"), os.stat("/")):
            return False
        for kind in NAMESPACES:
            if os.readlink(f"/proc/{pid}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}"):
                return False
        return _rights(pid) == _rights(os.getpid())
    except OSError:
        return False


def _rights(pid: int) -> list[bytes]:
    lines = _read(f"/proc/{pid}/status").splitlines()
    return [line for line in lines if line.partition(b":")[0] in RIGHTS]


def _take_over_surroundings(pid: int) -> None:
    """Have the caller's environment, and stand where it stands."""
    for name in list(os.environ):
        del os.environ[name]
    for pair in _read(f"/proc/{pid}/environ").split(b"\0"):
        name, _, value = os.fsdecode(pair).partition("=")
        if name:
            os.environ[name] = value
    os.chdir(f"/proc/{pid}/cwd")


def _read(path: str) -> bytes:
    with closing(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as descriptor:
        pieces = []
        while piece := os.read(descriptor, 1 << 16):
            pieces.append(piece)
        return b"".join(pieces)
