"""What hooks remember between two events: by session and by agent, also with many at once."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from noclobber import FileBusyError, Workspace
from noclobber.core.values import Coverage
from noclobber.errors import HookFailedError
from noclobber.hook import session_memory
from noclobber.hook.session_memory import SessionMemory
from noclobber.hosts.matchers import MCP_WRITERS
from tests.conftest import sha256
from tests.rigs.hooks import HookRig, is_denied, refusal


def test_a_session_remembers_across_turns_and_compaction(rig: HookRig, file: Path) -> None:
    """Ruling 14: the model remembers earlier turns, so we do."""
    rig.read(file, prompt_id="p1")
    for name, members in (
        ("Stop", {}),
        ("UserPromptSubmit", {"prompt_id": "p2"}),
        ("SessionStart", {"source": "compact"}),
        ("SessionStart", {"source": "resume"}),
    ):
        rig.call("claude-code", rig.event(name, **members), "note")
    file.write_bytes(b"theirs\n")

    refused = refusal(rig.write(file, "mine\n", prompt_id="p2"))
    assert refused["details"]["baseline_hash"] == sha256(b"hello\nworld\n")


def test_a_resumed_session_whose_memory_is_gone_must_read_first(rig: HookRig, file: Path) -> None:
    """A model that remembers what we do not: nothing is let through on trust."""
    rig.call("claude-code", rig.event("SessionStart", source="resume"), "note")

    assert refusal(rig.write(file, "mine\n"))["error_type"] == "UNREAD_FILE"
    rig.read(file)
    assert rig.write(file, "mine\n") == {}


@pytest.mark.parametrize("reason", ["clear", "other", "prompt_input_exit"])
def test_a_session_that_has_ended_is_forgotten(rig: HookRig, file: Path, reason: str) -> None:
    """finding D8: hashes are gone at the end of the session; one that goes on has to read again."""
    rig.read(file)
    rig.call("claude-code", rig.event("SessionEnd", reason=reason), "note")

    assert os.listdir(session_memory.runtime_folder()) == []
    rig.call("claude-code", rig.event("SessionStart", source="resume"), "note")
    assert refusal(rig.write(file, "mine\n"))["error_type"] == "UNREAD_FILE"


def test_subagents_that_read_at_once_in_threads_of_one_process_are_both_remembered(
    rig: HookRig, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """009-FR-004: of two that read and then write, one is refused as stale, and not as one that never read."""
    both, answers, link = threading.Barrier(2, timeout=60), {}, os.link

    def link_together(source: str, *args: Any, **more: Any) -> None:
        if ".project." in source:
            both.wait()  # The session's first events: neither has found a project when the other one looks.
        link(source, *args, **more)

    def play(agent: str) -> None:
        told = rig.read(file, agent_id=agent, tool_use_id=f"read-{agent}")
        both.wait()
        wrote = rig.write(file, f"{agent}\n", agent_id=agent, tool_use_id=f"write-{agent}")
        answers[agent] = (told, wrote)

    monkeypatch.setattr(os, "link", link_together)
    threads = [threading.Thread(target=play, args=(agent,)) for agent in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [told for told, _ in answers.values()] == [{}, {}]
    [refused] = [wrote for _, wrote in answers.values() if wrote]
    assert refusal(refused)["error_type"] == "STALE_FILE"


def test_what_nobody_touched_for_weeks_is_forgotten(rig: HookRig, file: Path) -> None:
    """Cleaned up by age; younger sessions stay."""
    rig.read(file)
    old = os.listdir(session_memory.runtime_folder())
    for path in Path(session_memory.runtime_folder()).rglob("*"):
        os.utime(path, (1, 1))
    young = HookRig(rig.root, rig.runtime, session="young")
    young.read(file)

    young.call("claude-code", young.event("SessionStart", source="startup"), "note")

    left = os.listdir(session_memory.runtime_folder())
    assert len(left) == len(old)
    assert not set(left) & set(old)


@pytest.mark.parametrize("used", ["f*", "*.project"])
def test_a_session_that_goes_on_for_weeks_is_remembered(rig: HookRig, file: Path, used: str) -> None:
    """Ruling 14: a record is changed in its place, which shows neither in its folder nor in the project's note."""
    rig.read(file)
    kept = set(os.listdir(session_memory.runtime_folder()))
    for path in Path(session_memory.runtime_folder()).rglob("*"):
        if not path.match(used):
            os.utime(path, (1, 1))

    HookRig(rig.root, rig.runtime, session="young").call(
        "claude-code", rig.event("SessionStart", source="startup", session_id="young"), "note"
    )

    assert kept < set(os.listdir(session_memory.runtime_folder()))
    file.write_bytes(b"theirs\n")
    assert refusal(rig.write(file, "mine\n"))["error_type"] == "STALE_FILE"


def test_subagents_and_sessions_have_pictures_of_their_own(rig: HookRig, root: Path, file: Path) -> None:
    """R-turn: what one has read, another has not."""
    rig.read(file)
    file.write_bytes(b"theirs\n")

    assert rig.write(file, "sub's\n", agent_id="sub") == {}
    assert is_denied(rig.write(file, "mine\n"))
    assert HookRig(root, rig.runtime, session="s2").write(file, "other's\n") == {}


def test_nothing_is_kept_in_the_project_but_the_record(rig: HookRig, root: Path, file: Path) -> None:
    """N-session: what was seen lies in the runtime folder, which is private."""
    rig.read(file)
    rig.write(file, "x\n")

    assert sorted(os.listdir(root / ".noclobber")) == [
        ".gitignore",
        "agent_trace.jsonl",
        "claims",
        "kept",
        "notes",
        "swap",
        f"workspace_id.{os.stat(root / '.noclobber').st_ino}",
    ]
    folder = os.stat(session_memory.runtime_folder())
    assert folder.st_mode & 0o777 == 0o700


def test_hooks_of_parallel_calls_lose_nothing_of_each_others(rig: HookRig, root: Path) -> None:
    """N-session: ten processes at once, each with a part of one file and the whole of another."""
    big = root / "big.txt"
    lines = [f"line {number}" for number in range(10)]
    big.write_text("\n".join(lines) + "\n")
    payloads = []
    for number in range(10):
        own = root / f"{number}.txt"
        own.write_text("own\n")
        shown = {"content": lines[number], "startLine": number + 1, "numLines": 1, "totalLines": 11}
        given = {"file_path": str(big), "offset": number + 1, "limit": 1}
        payloads.append(rig.tool("PostToolUse", "Read", given, tool_response={"file": shown}))
        shown = {"content": "own\n", "startLine": 1, "numLines": 2, "totalLines": 2}
        payloads.append(
            rig.tool("PostToolUse", "Read", {"file_path": str(own)}, tool_response={"file": shown})
        )

    failed: list[Any] = []

    def run(part: Any) -> None:
        failed.extend(
            done for payload in part if (done := rig.process("claude-code", payload, "note")).returncode
        )

    threads = [threading.Thread(target=run, args=(payloads[at::5],)) for at in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failed == []
    with SessionMemory("claude-code", "s1", "main") as known:
        context, _ = known.recall(str(big), str(big))
        assert context.coverage_for(str(big), str(big)).is_whole
    for number in range(10):
        (root / f"{number}.txt").write_text("theirs\n")
        assert is_denied(rig.write(root / f"{number}.txt", "x"))


def _note_parts(root: Path, start: Any, numbers: Any) -> None:
    """In a process of its own: see one line of a file after another."""
    path = f"{root}/big.txt"
    start.wait()
    for number in numbers:
        with SessionMemory("claude-code", "s1", "main") as known:
            context, noted = known.recall(path, path)
            os.sched_yield()  # Somebody else's turn, if there is nothing to keep them out.
            context.observe(path, path, "ab" * 32, None, Coverage(((number, number + 1),), 80))
            known.keep(context, path, path, noted)


def test_one_hook_of_an_agent_at_a_time(rig: HookRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-session: a second one waits, and gives up after a while; another agent's does not even wait."""
    monkeypatch.setattr(session_memory, "PATIENCE_S", 0.01)
    with SessionMemory("claude-code", "s1", "main"):
        with pytest.raises(HookFailedError), SessionMemory("claude-code", "s1", "main"):
            pass
        with SessionMemory("claude-code", "s1", "sub"):
            pass


def test_a_hook_that_gave_up_waiting_keeps_nothing_open(
    rig: HookRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-session: hooks of an agent framework run in a process that goes on."""
    monkeypatch.setattr(session_memory, "PATIENCE_S", 0.01)
    with SessionMemory("claude-code", "s1", "main"):
        before = len(os.listdir("/dev/fd"))
        with pytest.raises(HookFailedError), SessionMemory("claude-code", "s1", "main"):
            pass
        assert len(os.listdir("/dev/fd")) == before


def test_notes_of_one_file_from_several_processes_add_up(rig: HookRig, root: Path) -> None:
    """N-session: four processes, twenty lines each, all at once; not one line is forgotten."""
    fork = multiprocessing.get_context("fork")
    start = fork.Barrier(4)
    workers = [fork.Process(target=_note_parts, args=(str(root), start, range(at, 80, 4))) for at in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    with SessionMemory("claude-code", "s1", "main") as known:
        context, _ = known.recall(f"{root}/big.txt", f"{root}/big.txt")
        assert context.coverage_for(f"{root}/big.txt", f"{root}/big.txt").is_whole


@pytest.mark.slow
def test_two_sessions_that_race_on_one_file_lose_nothing(rig: HookRig, root: Path) -> None:
    """009-SC-001: real hook processes around plain writes; every line that was acknowledged is there."""
    file = root / "shared.txt"
    file.write_text("start\n")
    acknowledged: list[str] = []
    met = []
    both_have_read = threading.Barrier(2)

    def play(session: str) -> None:
        host = HookRig(root, rig.runtime, session=session)
        done = 0
        for attempt in range(80):
            if done == 4:
                return
            seen = file.read_text()
            count = seen.count("\n") + 1
            shown = {"content": seen, "startLine": 1, "numLines": count, "totalLines": count}
            given = {"file_path": str(file)}
            host.process(
                "claude-code",
                host.tool("PostToolUse", "Read", given, tool_response={"file": shown}, duration_ms=1),
            )
            if attempt == 0:
                both_have_read.wait(60)  # else one may be done before the other begins, and they never meet
            line = f"{session}-{done}"
            given = {"file_path": str(file), "content": f"{seen}{line}\n"}
            call = host.next_id()
            answer = host.process(
                "claude-code", host.tool("PreToolUse", "Write", given, tool_use_id=call), "check"
            )
            assert answer.returncode == 0, answer.stderr
            if answer.stdout:
                met.append(line)
                continue
            file.write_text(given["content"])
            told = host.process(
                "claude-code", host.tool("PostToolUse", "Write", given, tool_use_id=call, tool_response={})
            )
            assert told.stdout == b"", told.stdout
            acknowledged.append(line)
            done += 1

    threads = [threading.Thread(target=play, args=(name,)) for name in ("left", "right")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(file.read_text().splitlines()) == sorted(["start", *acknowledged])
    assert len(acknowledged) == 8
    assert met, "the sessions never met, so this run proves nothing"


@pytest.mark.parametrize(
    "command", ["cat {} | grep -c x", "true || cat {}", "test -f {} && cat {}", "cat {}; ls"]
)
@pytest.mark.parametrize("options", ["", 'unread = "deny"'])
def test_a_shell_read_that_showed_nothing_for_certain_ends_no_conflict(
    rig: HookRig, root: Path, command: str, options: str
) -> None:
    """finding S3: after STALE_FILE, also if the file is old; and it is not the read that `unread` asks for."""
    (root / "noclobber.toml").write_text(f'notices = "off"\n{options}')
    file = root / "a.txt"
    file.write_text("hello\n")
    rig.read(file)
    file.write_text("theirs\n")
    os.utime(file, (1, 1))
    assert refusal(rig.write(file, "mine\n"))["error_type"] == "STALE_FILE"
    for stdout in ("", "1\n", "theirs\n"):
        given = {"command": command.replace("{}", str(file))}
        rig.call("claude-code", rig.tool("PostToolUse", "Bash", given, tool_response={"stdout": stdout}))
        assert refusal(rig.write(file, "mine\n"))["error_type"] == "STALE_FILE"
    other = root / "b.txt"
    other.write_text("unread\n")
    os.utime(other, (1, 1))
    given = {"command": command.replace("{}", str(other))}
    rig.call("claude-code", rig.tool("PostToolUse", "Bash", given, tool_response={"stdout": ""}))
    answer = rig.write(other, "mine\n")
    assert (refusal(answer)["error_type"] == "UNREAD_FILE") if options else answer == {}


@pytest.mark.parametrize("tool", ["Write", "Edit", "mcp__files__write_file"])
def test_two_parameters_that_name_two_files_are_refused(rig: HookRig, root: Path, tool: str) -> None:
    """finding S4: the hook would check the decoy, and the host write the other one."""
    file = root / "a.txt"
    file.write_text("theirs\n")
    given = {"file_path": str(root / "decoy.txt"), "filePath": str(file), "content": "x", "old_string": "t"}
    answer = rig.ask(tool, {**given, "new_string": "y"}, tool_use_id="w")
    assert refusal(answer)["error_type"] == "BAD_REQUEST"
    same = {**given, "filePath": given["file_path"], "old_string": "", "new_string": "y"}
    assert rig.ask(tool, same, tool_use_id="w2") == {}


def test_a_writing_tool_of_another_mcp_server_is_judged(rig: HookRig, root: Path) -> None:
    """finding S9: it reaches the hook by the matcher, and path and content are plain."""
    assert re.fullmatch(MCP_WRITERS, "mcp__files__write_file")
    assert not re.fullmatch(MCP_WRITERS, "mcp__files__read_file")
    file = root / "a.txt"
    file.write_text("hello\n")
    rig.read(file)
    file.write_text("theirs\n")
    given = {"path": str(file), "content": "mine\n"}
    assert refusal(rig.ask("mcp__files__write_file", given, tool_use_id="w"))["error_type"] == "STALE_FILE"


def test_parallel_calls_of_one_agent_keep_the_file_claimed_until_the_last_is_over(
    rig: HookRig, root: Path
) -> None:
    """N-hook: the first one's end must not let another writer in before the second one writes."""
    file = root / "a.txt"
    file.write_text("hello\n")
    rig.read(file)
    first, second = ({"file_path": str(file), "content": text} for text in ("one\n", "two\n"))
    assert rig.ask("Write", first, tool_use_id="1") == {}
    assert rig.ask("Write", second, tool_use_id="2") == {}
    file.write_text("one\n")
    rig.told("Write", first, tool_use_id="1")
    with Workspace(root, wait_s=0) as ws, ws.turn() as turn:
        turn.read_file("a.txt")
        with pytest.raises(FileBusyError):
            turn.write_file("a.txt", "the library's\n")
        file.write_text("two\n")
        rig.told("Write", second, tool_use_id="2")
        turn.read_file("a.txt")
        turn.write_file("a.txt", "the library's\n")


def test_a_working_directory_that_is_not_absolute_is_refused(rig: HookRig, root: Path) -> None:
    """Bad input: the hook looked for an existing folder above it, for ever."""
    rig.call("claude-code", rig.event("SessionStart", source="startup"), "note")
    answer = rig.ask("Write", {"file_path": "a.txt", "content": "x"}, tool_use_id="w", cwd="x/y")
    assert refusal(answer)["error_type"] == "HOOK_FAILED"


@pytest.mark.parametrize(
    "damage",
    [b"null", b"{", b'{"path":"', "coverage", "trouble", "fifo"],
    ids=["null", "cut", "cut in text", "coverage", "trouble", "fifo"],
)
def test_a_record_that_is_damaged_means_read_again(rig: HookRig, root: Path, damage: bytes | str) -> None:
    """Bad input: never "was not read", and not for the rest of the session either."""
    file = root / "a.txt"
    file.write_text("hello\n")
    rig.read(file)
    [agent] = [entry for entry in (rig.runtime / "noclobber").iterdir() if entry.is_dir()]
    [record] = agent.glob("f*")
    value = json.loads(record.read_bytes())
    if damage == "coverage":
        value["seen"][2] = [1, 2]
    elif damage == "trouble":
        value["seen"][3] = [None] * 5
    record.unlink()
    if damage == "fifo":
        os.mkfifo(record)
    else:
        record.write_bytes(damage if isinstance(damage, bytes) else json.dumps(value).encode())
    assert refusal(rig.write(file, "mine\n"))["error_type"] in ("UNREAD_FILE", "HOOK_FAILED")
    if damage != "fifo":
        rig.read(file)
        assert rig.write(file, "mine\n") == {}
