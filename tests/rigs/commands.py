"""How the tests of the command line call it: the real command, in a process of its own, on a pipe or a terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import NamedTuple

import noclobber
from tests.rigs.schemas import check_output

HOME = str(Path(noclobber.__file__).parent.parent)
PATIENCE_S = 60


class Done(NamedTuple):
    """A command that ended."""

    code: int
    out: str
    err: str


def environment(**changes: str | None) -> dict[str, str]:
    """The environment of a command: this very package, and nothing that changes how it looks."""
    unwanted = ("NO_COLOR", "NOCLOBBER_DEBUG", "NOCLOBBER_LEVEL", "COLUMNS", "LINES", "PYTHONUNBUFFERED")
    base = {key: value for key, value in os.environ.items() if key not in unwanted}
    base |= {"PYTHONPATH": HOME, "TERM": "xterm-256color"}
    # Neither the sessions nor the coding agents of whoever runs the tests.
    # Below /proc, where not even root can make a folder.
    base |= {"HOME": "/proc/nonexistent"}
    base.setdefault("XDG_RUNTIME_DIR", "/proc/nonexistent")
    return {key: value for key, value in (base | changes).items() if value is not None}


def noclobber_command(*words: str) -> list[str]:
    """The command line of a command."""
    return [sys.executable, "-m", "noclobber", *words]


def run(
    *words: str | bytes, cwd: str | bytes | Path | None = None, stdin: str = "", **changes: str | None
) -> Done:
    """Run a command with its output on pipes."""
    done = subprocess.run(
        [sys.executable, "-m", "noclobber", *words],
        cwd=cwd,
        input=stdin.encode(),
        capture_output=True,
        timeout=PATIENCE_S,
        env=environment(**changes),
    )
    ended = Done(done.returncode, done.stdout.decode(), done.stderr.decode())
    check_output(ended.out)
    check_output(ended.err)
    return ended


def python(code: str, *words: str, cwd: str | bytes | Path | None = None, **changes: str | None) -> Done:
    """Run a few lines of Python in a process of their own."""
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=cwd,
        capture_output=True,
        timeout=PATIENCE_S,
        env=environment(**changes),
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


class Terminal:
    """A command on a pseudo-terminal: what a person would see."""

    def __init__(
        self,
        *words: str,
        command: list[str] | None = None,
        cwd: str | bytes | Path | None = None,
        rows: int = 40,
        columns: int = 100,
        **changes: str | None,
    ) -> None:
        self._leader, follower = pty.openpty()
        termios.tcsetwinsize(follower, (rows, columns))
        self.process = subprocess.Popen(
            command or noclobber_command(*words),
            cwd=cwd,
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env=environment(**changes),
            start_new_session=True,
        )
        os.close(follower)
        self.seen = ""

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._leader, keys.encode())

    def read_until(self, text: str) -> str:
        """Read until a text has been seen; fail if the command ends or nothing comes."""
        deadline_s = time.monotonic() + PATIENCE_S
        while text not in self.seen:
            assert time.monotonic() < deadline_s, f"{text!r} never came; seen: {self.seen!r}"
            assert self._read(), f"ended without {text!r}; seen: {self.seen!r}"
        return self.seen

    def read_all(self) -> str:
        """Read to the end, and wait for the command."""
        while self._read():
            pass
        self.process.wait(PATIENCE_S)
        return self.seen

    def _read(self) -> bool:
        assert select.select([self._leader], [], [], PATIENCE_S)[0], f"nothing comes; seen: {self.seen!r}"
        try:
            data = os.read(self._leader, 65536)
        except OSError:  # How a terminal says that the other side has closed.
            return False
        self.seen += data.decode()
        return bool(data)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_S)
        os.close(self._leader)
