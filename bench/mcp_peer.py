"""
The other end of an MCP connection on stdio, and the reference server to compare with.

Without the SDK: tests and benchmarks must see the bytes that a server sends, and a client's own work must not
be measured.

npm packages are installed once, with pinned versions, into a folder below the virtual environment. Where
there is no npm, or it cannot install, `reference_command()` says why in the exception that it raises.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Self

REFERENCE = ("@modelcontextprotocol/server-filesystem", "2026.8.31")
INSPECTOR = ("@modelcontextprotocol/inspector", "2.12.0")
INSTALL_PATIENCE_S = 180


class Unavailable(Exception):  # noqa: N818 - not an error: a reason to skip
    """An npm package that is not available here, and why."""


def npm_folder(package: tuple[str, str]) -> Path:
    """Return where a package is installed, installing it if need be."""
    name, version = package
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise Unavailable("npm and node are not installed")
    cache = Path(sys.prefix) / "npm" / f"{name.rpartition('/')[2]}-{version}"
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / ".installing", "w") as mutex:
        fcntl.flock(mutex, fcntl.LOCK_EX)  # Tests run in several processes.
        if not (cache / ".ready").exists():
            command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(cache)]
            try:
                done = subprocess.run(
                    [*command, f"{name}@{version}"],
                    capture_output=True,
                    text=True,
                    timeout=INSTALL_PATIENCE_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise Unavailable(f"npm did not install {name} within {INSTALL_PATIENCE_S} s") from None
            if done.returncode != 0:
                lines = done.stderr.strip().splitlines() or ["no reason given"]
                raise Unavailable(f"npm cannot install {name}: {lines[0][:200]}")
            (cache / ".ready").touch()
    return cache / "node_modules" / name


def package_program(package: tuple[str, str]) -> list[str]:
    """Return the command that runs a package's program."""
    folder = npm_folder(package)
    programs = json.loads((folder / "package.json").read_text())["bin"]
    program = programs if isinstance(programs, str) else next(iter(programs.values()))
    return [shutil.which("node") or "node", str(folder / program)]


def reference_command() -> list[str]:
    """Return the command that starts the reference server, without its roots."""
    return package_program(REFERENCE)


def our_command() -> list[str]:
    """Return the command that starts ours, without its roots."""
    return [sys.executable, "-m", "noclobber", "mcp"]


class Peer:
    """A client of the handshake era, one request at a time."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        roots: Sequence[str] | None = None,
        stderr: IO[bytes] | int = subprocess.DEVNULL,
        cwd: str | None = None,
    ) -> None:
        self.roots = roots
        """Folders to name if the server asks; None: this client has no such capability."""
        self.notifications: list[dict[str, Any]] = []
        self._number = 0
        source = str(Path(__file__).parent.parent / "src")
        environment = {**os.environ, "PYTHONPATH": source, "TZ": "UTC"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, cwd=cwd, env=environment
        )
        capabilities: dict[str, Any] = {} if roots is None else {"roots": {"listChanged": True}}
        client = {"name": "a-client", "version": "1"}
        hello = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": client}
        self.hello = self.request("initialize", hello)
        self.notify("notifications/initialized")

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""
        self.send_line(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def send_line(self, line: bytes) -> None:
        """Send a line, whatever it holds."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def notify(self, method: str) -> None:
        """Send a notification."""
        self.send({"method": method})

    def request(self, method: str, params: Any = None) -> dict[str, Any]:
        """Send a request and return the answer, `result` or `error` included."""
        self._number += 1
        message = {"id": self._number, "method": method}
        self.send(message if params is None else {**message, "params": params})
        while True:
            answer = self.receive()
            if answer.get("method") == "roots/list":
                named = [{"uri": f"file://{root}"} for root in self.roots or ()]
                self.send({"id": answer["id"], "result": {"roots": named}})
            elif "method" in answer:
                self.notifications.append(answer)
            elif answer.get("id") == self._number:
                return answer

    def receive(self) -> dict[str, Any]:
        """Return the next message."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise EOFError("the server went away")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return its result."""
        answer = self.request("tools/call", {"name": tool, "arguments": arguments})
        result: dict[str, Any] = answer.get("result") or answer["error"]
        return result

    def close(self) -> None:
        """Close the connection and wait for the server's end."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(timeout=30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
