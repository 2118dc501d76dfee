"""A hook's way with one session: what it lets through, what it refuses, and what it remembers."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from noclobber import DeliverableLock
from noclobber.core import wire
from noclobber.core.actions import Action, CallResult, Shown
from noclobber.core.values import WHOLE, Coverage, Edit
from noclobber.disk.commit.committer import Committer
from noclobber.disk.reading import FileState
from noclobber.errors import HookFailedError
from noclobber.guard import claims
from noclobber.guard.fence import WriteFence
from noclobber.guard.outcome import foresee
from noclobber.guard.shown import seen_part
from noclobber.hook import session_memory
from noclobber.hook.session_memory import SessionMemory
from noclobber.hosts.hook_entries import START
from noclobber.text.host_edits import HostEdits
from tests.conftest import sha256
from tests.rigs.hooks import HookRig, is_denied, refusal


@pytest.fixture
def file(root: Path) -> Path:
    path = root / "a.txt"
    path.write_bytes(b"hello\nworld\n")
    return path


# -- before a write ---------------------------------------------------------------------------------------


def test_a_stale_edit_is_refused_with_exactly_the_009_object(rig: HookRig, file: Path) -> None:
    """009-FR-004, 009-FR-006, 009-SC-004: keys and constants to the letter, and nothing around them."""
    rig.read(file)
    file.write_bytes(b"hello\nworld\nmore\n")

    refused = refusal(rig.edit(file, "hello", "HELLO"))

    Draft202012Validator(wire.schema("stale-file-agent")).validate(refused)
    assert refused["details"] == {
        "path": str(file),
        "baseline_hash": sha256(b"hello\nworld\n"),
        "current_disk_hash": sha256(b"hello\nworld\nmore\n"),
    }
    assert file.read_bytes() == b"hello\nworld\nmore\n"


@pytest.mark.parametrize("change", ["write", "delete", "folder", "link"])
def test_whatever_became_of_the_file_a_stale_write_is_refused(rig: HookRig, file: Path, change: str) -> None:
    """Ruling 5: gone, a folder in its place, or a link to another file."""
    rig.read(file)
    file.unlink()
    if change == "write":
        file.write_bytes(b"other")
    elif change == "folder":
        file.mkdir()
    elif change == "link":
        other = file.with_name("other.txt")
        other.write_bytes(b"other")
        file.symlink_to(other)

    answer = rig.ask("Write", {"file_path": str(file), "content": "x"}, tool_use_id="t")

    found = refusal(answer)["details"]["current_disk_hash"]
    assert found == {"delete": "DELETED", "folder": "NOT_A_FILE"}.get(change, sha256(b"other"))


def test_a_refusal_is_on_record_once_however_often_it_is_delivered(rig: HookRig, file: Path) -> None:
    """011-SC-004: double delivery of one event is harmless."""
    rig.read(file)
    file.write_bytes(b"theirs")
    given = {"file_path": str(file), "content": "mine"}

    answers = [rig.ask("Write", given, tool_use_id="same") for _ in range(3)]
    other = rig.ask("Write", given, tool_use_id="another")

    assert all(is_denied(answer) for answer in (*answers, other))
    assert rig.kinds() == ["MUTATION_CONFLICT", "MUTATION_CONFLICT"]


def test_lock_files_are_kept_out_of_git_when_a_hook_sets_the_workspace_up(
    rig: HookRig, root: Path, file: Path
) -> None:
    """REQ-LOCK-010: the library may never be used in this project."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    rig.read(file)
    rig.write(file, "v2")
    (root / "del").mkdir()
    with DeliverableLock(root / "del", holder="h"):
        shown = subprocess.run(
            ["git", "-C", str(root), "status", "--porcelain", "-uall"],
            capture_output=True,
            text=True,
            check=True,
        )
    assert ".lock" not in shown.stdout


def test_reading_again_lets_the_next_write_through(rig: HookRig, file: Path) -> None:
    """009-FR-007, 009-US2."""
    rig.read(file)
    file.write_bytes(b"theirs\n")
    assert is_denied(rig.write(file, "mine\n"))

    rig.read(file)

    assert rig.write(file, "mine\n") == {}
    assert rig.kinds() == ["MUTATION_CONFLICT", "MUTATION"]


def test_own_writes_move_the_baseline(rig: HookRig, file: Path) -> None:
    """009-SC-002, ruling 10."""
    rig.read(file)

    assert rig.edit(file, "hello", "HELLO") == {}
    assert rig.write(file, "whole\n") == {}
    assert rig.edit(file, "whole", "part") == {}

    file.write_bytes(b"theirs\n")
    assert refusal(rig.edit(file, "part", "x"))["details"]["baseline_hash"] == sha256(b"part\n")


def test_a_file_that_was_never_read_is_not_checked(rig: HookRig, file: Path) -> None:
    """Ruling 7; it is on record all the same."""
    assert rig.write(file, "mine\n") == {}
    assert rig.kinds() == ["MUTATION"]


def test_a_file_that_was_not_there_must_still_not_be_there(rig: HookRig, root: Path) -> None:
    """Ruling 5: a failed read of nothing is a baseline."""
    missing = root / "new.txt"
    failed = rig.tool("PostToolUseFailure", "Read", {"file_path": str(missing)}, tool_use_id="r")
    rig.call("claude-code", failed, "note")
    missing.write_bytes(b"somebody made it")

    assert refusal(rig.write(missing, "mine"))["details"]["baseline_hash"] == "ABSENT"


def test_the_records_themselves_are_out_of_bounds(rig: HookRig, root: Path, file: Path) -> None:
    """An agent cannot edit its own trace, not even through a link."""
    rig.write(file, "x\n")
    link = root / "innocent.txt"
    link.symlink_to(root / ".noclobber" / "agent_trace.jsonl")

    for path in (root / ".noclobber" / "agent_trace.jsonl", link):
        answer = rig.ask("Write", {"file_path": str(path), "content": ""}, tool_use_id=str(path))
        assert refusal(answer)["error_type"] == "OUTSIDE_WORKSPACE"


def test_a_ledger_that_cannot_be_written_stops_writes_and_not_reads(
    rig: HookRig, root: Path, file: Path
) -> None:
    """Ruling 13."""
    (root / ".noclobber").mkdir()
    (root / ".noclobber" / "agent_trace.jsonl").mkdir()

    assert rig.read(file) == {}
    assert refusal(rig.write(file, "x"))["error_type"] == "LEDGER_FAILED"
    assert file.read_bytes() == b"hello\nworld\n"


# -- what was seen ----------------------------------------------------------------------------------------


def test_two_halves_of_two_versions_are_not_a_whole(rig: HookRig, file: Path) -> None:
    """Ruling 2: a partial read of another version does not move the baseline; all its parts do."""
    lines = [f"line {number}\n" for number in range(10)]
    file.write_text("".join(lines))
    rig.read(file)
    lines[9] = "changed\n"
    file.write_text("".join(lines))

    def read_part(first: int, count: int) -> None:
        text = "".join(lines[first - 1 : first - 1 + count]).rstrip("\n")
        shown = {"content": text, "startLine": first, "numLines": count, "totalLines": 11}
        given = {"file_path": str(file), "offset": first, "limit": count}
        rig.call("claude-code", rig.tool("PostToolUse", "Read", given, tool_response={"file": shown}))

    read_part(1, 5)
    assert is_denied(rig.edit(file, "line 3", "x"))
    read_part(6, 5)
    assert rig.edit(file, "line 3", "x") == {}


def test_what_changed_between_the_hosts_read_and_our_look_is_not_taken_for_seen(
    rig: HookRig, file: Path
) -> None:
    """Ruling 8: the model was shown one version, and another stands there by now."""
    shown = {"content": "hello\nworld\n", "startLine": 1, "numLines": 3, "totalLines": 3}
    file.write_bytes(b"theirs, a moment later\n")
    rig.call(
        "claude-code",
        rig.tool(
            "PostToolUse", "Read", {"file_path": str(file)}, tool_response={"file": shown}, duration_ms=3
        ),
    )

    refused = refusal(rig.write(file, "mine\n"))

    assert refused["error_type"] == "UNREAD_FILE"
    rig.read(file)
    assert rig.write(file, "mine\n") == {}


def test_a_presentation_that_we_do_not_know_counts_if_the_file_is_old() -> None:
    """A picture or a notebook is shown as something else; its age tells that it is what was read."""
    looked = FileState("/f", sha256(b"x"), b"x", changed_at_s=1000.0)
    action = Action("read", "/f")

    assert seen_part(looked, action, CallResult(Shown(), duration_s=0.01), now_s=1003.0) == WHOLE
    assert seen_part(looked, action, CallResult(Shown(), duration_s=0.01), now_s=1001.0) is None
    assert seen_part(looked, action, CallResult(Shown(), duration_s=4.0), now_s=1003.0) is None
    assert seen_part(looked, action, CallResult(Shown("else"), duration_s=None), now_s=1003.0) is None
    assert seen_part(looked, action, CallResult(Shown("else"), duration_s=None), now_s=1006.0) == WHOLE


@pytest.mark.parametrize(
    ("on_disk", "content"),
    [(b"\xef\xbb\xbfone\r\ntwo\r\n", "one\ntwo\n"), (b"", ""), (b"no newline", "no newline")],
)
def test_hosts_show_text_without_marks_and_carriage_returns(
    rig: HookRig, file: Path, on_disk: bytes, content: str
) -> None:
    """Ruling 8: hashes are of raw bytes, whatever the model is shown."""
    file.write_bytes(on_disk)
    shown = {
        "content": content,
        "startLine": 1,
        "numLines": content.count("\n") + 1,
        "totalLines": content.count("\n") + 1,
    }
    rig.call(
        "claude-code",
        rig.tool("PostToolUse", "Read", {"file_path": str(file)}, tool_response={"file": shown}),
    )

    file.write_bytes(b"theirs")

    assert refusal(rig.write(file, "x"))["details"]["baseline_hash"] == sha256(on_disk)


def test_a_host_that_keeps_line_endings_has_not_raced_with_anybody(rig: HookRig, file: Path) -> None:
    """The outcome of an edit is foreseen in the file's own dress."""
    file.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    rig.read(file)
    given = {"file_path": str(file), "old_string": "one\ntwo", "new_string": "1\n2"}
    assert rig.ask("Edit", given, tool_use_id="e") == {}
    file.write_bytes(b"\xef\xbb\xbf1\r\n2\r\n")

    assert rig.told("Edit", given, tool_use_id="e") == {}
    given = {"file_path": str(file), "content": "a\nb\n"}
    assert rig.ask("Write", given, tool_use_id="w") == {}
    file.write_bytes(b"a\r\nb\r\n")
    assert rig.told("Write", given, tool_use_id="w") == {}
    assert rig.kinds() == ["MUTATION", "MUTATION"]


def test_an_edit_is_foreseen_in_the_files_own_dress() -> None:
    """N-foresight: the very bytes, where the host keeps mark and line endings as most do."""
    before = b"\xef\xbb\xbfone\r\ntwo\r\n"
    outcome = foresee(Action("edit", "f", change=HostEdits((Edit("one\ntwo", "1\n2"),))), before)
    assert outcome.sha256 == sha256(b"\xef\xbb\xbf1\r\n2\r\n")


def test_a_shell_that_shows_a_file_has_read_it(rig: HookRig, file: Path) -> None:
    """Codex has no other way to read, and the others may."""
    payload = rig.tool(
        "PostToolUse", "Bash", {"command": "cat a.txt && ls"}, tool_response={"stdout": "hello\nworld\na.txt"}
    )
    rig.call("claude-code", payload, "note")

    file.write_bytes(b"theirs")

    assert is_denied(rig.edit(file, "hello", "x"))


# -- after a write ----------------------------------------------------------------------------------------


def test_an_outsider_between_check_and_write_is_found_out(rig: HookRig, file: Path) -> None:
    """N-foresight: recorded, told with the instruction to re-read, and the baseline is unknown."""
    rig.read(file)
    given = {"file_path": str(file), "content": "mine\n"}
    assert rig.ask("Write", given, tool_use_id="w") == {}
    file.write_bytes(b"mixed up\n")

    told = rig.told("Write", given, tool_use_id="w")

    assert told["decision"] == "block"
    assert refusal(told)["details"] == {
        "path": str(file),
        "baseline_hash": sha256(b"mine\n"),
        "current_disk_hash": sha256(b"mixed up\n"),
    }
    [race] = rig.ledger()
    assert race["action_type"] == "MUTATION_RACE"
    assert refusal(rig.write(file, "again\n"))["error_type"] == "UNREAD_FILE"
    rig.read(file)
    assert rig.write(file, "again\n") == {}


def test_a_landed_write_is_on_record_once_however_often_it_is_delivered(rig: HookRig, file: Path) -> None:
    """Double delivery of one event is harmless."""
    given = {"file_path": str(file), "content": "mine\n"}
    rig.ask("Write", given, tool_use_id="w")
    file.write_bytes(b"mine\n")
    for _ in range(3):
        assert rig.told("Write", given, tool_use_id="w") == {}

    assert rig.kinds() == ["MUTATION"]


def test_a_call_that_failed_leaves_everything_as_it_was(rig: HookRig, root: Path, file: Path) -> None:
    """The claim ends, the baseline stands, and nothing goes on record."""
    rig.read(file)
    given = {"file_path": str(file), "old_string": "hello", "new_string": "HELLO"}
    rig.ask("Edit", given, tool_use_id="e")
    assert claims.check(str(root), str(file)) is not None

    rig.call("claude-code", rig.tool("PostToolUseFailure", "Edit", given, tool_use_id="e"), "note")

    assert claims.check(str(root), str(file)) is None
    assert rig.kinds() == []
    assert rig.write(file, "mine\n") == {}


def test_a_failed_call_that_wrote_all_the_same_is_on_record(rig: HookRig, file: Path) -> None:
    """N-hook: the host says no and the disk says yes."""
    rig.read(file)
    given = {"file_path": str(file), "content": "mine\n"}
    rig.ask("Write", given, tool_use_id="w")
    file.write_bytes(b"half of mi")

    rig.call("claude-code", rig.tool("PostToolUseFailure", "Write", given, tool_use_id="w"), "note")

    assert rig.kinds() == ["MUTATION_FAILED"]
    assert is_denied(rig.write(file, "x"))


def test_a_call_that_never_reported_back_is_settled_by_the_next(rig: HookRig, file: Path) -> None:
    """A patch through the shell has no event after it: the disk tells whether it happened."""
    rig.read(file)
    assert rig.ask("Write", {"file_path": str(file), "content": "mine\n"}, tool_use_id="lost") == {}
    file.write_bytes(b"mine\n")

    assert rig.edit(file, "mine", "ours") == {}
    assert rig.kinds() == ["MUTATION", "MUTATION"]


# -- claims ---------------------------------------------------------------------------------------------


def test_another_session_has_to_wait_for_the_claim(
    rig: HookRig, root: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-claim: busy while the host of the first writes, stale when it has."""
    monkeypatch.setattr(claims, "PATIENCE_S", 0.05)
    other = HookRig(root, rig.runtime, session="s2")
    rig.read(file)
    other.read(file)
    given = {"file_path": str(file), "content": "first\n"}
    assert rig.ask("Write", given, tool_use_id="w") == {}

    busy = refusal(other.ask("Write", {"file_path": str(file), "content": "second\n"}, tool_use_id="x"))
    assert (busy["error_type"], busy["resolution"]) == ("FILE_BUSY", "RETRY_LATER")

    file.write_bytes(b"first\n")
    assert rig.told("Write", given, tool_use_id="w") == {}
    assert refusal(other.write(file, "second\n"))["error_type"] == "STALE_FILE"


def test_a_claim_ends_with_the_turn_and_by_itself(rig: HookRig, root: Path, file: Path) -> None:
    """N-claim: a user who said no to the host's own question holds nobody up."""
    given = {"file_path": str(file), "content": "x"}
    rig.ask("Write", given, tool_use_id="w")
    assert claims.check(str(root), str(file)).call_id == "w"
    rig.call("claude-code", rig.event("Stop"), "note")
    assert claims.check(str(root), str(file)) is None

    class Later:
        monotonic_s = staticmethod(lambda: 0.0)
        sleep = staticmethod(lambda seconds: None)

        @staticmethod
        def now_s() -> float:
            return time.time() + claims.LIFE_S + 1

    rig.ask("Write", given, tool_use_id="w2")
    assert claims.check(str(root), str(file)) is not None
    assert claims.check(str(root), str(file), clock=Later()) is None


def test_a_refused_patch_leaves_no_claim_behind(rig: HookRig, root: Path, file: Path) -> None:
    """Nothing waits for a write that will not come."""
    other = root / "b.txt"
    other.write_bytes(b"b\n")
    rig.session = "c"
    payload = {"session_id": "c", "turn_id": "t", "cwd": str(root), "tool_use_id": "1"}
    shown = {
        **payload,
        "hook_event_name": "PostToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "cat a.txt"},
    }
    rig.call("codex", {**shown, "tool_response": "hello\nworld\n"})
    file.write_bytes(b"theirs\n")
    patch = "*** Begin Patch\n*** Update File: b.txt\n@@\n-b\n+B\n*** Update File: a.txt\n@@\n-hello\n+x\n*** End Patch\n"
    asked = {
        **payload,
        "hook_event_name": "PreToolUse",
        "tool_name": "apply_patch",
        "tool_input": {"command": patch},
    }

    assert refusal(rig.call("codex", asked)[0])["details"]["path"] == str(file)
    assert claims.live(str(root)) == []


def test_a_claim_is_seen_from_every_workspace_above_and_below(root: Path) -> None:
    """Workspaces inside workspaces: the claim lies in one, and the commit happens in another."""
    inner = root / "packages" / "one"
    inner.mkdir(parents=True)
    (root / ".noclobber").mkdir()
    file = inner / "a.txt"
    file.write_bytes(b"")

    claims.acquire(str(root), str(file), "owner", "call")
    (inner / ".noclobber").mkdir()

    assert claims.check(str(inner), str(file)).owner == "owner"
    assert claims.check(str(inner), str(file), "owner") is None
    with pytest.raises(claims.ClaimedError):
        claims.refuse_if_claimed(str(inner), str(file))
    assert claims.release(str(inner), str(file), "somebody else") is False
    assert claims.release(str(inner), str(file), "owner") is True
    claims.refuse_if_claimed(str(inner), str(file))


def test_a_commit_of_the_library_waits_for_a_claim_or_gives_up(root: Path) -> None:
    """N-claim: inside the commit's own critical section, so that neither slips past the other."""
    file = root / "a.txt"
    file.write_bytes(b"old")
    (root / ".noclobber").mkdir()
    committer = Committer(str(root))
    fence = WriteFence(str(root))

    def commit() -> Any:
        return committer.replace(str(file), sha256(b"old"), b"new", fence=fence)

    claims.acquire(str(root), str(file), "agent", "call")
    with pytest.raises(claims.ClaimedError) as refused:
        claims.retrying(commit, 0.05)
    assert refused.value.resolution == "RETRY_LATER"
    assert file.read_bytes() == b"old"

    timer = threading.Timer(0.05, claims.release, (str(root), str(file), "agent"))
    timer.start()
    assert claims.retrying(commit, 10.0).sha256 == sha256(b"new")
    timer.join()


def test_a_claim_that_nobody_made_costs_one_look_for_each_folder(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-claim: every guarded write of the library asks, so it opens, lists and reads nothing."""
    deep = root / "a" / "b" / "c" / "d" / "file.txt"
    looks: list[str] = []
    others: list[Any] = []
    access = os.access
    with monkeypatch.context() as patched:

        def look(path: str, mode: int) -> bool:
            looks.append(path)
            return access(path, mode)

        patched.setattr(os, "access", look)
        for name in ("open", "stat", "lstat", "listdir", "scandir"):
            patched.setattr(os, name, lambda *given, **_: others.append(given))
        found = claims.check(str(root), str(deep))
    above = len(deep.parents) - 1  # A claim may stand in any folder above it, but not in the root of all.
    assert (found, len(looks), others) == (None, above, [])


def test_a_deliverable_that_somebody_has_locked_is_out_of_bounds(
    rig: HookRig, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REQ-LOCK: no two agents in one deliverable; the one that was started with the lock may write."""
    folder = root / "deliverable"
    folder.mkdir()
    file = folder / "a.txt"
    file.write_text("x\n")
    with DeliverableLock(folder, deliverable_id="D-1", holder="builder-1") as lock:
        answer = rig.ask("Write", {"file_path": str(file), "content": "y"}, tool_use_id="w")
        assert refusal(answer)["error_type"] == "LOCK_CONTENTION"
        assert claims.live(str(root)) == []
        monkeypatch.setenv("NOCLOBBER_LOCK_ID", str(lock.lock_id))
        monkeypatch.setenv("NOCLOBBER_LOCK_FOLDER", str(folder))
        assert rig.write(file, "y") == {}


# -- sessions --------------------------------------------------------------------------------------------


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


def test_the_project_of_a_session_is_settled_by_its_first_event(rig: HookRig, root: Path, file: Path) -> None:
    """finding S5, ruling 16: a nested repository that appears later changes nothing; nor does a `cd`."""
    (root / "noclobber.toml").write_text('unread = "deny"\n')
    rig.call("claude-code", rig.event("SessionStart", source="startup"), "note")
    nested = root / "docs"
    (nested / ".git").mkdir(parents=True)
    (nested / ".noclobber").mkdir()
    (nested / "b.txt").write_text("theirs\n")

    given = {"file_path": str(nested / "b.txt"), "content": "mine\n"}
    answer = rig.ask("Write", given, tool_use_id="w", cwd=str(nested))

    assert refusal(answer)["error_type"] == "UNREAD_FILE"
    assert rig.kinds() == ["MUTATION_REFUSED"]  # In the ledger of the session's project.


def test_parallel_first_events_settle_on_one_project(rig: HookRig, root: Path) -> None:
    """Ruling 16: whoever comes second takes what the first one found."""
    found = iter([str(root), str(root.parent)])

    def find_late() -> str:
        session_memory.settle_project("claude-code", "s9", lambda: next(found))
        return next(found)

    assert session_memory.settle_project("claude-code", "s9", find_late) == str(root)


def test_what_nobody_touched_for_weeks_is_forgotten(rig: HookRig, file: Path) -> None:
    """Cleaned up by age; younger sessions stay."""
    rig.read(file)
    old = os.listdir(session_memory.runtime_folder())
    for name in old:
        os.utime(f"{session_memory.runtime_folder()}/{name}", (1, 1))
    young = HookRig(rig.root, rig.runtime, session="young")
    young.read(file)

    young.call("claude-code", young.event("SessionStart", source="startup"), "note")

    left = os.listdir(session_memory.runtime_folder())
    assert len(left) == len(old)
    assert not set(left) & set(old)


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


# -- many at once -------------------------------------------------------------------------------------------


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


# -- the process --------------------------------------------------------------------------------------------


def test_the_hook_stays_light(rig: HookRig, root: Path, file: Path) -> None:
    """N-speed: none of the slow modules is loaded, before or after a write."""
    program = (
        "import sys\n"
        f"sys.path.append({os.path.dirname(os.path.dirname(os.path.dirname(START)))!r})\n"
        "from noclobber.hook.main import main\n"
        "code = main(['claude-code', 'check'])\n"
        "sys.stderr.write(' '.join(sorted(sys.modules)))\n"
    )
    slow = {
        "json",
        "re",
        "typing",
        "hashlib",
        "argparse",
        "threading",
        "collections",
        "dataclasses",
        "inspect",
        "random",
    }
    rig.write(file, "first\n")  # Makes the state folder, which happens once and loads more.
    given = {"file_path": str(file), "content": "x\n"}
    for name in ("PreToolUse", "PostToolUse"):
        payload = rig.tool(name, "Write", given, tool_use_id="w", tool_response={})
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", program],
            input=json.dumps(payload).encode(),
            capture_output=True,
            env={"XDG_RUNTIME_DIR": str(rig.runtime)},
            timeout=60,
        )
        loaded = set(done.stderr.decode().split())
        assert done.stdout == b"", done.stdout
        assert "noclobber.guard.judge" in loaded
        assert loaded & slow == set()
        file.write_bytes(b"x\n")
    assert rig.kinds() == ["MUTATION", "MUTATION"]


def test_the_command_line_answers_as_well(rig: HookRig, file: Path) -> None:
    """`noclobber hook HOST`, for a configuration that a team shares."""
    rig.read(file)
    file.write_bytes(b"theirs\n")
    payload = rig.tool("PreToolUse", "Write", {"file_path": str(file), "content": "x"}, tool_use_id="w")

    done = subprocess.run(
        [sys.executable, "-m", "noclobber", "hook", "claude-code", "check"],
        input=json.dumps(payload).encode(),
        capture_output=True,
        timeout=60,
    )

    assert done.returncode == 0
    assert refusal(json.loads(done.stdout))["error_type"] == "STALE_FILE"
