"""Every captured payload replayed, and every host's words for a refusal."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from noclobber.core.switches import is_switch
from noclobber.errors import StaleFileError, UnknownToolError
from noclobber.hosts import HOSTS, load
from noclobber.hosts.event import Event, same_moment, unknown_tool
from noclobber.hosts.hook_entries import hook_file
from tests.conftest import sha256
from tests.rigs.hooks import HookRig, is_denied, refusal

DATA = Path(__file__).parents[1] / "data" / "hosts"
FILES = {
    "claude-code": "claude-code-2.1.325",
    "codex": "codex-0.166.0",
    "copilot": "copilot-cli-1.0.102",
    "gemini": "gemini-cli-0.61.0",
    "opencode": "opencode-1.18.33",
}


def captured(host: str, root: Path) -> list[dict[str, Any]]:
    """The payloads of one host, with the project's folder put in."""
    text = (DATA / f"{FILES[host]}.jsonl").read_text().replace("/project", str(root))
    payloads = [json.loads(line) for line in text.splitlines()]
    if host == "opencode":  # Ours says it with every event.
        payloads = [{**payload, "directory": str(root)} for payload in payloads]
    return payloads


def carry_out(event: Event, root: Path) -> None:
    """Do to the disk what the host did."""
    for action in event.actions:
        path = Path(root, action.path)
        if action.content is not None:
            assert isinstance(action.content, str)
            path.write_text(action.content)
        if action.change is not None:
            path.write_bytes(action.change.apply(path.read_bytes(), str(path)))


@pytest.mark.parametrize("host", FILES)
def test_a_captured_session_goes_through_and_is_on_record(rig: HookRig, root: Path, host: str) -> None:
    """N-hosts: whatever came in was understood; each write is on record once, although Copilot says it twice."""
    (root / "a.txt").write_text("hello\nworld\n")
    module = load(host)
    landed: set[Any] = set()
    for payload in captured(host, root):
        event = module.read(payload)
        assert event.trouble is None, payload
        if event.kind == "session-start" and landed:  # A second session, from the same start.
            (root / "a.txt").write_text("hello\nworld\n")
            (root / "b.txt").unlink()
            landed.clear()
        if event.kind == "post" and event.writes and event.actions not in landed:
            carry_out(event, root)
            landed.add(event.actions)
        answer, code = rig.call(host, payload)
        assert code == 0
        assert not is_denied(answer), (payload, answer)
        assert answer.get("decision") is None, (payload, answer)
    assert (root / "a.txt").read_text().startswith("HELLO")
    assert (root / {"codex": "new.txt", "copilot": "blocked.txt"}.get(host, "b.txt")).exists()
    kinds = rig.kinds()
    assert set(kinds) == {"MUTATION"}
    assert len(kinds) == {"copilot": 4}.get(host, 2)


WRITES = {
    "claude-code": lambda event: event.tool == "Edit",
    "codex": lambda event: event.tool == "apply_patch",
    "copilot": lambda event: event.tool == "edit",
    "gemini": lambda event: event.tool == "replace",
    "opencode": lambda event: event.tool == "edit",
}


@pytest.mark.parametrize("host", WRITES)
def test_a_stale_write_is_refused_in_the_hosts_own_words(rig: HookRig, root: Path, host: str) -> None:
    """N-hosts: read, as captured; changed by somebody; then the captured write."""
    file = root / "a.txt"
    file.write_text("hello\nworld\n")
    module = load(host)
    refused: list[Any] = []
    for payload in captured(host, root):
        event = module.read(payload)
        if event.kind == "post" and not event.writes:
            rig.call(host, payload)
            file.write_text("hello\nworld\nperson\n")
        elif event.kind == "pre" and WRITES[host](event) and not refused:
            refused.append(refusal(rig.call(host, payload)[0]))
            rig.call(host, payload)

    assert refused[0]["error_type"] == "STALE_FILE"
    assert refused[0]["details"] == {
        "path": str(file),
        "baseline_hash": sha256(b"hello\nworld\n"),
        "current_disk_hash": sha256(b"hello\nworld\nperson\n"),
    }
    assert rig.kinds() == ["MUTATION_CONFLICT"]


def test_copilots_two_spellings_of_one_refused_event_are_one_event(
    rig: HookRig, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HOSTS: with both files present every event fires twice, through two different commands."""
    file = root / "a.txt"
    file.write_text("hello\nworld\n")
    monkeypatch.setenv("COPILOT_CLI", "1")
    from noclobber.hook.main import _real_host

    for payload in captured("copilot", root)[:9]:
        host = _real_host("claude-code" if payload["_src"] == "claude" else "copilot")
        answer, _ = rig.call(host, payload)
        if load(host).read(payload).kind == "post":
            file.write_text("theirs\n")
        if payload.get("toolName", payload.get("tool_name")) in ("edit", "Edit"):
            assert is_denied(answer)

    assert rig.kinds() == ["MUTATION_CONFLICT"]


# -- hosts of which nothing was captured ---------------------------------------------------------------------


def test_cursor_reads_and_refuses(rig: HookRig, root: Path) -> None:
    """HOSTS, Cursor: content comes with the read; both messages are set; allowing is said."""
    file = root / "a.txt"
    file.write_text("one\n")
    about = {
        "conversation_id": "c",
        "generation_id": "g",
        "workspace_roots": [str(root)],
        "cursor_version": "1",
    }
    read = {**about, "hook_event_name": "beforeReadFile", "file_path": str(file), "content": "one\n"}
    write = {
        **about,
        "hook_event_name": "preToolUse",
        "tool_name": "Write",
        "tool_input": {"file_path": str(file), "content": "two\n"},
        "tool_use_id": "t",
    }
    assert rig.call("cursor", read) == ({"permission": "allow"}, 0)
    assert rig.call("cursor", write, "check") == ({"permission": "allow"}, 0)
    file.write_text("two\n")
    assert rig.call("cursor", {**write, "hook_event_name": "postToolUse"}, "note") == ({}, 0)

    file.write_text("theirs\n")
    again = {**write, "tool_use_id": "t2"}
    assert refusal(rig.call("cursor", again, "check")[0])["error_type"] == "STALE_FILE"
    gone = {**write, "tool_name": "Delete", "tool_input": {"file_path": str(file)}, "tool_use_id": "t3"}
    assert refusal(rig.call("cursor", gone, "check")[0])["error_type"] == "STALE_FILE"


def test_qwen_reads_and_refuses(rig: HookRig, root: Path) -> None:
    """HOSTS, Qwen: Claude's events, Gemini's tools, and `edit`."""
    file = root / "a.txt"
    file.write_text("one\n")
    about = {"session_id": "q", "cwd": str(root), "prompt_id": "p"}
    read = {
        **about,
        "hook_event_name": "PostToolUse",
        "tool_name": "read_file",
        "tool_input": {"file_path": str(file)},
        "tool_response": {"llmContent": "one\n"},
    }
    edit = {
        **about,
        "hook_event_name": "PreToolUse",
        "tool_name": "edit",
        "tool_input": {"file_path": str(file), "old_string": "one", "new_string": "two"},
    }
    rig.call("qwen", read)
    assert rig.call("qwen", edit, "check") == ({}, 0)
    file.write_text("two\n")
    assert rig.call("qwen", {**edit, "hook_event_name": "PostToolUse", "tool_response": {}}) == ({}, 0)
    file.write_text("one and theirs\n")
    assert refusal(rig.call("qwen", edit, "check")[0])["error_type"] == "STALE_FILE"


@pytest.mark.parametrize("host", HOSTS)
def test_letting_through_is_said_as_the_host_wants_it(host: str) -> None:
    """HOSTS: Codex takes nothing but a deny or silence; Cursor takes silence for a failure."""
    answer = load(host).phrase(Event(host, "pre"), None)
    assert answer.code == 0
    assert answer.stdout == ('{"permission":"allow"}' if host == "cursor" else "")


@pytest.mark.parametrize("host", HOSTS)
def test_a_name_that_is_not_utf8_can_still_be_refused(host: str) -> None:
    """The reason is JSON that any reader takes, whatever the path is."""
    error = StaleFileError('/p/\udcff\n"x"', "0" * 64, "1" * 64)
    for answer in (load(host).phrase(Event(host, "pre"), error), load(host).warn(Event(host, "post"), error)):
        assert json.loads(answer.stdout.encode())
        assert "\\\\udcff" in answer.stdout


# -- tools and moments -----------------------------------------------------------------------------------------


def test_a_tool_that_nobody_knows_is_checked_or_refused_if_it_may_write() -> None:
    """N-hosts: unknown tools never let a write through unchecked, and never block a read."""
    assert [
        action.kind for action in unknown_tool("mcp__fs__write_file", {"path": "/a", "content": "x"})
    ] == ["write"]
    assert [action.kind for action in unknown_tool("frobnicate", {"path": "/a"})] == ["edit"]
    assert [action.kind for action in unknown_tool("mcp__fs__read_file", {"path": "/a"})] == ["read"]
    assert unknown_tool("ListThings", {"path": "/a"})[0].kind == "read"
    assert unknown_tool("think", {"thought": "x"}) == ()
    with pytest.raises(UnknownToolError):
        unknown_tool("saveEverything", {"where": "there"})


def test_one_moment_in_two_spellings() -> None:
    """HOSTS, Copilot: epoch milliseconds here, ISO 8601 there."""
    assert same_moment(1794768047262) == same_moment("2026-11-15T18:40:47.262Z") == "47262"
    assert same_moment("nonsense") == same_moment(None) == same_moment(True) == ""


@pytest.mark.parametrize("scope", ["project", "user"])
@pytest.mark.parametrize("host", HOSTS)
def test_an_agent_cannot_switch_its_own_hooks_off(
    host: str, scope: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding S8: wherever `noclobber install` puts hooks, agents do not write."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CODEX_HOME", raising=False)
    base = tmp_path / ("home" if scope == "user" else "project")
    assert is_switch(hook_file(host, scope, str(base)).path, str(tmp_path / "project"))


def test_copilots_own_hooks_are_refused_in_the_form_that_they_obey() -> None:
    """finding S2: flat for its own hooks, nested for Claude's, which it runs as well."""
    import json

    host = load("copilot")
    event = host.read({"sessionId": "s", "cwd": "/p", "toolName": "create", "toolArgs": {}})
    answer = json.loads(host.phrase(event, StaleFileError("/p/a", "0" * 64, "1" * 64)).stdout)
    assert answer["permissionDecision"] == answer["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert json.loads(answer["permissionDecisionReason"])["error_type"] == "STALE_FILE"
    told = json.loads(host.warn(event, StaleFileError("/p/a", "0" * 64, "1" * 64)).stdout)
    assert json.loads(told["additionalContext"])["error_type"] == "STALE_FILE"
    assert "decision" not in told


def test_a_patch_that_copilot_sends_as_plain_text_is_understood() -> None:
    """finding H2: with GPT models the arguments of `apply_patch` are the patch itself."""
    patch = "*** Begin Patch\n*** Add File: a.txt\n+x\n*** End Patch"
    event = load("copilot").read({"sessionId": "s", "toolName": "apply_patch", "toolArgs": patch})
    assert [(action.kind, action.path) for action in event.actions] == [("write", "a.txt")]
    failed = {"sessionId": "s", "toolName": "edit", "toolArgs": {"path": "a"}, "error": "no match"}
    assert load("copilot").read(failed).kind == "failure"


DOCS = Path(__file__).resolve().parents[2] / "docs"
DRIVERS = Path(__file__).resolve().parents[1] / "e2e" / "drivers"


@pytest.mark.parametrize("host", HOSTS)
def test_every_host_is_in_the_table_with_the_version_that_was_run(host: str) -> None:
    """N-documented: a page says what is checked, how it fails, how fast it is, and with which version it was proven."""
    overview = (DOCS / "hosts.md").read_text()
    page = DOCS / "hosts" / f"{host}.md"
    if not page.exists():
        assert host == "cursor", "only a host that was never run has no page"
        return
    [row] = [
        line for line in overview.splitlines() if line.startswith("| [") and f"(hosts/{host}.md)" in line
    ]
    text = page.read_text()
    for part in ("| checked |", "| remembered |", "| not checked |", "## How it fails", "## How fast"):
        assert part in text, part
    if host == "cursor":
        return
    driver = (DRIVERS / f"{host.replace('-', '_')}.py").read_text()
    found = re.search(r'^VERSION = "([0-9.]+)"', driver, re.M)
    if found:  # Claude Code's is in the package that bundles it.
        assert found[1] in row
        assert found[1] in text
    assert "Proven with" in text
    assert "2026" in text
