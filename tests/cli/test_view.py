"""`noclobber view`: the link, the port, the token's file, and how it ends."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

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
    assert told["url"].startswith(f"http://127.0.0.1:{told['port']}/#code=")


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
        assert "#code=" in terminal.seen
        terminal.process.send_signal(signal.SIGINT)
        terminal.read_all()
        assert terminal.process.returncode == 0
    with Terminal(*words, BROWSER="/nonexistent/browser", DISPLAY=None, PATH="/nonexistent") as terminal:
        terminal.read_until("No browser could be started")


@contextmanager
def viewing(root: Path, *words: str) -> Iterator[str]:
    """`noclobber view` until the end of the block; gives the link."""
    command = noclobber_command("view", "--root", str(root), "--json", *words)
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as server:
        assert server.stdout
        yield json.loads(server.stdout.readline())["url"]
        server.send_signal(signal.SIGINT)


def asked(link: str, path: str, body: str = "", **headers: str) -> tuple[int, str]:
    """Ask the server of a link; return the status and the answer."""
    with closing(http.client.HTTPConnection(urlsplit(link).netloc, timeout=30)) as connection:
        headers["Content-Type"] = "application/json"
        connection.request("POST" if body else "GET", path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_a_token_is_worth_nothing_at_the_next_start(root: Path, tmp_path: Path) -> None:
    """Finding S30: a page that is still open tells its token to whoever has the port next."""
    file = tmp_path / "token"
    with viewing(root, "--token-file", str(file)) as link:
        first = file.read_text().strip()
        assert asked(link, "/metrics", Authorization=f"Bearer {first}")[0] == 200
        assert os.stat(file).st_mode & 0o777 == 0o600
    with viewing(root, "--token-file", str(file)) as link:
        assert asked(link, "/metrics", Authorization=f"Bearer {first}")[0] == 401
        assert asked(link, "/metrics", Authorization=f"Bearer {file.read_text().strip()}")[0] == 200


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        ("", 0o644, "chmod 600"),
        ("short\n", 0o600, "something else"),
        ("sk-" + "a" * 40, 0o600, "something else"),
    ],
)
def test_a_token_file_of_others_or_for_something_else_is_refused_and_kept(
    root: Path, tmp_path: Path, content: str, mode: int, said: str
) -> None:
    """N-view, bad input: a key of another program is not overwritten; nor is a file behind a link."""
    file = tmp_path / "token"
    file.write_text(content)
    file.chmod(mode)
    assert said in run("view", "--root", str(root), "--token-file", str(file)).err
    assert file.read_text() == content
    (tmp_path / "link").symlink_to(file)
    assert run("view", "--root", str(root), "--token-file", str(tmp_path / "link")).code != 0
    assert file.read_text() == content


def test_the_browsers_command_line_lets_nobody_in(root: Path) -> None:
    """
    Finding S24: others can read it.

    It names a file that nobody else may read, which leads to a link and is gone when that link was used.
    """
    with Terminal("view", "--root", str(root), BROWSER="echo STARTED WITH %s AND NO MORE") as terminal:
        command = terminal.read_until("AND NO MORE").partition("STARTED WITH ")[2].partition(" AND")[0]
        assert "code=" not in command
        assert "token" not in command
        file = Path(command.removeprefix("file://"))
        assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        link = file.read_text().partition('href="')[2].partition('"')[0]
        code = json.dumps({"code": link.partition("#code=")[2]})
        status, answer = asked(link, "/api/session", code)
        assert status == 200
        assert json.loads(answer)["token"]
        assert not file.parent.exists()
        assert asked(link, "/api/session", code)[0] == 401
        terminal.process.send_signal(signal.SIGINT)
        terminal.read_all()


def test_a_file_for_a_browser_that_never_came_is_removed_at_the_end(root: Path, tmp_path: Path) -> None:
    """Finding S24."""
    with Terminal("view", "--root", str(root), BROWSER="echo", TMPDIR=str(tmp_path)) as terminal:
        terminal.read_until("open.html")
        assert list(tmp_path.glob("noclobber-view-*"))
        terminal.process.send_signal(signal.SIGINT)
        terminal.read_all()
    assert not list(tmp_path.glob("noclobber-view-*"))


def test_a_link_that_was_used_is_followed_by_the_next(root: Path) -> None:
    """Finding S31: a link stays in the browser's history, so it holds no token, and works once."""
    with Terminal("view", "--root", str(root), "--no-browser") as terminal:
        terminal.read_until("Ctrl-C ends")
        first = re.search(r"http://\S+", terminal.seen)
        assert first
        code = json.dumps({"code": first[0].partition("#code=")[2]})
        assert asked(first[0], "/api/session", code)[0] == 200
        terminal.read_until("The next: http://")
        terminal.process.send_signal(signal.SIGINT)
        following = terminal.read_all().partition("The next: ")[2].split()[0]
        assert following.startswith(first[0].partition("#")[0])
        assert following != first[0]


@pytest.mark.parametrize("words", [("--root", "/nonexistent"), ("--token-file", "/nonexistent/token")])
def test_what_is_not_there_is_said(root: Path, words: tuple[str, str]) -> None:
    """N-view, bad input."""
    done = run("view", *words, cwd=root)
    assert done.code in (2, 3)
    assert "nonexistent" in done.err
