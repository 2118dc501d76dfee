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


def command_line(pid: str) -> str:
    """What a process was started with; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def waiting_for(name: str, then: str) -> str:
    """A Python program that takes one signal whenever it comes, and then a line to write."""
    return (
        f"import os, signal; which = {{signal.SIG{name}}}; signal.pthread_sigmask(signal.SIG_BLOCK, which)\n"
        f"print('ready', flush=True); signal.sigwait(which); {then}\n"
        "open('plan.md', 'a').write(input() + '\\n')\n"
    )


def interactive(root: Path) -> Terminal:
    """An interactive shell with job control."""
    terminal = Terminal(root, "bash", "--norc", "--noprofile", "-i")
    terminal.type("bind 'set enable-bracketed-paste off'; echo pro''mpt\n")
    terminal.shows("prompt")
    return terminal


def test_a_command_is_in_the_foreground_of_its_terminal(project: Path) -> None:
    """N-shell: its process group is the terminal's, alone and as a job of an interactive shell."""
    look = "import os; os.write(1, b'front' + str(os.tcgetpgrp(0) == os.getpgrp()).encode())"
    terminal = Terminal(project, *RUN, sys.executable, "-c", look)
    terminal.shows("frontTrue")
    assert terminal.ends() == 0
    (project / "look.py").write_text(look)
    terminal = interactive(project)
    terminal.type(f"{' '.join(RUN)} {sys.executable} look.py; echo; echo co''de $?; exit\n")
    terminal.shows("frontTrue")
    terminal.shows("code 0")
    terminal.ends()


def test_a_command_is_told_when_its_terminal_gets_another_size(project: Path) -> None:
    """N-shell: SIGWINCH, and the new size; what runs on is the same command, and it lands."""
    program = waiting_for("WINCH", "print('size', *os.get_terminal_size(), flush=True)")
    terminal = Terminal(project, *RUN, sys.executable, "-c", program)
    terminal.shows("ready")
    fcntl.ioctl(terminal.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 120, 0, 0))
    terminal.shows("size 120 50")
    terminal.type("two\n")
    assert terminal.ends() == 0
    assert (project / "plan.md").read_text() == "one\ntwo\n"


@pytest.mark.parametrize(("key", "name"), [("\x03", "INT"), ("\x1c", "QUIT")])
def test_a_command_that_takes_the_key_itself_goes_on(project: Path, key: str, name: str) -> None:
    """N-shell: a prompt that Ctrl-C brings back, for example; what it writes afterwards lands."""
    program = waiting_for(name, "print('taken', flush=True)")
    terminal = Terminal(project, *RUN, sys.executable, "-c", program)
    terminal.shows("ready")
    until_caught(terminal.pid, signal.SIGQUIT)
    terminal.type(key)
    terminal.shows("taken")
    terminal.type("two\n")
    assert terminal.ends() == 0
    assert (project / "plan.md").read_text() == "one\ntwo\n"


def test_the_quit_key_ends_the_command_and_nothing_of_it_lands(project: Path) -> None:
    """N-shell: as the interrupt key does."""
    text = "ulimit -c 0; echo two >> plan.md; echo ready; exec sleep 60"
    terminal = Terminal(project, *RUN, "sh", "-c", text)
    terminal.shows("ready")
    until_caught(terminal.pid, signal.SIGQUIT)
    terminal.type("\x1c")
    terminal.shows("nothing of this command landed")
    assert terminal.ends() == 75
    assert (project / "plan.md").read_text() == "one\n"


def test_a_job_in_the_background_that_reads_the_terminal_waits_for_the_foreground(project: Path) -> None:
    """N-shell: `&`, stopped for input (SIGTTIN), `fg`, and what is typed then is the command's."""
    terminal = interactive(project)
    command = "sh -c 'read answer < /dev/tty; echo $answer >> plan.md; echo do''ne'"
    terminal.type(f"{' '.join(RUN)} {command} &\n")
    terminal.type("while ! jobs | grep -q Stopped; do :; done; echo wai''ting\n")
    terminal.shows("waiting")
    terminal.type("fg\n")
    terminal.shows("read answer")  # What `fg` brings back, it says.
    terminal.type("typed\n")
    terminal.shows("done")
    terminal.type("echo co''de $?; exit\n")
    terminal.shows("code 0")
    terminal.ends()
    assert (project / "plan.md").read_text() == "one\ntyped\n"


def test_a_stopped_job_goes_on_in_the_background_and_can_be_stopped_again(project: Path) -> None:
    """N-shell: Ctrl-Z, `bg`, `fg`, Ctrl-Z, `kill %1`: then nothing of it lands."""
    terminal = interactive(project)
    mark = f"places-{os.getpid()}.py"
    (project / mark).write_text(
        "import os, time\n"
        "open('plan.md', 'a').write('two\\n')\n"
        "was = None\n"
        "while True:\n"
        "    place = 'in ' + ('front' if os.tcgetpgrp(0) == os.getpgrp() else 'the back')\n"
        "    if place != was: os.write(1, place.encode())\n"
        "    was = place\n"
        "    time.sleep(0.01)\n"
    )
    terminal.type(f"{' '.join(RUN)} {sys.executable} {mark}\n")
    terminal.shows("in front")
    terminal.type("\x1a")
    terminal.shows("Stopped")
    terminal.type("bg\n")
    terminal.shows("in the back")
    terminal.type("fg\n")
    terminal.shows("in front")  # Before that the key would still be the shell's.
    terminal.type("\x1a")
    terminal.shows("Stopped")
    terminal.type("kill %1; wait %1; fg; echo co''de $?; exit\n")
    terminal.shows("nothing of this command landed")
    terminal.shows("code")
    terminal.ends()
    assert (project / "plan.md").read_text() == "one\n"
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and mark in command_line(pid)]


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
