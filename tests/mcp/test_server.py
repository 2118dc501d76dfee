"""The server as clients meet it: a process on stdio, an endpoint on loopback, the official SDK's client."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra 'mcp' is not installed")

import anyio
from bench.mcp_peer import our_command
from mcp.client.streamable_http import streamable_http_client

from mcp import Client
from noclobber.mcp.roots import Roots
from noclobber.mcp.server import FileServer
from noclobber.mcp.tools import TOOLS
from tests.conftest import sha256
from tests.rigs.mcp import CheckedPeer, call_checked

SOURCE = str(Path(__file__).parents[2] / "src")
ENVIRONMENT = {**os.environ, "PYTHONPATH": SOURCE}


@pytest.fixture
def peer(root: Path) -> Iterator[CheckedPeer]:
    """A client of a server process."""
    with CheckedPeer([*our_command(), str(root)]) as peer:
        yield peer


# -- stdio -------------------------------------------------------------------------------------------


def test_the_process_is_the_session(peer: CheckedPeer, root: Path) -> None:
    """N-mcp: a client that passes no hash is protected on stdio."""
    (root / "plan.md").write_bytes(b"v1")
    peer.call("read_text_file", path="plan.md")
    (root / "plan.md").write_bytes(b"v2")

    refused = peer.call("write_file", path="plan.md", content="mine")

    assert refused["isError"]
    assert refused["structuredContent"]["actual_hash"] == sha256(b"v2")
    assert set(json.loads(refused["content"][0]["text"])) == {
        "error_type",
        "message",
        "details",
        "recovery_hint",
    }


HOSTILE: list[Any] = [
    {"path": "a\0b", "content": "x"},
    {"path": "a\nb/../../x", "content": "x"},
    {"path": "x" * 5000, "content": "x"},
    {"path": "/".join(["d"] * 3000), "content": "x"},
    {"path": "../" * 100 + "etc/passwd", "content": "x"},
    {"path": "/proc/self/mem", "content": "x"},
    {"path": "/dev/full", "content": "x"},
    {"path": {"$ref": "#"}, "content": "x"},
    {"path": "ok", "content": {"a": [1, 2, {"b": None}]}},
    {"path": "ok", "content": "x", "expected_hash": "X" * 64},
    {"path": "ok", "content": "x", "expected_hash": 5},
    {"path": "ok", "content": "x", "expected_hash": ""},
    {"path": "ok", "content": "x", "observation_id": "nope:99999999999999999999"},
    {"path": "ok", "content": "x", "observation_id": ["a"]},
    {"__proto__": {"path": "x"}, "constructor": 1},
    {},
]


def test_hostile_arguments_are_tool_errors_and_the_server_stays_up(peer: CheckedPeer, root: Path) -> None:
    """N-mcp, N-input: clear errors, no traceback, nothing written."""
    for arguments in HOSTILE:
        for tool in (
            "write_file",
            "read_text_file",
            "delete_file",
            "edit_file",
            "search_files",
            "lock_acquire",
        ):
            more = {"edits": [{"oldText": "a", "newText": "b"}], "pattern": "**"}
            # A parameter of another tool is refused by its name, which would hide what the others do.
            known = TOOLS[tool].parameters["properties"]
            sent = {name: value for name, value in {**more, **arguments}.items() if name in known}
            answer = peer.call(tool, **(sent if "path" in arguments else arguments))
            if tool == "write_file":
                assert answer["isError"], arguments
            if answer.get("isError"):
                assert "Traceback" not in answer["content"][0]["text"]
                assert "noclobber failed inside" not in answer["content"][0]["text"], answer
    assert [path.name for path in root.iterdir() if path.name != ".noclobber"] == []
    assert not peer.call("write_file", path="ok", content="still here")["isError"]


def test_a_connection_that_began_with_a_handshake_serves_no_request_of_the_newer_protocol(
    peer: CheckedPeer, root: Path
) -> None:
    """N-mcp: it would be a request without a session, and so without what this connection saw."""
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    arguments = {"path": "x", "content": "x"}
    answer = peer.request("tools/call", {"name": "write_file", "arguments": arguments, "_meta": meta})
    assert answer["error"]["code"] == -32600
    assert not (root / "x").exists()
    assert peer.request("ping")["result"] == {}


NO_MESSAGES = [
    b"garbage",
    b"",
    b"\xff\xfe\x00",
    b"{}",
    b"[]",
    b"null",
    b'{"jsonrpc": "2.0"}',
    b'{"jsonrpc": "2.0", "method": "tools/call"}',
    b'{"jsonrpc": "1.0", "id": 7, "method": "ping"}',
    b'{"jsonrpc": "2.0", "id": 7, "method": "\\ud800',
    b"[" * 100_000,
    b'{"a":' * 20_000,
]


def test_lines_that_are_no_message_do_not_end_the_server(peer: CheckedPeer) -> None:
    """N-mcp, N-input."""
    for line in NO_MESSAGES:
        peer.send_line(line)

        assert peer.call("list_allowed_directories")["content"], line


def test_requests_with_the_wrong_shape_get_an_answer(peer: CheckedPeer) -> None:
    """A client that gets none waits for ever."""
    for method in ("tools/call", "tools/list", "nonsense"):
        params: Any
        for params in ({}, {"name": 5}, {"name": "read_file", "arguments": []}, {"arguments": 1}, [], 5, "x"):
            answer = peer.request(method, params)

            assert "error" in answer or "result" in answer


def test_a_request_nested_too_deeply_gets_an_answer(peer: CheckedPeer) -> None:
    """The SDK's parser drops such a line; its client would wait for ever."""
    peer.send_line(
        b'{"jsonrpc":"2.0","id":"deep","method":"tools/call","params":' + b"[" * 9000 + b"]" * 9000 + b"}"
    )

    answer = peer.receive()

    assert answer["id"] == "deep"
    assert "error" in answer


def test_half_a_character_is_written_as_a_replacement(peer: CheckedPeer, root: Path) -> None:
    """JSON can spell a lone surrogate; no file can hold one. The reference server does the same."""
    call = {"name": "write_file", "arguments": {"path": "half", "content": "a\ud83dz"}}
    peer.send({"id": 5, "method": "tools/call", "params": call})

    answer = peer.receive()

    peer.check("write_file", answer)
    assert not answer["result"]["isError"]
    assert (root / "half").read_text(encoding="utf-8") == "a\ufffdz"


def test_a_whole_pair_of_surrogates_is_one_character(peer: CheckedPeer, root: Path) -> None:
    """Repairs must not break what is whole: `json.dumps` spells every emoji that way."""
    assert not peer.call("write_file", path="smile", content="\U0001f600 and \ud800")["isError"]
    assert (root / "smile").read_text(encoding="utf-8") == "\U0001f600 and \ufffd"


def test_a_large_file_is_refused_whole_and_served_in_part(peer: CheckedPeer, root: Path) -> None:
    """N-mcp, N-input: huge files. What was seen in part still protects the whole."""
    big = root / "big.log"
    big.write_bytes(b"first\n" + b"x" * 99 + b"\n" + (b"y" * 1023 + b"\n") * (65 << 10) + b"last\n")

    whole = peer.call("read_text_file", path="big.log")
    head = peer.call("read_text_file", path="big.log", head=1)
    tail = peer.call("read_text_file", path="big.log", tail=2)

    assert whole["isError"]
    assert "head" in whole["content"][0]["text"]
    assert head["content"][0]["text"] == "first"
    assert tail["content"][0]["text"] == "last\n"
    assert head["structuredContent"]["sha256"] == sha256(big.read_bytes())

    with big.open("ab") as file:
        file.write(b"more\n")
    assert peer.call("write_file", path="big.log", content="short")["isError"]


@pytest.mark.timeout(90)
def test_a_client_that_sends_much_before_it_reads_is_served(peer: CheckedPeer, root: Path) -> None:
    """Neither side may wait for the other: answers that do not fit in the pipe wait in a thread."""
    (root / "page").write_text("here\n")
    count, much = 40, "z" * 100_000
    for number in range(count):
        edits = [{"oldText": "here", "newText": much}]
        params = {"name": "edit_file", "arguments": {"path": "page", "edits": edits, "dryRun": True}}
        peer.send({"id": f"r{number}", "method": "tools/call", "params": params})

    answers = [peer.receive() for _ in range(count)]

    for answer in answers:
        peer.check("edit_file", answer)
    assert sorted(answer["id"] for answer in answers) == sorted(f"r{number}" for number in range(count))


def test_progress_is_reported_to_a_client_that_asks_for_it(peer: CheckedPeer, root: Path) -> None:
    """N-mcp: progress for long work."""
    for number in range(2500):
        (root / f"file-{number}").touch()
    params = {"name": "search_files", "arguments": {"path": ".", "pattern": "*7"}}

    peer.request("tools/call", params)
    unasked = list(peer.notifications)
    peer.request("tools/call", {**params, "_meta": {"progressToken": "mine"}})

    assert unasked == []
    assert [one["params"]["progress"] for one in peer.notifications] == [1000, 2000]
    assert {one["params"]["progressToken"] for one in peer.notifications} == {"mine"}


def test_stray_output_does_not_reach_the_wire(root: Path) -> None:
    """Descriptor 1 is stderr while the server runs."""
    program = (
        "import sys, os\n"
        "from noclobber.mcp.tools import TOOLS\n"
        "tool = TOOLS['list_allowed_directories']\n"
        "TOOLS[tool.name] = tool._replace(run="
        "lambda *args: (print('noise', flush=True), os.system('echo noise; cat'), tool.run(*args))[2])\n"
        "from noclobber.cli import main\n"
        "sys.exit(main(['mcp', sys.argv[1]]))\n"
    )
    with CheckedPeer([sys.executable, "-c", program, str(root)]) as peer:
        assert "Allowed" in peer.call("list_allowed_directories")["content"][0]["text"]


@pytest.mark.parametrize("how", ["close", "kill"])
def test_the_server_ends_with_its_client_and_its_locks_end_with_it(
    root: Path, how: str, tmp_path: Path
) -> None:
    """REQ-LOCK-005, 006: at once, not when the lease runs out."""
    (root / "part").mkdir()
    log = tmp_path / "stderr"
    with log.open("wb") as stderr:
        first = CheckedPeer([*our_command(), str(root)], stderr=stderr)
    first.call("lock_acquire", path="part")
    if how == "kill":
        os.kill(first.process.pid, signal.SIGKILL)
    first.close()

    with CheckedPeer([*our_command(), str(root)]) as second:
        assert not second.call("lock_acquire", path="part")["isError"]
    assert b"Traceback" not in log.read_bytes()
    assert first.process.returncode == (0 if how == "close" else -signal.SIGKILL)


# -- roots -------------------------------------------------------------------------------------------


def test_a_client_narrows_the_roots_of_the_command_line_and_cannot_widen_them(
    root: Path, tmp_path: Path
) -> None:
    """Finding S31: roots given at the start are the bound; `--no-client-roots` asks for no others."""
    inside, other, link = root / "a folder", tmp_path / "other", root / "link"
    inside.mkdir()
    other.mkdir()
    link.symlink_to(other)
    (other / "secret").write_text("s")

    with CheckedPeer([*our_command(), str(root)], roots=[str(inside).replace(" ", "%20")]) as peer:

        def allowed(*roots: Path) -> str:
            peer.roots = [str(one) for one in roots]
            peer.notify("notifications/roots/list_changed")
            return str(peer.call("list_allowed_directories")["content"][0]["text"])

        first = peer.call("list_allowed_directories")["content"][0]["text"]
        assert first == f"Allowed directories:\n{inside}"
        assert allowed(tmp_path) == f"Allowed directories:\n{root}"  # A root above: what is ours of it.
        assert allowed(inside, other) == f"Allowed directories:\n{inside}"
        for outside in (other, link, tmp_path / "missing", Path("/proc/self/root") / other.relative_to("/")):
            assert allowed(outside) == f"Allowed directories:\n{inside}"  # What it was before.
            assert peer.call("read_text_file", path=str(other / "secret"))["isError"]
        assert allowed(Path("/")) == f"Allowed directories:\n{root}"
    with CheckedPeer([*our_command(), str(root), "--no-client-roots"], roots=[str(inside)]) as peer:
        assert peer.call("list_allowed_directories")["content"][0]["text"] == f"Allowed directories:\n{root}"


def test_where_no_root_was_given_the_client_names_them(tmp_path: Path) -> None:
    """N-mcp: the reference server's own rule."""
    with CheckedPeer(our_command(), roots=[str(tmp_path)]) as peer:
        assert (
            peer.call("list_allowed_directories")["content"][0]["text"] == f"Allowed directories:\n{tmp_path}"
        )


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [*our_command(), *words],
        capture_output=True,
        text=True,
        timeout=60,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def test_a_root_that_is_not_there_is_left_out_and_none_at_all_is_an_error(root: Path, tmp_path: Path) -> None:
    """As in the reference server."""
    some = run(str(tmp_path / "missing"), str(root))
    none = run(str(tmp_path / "missing"))

    assert some.returncode == 0
    assert "Cannot access directory" in some.stderr
    assert none.returncode == 2
    assert "None of the specified directories are accessible" in none.stderr


def test_without_the_sdk_the_command_says_what_to_install(root: Path) -> None:
    """The extra `mcp` is optional."""
    program = (
        "import sys; sys.modules['mcp'] = None\n"
        "from noclobber.cli import main; sys.exit(main(['mcp', sys.argv[1]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(root)],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        check=False,
    )

    assert done.returncode == 3
    assert "noclobber[mcp]" in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_but_the_server_imports_the_sdk() -> None:
    """It takes 0.7 s, and a hook is a process per tool call. Adapters need their framework, which may have it."""
    program = (
        "import importlib, os, pkgutil, sys, noclobber\n"
        "os._exit = sys.exit\n"
        "for found in pkgutil.walk_packages(noclobber.__path__, 'noclobber.'):\n"
        "    if '__main__' not in found.name and '.adapters.' not in found.name and found.name not in ('noclobber.mcp.server', 'noclobber.mcp.stdio', 'noclobber.mcp.http', 'noclobber.mcp.call_threads'):\n"
        "        try:\n"
        "            importlib.import_module(found.name)\n"
        "        except SystemExit:\n"  # A program, which ends when it is imported. What it loaded counts.
        "            pass\n"
        "heavy = {'mcp', 'mcp_types', 'pydantic', 'anyio', 'starlette', 'uvicorn'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=ENVIRONMENT, check=False
    )

    assert done.returncode == 0, done.stderr


# -- the official SDK's client -------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_sdks_client_accepts_every_answer_in_either_protocol(root: Path, mode: str) -> None:
    """It checks structured content, errors included, against the output schemas."""
    (root / "plan.md").write_bytes(b"v1")
    (root / "p.png").write_bytes(b"\x89PNG")
    server = FileServer(Roots([str(root)]))

    async def talk() -> list[Any]:
        async with Client(server.protocol, mode=mode) as client:
            listed = await client.list_tools()
            assert [tool.name for tool in listed.tools] == list(TOOLS)
            seen = await call_checked(client, "read_text_file", {"path": "plan.md"})
            media = await call_checked(client, "read_media_file", {"path": "p.png"})
            zipped = await call_checked(client, "read_media_file", {"path": "plan.md"})
            missing = await call_checked(client, "read_text_file", {"path": "nope"})
            (root / "plan.md").write_bytes(b"v2")
            stale = await call_checked(client, "write_file", {"path": "plan.md", "content": "x"})
            wrong = await call_checked(client, "edit_file", {"path": 5})
            return [seen, media, zipped, missing, stale, wrong]

    answers = anyio.run(talk)
    server.close()

    assert [answer.is_error for answer in answers] == [False, False, False, True, True, True]
    assert answers[4].structured_content["error_type"] == "STALE_FILE"


@pytest.mark.parametrize("flag", [False, True])
def test_durable_in_the_options_file_holds_without_the_flag(root: Path, flag: bool) -> None:
    """Ruling 20: a flag that is not given does not override what the options file says."""
    (root / "noclobber.toml").write_text("durable = true\n")
    server = FileServer(Roots([str(root)]), durable=flag)

    assert server.workspaces.at(str(root)).options.durable
    server.close()


def test_every_tool_says_what_it_may_do(root: Path) -> None:
    """N-mcp: tool annotations; only tools that change nothing claim to be read-only."""
    read_only = {name for name, tool in TOOLS.items() if tool.annotations["readOnlyHint"]}

    assert {name for name in TOOLS if name.startswith(("read_", "list_", "get_", "search_"))} <= read_only
    assert not read_only & {"write_file", "write_files", "edit_file", "delete_file", "move_file"}
    for name, tool in TOOLS.items():
        if name not in read_only:
            assert {"destructiveHint", "idempotentHint"} <= set(tool.annotations)


# -- HTTP --------------------------------------------------------------------------------------------


@pytest.fixture
def endpoint(root: Path) -> Iterator[tuple[str, str]]:
    """Address and token of a server on loopback."""
    server = subprocess.Popen(
        [*our_command(), str(root), "--http"], stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    assert server.stderr is not None
    address = re.search(r"http://127\.0\.0\.1:\d+/mcp", server.stderr.readline())
    token = re.search(r"Bearer (\S+)'", server.stderr.readline())
    assert address
    assert token
    yield address[0], token[1]
    server.terminate()
    server.stderr.close()
    server.wait(timeout=30)


def post(address: str, token: str | None, **headers: str) -> int:
    """Send one request; return the status."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
    sent = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers}
    if token is not None:
        sent["Authorization"] = token
    request = urllib.request.Request(address, body, sent)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_http_lets_nobody_in_without_the_token(endpoint: tuple[str, str]) -> None:
    """N-mcp: on loopback, with a token; and no web page in a browser gets through with one."""
    address, token = endpoint

    assert post(address, None) == 401
    assert post(address, "Bearer wrong") == 401
    assert post(address, token) == 401
    assert post(address, f"Basic {token}") == 401
    assert post(address, f"Bearer {token}", Origin="http://evil.example") == 403
    assert post(address, f"Bearer {token}", Host="evil.example") in (403, 421)
    assert post(address, f"Bearer {token}") != 401


@pytest.mark.parametrize(("mode", "is_protected"), [("legacy", True), ("2026-07-28", False)])
def test_over_http_a_session_protects_and_without_one_the_write_must_say_what_it_expects(
    endpoint: tuple[str, str], root: Path, mode: str, is_protected: bool
) -> None:
    """N-mcp: the newer protocol has no session to key a snapshot on."""
    import httpx2

    address, token = endpoint
    plan = root / "plan.md"
    plan.write_bytes(b"v1")

    async def talk() -> list[Any]:
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as http,
            Client(streamable_http_client(address, http_client=http), mode=mode) as client,
        ):
            seen = await call_checked(client, "read_text_file", {"path": "plan.md"})
            assert seen.structured_content is not None
            plan.write_bytes(b"v2")
            by_hash = await call_checked(
                client,
                "write_file",
                {"path": "plan.md", "content": "x", "expected_hash": seen.structured_content["sha256"]},
            )
            by_id = await call_checked(
                client,
                "write_file",
                {
                    "path": "plan.md",
                    "content": "x",
                    "observation_id": seen.structured_content["observation_id"],
                },
            )
            by_nothing = await call_checked(client, "write_file", {"path": "plan.md", "content": "v3"})
            return [by_hash, by_id, by_nothing]

    by_hash, by_id, by_nothing = anyio.run(talk)

    assert by_hash.is_error
    assert by_id.is_error
    assert by_nothing.is_error is is_protected
    assert plan.read_bytes() == (b"v2" if is_protected else b"v3")


def test_calls_are_traced_if_traces_go_anywhere_and_cost_nothing_if_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """N-mcp: the SDK's spans, with a provider; none without."""
    from opentelemetry import trace

    from noclobber.mcp.roots import Roots
    from noclobber.mcp.server import FileServer

    assert FileServer(Roots([])).protocol.middleware == []
    monkeypatch.setattr(trace, "get_tracer_provider", trace.NoOpTracerProvider)
    assert len(FileServer(Roots([])).protocol.middleware) == 1
