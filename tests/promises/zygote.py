"""
Commands and hooks in processes of their own, without the start of an interpreter for each.

One process loads the package and waits. For each request a child of it becomes the command, with its own folder,
environment and standard streams, and ends as the command does. `python -m tests.promises.zygote SOCKET` is that
process; `Zygote` starts it and asks it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

PATIENCE_S = 60
TAKE_OVER_S = 20.0
"""A host that is slower than usual, on a busy machine, keeps its claim. Taking over has tests of its own."""


class Ended(NamedTuple):
    """A command that ended."""

    code: int
    out: bytes
    err: bytes


class Zygote:
    """The process that waits. Several threads may ask at once."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="noclobber-zygote-")
        self._address = f"{self._folder.name}/socket"
        command = [sys.executable, "-m", "tests.promises.zygote", self._address]
        self._process = subprocess.Popen(command, cwd=Path(__file__).parents[2])
        until_s = time.monotonic() + PATIENCE_S
        while not os.path.exists(self._address) and time.monotonic() < until_s:
            time.sleep(0.01)

    def cli(self, *words: str, cwd: Path, environment: Mapping[str, str], stdin: bytes = b"") -> Ended:
        """Run `noclobber WORDS`."""
        return self._ask("cli", list(words), cwd, environment, stdin)

    def hook(self, host: str, duty: str, payload: Any, cwd: Path, **environment: str) -> dict[str, Any]:
        """Answer one event of a host."""
        done = self._ask("hook", [host, duty], cwd, environment, json.dumps(payload).encode())
        assert done.code == 0, done
        answer: dict[str, Any] = json.loads(done.out) if done.out else {}
        return answer

    def prefix(self, text: str, cwd: Path, **environment: str) -> Ended:
        """Run a text as Claude Code's shell does."""
        return self._ask("prefix", [text], cwd, environment, b"")

    def _ask(
        self, what: str, words: list[str], cwd: Path, environment: Mapping[str, str], stdin: bytes
    ) -> Ended:
        with tempfile.TemporaryDirectory(dir=self._folder.name) as place:
            Path(place, "in").write_bytes(stdin)
            request = {"what": what, "words": words, "cwd": str(cwd), "environment": environment, "at": place}
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(PATIENCE_S)
                connection.connect(self._address)
                connection.sendall(json.dumps(request).encode() + b"\n")
                status = int(connection.makefile().readline())
            return Ended(status, Path(place, "out").read_bytes(), Path(place, "err").read_bytes())

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.wait(PATIENCE_S)
        self._folder.cleanup()


def serve(address: str) -> None:
    """Wait for requests until the end."""
    _load()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{address}.new")
        listener.listen(16)
        os.rename(f"{address}.new", address)
        while True:
            connection, _ = listener.accept()
            _reap()
            if os.fork() == 0:
                listener.close()
                _answer(connection)
            connection.close()


def _reap() -> None:
    """Wait for the children that have ended. Their time is the run's: it is measured."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _load() -> None:
    """Load what most commands need; a child loads the rest."""
    from noclobber.cli import run
    from noclobber.guard import claims

    claims.TAKE_OVER_S = TAKE_OVER_S
    for name in (*run.LANDING, "cli.write", "cli.shell_prefix", "guard.workspace", "hook.main", "hook.turn"):
        __import__(f"noclobber.{name}")


def _answer(connection: socket.socket) -> None:
    """Carry out one request in a child, and say how it ended."""
    request = json.loads(connection.makefile().readline())
    pid = os.fork()
    if pid == 0:
        connection.close()
        _become(request)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    connection.sendall(f"{code}\n".encode())
    os._exit(0)


def _become(request: dict[str, Any]) -> None:
    code = 70
    try:
        os.chdir(request["cwd"])
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        os.environ.clear()
        os.environ.update({**kept, "HOME": "/proc/nonexistent", **request["environment"]})
        for target, name in enumerate(("in", "out", "err")):
            flags = os.O_RDONLY if target == 0 else os.O_WRONLY | os.O_CREAT
            opened = os.open(f"{request['at']}/{name}", flags, 0o600)
            os.dup2(opened, target)
            os.close(opened)
        sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
        words = request["words"]
        if request["what"] == "cli":
            from noclobber import cli

            code = cli.main(words)
        elif request["what"] == "hook":
            from noclobber.hook import main

            code = main.main(words)
        else:
            from noclobber.cli import shell_prefix

            code = shell_prefix.main(words)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1])
