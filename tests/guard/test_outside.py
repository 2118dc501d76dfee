"""A host that is so slow that another agent takes its claim over, and both write the same."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from noclobber import HookEngine, StaleFileError, ToolCall, Workspace
from noclobber.guard import claims
from noclobber.guard.recording import Recorder
from tests.conftest import sha256
from tests.rigs.hooks import HookRig, refusal


def test_of_two_hosts_that_count_to_the_same_number_one_is_told(
    rig: HookRig, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding E1: after a claim was taken over, equal content does not mean that nobody else has written."""
    monkeypatch.setattr(claims, "TAKE_OVER_S", 0.0)
    file = root / "count"
    file.write_text("3\n")
    slow, quick = rig, HookRig(root, rig.runtime, "s2")
    given = {"file_path": str(file), "content": "4\n"}
    for each in (slow, quick):
        each.read(file)
    assert slow.ask("Write", given, tool_use_id="slow") == {}
    assert quick.write(file, "4\n") == {}
    file.write_text("4\n")
    told = refusal(slow.told("Write", given, tool_use_id="slow"))
    assert told["error_type"] == "STALE_FILE"
    assert told["details"]["baseline_hash"] == sha256(b"3\n")
    assert rig.kinds() == ["MUTATION", "MUTATION_RACE"]
    assert refusal(slow.write(file, "5\n"))["error_type"] == "UNREAD_FILE"


@pytest.mark.parametrize("order", ["the one that lost its claim tells first", "the other one tells first"])
def test_one_of_two_hosts_is_told_whichever_tells_first(
    rig: HookRig, root: Path, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """finding E1: the one that lost its claim told of its write first, and neither heard of the other."""
    monkeypatch.setattr(claims, "TAKE_OVER_S", 0.0)
    file = root / "count"
    file.write_text("3\n")
    hosts = rig, HookRig(root, rig.runtime, "s2")
    given = {"file_path": str(file), "content": "4\n"}
    for each in hosts:
        each.read(file)
    for each in hosts:
        assert each.ask("Write", given, tool_use_id="w") == {}
    file.write_text("4\n")
    first, second = hosts if order.startswith("the one that lost") else reversed(hosts)
    assert first.told("Write", given, tool_use_id="w") == {}
    assert refusal(second.told("Write", given, tool_use_id="w"))["error_type"] == "STALE_FILE"
    assert rig.kinds() == ["MUTATION", "MUTATION_RACE"]


def test_a_guarded_write_that_waited_for_a_slow_host_is_not_lost_silently(
    rig: HookRig, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding E1: a program waits for a claim for less time than a host may need, and both write the same."""
    monkeypatch.setattr(claims, "TAKE_OVER_S", 0.0)
    file = root / "count"
    file.write_text("3\n")
    rig.read(file)
    given = {"file_path": str(file), "content": "4\n"}
    assert rig.ask("Write", given, tool_use_id="w") == {}
    with Workspace(root) as workspace, workspace.turn(agent_id="program") as turn:
        turn.read_file(file)
        turn.write_file(file, "4\n")
    file.write_text("4\n")
    assert refusal(rig.told("Write", given, tool_use_id="w"))["error_type"] == "STALE_FILE"
    assert rig.kinds() == ["MUTATION", "MUTATION_RACE"]


def test_a_guarded_write_that_is_not_yet_on_record_counts(
    rig: HookRig, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding E1: it had landed, and the host wrote the same over it and told of that before it was recorded."""
    monkeypatch.setattr(claims, "TAKE_OVER_S", 0.0)
    file = root / "count"
    file.write_text("3\n")
    rig.read(file)
    given = {"file_path": str(file), "content": "4\n"}
    assert rig.ask("Write", given, tool_use_id="w") == {}
    answers = []
    host = threading.Thread(target=lambda: answers.append(rig.told("Write", given, tool_use_id="w")))
    landed = Recorder.landed

    def late(self: Recorder, call: ToolCall, *about: Any, **more: Any) -> Any:
        if call.agent_id == "program":
            file.write_text("4\n")
            host.start()
            host.join(0.3)
        return landed(self, call, *about, **more)

    monkeypatch.setattr(Recorder, "landed", late)
    with Workspace(root) as workspace, workspace.turn(agent_id="program") as turn:
        turn.read_file(file)
        turn.write_file(file, "4\n")
    host.join()
    assert refusal(answers[0])["error_type"] == "STALE_FILE"
    assert rig.kinds() == ["MUTATION", "MUTATION_RACE"]


def test_a_write_that_is_recorded_late_is_no_race_for_who_has_seen_it(rig: HookRig, root: Path) -> None:
    """009-SC-002: an event comes just after its write, so it may be younger than the next host's question."""
    file = root / "count"
    file.write_text("3\n")
    rig.read(file)
    given = {"file_path": str(file), "content": "4\n"}
    assert rig.ask("Write", given, tool_use_id="w") == {}
    with Workspace(root) as workspace:
        three = f"sha256:{sha256(b'3' + bytes([10]))}"
        hashes = {"before_hash": "ABSENT", "after_hash": three}
        payload = {"tool_name": "w", "target_file": "count", **hashes, "level": "plain"}
        result = {"status": "APPLIED"}
        workspace.ledger.append({"action_type": "MUTATION", "payload": payload, "result": result})
    file.write_text("4\n")
    assert rig.told("Write", given, tool_use_id="w") == {}


def test_of_two_programs_that_carry_writes_out_themselves_one_is_told(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding E1: and who writes twice is told nothing about its own first write."""
    monkeypatch.setattr(claims, "TAKE_OVER_S", 0.0)
    file = root / "count"
    file.write_text("3\n")

    def call(agent: str, content: str) -> ToolCall:
        return ToolCall("write_file", {"path": str(file), "content": content}, agent_id=agent, turn_id=agent)

    with (
        Workspace(root) as workspace,
        workspace.turn(agent_id="slow", turn_id="slow") as slow,
        workspace.turn(agent_id="quick", turn_id="quick") as quick,
    ):
        engine = HookEngine(workspace)
        for turn in (slow, quick):
            turn.read_file(file)
        for name in ("slow", "quick"):
            assert engine.pre_tool_use(call(name, "4\n")).allowed
        file.write_text("4\n")
        assert engine.post_tool_use(call("slow", "4\n"), None) is None
        assert isinstance(engine.post_tool_use(call("quick", "4\n"), None), StaleFileError)
        slow.read_file(file)
        assert engine.pre_tool_use(call("slow", "5\n")).allowed
        file.write_text("5\n")
        assert engine.post_tool_use(call("slow", "5\n"), None) is None


def test_a_host_that_was_slow_and_alone_is_told_nothing(rig: HookRig, root: Path) -> None:
    """009-SC-002: a claim that is gone, and nobody has written, is no race."""
    file = root / "count"
    file.write_text("3\n")
    rig.read(file)
    given = {"file_path": str(file), "content": "4\n"}
    assert rig.ask("Write", given, tool_use_id="slow") == {}
    claims.release_all(str(root), next(claim.owner for claim in claims.live(str(root))))
    file.write_text("4\n")
    assert rig.told("Write", given, tool_use_id="slow") == {}
    assert rig.kinds() == ["MUTATION"]
