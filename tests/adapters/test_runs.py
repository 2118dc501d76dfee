"""Which turn a framework's tool call belongs to, and when what was seen is forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from noclobber import Edit, StaleFileError, UnreadFileError, Workspace
from noclobber.adapters import runs
from noclobber.adapters.runs import Caller, RunTurns
from tests.rigs.ledgers import recorded


@pytest.fixture
def turns(root: Path) -> Iterator[RunTurns]:
    (root / "plan.md").write_bytes(b"- one\n")
    with Workspace(root) as workspace:
        yield RunTurns(workspace, "a-framework")


def test_calls_of_one_run_share_a_turn_and_agents_do_not(turns: RunTurns) -> None:
    """N-frameworks: a subagent's instance has a snapshot of its own."""
    main = Caller("main", run_id="r1")
    assert turns.turn(main) is turns.turn(main._replace(call_id="2"))
    helper = Caller("helper", run_id="r1", branch="b1")
    other = Caller("helper", run_id="r1", branch="b2")
    assert len({id(turns.turn(each)) for each in (main, helper, other)}) == 3
    turns.turn(main).read_file("plan.md")
    assert turns.turn(helper).get_initial_hash("plan.md") is None


def test_a_run_without_a_session_may_create_and_overwrite_as_the_options_say(turns: RunTurns) -> None:
    """ruling 7: files that were never read are not checked; such a run has no past."""
    turns.turn(Caller(run_id="r1")).write_file("plan.md", "new\n")


def test_a_session_that_may_have_a_past_reads_before_it_writes(turns: RunTurns, root: Path) -> None:
    """N-frameworks: resumed from somebody's checkpoint, in a new process, without a word about messages."""
    resumed = turns.turn(Caller(session_id="thread", run_id="r9"))
    with pytest.raises(UnreadFileError):
        resumed.write_file("plan.md", "from memory\n")
    resumed.write_file("new.md", "nobody's yet\n")
    resumed.read_file("plan.md")
    resumed.write_file("plan.md", "- two\n")


def test_what_was_seen_counts_in_the_next_run_if_the_model_still_has_the_messages(
    turns: RunTurns, root: Path
) -> None:
    """ruling 14: kept across runs of a thread, and a change in between is stale."""
    first = Caller(session_id="t", run_id="r1", memory={"m1"}, mark="m1")
    turns.turn(first).read_file("plan.md")
    turns.end(first)
    second = Caller(session_id="t", run_id="r2", memory={"m1", "m2"}, mark="m2")
    turns.turn(second).write_file("plan.md", "- two\n")
    (root / "plan.md").write_bytes(b"- theirs\n")
    third = Caller(session_id="t", run_id="r3", memory={"m1", "m2", "m3"}, mark="m3")
    with pytest.raises(StaleFileError):
        turns.turn(third).write_file("plan.md", "- three\n")


def test_a_rewound_model_has_lost_what_it_saw_since(turns: RunTurns, root: Path) -> None:
    """
    N-frameworks: the run is resumed from a checkpoint before the second read.

    The snapshot knows their version, this model does not: its write would pass and take their line away.
    """
    turns.turn(Caller(session_id="t", run_id="r1", memory={"m1"}, mark="m1")).read_file("plan.md")
    (root / "plan.md").write_bytes(b"- one\n- theirs\n")
    turns.turn(Caller(session_id="t", run_id="r1", memory={"m1", "m2"}, mark="m2")).read_file("plan.md")
    rewound = Caller(session_id="t", run_id="r2", memory={"m1", "m9"}, mark="m9")
    with pytest.raises(UnreadFileError):
        turns.turn(rewound).write_file("plan.md", "- one\n- mine\n")
    assert (root / "plan.md").read_bytes() == b"- one\n- theirs\n"


def test_a_fresh_conversation_is_not_strict(turns: RunTurns) -> None:
    """N-frameworks: no message but the one that asks, so there is nothing to remember wrongly."""
    turns.turn(Caller(session_id="t", run_id="r1", memory={"m1"}, mark="m1")).write_file("plan.md", "x\n")


def test_an_agent_that_was_pushed_out_is_strict_when_it_comes_back(
    turns: RunTurns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-frameworks: forgotten strictly, never silently."""
    monkeypatch.setattr(runs, "MOST_RUNS", 2)
    early = Caller(run_id="r0")
    turns.turn(early).read_file("plan.md")
    for number in range(1, 4):
        turns.turn(Caller(run_id=f"r{number}"))
    with pytest.raises(UnreadFileError):
        turns.turn(early).write_file("plan.md", "x\n")


def test_a_write_is_not_made_from_what_a_read_of_the_same_step_shows(turns: RunTurns, root: Path) -> None:
    """
    N-frameworks, 009-FR-004: after a refusal a model asks for `[read, write]` in one message.

    The read moves the baseline; the write was made before its answer was there, and would take their line away.
    """
    first = Caller(run_id="r", step="1")
    with turns.call(first) as turn:
        turn.read_file("plan.md")
    (root / "plan.md").write_bytes(b"- one\n- theirs\n")
    second = first._replace(step="2")
    with turns.call(second) as turn:
        turn.read_file("plan.md")
    with turns.call(second) as turn, pytest.raises(StaleFileError):
        turn.write_file("plan.md", "- one\n- mine\n")
    with turns.call(second) as turn, pytest.raises(StaleFileError):
        turn.edit_file("plan.md", [Edit("- one", "- 1")])
    with turns.call(first._replace(step="3")) as turn:
        turn.write_file("plan.md", "- one\n- theirs\n- mine\n")


def test_identity_reaches_the_ledger(turns: RunTurns, root: Path) -> None:
    """N-frameworks: agent, thread, run and host."""
    caller = Caller("helper", session_id="thread-7", run_id="run-3", branch="0123456789abcdef")
    turns.turn(caller).write_file("new.md", "x\n")
    [event] = recorded(root / ".noclobber" / "agent_trace.jsonl")
    identity = event["identity"]
    assert identity["agent_id"] == "helper/0123456789ab"
    assert identity["session_id"] == "thread-7"
    assert identity["host"] == "a-framework"
    assert event["intent_id"] == "run-3" if "intent_id" in event else identity["intent_id"] == "run-3"


def test_a_program_hears_what_others_changed_in_every_agents_turn(turns: RunTurns, root: Path) -> None:
    """N-notice: a framework's turns are made by its adapter, so the workspace has the function."""
    told: list[tuple[str, list[str]]] = []
    turns.workspace.on_changes = lambda turn, changes: told.append(
        (turn.agent_id, [change.path for change in changes])
    )
    agent = turns.turn(Caller("main", run_id="r1"))
    agent.read_file("plan.md")
    (root / "plan.md").write_bytes(b"- theirs\n")
    agent.write_file("other.md", "x\n")
    assert [who for who, _ in told] == ["main"]
    assert told[0][1][0].endswith("plan.md")
