"""What only LangGraph has: checkpoints that one can go back to, interrupts, middleware, the community's tools."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from noclobber import BadRequestError, parse_stale
from noclobber.core.wire import parse_refusal
from tests.rigs.ledgers import recorded

pytest.importorskip("deepagents", reason="deepagents is not installed here; `make frameworks` runs this")

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from noclobber.adapters.deepagents import GuardedBackend
from noclobber.adapters.langchain_community import guarded_file_tools
from tests.frameworks.driver import Script, read, write
from tests.frameworks.drivers.deepagents import Driver, ScriptedModel

pytestmark = pytest.mark.wrong_errors
CONFIG = {"configurable": {"thread_id": "t"}, "recursion_limit": 100}
GO = {"messages": [HumanMessage("go")]}


@pytest.fixture(autouse=True)
def _only_here(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--framework", default=None) not in (None, "deepagents"):
        pytest.skip("this is about deepagents and LangChain")


@pytest.fixture
def playing(root: Path) -> Iterator[Driver]:
    (root / "plan.md").write_bytes(b"- one\n")
    playing = Driver(root, guarded=True)
    yield playing
    playing.close()


def last_answer(state: Any) -> ToolMessage:
    """The last tool result in a state."""
    return next(each for each in reversed(state["messages"]) if isinstance(each, ToolMessage))


def test_a_run_that_is_rewound_does_not_know_what_it_saw_later(playing: Driver, root: Path) -> None:
    """
    N-frameworks: resumed from the checkpoint before its second read, in the same process.

    The snapshot of the thread knows their version. The model of the fork knows the first one only, and writes
    from that: checked against the snapshot, it would pass and take their line away.
    """
    script = Script(lambda _: [read("plan.md")], lambda _: self_and_theirs())

    def self_and_theirs() -> list[Any]:
        (root / "plan.md").write_bytes(b"- one\n- theirs\n")
        return [read("plan.md")]

    agent = playing.agent({"go": script})
    agent.invoke(GO, CONFIG)
    history = list(agent.get_state_history(CONFIG))
    before = next(
        state
        for state in history
        if state.next
        and state.values.get("messages")
        and isinstance(state.values["messages"][-1], ToolMessage)
        and sum(isinstance(each, ToolMessage) for each in state.values["messages"]) == 1
    )
    fork = playing.agent({"go": Script(lambda _: [write("plan.md", "- one\n- mine\n")], name="f")})
    done = fork.invoke(None, before.config)
    assert (root / "plan.md").read_bytes() == b"- one\n- theirs\n"
    assert parse_refusal(last_answer(done).content) is not None
    assert "UNREAD_FILE" in str(last_answer(done).content)


@pytest.mark.parametrize("meanwhile", [None, b"- theirs\n"], ids=["nobody", "somebody saves"])
def test_a_write_that_a_person_approved_is_held_to_what_its_model_saw(
    playing: Driver, root: Path, meanwhile: bytes | None
) -> None:
    """N-frameworks: human in the loop. The run goes on with what it saw; a save while the person thought is stale."""
    script = Script(lambda _: [read("plan.md")], lambda _: [write("plan.md", "- two\n")])
    agent = playing.agent({"go": script}, interrupt_on={"write_file": True})
    paused = agent.invoke(GO, CONFIG)
    assert "__interrupt__" in paused
    if meanwhile is not None:
        (root / "plan.md").write_bytes(meanwhile)
    done = agent.invoke(Command(resume={"decisions": [{"type": "approve"}]}), CONFIG)
    if meanwhile is None:
        assert (root / "plan.md").read_bytes() == b"- two\n"
    else:
        assert (root / "plan.md").read_bytes() == meanwhile
        assert parse_stale(last_answer(done).content) is not None


def test_the_next_question_in_a_thread_knows_what_was_read_before(playing: Driver, root: Path) -> None:
    """ruling 14: the model still has the message, so no second read is needed, and a change is stale."""
    playing.run(Script(lambda _: [read("plan.md")]), thread="t")
    [landed] = playing.run(Script(lambda _: [write("plan.md", "- two\n")], name="b"), thread="t")
    assert not landed.is_error
    (root / "plan.md").write_bytes(b"- theirs\n")
    [refused] = playing.run(Script(lambda _: [write("plan.md", "- three\n")], name="c"), thread="t")
    assert parse_stale(refused.text) is not None


def test_a_step_that_reads_and_writes_at_once_is_held_to_what_was_seen_before(
    playing: Driver, root: Path
) -> None:
    """N-frameworks: the write was made before the read's answer was there."""

    def both(_: list[Any]) -> list[Any]:
        (root / "plan.md").write_bytes(b"- one\n- theirs\n")
        return [read("plan.md"), write("plan.md", "- one\n- mine\n")]

    answers = playing.run(Script(lambda _: [read("plan.md")], both))
    assert parse_stale(answers[-1].text) is not None
    assert (root / "plan.md").read_bytes() == b"- one\n- theirs\n"


def test_threads_agents_and_calls_are_on_record(playing: Driver, root: Path) -> None:
    """N-frameworks: identity reaches the ledger."""
    playing.run(Script(lambda _: [write("new.md", "x\n")]), agent="builder", thread="thread-7")
    [event] = recorded(root / ".noclobber" / "agent_trace.jsonl")
    identity = event["identity"]
    assert (identity["agent_id"], identity["session_id"], identity["host"]) == (
        "builder",
        "thread-7",
        "langgraph",
    )
    assert identity["call_id"].startswith("call")


def play(agent: Any) -> list[ToolMessage]:
    """Run an agent of LangChain's and return its tool results."""
    return [each for each in agent.invoke(GO)["messages"] if isinstance(each, ToolMessage)]


def scripted(*steps: Callable[[], list[tuple[str, dict[str, Any]]]]) -> ScriptedModel:
    """A model that calls what each step returns: names and arguments."""
    left = list(steps)

    def answer(results: dict[str, Any]) -> AIMessage:
        calls = left.pop(0)() if left else []
        numbered = [
            {"name": name, "args": given, "id": f"c{len(results)}-{number}", "type": "tool_call"}
            for number, (name, given) in enumerate(calls)
        ]
        return AIMessage(content="" if calls else "done", tool_calls=numbered)

    return ScriptedModel(scripts={"go": answer}, arguments=None)


def test_the_communitys_file_tools_are_guarded_under_their_own_names(root: Path) -> None:
    """N-frameworks: in place of `FileManagementToolkit`."""
    plan = root / "plan.md"
    plan.write_bytes(b"one\r\n")

    def then() -> list[tuple[str, dict[str, Any]]]:
        plan.write_bytes(b"theirs\r\n")
        return [("write_file", {"file_path": "plan.md", "text": "mine\n"})]

    model = scripted(
        lambda: [("read_file", {"file_path": "plan.md"})],
        lambda: [("write_file", {"file_path": "plan.md", "text": "two\n", "append": True})],
        then,
        lambda: [("copy_file", {"source_path": "plan.md", "destination_path": "copy.md"})],
        lambda: [("list_directory", {})],
    )
    answers = play(create_agent(model, tools=guarded_file_tools(root)))
    assert [answer.status for answer in answers] == ["success", "success", "error", "success", "success"]
    assert parse_stale(answers[2].content) is not None
    assert plan.read_bytes() == (root / "copy.md").read_bytes() == b"theirs\r\n"
    assert answers[4].content == "copy.md\nplan.md"


def test_noclobbers_tools_do_not_take_a_name_of_ones_own(root: Path) -> None:
    """N-frameworks: bad input of a program is named before the run."""

    @tool
    def read_file(path: str) -> str:
        """One's own."""
        return path

    with pytest.raises(BadRequestError, match=r"'read_file'.*selected_tools"):
        guarded_file_tools(root, beside=[read_file])
    with pytest.raises(BadRequestError, match="no such folder"):
        GuardedBackend(root / "typo")
    held = GuardedBackend(root, unread="deny")
    with pytest.raises(BadRequestError, match="unread"):
        guarded_file_tools(root)
    assert held.workspace.root == str(root)


def test_a_resumed_thread_in_a_new_process_reads_before_it_writes(playing: Driver, root: Path) -> None:
    """N-frameworks: also if nothing was changed, because nobody here can say which version the model saw."""
    saver = InMemorySaver()
    playing.saver = saver
    playing.run(Script(lambda _: [read("plan.md")]), thread="t")
    playing.restart()
    answers = playing.run(
        Script(
            lambda _: [write("plan.md", "- two\n")],
            lambda _: [read("plan.md")],
            lambda _: [write("plan.md", "- two\n")],
            name="r",
        ),
        thread="t",
    )
    assert "UNREAD_FILE" in answers[0].text
    assert (root / "plan.md").read_bytes() == b"- two\n"
