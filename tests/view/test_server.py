"""The server: who may ask, what is answered, and what is not."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from noclobber.core.clock import Patience
from noclobber.view import workspace_state
from noclobber.view.access import Connections
from noclobber.view.live import Live
from noclobber.view.server import MOST_BODY_BYTES, ViewServer
from tests.view.ledgers import HOSTILE, ledger_of, refused, written
from tests.view.servers import PATIENCE_S, ask, serving, stream

DATA = (
    "/api/snapshot",
    "/api/stream",
    "/api/timeline?file=a",
    "/api/diff?file=a&from=now&to=now",
    "/metrics",
)


def test_nothing_about_the_project_is_told_without_the_token(root: Path) -> None:
    """N-view: a missing, a wrong and an empty one; and the answer says what to do."""
    ledger_of(root).append(written("secret-name.md", "ABSENT", "1"))
    with serving(root) as server:
        for path in DATA:
            for token in (None, "wrong", "é", server.access.token[:-1]):
                answer = ask(server, path, token=token)
                assert answer.status == 401, path
                assert "`noclobber view`" in answer.json()["error"]
        for path in ("/api/action", "/api/check"):
            assert ask(server, path, {}, token="wrong").status == 401
        page = [ask(server, path, token=None) for path in ("/", "/view.css", "/main.js")]
        assert [answer.status for answer in page] == [200, 200, 200]
        assert not any(b"secret-name" in answer.body or str(root).encode() in answer.body for answer in page)


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_site_that_leads_here_and_a_page_from_elsewhere_are_refused(
    root: Path, headers: dict[str, str]
) -> None:
    """N-view: by Host (DNS rebinding), by Origin, and by what the browser says of the request; token or not."""
    with serving(root) as server:
        for path in ("/", "/api/snapshot"):
            assert ask(server, path, headers=headers).status == 403
        assert ask(server, "/api/check", {}, headers=headers).status == 403


def test_every_answer_forbids_what_the_page_does_not_need(root: Path) -> None:
    """N-view: no inline script, nothing from the network, no frame; also for errors. No other site is let in."""
    with serving(root) as server:
        for path, token in (("/", None), ("/api/snapshot", ""), ("/none", None), ("/api/snapshot", "wrong")):
            headers = ask(server, path, token=token).headers
            policy = headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "script-src 'self';" in policy
            assert "unsafe" not in policy
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert "Access-Control-Allow-Origin" not in headers
            assert "Set-Cookie" not in headers
        assert ask(server, "/api/snapshot", method="OPTIONS").status == 501


def test_a_code_gives_the_token_once(root: Path) -> None:
    """Finding S24: used twice, a link is refused."""
    with serving(root) as server:
        code = server.access.link().partition("#code=")[2]
        first = ask(server, "/api/session", {"code": code}, token=None)
        assert first.json() == {"token": server.access.token}
        assert ask(server, "/api/session", {"code": code}, token=None).status == 401
        assert ask(server, "/api/session", {"code": ""}, token=None).status == 401


@pytest.mark.parametrize(
    "path", ["/../server.py", "/%2e%2e/server.py", "/.hidden", "//etc/passwd", "/x.py", "/\0.js"]
)
def test_only_the_pages_own_files_are_given_out(root: Path, path: str) -> None:
    """N-view, bad input."""
    with serving(root) as server, socket.create_connection(("127.0.0.1", server.port)) as asked:
        asked.sendall(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\n\r\n".encode()
        )
        first = asked.makefile("rb").readline()
        assert first.split()[1] in (b"404", b"400")


def test_requests_that_make_no_sense_are_refused_and_the_server_goes_on(root: Path) -> None:
    """N-view, bad input: bodies of the wrong kind, shape or size."""
    with serving(root) as server:
        assert ask(server, "/api/action", b"[]").status == 400
        assert ask(server, "/api/action", b"{" * 100).status == 400
        assert ask(server, "/api/action", b"{}", headers={"Content-Type": "text/plain"}).status == 415
        assert ask(server, "/api/action", b"x" * (MOST_BODY_BYTES + 1)).status == 413
        assert ask(server, "/api/action", {"action": "explode"}).status == 409
        assert ask(server, "/api/action", {"action": ["restore"]}).status == 409
        assert ask(server, "/api/none").status == 404
        assert ask(server, "/api/timeline?file=../../etc/passwd").status == 409
        assert ask(server, "/api/diff?file=a&from=zzz&to=now").status == 409
        assert ask(server, "/api/snapshot").status == 200


def test_a_stream_begins_with_everything_and_goes_on_with_what_is_new(root: Path) -> None:
    """N-view: an appended event comes once, with the counts that it changes, and hostile text is harmless."""
    ledger = ledger_of(root)
    ledger.append(written("a.md", "ABSENT", "1", "ada"))
    with serving(root) as server, stream(server) as messages:
        first = next(messages)
        assert first["project"]["root"] == str(root)
        assert [event["file"] for event in first["events"]["newest_first"]] == ["a.md"]
        ledger.append(refused("a.md", "0", "1"))
        ledger.append(written(HOSTILE, "ABSENT", "1"))
        seen: list[dict[str, object]] = []
        totals = first["totals"]
        while len(seen) < 2:
            news = next(messages)
            seen = [*news.get("events", {}).get("newest_first", []), *seen]
            totals = news.get("totals", totals)
        assert [event["seq"] for event in seen] == [3, 2]
        assert seen[1]["over"] == "ada (codex ada-sess)"
        assert totals["events"] == 3
        assert all(letter.isprintable() for letter in str(seen[0]["text"]))


def test_a_project_that_goes_away_is_said(tmp_path: Path) -> None:
    """N-view, bad input: the stream says so, and the server goes on."""
    root = tmp_path / "project"
    root.mkdir()
    ledger_of(root).append(written("a.md", "ABSENT", "1"))
    with serving(root) as server, stream(server) as messages:
        assert next(messages)["gone"] is False
        shutil.rmtree(root)
        while not next(messages).get("gone"):
            pass
        assert ask(server, "/api/snapshot").json()["gone"] is True


def test_a_port_that_is_taken_is_said(root: Path) -> None:
    """N-view, bad input: which one, and what to do."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(OSError, match=f"port {port} .*--port"):
            ViewServer(Live(str(root), with_doctor=False), port)


def test_metrics_are_in_the_format_of_prometheus(root: Path) -> None:
    """N-view, N-metrics: counters over the ledger, by kind; a program gives the token as a bearer."""
    ledger = ledger_of(root)
    ledger.append(written("a.md", "ABSENT", "1"))
    ledger.append(refused("a.md", "0", "1"))
    with serving(root) as server:
        bearer = {"Authorization": f"Bearer {server.access.token}"}
        answer = ask(server, "/metrics", token=None, headers=bearer)
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    lines = answer.body.decode().splitlines()
    assert "noclobber_writes_total 1" in lines
    assert 'noclobber_events_total{kind="MUTATION_CONFLICT"} 1' in lines
    assert 'noclobber_refusals_total{error_type="STALE_FILE"} 1' in lines
    assert all(line.startswith("#") or len(line.rsplit(" ", 1)) == 2 for line in lines)


def test_a_program_gets_everything_as_json(root: Path) -> None:
    """N-view: the same as a page, once."""
    ledger_of(root).append(written("a.md", "ABSENT", "1"))
    with serving(root) as server:
        told = ask(server, "/api/snapshot").json()
    assert {"project", "ledger", "chain", "totals", "minutes", "hottest", "events", "checks"} <= set(told)
    assert json.dumps(told)


def test_connections_that_say_nothing_do_not_shut_the_owner_out(root: Path) -> None:
    """N-view: any program on the machine can open two hundred of them."""
    with serving(root) as server, ExitStack() as opened:
        for _ in range(200):
            opened.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        assert ask(server, "/api/snapshot").status == 200


def test_owners_that_open_too_many_are_refused_and_strangers_take_no_place_of_theirs(root: Path) -> None:
    """N-view: a stream is never ended to make room."""
    connections = Connections(2)
    pairs = [socket.socketpair() for _ in range(4)]
    ours = [pair[0] for pair in pairs]
    assert connections.admit(ours[0])
    connections.trust(ours[0])
    assert connections.admit(ours[1])
    assert connections.admit(ours[2])  # Instead of the one before, which has shown nothing.
    assert pairs[1][1].recv(1) == b""
    connections.trust(ours[1])  # Too late.
    connections.trust(ours[2])
    assert not connections.admit(ours[3])
    connections.leave(ours[0])
    assert connections.admit(ours[3])
    for pair in pairs:
        for end in pair:
            end.close()


def test_what_keeps_the_state_from_being_read_stands_on_the_page(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-view: the thread went on with a traceback, and the page with what was old."""
    with serving(root) as server:

        def broken(*_: object, **__: object) -> None:
            raise OverflowError("a date that no calendar has")

        def troubles() -> object:
            server.live.look_soon()  # After a long look, on a busy disk, the next one is put off.
            return ask(server, "/api/snapshot").json().get("state_troubles")  # Not before the first look.

        with monkeypatch.context() as patched:
            patched.setattr(workspace_state, "read_state", broken)
            until(lambda: "a date that no" in str(troubles()))
        until(lambda: troubles() == [])


def until(is_so: Callable[[], bool]) -> None:
    """Wait for something that another thread does."""
    patience = Patience(PATIENCE_S)
    while not is_so():
        assert patience.nap()
