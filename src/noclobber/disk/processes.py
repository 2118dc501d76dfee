"""
Is that the same process, and does it run?

A pid alone answers neither question. Pids are reused; a zombie still answers `kill(pid, 0)`; two
containers that share a volume number their processes independently; after a reboot everything starts
again at 1. So a process is identified by its pid, the moment it started, the boot it belongs to, the
pid namespace it is numbered in, and the host. Only where the last three are ours can anybody here
say that it is gone. Everywhere else the answer is `UNKNOWN`, never a guess.

Calling sequence: `identify()` when the process is known to run, `fate()` later, from any process.

Not promised: a process that is stopped, or hangs, runs as far as this module can tell.
"""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

RUNNING, GONE, UNKNOWN = "running", "gone", "unknown"

_IS_LINUX = sys.platform == "linux"


class ProcessIdentity(NamedTuple):
    """One process, named so that no other process, ever, has the same name."""

    pid: int
    started: int | None
    """Clock ticks after boot on Linux, microseconds since the epoch on macOS; None if it is not known."""
    host: str
    boot_id: str | None
    pid_namespace: str | None
    time_namespace: str | None = None
    """Whose counting `started` is: each time namespace has its own. None: ours."""


class Surroundings(NamedTuple):
    """Where the calling process runs. Pids can be compared only between processes with equal surroundings."""

    host: str
    boot_id: str | None
    pid_namespace: str | None
    time_namespace: str | None


_fixed_surroundings: tuple[str | None, str | None, str | None] | None = None


def surroundings() -> Surroundings:
    """Return where this process runs. The host's name is asked for every time: laptops change theirs."""
    global _fixed_surroundings
    if _fixed_surroundings is None:
        _fixed_surroundings = _boot_id(), _namespace("pid"), _namespace("time")
    return Surroundings(os.uname().nodename, *_fixed_surroundings)


_own_start: tuple[int, int | None] | None = None


def _own_started() -> int | None:
    """Return when this process started; asked once, because it cannot change."""
    global _own_start
    pid = os.getpid()
    if _own_start is None or _own_start[0] != pid:
        found = _look_up(pid)
        _own_start = pid, found.started if found else None
    return _own_start[1]


def _forget_surroundings() -> None:
    # A child is another process, and may have been forked into a new pid namespace.
    global _fixed_surroundings, _own_start
    _fixed_surroundings = _own_start = None


os.register_at_fork(after_in_child=_forget_surroundings)


def identify(pid: int | None = None) -> ProcessIdentity:
    """Name a running process, this one by default. `ProcessLookupError` if there is none with that pid."""
    if pid is None:
        return ProcessIdentity(os.getpid(), _own_started(), *surroundings())
    number = pid
    found = _look_up(number)
    if found is None and (number <= 0 or not _is_there(number)):
        raise ProcessLookupError(f"there is no process {number}")
    if found is not None and found.is_zombie:
        raise ProcessLookupError(f"process {number} has ended (a zombie is left of it)")
    return ProcessIdentity(number, found.started if found else None, *surroundings())


def fate(process: ProcessIdentity) -> str:
    """Return `RUNNING`, `GONE`, or `UNKNOWN` where this machine cannot tell."""
    if process.started is None or process.boot_id is None or process.pid_namespace is None:
        return UNKNOWN
    here = surroundings()
    if (process.host, process.boot_id, process.pid_namespace) != here[:3]:
        return UNKNOWN
    if process.pid <= 0:  # kill() would address process groups.
        return UNKNOWN
    # The kernel counts start times from a boot that each time namespace may place elsewhere. In another one
    # the same process has another number: that it is there can be seen, which one it is cannot.
    is_comparable = process.time_namespace in (None, here.time_namespace)
    if process.pid == os.getpid() and is_comparable:
        return RUNNING if process.started == _own_started() else GONE
    found = _look_up(process.pid)
    if found is None:
        # Not "gone" yet: with /proc mounted hidepid=2, other users' processes have no entry there at all.
        # Only ESRCH means gone.
        return RUNNING if _is_there(process.pid) else GONE
    if found.is_zombie:
        return GONE
    if not is_comparable:
        return UNKNOWN
    return GONE if found.started is not None and found.started != process.started else RUNNING


def fate_of_pid(pid: int) -> str:
    """Return `RUNNING` or `GONE` for a number on this machine of which nothing more is known."""
    found = _look_up(pid)
    if found is None:
        return RUNNING if _is_there(pid) else GONE
    return GONE if found.is_zombie else RUNNING


class _Found(NamedTuple):
    started: int | None
    is_zombie: bool


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _look_up(pid: int) -> _Found | None:
    """Return what the kernel says about a pid; None if it says nothing (ended, hidden, no /proc)."""
    return _look_up_linux(pid) if _IS_LINUX else _look_up_macos(pid)


def _look_up_linux(pid: int) -> _Found | None:
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        line = os.read(descriptor, 4096)
    except OSError:
        return None  # It ended between open and read.
    finally:
        os.close(descriptor)
    # The command's name is in parentheses and may hold anything, parentheses and spaces included.
    fields = line[line.rfind(b")") + 2 :].split(b" ", 20)
    if len(fields) < 20:
        return None
    # A main thread that ended before its process shows as Z as well, but then others are left.
    return _Found(int(fields[19]), fields[0] in (b"Z", b"X", b"x") and int(fields[17]) <= 1)


def host_of(parent_pid: int) -> int:
    """Return the process that a hook answers: the first above it that is no shell; 0: unknown."""
    pid = parent_pid
    for _ in range(8):  # Hosts run hooks by a shell, and our command line has another one in it.
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                name, _, rest = file.read().partition("(")[2].rpartition(")")
        except OSError:
            return 0
        if name not in ("sh", "bash", "dash", "zsh", "ash", "ksh", "fish"):
            return pid
        pid = int(rest.split()[1])
    return 0


def _look_up_macos(pid: int) -> _Found | None:
    """Ask `sysctl(KERN_PROC_PID)`, which answers for other users' processes too; then `ps`."""
    return _look_up_sysctl(pid) or _look_up_ps(pid)


# struct kinfo_proc begins with the start time (seconds, microseconds); its status byte is at offset 36.
_KINFO_PROC_BYTES, _KINFO_STATUS_AT, _SZOMB = 648, 36, 5


def _look_up_sysctl(pid: int) -> _Found | None:
    import ctypes
    import struct

    try:
        libc = ctypes.CDLL(None, use_errno=True)
        name = (ctypes.c_int * 4)(1, 14, 1, pid)  # CTL_KERN, KERN_PROC, KERN_PROC_PID
        buffer = ctypes.create_string_buffer(_KINFO_PROC_BYTES)
        size = ctypes.c_size_t(_KINFO_PROC_BYTES)
        failed = libc.sysctl(name, 4, buffer, ctypes.byref(size), None, ctypes.c_size_t(0))
    except (OSError, AttributeError):
        return None
    if failed or size.value < _KINFO_STATUS_AT + 1:
        return None
    seconds, micros = struct.unpack_from("=qi", buffer.raw, 0)
    if seconds <= 0 or not 0 <= micros < 1_000_000:
        return None  # Not the layout we know.
    return _Found(seconds * 1_000_000 + micros, buffer.raw[_KINFO_STATUS_AT] == _SZOMB)


def _look_up_ps(pid: int) -> _Found | None:
    """`ps` gives whole seconds, which is why `sysctl` is asked first: the two never meet in one record
    unless sysctl failed once and worked once, and then the lease decides."""
    import calendar
    import subprocess
    import time

    try:
        answer = subprocess.run(
            ["/bin/ps", "-o", "stat=,lstart=", "-p", str(pid)],
            capture_output=True, text=True, timeout=5, check=False, env={"LC_ALL": "C", "TZ": "UTC"},
        ).stdout.split(None, 1)  # fmt: skip
        if len(answer) != 2:
            return None
        started_s = calendar.timegm(time.strptime(answer[1].strip(), "%a %b %d %H:%M:%S %Y"))
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return _Found(int(started_s) * 1_000_000, answer[0].startswith("Z"))


def _boot_id() -> str | None:
    if not _IS_LINUX:
        return _sysctl_text("kern.bootsessionuuid")
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            return file.read().strip() or None
    except (OSError, ValueError):
        return None


def _namespace(kind: str) -> str | None:
    if not _IS_LINUX:
        return "none"  # macOS has one numbering of processes, and one clock.
    try:
        return os.readlink(f"/proc/self/ns/{kind}")
    except OSError:
        return None


def _sysctl_text(name: str) -> str | None:
    import ctypes

    try:
        libc = ctypes.CDLL(None, use_errno=True)
        buffer = ctypes.create_string_buffer(256)
        size = ctypes.c_size_t(256)
        if libc.sysctlbyname(name.encode(), buffer, ctypes.byref(size), None, ctypes.c_size_t(0)):
            return None
    except (OSError, AttributeError):
        return None
    return buffer.value.decode("ascii", "replace") or None


def mutex_holder(device: int, inode: int) -> int | None:
    """Return the pid that holds the `flock` of a file or folder, where the kernel tells (Linux)."""
    wanted = f"{os.major(device):02x}:{os.minor(device):02x}:{inode}"
    try:
        with open("/proc/locks", encoding="utf-8", errors="replace") as file:
            for line in file:
                # "1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF"; waiters have "->" as second word.
                words = line.split()
                if len(words) >= 6 and words[1] == "FLOCK" and words[5] == wanted:
                    return int(words[4])
    except (OSError, ValueError):
        return None
    return None


MOST_NAMED = 3


def writers_of(file: os.stat_result) -> list[tuple[int, str]]:
    """
    Return (pid, program) of those that have a file open for writing, this process included, a few at most.

    Where the kernel tells: Linux, and processes that this user may look at.
    """
    found: list[tuple[int, str]] = []
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return found
    for pid in pids:
        if len(found) < MOST_NAMED and _writes_to(pid, file):
            found.append((pid, _program(pid)))
    return found


def _writes_to(pid: int, file: os.stat_result) -> bool:
    try:
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            try:
                status = os.stat(f"/proc/{pid}/fd/{descriptor}")
                if os.path.samestat(status, file) and _is_for_writing(pid, descriptor):
                    return True
            except OSError:
                continue  # Closed meanwhile.
    except OSError:
        pass  # It has ended, or is another user's.
    return False


def _is_for_writing(pid: int, descriptor: str) -> bool:
    with open(f"/proc/{pid}/fdinfo/{descriptor}", encoding="utf-8", errors="replace") as info:
        for line in info:
            if line.startswith("flags:"):
                return bool(int(line.split()[1], 8) & (os.O_WRONLY | os.O_RDWR))
    return False


def _program(pid: int) -> str:
    """Return a process's name, on one plain line: it is shown to models and on terminals."""
    if pid == os.getpid():
        return "this process"
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            name = file.read(64)
    except OSError:
        return "a program"
    return "".join(letter for letter in name if letter.isprintable()).strip() or "a program"
