"""
Which process does `noclobber lock acquire` speak for? The agent's, or the shell's that a person types into.

The parent of this command is often a shell that ends with it (`bash -c "noclobber lock acquire …"`, `$(…)`),
and a lock that is bound to it would be an orphan at once. So the search goes up: past shells that run one
command, past subshells, and past programs that only start others. What is found lives longer than this
command, and ends with the agent. Where the way up ends in a program that waits for nobody in particular
(`sshd`, `cron`, the container's first process), nothing is found, and the lock lives by its lease: too long
is safe, too short is not.
"""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "fish", "ash", "busybox"))
STARTERS = frozenset(
    (
        *("env", "nice", "nohup", "time", "timeout", "sudo", "doas", "xargs", "setsid", "script", "stdbuf"),
        *("uv", "uvx", "pipx", "npm", "npx", "make", "just", "unshare", "nsenter", "noclobber"),
    )
)
ENDS = frozenset(
    (
        *("sshd", "sshd-session", "login", "su", "cron", "crond", "atd", "systemd", "init", "launchd"),
        *("containerd-shim", "runc", "tini", "docker-init", "dumb-init"),
    )
)
MOST_STEPS = 32


class Ancestor(NamedTuple):
    """A process above this one."""

    pid: int
    parent: int
    words: tuple[str, ...]
    """Its command line."""

    @property
    def program(self) -> str:
        """The program's name, without folder and without a login shell's dash."""
        first = self.words[0] if self.words else ""
        return os.path.basename(first.split(":")[0].split(" ")[0]).lstrip("-")


def calling_process() -> int | None:
    """Return the pid of the agent or the shell that runs this command; None if it cannot be told."""
    pid = os.getppid()
    for _ in range(MOST_STEPS):
        if pid <= 1:
            return None
        here = look_up(pid)
        if here is None or here.program in ENDS:
            return None
        if not _is_passing(here):
            return pid
        pid = here.parent
    return None


def _is_passing(process: Ancestor) -> bool:
    """True for what ends with the command that it runs."""
    if process.program in STARTERS:
        return True
    if process.program not in SHELLS:
        return False
    options = [word for word in process.words[1:] if word.startswith("-") and not word.startswith("--")]
    if any("c" in option for option in options):
        return True
    above = look_up(process.parent)
    return above is not None and above.words == process.words  # A subshell looks as its shell does.


def look_up(pid: int) -> Ancestor | None:
    """Return what the system says about a process."""
    if sys.platform != "linux":
        return _look_up_ps(pid)
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            parent = int(file.read().rpartition(b")")[2].split()[1])
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = os.fsdecode(file.read(65536)).split("\0")[:-1]
    except (OSError, ValueError, IndexError):
        return None
    return Ancestor(pid, parent, tuple(words))


def _look_up_ps(pid: int) -> Ancestor | None:
    import subprocess

    try:
        said = subprocess.run(
            ["/bin/ps", "-o", "ppid=,command=", "-p", str(pid)],
            capture_output=True, text=True, timeout=5, check=False,
        ).stdout.split()  # fmt: skip
        return Ancestor(pid, int(said[0]), tuple(said[1:]))
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return None
