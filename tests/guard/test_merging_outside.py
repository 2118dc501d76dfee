"""Stale writes that merge where a host carries them out: by edits, by other content, by the text to send."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from noclobber import ToolCall, Workspace
from noclobber.hook import held_bytes
from tests.conftest import sha256
from tests.rigs.hooks import HookRig, beside, is_denied, refusal

SEEN = "one\ntwo\nthree\nfour\nfive\nsix\n"
THEIRS = SEEN.replace("two", "THEIR TWO")
OURS = SEEN.replace("five", "OUR FIVE")
BOTH = THEIRS.replace("five", "OUR FIVE")


@pytest.fixture
def plan(rig: HookRig) -> Path:
    """A file that the agent has read, in a project that merges."""
    (rig.root / "noclobber.toml").write_text('on_stale = "merge"\n')
    path = rig.root / "plan.md"
    path.write_text(SEEN)
    rig.read(path)
    return path


def given(path: Path, content: str, name: str = "content") -> dict[str, Any]:
    return {"file_path": str(path), name: content}


def test_a_stale_edit_goes_ahead_if_it_merges(rig: HookRig, plan: Path) -> None:
    """N-merge, ruling 17: the host makes it in the current file, which gives the merged bytes."""
    plan.write_text(THEIRS)

    answer = rig.edit(plan, "five", "OUR FIVE")

    assert plan.read_text() == BOTH
    text = answer["hookSpecificOutput"]["additionalContext"]
    assert "Your write was merged with that" in text
    assert "-two\n+THEIR TWO" in text
    [event] = rig.ledger()
    assert event["payload"]["merged"] == {
        "base_hash": f"sha256:{sha256(SEEN.encode())}",
        "theirs_hash": f"sha256:{sha256(THEIRS.encode())}",
        "ours_hash": f"sha256:{sha256(OURS.encode())}",
    }
    assert event["payload"]["after_hash"] == f"sha256:{sha256(BOTH.encode())}"
    assert rig.edit(plan, "six", "6") == {}, "the merged version is the agent's own baseline"


@pytest.mark.parametrize(
    ("old", "theirs", "reason"),
    [
        ("five", SEEN.replace("five", "their five"), "The text to replace is not in the current file"),
        ("five", SEEN.replace("four", "4"), "Both changed the same lines"),
        ("five", "five\n" + SEEN.replace("five\n", ""), "In the current file the edit would go to another"),
    ],
)
def test_an_edit_that_does_not_merge_is_refused_as_ever(
    rig: HookRig, plan: Path, old: str, theirs: str, reason: str
) -> None:
    """N-merge: the exact object, and the reason beside it."""
    plan.write_text(theirs)

    answer = rig.edit(plan, old, "OUR FIVE")

    assert refusal(answer)["error_type"] == "STALE_FILE"
    assert "It was not merged: " in beside(answer)
    assert plan.read_text() == theirs


def test_the_merged_content_takes_the_place_of_what_was_sent(rig: HookRig, plan: Path) -> None:
    """N-merge: the whole input, other content in it, and no permission for anything."""
    plan.write_text(THEIRS)
    call = {**given(plan, OURS), "unknown": 1}

    answer = rig.ask("Write", call, tool_use_id="w1")

    assert answer == {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "updatedInput": {**call, "content": BOTH},
        }
    }
    assert "allow" not in json.dumps(answer)
    plan.write_text(BOTH)
    told = rig.told("Write", call, tool_use_id="w1")
    assert "-two\n+THEIR TWO" in told["hookSpecificOutput"]["additionalContext"]
    assert rig.kinds() == ["MUTATION"]
    assert rig.ledger()[0]["payload"]["merged"]["theirs_hash"] == f"sha256:{sha256(THEIRS.encode())}"


@pytest.mark.parametrize("is_told_as_sent", [True, False])
def test_a_call_without_a_name_is_known_again_by_its_new_content(
    rig: HookRig, plan: Path, is_told_as_sent: bool
) -> None:
    """N-merge: afterwards a host may tell of the call as it was sent, or as it was carried out; one event."""
    about = {"session_id": "s1", "cwd": str(rig.root), "hook_event_name": "AfterTool"}
    shown = {"tool_name": "read_file", "tool_input": {"file_path": str(plan)}}
    rig.call("gemini", {**about, **shown, "tool_response": {"llmContent": SEEN}})
    plan.write_text(THEIRS)

    def call(content: str) -> dict[str, Any]:
        return {**about, "tool_name": "write_file", "tool_input": given(plan, content)}

    answer = rig.call("gemini", {**call(OURS), "hook_event_name": "BeforeTool"}, "check")[0]
    changed = {"hookEventName": "BeforeTool", "tool_input": given(plan, BOTH)}
    assert answer == {"hookSpecificOutput": changed}, "no decision: the user is asked"
    plan.write_text(BOTH)
    done = {**call(OURS if is_told_as_sent else BOTH), "tool_response": {"llmContent": "ok"}}
    rig.call("gemini", done, "note")

    assert rig.kinds() == ["MUTATION"]
    assert "merged" in rig.ledger()[0]["payload"]
    assert "renamed" not in "".join(
        path.read_text(errors="replace") for path in rig.runtime.rglob("f*") if path.is_file()
    )


def test_where_a_host_takes_no_other_content_the_text_to_send_is_beside_the_refusal(
    rig: HookRig, plan: Path
) -> None:
    """N-merge: the object is exact; the merged text, sent as it is, lands without another read."""
    event = {"session_id": "s1", "cwd": str(rig.root), "hook_event_name": "PostToolUse"}
    shown = {"tool_name": "read_file", "tool_input": {"file_path": str(plan)}, "tool_response": SEEN}
    rig.call("qwen", {**event, **shown})
    plan.write_text(THEIRS)
    write = {**event, "hook_event_name": "PreToolUse", "tool_name": "write_file"}

    refused = rig.call("qwen", {**write, "tool_input": given(plan, OURS), "tool_use_id": "1"}, "check")[0]

    assert refusal(refused)["details"]["current_disk_hash"] == sha256(THEIRS.encode())
    mark = sha256(THEIRS.encode())[:8]
    text = beside(refused)
    merged = text[text.index(f"<<<begin {mark}>>>\n") :].removeprefix(f"<<<begin {mark}>>>\n")
    merged = merged[: merged.index(f"<<<end {mark}>>>")]
    assert merged == BOTH
    sent = rig.call("qwen", {**write, "tool_input": given(plan, merged), "tool_use_id": "2"}, "check")[0]
    assert sent == {}


def test_a_long_merged_text_is_not_put_beside_the_refusal(rig: HookRig, plan: Path) -> None:
    """N-merge: bounded in length."""
    seen = "".join(f"line {number}\n" for number in range(5000))
    plan.write_text(seen)
    event = {"session_id": "s2", "cwd": str(rig.root), "hook_event_name": "PostToolUse"}
    shown = {"tool_name": "read_file", "tool_input": {"file_path": str(plan)}, "tool_response": seen}
    rig.call("qwen", {**event, **shown})
    plan.write_text(seen.replace("line 7\n", "their 7\n"))
    sent = given(plan, seen.replace("line 4000\n", "our 4000\n"))
    write = {**event, "hook_event_name": "PreToolUse", "tool_name": "write_file", "tool_input": sent}

    refused = rig.call("qwen", write, "check")[0]

    assert is_denied(refused)
    assert len(beside(refused)) < 5000


def test_several_files_merge_or_none_is_let_through(rig: HookRig, plan: Path) -> None:
    """N-merge: a patch of two stale files goes ahead if both merge, and is refused if one does not."""
    other = rig.root / "other.md"
    other.write_text(SEEN)
    for path in (plan, other):
        seen = rig.tool("PostToolUse", "Bash", {"command": f"cat {path}"}, tool_response=SEEN)
        rig.call("codex", seen, "note")
    plan.write_text(THEIRS)
    other.write_text(SEEN.replace("five", "their five"))
    patch = "".join(f"*** Update File: {path}\n@@\n four\n-five\n+OUR FIVE\n" for path in (plan, other))
    sent = {"command": f"*** Begin Patch\n{patch}*** End Patch\n"}

    refused = rig.call("codex", rig.tool("PreToolUse", "apply_patch", sent, tool_use_id="p1"), "check")[0]
    assert refusal(refused)["details"]["path"] == str(other)

    other.write_text(THEIRS)
    assert rig.call("codex", rig.tool("PreToolUse", "apply_patch", sent, tool_use_id="p2"), "check")[0] == {}
    for path in (plan, other):
        path.write_text(BOTH)
    done = rig.tool("PostToolUse", "apply_patch", sent, tool_use_id="p2", tool_response="Exit code: 0")
    rig.call("codex", done, "note")
    assert [event["payload"].get("merged") is not None for event in rig.ledger()] == [False, True, True]


def _without_base(path: Path) -> None:
    for held in Path(os.environ["XDG_RUNTIME_DIR"]).rglob("b??"):
        held.unlink()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (_without_base, "What you read is not kept any more."),
        (lambda path: path.write_bytes(b"\0\1\2" * 50), "Both changed the same lines"),
        (lambda path: path.unlink(), ""),
        (
            lambda path: path.write_bytes(THEIRS.encode() + b"\xff\xfe\n"),
            "The merged file is not UTF-8 text.",
        ),
    ],
)
def test_what_cannot_be_merged_is_refused_with_nothing_touched(
    rig: HookRig, plan: Path, spoil: Any, reason: str
) -> None:
    """N-merge: a base that is gone, a file that became binary, was deleted, or is not text."""
    plan.write_text(THEIRS)
    spoil(plan)
    before = plan.read_bytes() if plan.exists() else None

    answer = rig.ask("Write", given(plan, OURS), tool_use_id="w")

    assert refusal(answer)["error_type"] == "STALE_FILE"
    assert reason in beside(answer)
    assert (plan.read_bytes() if plan.exists() else None) == before
    assert rig.kinds() == ["MUTATION_CONFLICT"]


@pytest.mark.parametrize("name", ["a.json", "poetry.lock"])
def test_files_that_are_only_right_as_a_whole_are_not_merged(rig: HookRig, plan: Path, name: str) -> None:
    """N-merge, ruling 17: never_merge."""
    path = plan.with_name(name)
    path.write_text(SEEN)
    rig.read(path)
    path.write_text(THEIRS)

    assert "never merged" in beside(rig.ask("Write", given(path, OURS), tool_use_id="w"))


def test_a_part_that_was_read_is_no_base(rig: HookRig, plan: Path) -> None:
    """N-merge, ruling 17: seen only in part."""
    path = plan.with_name("long.md")
    path.write_text(SEEN)
    shown = {"content": "one\ntwo", "startLine": 1, "numLines": 2, "totalLines": 6}
    ask = {"file_path": str(path), "offset": 1, "limit": 2}
    rig.call("claude-code", rig.tool("PostToolUse", "Read", ask, tool_response={"file": shown}))
    path.write_text(THEIRS)

    assert "only part of the file" in beside(rig.edit(path, "five", "OUR FIVE"))


def test_without_the_option_nothing_is_merged(rig: HookRig, plan: Path) -> None:
    """009-FR-004: refuse is the default."""
    (rig.root / "noclobber.toml").write_text("")
    plan.write_text(THEIRS)

    assert is_denied(rig.edit(plan, "five", "OUR FIVE"))
    assert is_denied(rig.ask("Write", given(plan, OURS)))


def test_a_host_that_does_not_take_the_content_overwrites_nothing_for_good(rig: HookRig, plan: Path) -> None:
    """N-merge, 009-SC-001: it wrote what was sent. Theirs is kept, on record, and the model is told."""
    plan.write_text(THEIRS)
    call = given(plan, OURS)
    rig.ask("Write", call, tool_use_id="w1")
    plan.write_text(OURS)

    told = rig.told("Write", call, tool_use_id="w1")

    assert refusal(told)["error_type"] == "MUTATION_RACE"
    assert rig.kinds() == ["MUTATION_RACE"]
    kept = [path for path in (rig.root / ".noclobber" / "kept").iterdir() if path.is_file()]
    assert [path.read_text() for path in kept] == [THEIRS]


def test_an_answer_with_other_content_that_cannot_be_printed_refuses(rig: HookRig, plan: Path) -> None:
    """N-hook, N-merge: without it the host would write what the model sent, over somebody's changes."""
    plan.write_text(THEIRS)
    payload = rig.tool("PreToolUse", "Write", given(plan, OURS), tool_use_id="w1")
    with open("/dev/full", "wb") as full:
        done = rig_process(rig, payload, full)

    assert done == 2


def rig_process(rig: HookRig, payload: Any, stdout: Any) -> int:
    import subprocess
    import sys

    from noclobber.hosts.hook_entries import START

    return subprocess.run(
        [sys.executable, "-I", "-S", START, "claude-code", "check"],
        input=json.dumps(payload).encode(),
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(rig.runtime)},
        timeout=60,
    ).returncode


def test_the_store_of_bytes_has_a_second_source(rig: HookRig, plan: Path) -> None:
    """N-merge, N-versions: bytes that the session does not hold any more may be kept as a version."""
    with Workspace(rig.root) as workspace, workspace.turn(agent_id="b") as turn:
        turn.read_file(plan)
        turn.write_file(plan, THEIRS)  # Keeps what it replaced, which is what the agent saw.
    _without_base(plan)

    rig.edit(plan, "five", "OUR FIVE")

    assert plan.read_text() == BOTH


def test_an_executor_of_a_program_may_carry_out_what_merges(root: Path) -> None:
    """N-merge: an edit by `pre_tool_use` and `post_tool_use`; the ledger says what it was made of."""
    path = root / "plan.md"
    path.write_text(SEEN)
    with Workspace(root, on_stale="merge") as workspace, workspace.turn(agent_id="a"):
        engine = workspace.engine
        engine.execute(ToolCall("read_file", {"path": "plan.md"}, agent_id="a"))
        path.write_text(THEIRS)
        edits = {"path": "plan.md", "edits": [{"oldText": "five", "newText": "OUR FIVE"}]}
        call = ToolCall("edit_file", edits, agent_id="a", call_id="c1")
        assert engine.pre_tool_use(call).allowed
        path.write_text(BOTH)
        assert engine.post_tool_use(call, "done") is None
        [event] = [event for event in workspace.ledger.events() if event["action_type"] == "MUTATION"]
    assert "merged" in event["payload"]


def test_bytes_that_are_too_many_to_hold_are_no_base(rig: HookRig, plan: Path) -> None:
    """N-merge: the store is bounded, and then the write is refused."""
    seen = "".join(f"line {number}\n" for number in range(held_bytes.MOST_BYTES // 8))
    plan.write_text(seen)
    rig.read(plan)
    plan.write_text(seen.replace("line 7\n", "their 7\n"))

    assert is_denied(rig.edit(plan, "line 4000\n", "our 4000\n"))


def _forged(folder: Path) -> None:
    for kept in folder.rglob("*"):
        if kept.is_file():
            kept.write_bytes(b"forged\n")


def _replaced_by_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_bytes(b"")


def _open_to_others(folder: Path) -> None:
    folder.chmod(0o755)


@pytest.mark.parametrize("spoil", [_forged, _replaced_by_a_file, _open_to_others])
def test_versions_that_cannot_be_trusted_are_no_base(rig: HookRig, plan: Path, spoil: Any) -> None:
    """N-merge, N-versions: forged, no folder, not private: the refusal that there would have been without merging."""
    with Workspace(rig.root) as workspace, workspace.turn(agent_id="b") as turn:
        turn.read_file(plan)
        turn.write_file(plan, THEIRS)
    _without_base(plan)
    [folder] = (rig.root / ".noclobber").glob("versions.*")
    spoil(folder)

    answer = rig.edit(plan, "five", "OUR FIVE")

    assert "What you read is not kept any more." in beside(answer)
    assert plan.read_text() == THEIRS
