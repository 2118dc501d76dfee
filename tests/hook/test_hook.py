"""A hook's way with one session: what it lets through, what it refuses, and what it remembers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from noclobber import DeliverableLock
from noclobber.core import wire
from noclobber.core.actions import Action, CallResult, Shown
from noclobber.core.values import WHOLE, Edit
from noclobber.disk.reading import FileState
from noclobber.guard import claims
from noclobber.guard.outcome import foresee
from noclobber.guard.shown import seen_part
from noclobber.text.host_edits import HostEdits
from tests.conftest import sha256
from tests.rigs.hooks import HookRig, is_denied, refusal

# -- before a write ---------------------------------------------------------------------------------------


def test_a_stale_edit_is_refused_with_exactly_the_009_object(rig: HookRig, file: Path) -> None:
    """009-FR-004, 009-FR-006, 009-SC-004: keys and constants to the letter, on a line of its own."""
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

    assert "decision" not in told  # Finding H6: added to the result, never in its place.
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


# -- the process --------------------------------------------------------------------------------------------


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
