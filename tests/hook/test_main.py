"""One hook call in surroundings that fail: no memory, no way to answer, no project, a lock file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from noclobber import DeliverableLock
from noclobber.hook.session_memory import SessionMemory
from noclobber.hosts import HOSTS
from noclobber.hosts.hook_entries import START
from tests.hook.test_bad_input import read_note, stale_write
from tests.rigs.hooks import HookRig, is_denied, refusal


@pytest.fixture
def file(root: Path) -> Path:
    """The file that `read_note` reads."""
    path = root / "a.txt"
    path.write_bytes(b"hello\n")
    return path


# -- a read that cannot be remembered ----------------------------------------------------------------------


MKDIR = os.mkdir


def no_inode_in(runtime: Path) -> Any:
    """Return what `os.mkdir` is when the runtime folder's disk is full. The project is on another one."""

    def mkdir(path: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        around = path if dir_fd is None else os.readlink(f"/proc/self/fd/{dir_fd}")
        if around.startswith(str(runtime)):
            raise OSError(28, "No space left on device")
        MKDIR(path, mode, dir_fd=dir_fd)

    return mkdir


def no_room(*_: Any, **__: Any) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("host", HOSTS)
def test_a_read_that_could_not_be_remembered_makes_the_session_strict(
    rig: HookRig, file: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """N-session: the runtime folder was full while a file was read; later it is not, and the file changed."""
    with monkeypatch.context() as full:
        full.setattr(os, "mkdir", no_inode_in(rig.runtime))
        told, code = rig.call(host, read_note(host, rig, file), "note")
    assert code == 0
    assert not is_denied(told), "a read goes ahead, whatever happens"
    assert "HOOK_FAILED" in json.dumps(told), "the model is told that this read does not count"
    file.write_bytes(b"theirs\n")

    answer, _ = rig.call(host, stale_write(host, rig, file), "check")

    assert refusal(answer)["error_type"] == "UNREAD_FILE"


def test_a_session_is_marked_strict_even_if_no_inode_is_left(
    rig: HookRig, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-session: the mark is a folder, and needs an inode. Without one it is a bit of the session's folder."""
    rig.read(file)
    with monkeypatch.context() as full:
        full.setattr(os, "mkdir", no_inode_in(rig.runtime))
        full.setattr(SessionMemory, "_write", no_room)
        rig.read(file)
    other = file.with_name("other.txt")
    other.write_bytes(b"never read\n")

    assert refusal(rig.write(other, "mine"))["error_type"] == "UNREAD_FILE"


def test_a_session_that_could_remember_nothing_is_strict_after_its_folder_is_back(
    rig: HookRig, root: Path, file: Path
) -> None:
    """N-session: the whole runtime folder is unusable while the file is read, and usable afterwards."""
    runtime = rig.runtime / "noclobber"
    runtime.mkdir(mode=0o700, exist_ok=True)
    runtime.chmod(0o777)  # Others may open it: not used.
    assert "HOOK_FAILED" in json.dumps(rig.read(file))
    runtime.chmod(0o700)
    file.write_bytes(b"theirs\n")

    assert refusal(rig.write(file, "mine"))["error_type"] == "UNREAD_FILE"
    rig.read(file)
    assert rig.write(file, "mine") == {}, "reading again is the way out"
    other = HookRig(root, rig.runtime, "another")
    file.with_name("b.txt").write_bytes(b"b")
    assert other.write(file.with_name("b.txt"), "mine") == {}, "only that session is strict"


# -- no way to answer --------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("stdout", ["full", "closed", "null"])
@pytest.mark.parametrize("way", ["script", "command"])
def test_a_refusal_that_cannot_be_printed_is_an_exit_code(
    rig: HookRig, file: Path, host: str, stdout: str, way: str
) -> None:
    """N-hook: every host takes exit code 2 for a refusal. The reason is on stderr."""
    rig.call(host, read_note(host, rig, file), "note")
    file.write_bytes(b"theirs\n")

    done = unanswered(rig, host, "check", stale_write(host, rig, file), stdout, way)

    assert done.returncode == 2
    assert b"STALE_FILE" in done.stderr


@pytest.mark.parametrize("stdout", ["full", "closed"])
@pytest.mark.parametrize("host", HOSTS)
def test_what_blocks_nothing_blocks_nothing_without_a_way_to_answer(
    rig: HookRig, file: Path, host: str, stdout: str
) -> None:
    """N-hook: exit code 2 after a read or at a stop would make a host go round in circles."""
    done = unanswered(rig, host, "note", read_note(host, rig, file), stdout, "script")

    assert done.returncode == 0, done.stderr


def unanswered(
    rig: HookRig, host: str, duty: str, payload: dict[str, Any], stdout: str, way: str
) -> subprocess.CompletedProcess[bytes]:
    """Run a hook whose answer cannot be written."""
    words = {
        "script": [sys.executable, "-I", "-S", START, host, duty],
        "command": [sys.executable, "-m", "noclobber", "hook", host, duty],
    }[way]
    redirect = {"full": ">/dev/full", "closed": ">&-", "null": ">/dev/null"}[stdout]
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirect}', "sh", *words],
        input=json.dumps(payload).encode(),
        stderr=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(rig.runtime)},
        timeout=60,
    )


def test_a_closed_stdout_is_not_taken_by_a_file_of_ours(rig: HookRig, root: Path, file: Path) -> None:
    """N-hook: the first file that is opened gets the free number, and the answer would be written into it."""
    rig.write(file, "first\n")
    rig.read(file)
    file.write_bytes(b"theirs\n")
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}

    unanswered(rig, "claude-code", "check", stale_write("claude-code", rig, file), "closed", "script")

    after = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    changed = {path.name for path in after if after[path] != before.get(path)}
    assert changed == {"agent_trace.jsonl"}
    assert rig.kinds()[-1] == "MUTATION_CONFLICT"  # And the ledger's chain holds.


# -- no project --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cwd", ["", None, 7, []])
def test_an_event_without_a_folder_makes_no_project_of_the_hooks_own(
    rig: HookRig, root: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cwd: Any
) -> None:
    """Ruling 16: a hook may be started anywhere, and where it happens to be is nobody's project."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    payload = rig.tool("PreToolUse", "Write", {"file_path": str(file), "content": "x"}) | {"cwd": cwd}

    answer, _ = rig.call("claude-code", payload, "check")

    assert refusal(answer)["error_type"] == "HOOK_FAILED"
    assert list(elsewhere.iterdir()) == []


def test_a_session_with_a_project_needs_no_folder_in_every_event(
    rig: HookRig, root: Path, file: Path
) -> None:
    """Ruling 16: the project was settled by the first event; relative names are relative to it."""
    rig.read(file)
    file.write_bytes(b"theirs\n")
    payload = rig.tool("PreToolUse", "Write", {"file_path": "a.txt", "content": "x"}) | {"cwd": ""}

    answer, _ = rig.call("claude-code", payload, "check")

    assert refusal(answer)["error_type"] == "STALE_FILE"


def test_the_hosts_own_word_for_the_project_is_enough(
    rig: HookRig, root: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ruling 16: the host sets the variable for its hooks."""
    monkeypatch.setenv("CLAUDE_PROJECT_DIR", str(root))
    payload = rig.tool("PreToolUse", "Write", {"file_path": str(file), "content": "x"}) | {"cwd": ""}

    assert rig.call("claude-code", payload, "check")[0] == {}


# -- lock files and folders --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [".lock", ".LOCK", ".lock-ledger.jsonl", "a-link", "../del/.lock"])
def test_a_read_of_a_lock_file_is_refused(rig: HookRig, root: Path, name: str) -> None:
    """finding D7, REQ-LOCK-010: what a lock file says is nobody's input, by any of its names."""
    folder = root / "del"
    folder.mkdir()
    (folder / "a-link").symlink_to(".lock")
    with DeliverableLock(folder, holder="h"):
        answer = rig.ask("Read", {"file_path": f"{folder}/{name}"}, tool_use_id="r")

    assert refusal(answer)["error_type"] == "RESERVED_FILE"


def lock_read(host: str, rig: HookRig, lock: str) -> dict[str, Any]:
    """A read of a lock file, as each host asks about it before it happens."""
    root = str(rig.root)
    if host == "codex":
        return rig.tool("PreToolUse", "Bash", {"command": f"cat {lock}"})
    if host == "cursor":
        about = {"file_path": lock, "content": "secret"}
        return {"hook_event_name": "beforeReadFile", "conversation_id": "s1", "cwd": root, **about}
    if host == "copilot":
        return {"sessionId": "s1", "cwd": root, "toolName": "view", "toolArgs": {"path": lock}}
    if host in ("cline", "opencode"):
        asked = {"input": {"tool": "read", "sessionID": "s1"}, "output": {"args": {"filePath": lock}}}
        return {"ev": "before", "directory": root, **asked}
    name = "BeforeTool" if host == "gemini" else "PreToolUse"
    return rig.tool(name, "Read" if host == "claude-code" else "read_file", {"file_path": lock})


@pytest.mark.parametrize("host", HOSTS)
def test_a_read_of_a_lock_file_is_refused_to_every_host_that_asks(
    rig: HookRig, root: Path, host: str
) -> None:
    """finding D7, REQ-LOCK-010: also in the shell command of a host that has no tool for reading."""
    (root / "del").mkdir()
    with DeliverableLock(root / "del", holder="h"):
        answer, _ = rig.call(host, lock_read(host, rig, str(root / "del" / ".lock")), "auto")

    assert refusal(answer)["error_type"] == "RESERVED_FILE"


def test_other_reads_are_not_judged(rig: HookRig, file: Path) -> None:
    """N-speed: a host that asks before each read gets its answer without a look at the project."""
    assert rig.ask("Read", {"file_path": str(file)}, tool_use_id="r") == {}
    assert not (rig.runtime / "noclobber").exists()


def test_a_folder_as_the_target_is_refused_and_on_record(rig: HookRig, root: Path) -> None:
    """finding D13, ruling 12, 009-edge-directory: the host would fail on its own, and nobody would know."""
    folder = root / "folder"
    folder.mkdir()

    answers = [
        rig.ask("Write", {"file_path": str(folder), "content": "x"}, tool_use_id="1"),
        rig.ask("Edit", {"file_path": str(folder), "old_string": "a", "new_string": "b"}, tool_use_id="2"),
    ]

    assert [refusal(answer)["error_type"] for answer in answers] == ["NOT_A_FILE", "NOT_A_FILE"]
    assert rig.kinds() == ["MUTATION_REFUSED", "MUTATION_REFUSED"]
    assert rig.ledger()[0]["payload"]["target_file"] == "folder"
