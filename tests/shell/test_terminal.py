"""A command in the guarded shell has the terminal, its keys and signals as if it were run plainly."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.shell.test_process import is_available, project

__all__ = ["project"]
pytestmark = pytest.mark.skipif(not is_available(), reason="no namespaces here")
RUN = [sys.executable, "-m", "noclobber", "run", "--"]
LONGEST_S = 60.0


def until_caught(pid: int, number: int) -> None:
    """Wait until a process has a handler for a signal: the command has begun, and signals are its own."""
    deadline_s = time.monotonic() + LONGEST_S
    while True:
        status = Path(f"/proc/{pid}/status").read_text()
        caught = int(status.partition("SigCgt:")[2].split()[0], 16)
        if caught >> (number - 1) & 1:
            return
        assert time.monotonic() < deadline_s, status
        os.sched_yield()


class Terminal:
    """A program on a terminal of its own, of 33 lines and 101 columns."""

    def __init__(self, root: Path, *words: str) -> None:
        ready, go = os.pipe()
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.read(ready, 1)
            os.chdir(root)
            os.execvp(words[0], words)
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 101, 0, 0))
        os.write(go, b"x")
        os.close(ready)
        os.close(go)
        self.shown = ""

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def shows(self, word: str) -> str:
        """Wait until something is on the screen; return what has come since the last time."""
        deadline_s = time.monotonic() + LONGEST_S
        while word not in self.shown:
            assert time.monotonic() < deadline_s, self.shown
            if select.select([self.descriptor], [], [], 0.5)[0]:
                try:
                    self.shown += os.read(self.descriptor, 4096).decode(errors="replace")
                except OSError:  # The terminal is closed.
                    assert word in self.shown, self.shown
        before, _, self.shown = self.shown.partition(word)
        return before + word

    def ends(self) -> int:
        """Return the exit code, or minus the signal."""
        try:
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        finally:
            os.close(self.descriptor)


def test_a_command_has_the_terminal(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-shell: its size, colours, and what is typed; the exit code is the command's own."""
    monkeypatch.setenv("TERM", "xterm")  # Whoever runs the tests may have one without colours.
    text = "stty size; test -t 0 && test -t 1 && test -t 2 && echo all three; ls --color=auto -d .noclobber"
    terminal = Terminal(project, *RUN, "sh", "-c", f"{text}; read answer; echo got $answer; exit 7")
    shown = terminal.shows(".noclobber")
    assert "33 101" in shown
    assert "all three" in shown
    assert "\x1b[" in shown
    terminal.type("hello\n")
    terminal.shows("got hello")
    assert terminal.ends() == 7


def test_the_interrupt_key_ends_the_command_and_nothing_of_it_lands(project: Path) -> None:
    """N-shell: refused if it had written something; otherwise ended by the same signal, as a shell expects."""
    terminal = Terminal(project, *RUN, "sh", "-c", "echo two >> plan.md; echo ready; exec sleep 60")
    terminal.shows("ready")
    until_caught(terminal.pid, signal.SIGQUIT)
    terminal.type("\x03")
    terminal.shows("nothing of this command landed")
    assert terminal.ends() == 75
    assert (project / "plan.md").read_text() == "one\n"
    terminal = Terminal(project, *RUN, "sh", "-c", "echo ready; exec sleep 60")
    terminal.shows("ready")
    until_caught(terminal.pid, signal.SIGQUIT)
    terminal.type("\x03")
    assert terminal.ends() == -signal.SIGINT


def test_a_command_is_stopped_and_continued_as_a_job(project: Path) -> None:
    """N-shell: Ctrl-Z, `jobs`, `fg` in an interactive shell; then its changes land."""
    terminal = Terminal(project, "bash", "--norc", "--noprofile", "-i")
    terminal.type("bind 'set enable-bracketed-paste off'; echo pro''mpt\n")
    terminal.shows("prompt")
    terminal.type(f"{' '.join(RUN)} sh -c 'echo two >> plan.md; echo rea''dy; sleep 0.5; echo do''ne'\n")
    terminal.shows("ready")
    terminal.type("\x1a")
    terminal.shows("Stopped")
    assert (project / "plan.md").read_text() == "one\n"
    terminal.type("fg\n")
    terminal.shows("done")
    terminal.type("echo co''de $?; exit\n")
    terminal.shows("code 0")
    terminal.ends()
    assert (project / "plan.md").read_text() == "one\ntwo\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_to_the_process_is_the_commands(project: Path, number: signal.Signals) -> None:
    """N-shell: a handler of the command's runs; without one it ends the command, and nothing of it lands."""
    trapped = f"trap 'echo three >> plan.md; exit 4' {number.name[3:]}"
    for text, code, content in (
        (f"{trapped}; echo ready; while :; do sleep 0.05; done", 4, "one\nthree\n"),
        ("echo two >> plan.md; echo ready; exec sleep 60", 75, "one\n"),
        ("echo ready; exec sleep 60", -number, "one\n"),
    ):
        (project / "plan.md").write_text("one\n")
        with subprocess.Popen(
            [*RUN, "sh", "-c", text], cwd=project, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            until_caught(process.pid, number)
            process.send_signal(number)
            assert process.wait(LONGEST_S) == code
        assert (project / "plan.md").read_text() == content


def test_standard_input_is_the_commands(project: Path) -> None:
    """N-shell: a pipe with bytes of any kind, a file, and one that is closed."""
    data = bytes(range(256)) * 1000
    done = subprocess.run([*RUN, "sh", "-c", "cat > copy"], cwd=project, input=data, capture_output=True)
    assert (done.returncode, (project / "copy").read_bytes() == data) == (0, True)
    closed = subprocess.run(
        ["sh", "-c", f"{' '.join(RUN)} sh -c 'read x; echo $?; echo two >> plan.md' <&-"],
        cwd=project,
        capture_output=True,
        text=True,
    )
    assert closed.returncode == 0, closed.stderr
    assert (project / "plan.md").read_text() == "one\ntwo\n"
