"""`noclobber view`: the link, the port, the token's file, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.rigs.commands import Terminal, environment, noclobber_command, run


def test_it_prints_one_object_serves_and_ends_at_an_interrupt(root: Path) -> None:
    """N-view: exit code 0; what it prints is enough to ask."""
    with subprocess.Popen(
        noclobber_command("view", "--root", str(root), "--json"), stdout=subprocess.PIPE, env=environment()
    ) as server:
        told = json.loads(server.stdout.readline())
        with socket.create_connection(("127.0.0.1", told["port"])) as asked:
            asked.sendall(
                f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{told['port']}\r\nConnection: close\r\n\r\n".encode()
            )
            assert asked.makefile("rb").readline().startswith(b"HTTP/1.1 200")
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0
    assert told["root"] == str(root)
    assert told["url"].startswith(f"http://127.0.0.1:{told['port']}/#token=")


def test_a_port_that_is_taken_exits_with_3_and_says_which(root: Path) -> None:
    """N-view, bad input."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        done = run("view", "--root", str(root), "--port", port)
    assert done.code == 3
    assert port in done.err
    assert "--port" in done.err
    assert run("view", "--port", "99999").code == 2


def test_without_a_browser_the_link_is_all_there_is(root: Path) -> None:
    """N-view, bad input: said plainly, and it serves all the same."""
    words = ("view", "--root", str(root))
    with Terminal(*words, DISPLAY=None, WAYLAND_DISPLAY=None, BROWSER=None) as terminal:
        terminal.read_until("There is no browser here")
        assert "#token=" in terminal.seen
        terminal.process.send_signal(signal.SIGINT)
        terminal.read_all()
        assert terminal.process.returncode == 0
    with Terminal(*words, BROWSER="/nonexistent/browser", DISPLAY=None, PATH="/nonexistent") as terminal:
        terminal.read_until("No browser could be started")


def test_a_token_file_is_made_private_and_one_that_others_may_read_is_refused(
    root: Path, tmp_path: Path
) -> None:
    """N-view: the same token each time; a file that is open to others, or holds none, is said."""
    file = tmp_path / "token"
    tokens = []
    for _ in range(2):
        with subprocess.Popen(
            noclobber_command("view", "--root", str(root), "--json", "--token-file", str(file)),
            stdout=subprocess.PIPE,
            env=environment(),
        ) as server:
            tokens.append(json.loads(server.stdout.readline())["url"].partition("=")[2])
            server.send_signal(signal.SIGINT)
    assert tokens[0] == tokens[1] == file.read_text().strip()
    assert os.stat(file).st_mode & 0o777 == 0o600
    file.chmod(0o644)
    assert "chmod 600" in run("view", "--root", str(root), "--token-file", str(file)).err
    file.chmod(0o600)
    file.write_text("short\n")
    assert "no token" in run("view", "--root", str(root), "--token-file", str(file)).err


@pytest.mark.parametrize("words", [("--root", "/nonexistent"), ("--token-file", "/nonexistent/token")])
def test_what_is_not_there_is_said(root: Path, words: tuple[str, str]) -> None:
    """N-view, bad input."""
    done = run("view", *words, cwd=root)
    assert done.code in (2, 3)
    assert "nonexistent" in done.err
