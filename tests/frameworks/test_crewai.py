"""CrewAI alone: its cache, its record of failures, models without function calls, restored tools."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

for _name in ("CREWAI_DISABLE_TELEMETRY", "CREWAI_DISABLE_TRACKING", "OTEL_SDK_DISABLED"):
    os.environ.setdefault(_name, "true")
os.environ.setdefault("CREWAI_TRACING_ENABLED", "false")
# ruff: noqa: E402 - what CrewAI sends home is switched off before it is imported.
pytest.importorskip("crewai", reason="not installed here; `make frameworks` runs this")

from crewai import Agent, BaseLLM, Crew, Task
from crewai.hooks import HookAborted
from crewai.tools import BaseTool
from crewai.tools import tool as crew_tool
from crewai.tools.base_tool import _resolve_tool_dict

from noclobber import parse_stale
from noclobber.adapters.crewai import file_tools
from tests.rigs.ledgers import recorded

pytestmark = pytest.mark.wrong_errors

Step = list[tuple[str, str, dict[str, Any]]]
READ: tuple[str, dict[str, Any]] = ("read_a_files_content", {"file_path": "plan.md"})


def writes(content: str) -> tuple[str, dict[str, Any]]:
    """A call that writes the plan."""
    return "file_writer_tool", {"filename": "plan.md", "content": content, "overwrite": True}


class StepLLM(BaseLLM):
    """Asks for these calls, step by step, and then says that it is done."""

    steps: list[Any]
    said: dict[str, str]

    def supports_function_calling(self) -> bool:
        return True

    def call(self, messages: Any, *_: Any, **__: Any) -> Any:
        self.said |= {
            message["tool_call_id"]: message["content"] for message in messages if message["role"] == "tool"
        }
        step = self.steps.pop(0) if self.steps else []
        calls: Step = step() if callable(step) else step
        if not calls:
            return "Final Answer: done"
        return [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
            for call_id, name, args in calls
        ]


class WordsLLM(BaseLLM):
    """A model without function calls: it writes what it wants to do, and CrewAI reads that."""

    steps: list[Any]
    said: list[str]

    def supports_function_calling(self) -> bool:
        return False

    def call(self, messages: Any, *_: Any, **__: Any) -> str:
        self.said.append("\n".join(str(message["content"]) for message in messages))
        step = self.steps.pop(0) if self.steps else None
        if step is None:
            return "Thought: I am done.\nFinal Answer: done"
        name, args = step() if callable(step) else step
        return f"Thought: I go on.\nAction: {name}\nAction Input: {json.dumps(args)}"


def crew(tools: list[BaseTool], *steps: Step | Callable[[], Step]) -> tuple[Any, dict[str, str]]:
    """Run a crew of one agent; return its output and what each call was answered."""
    model = StepLLM(model="steps", steps=list(steps), said={})
    agent = Agent(role="writer", goal="write", backstory="writes", llm=model, tools=tools)
    task = Task(description="Work.", expected_output="done", agent=agent)
    return Crew(agents=[agent], tasks=[task]).kickoff(), model.said


def test_a_second_read_reads_the_file_and_not_crewais_cache(root: Path) -> None:
    """N-frameworks: the same call with the same arguments shows what the file holds now."""
    plan = root / "plan.md"
    plan.write_bytes(b"one\n")

    def then() -> Step:
        plan.write_bytes(b"theirs\n")
        return [("b", *READ)]

    _, said = crew(file_tools(root), [("a", *READ)], then)
    assert (said["a"], said["b"]) == ("one\n", "theirs\n")


def test_a_refusal_is_among_the_tasks_failures_with_the_object_for_a_program(root: Path) -> None:
    """009-FR-006, 011: the model gets the one object, the program the other."""
    plan = root / "plan.md"
    plan.write_bytes(b"one\n")

    def then() -> Step:
        plan.write_bytes(b"theirs\n")
        return [("b", *writes("mine\n"))]

    output, said = crew(file_tools(root), [("a", *READ)], then)
    [failed] = output.tasks_output[0].tool_failures
    assert '"recovery_hint"' in said["b"]
    assert parse_stale(said["b"]) is not None
    assert set(failed.failure.details) == {
        *("error_type", "file_path", "expected_hash", "actual_hash", "resolution")
    }
    assert failed.failure.retryable


def test_a_model_without_function_calls_is_guarded_too(root: Path) -> None:
    """N-frameworks: CrewAI's older way of calling tools, by the text of an answer."""
    plan = root / "plan.md"
    plan.write_bytes(b"one\n")

    def then() -> Any:
        plan.write_bytes(b"theirs\n")
        return "File Writer Tool", {"filename": "plan.md", "content": "mine\n", "overwrite": True}

    model = WordsLLM(
        model="words", steps=[("Read a file's content", {"file_path": "plan.md"}), then], said=[]
    )
    agent = Agent(role="writer", goal="write", backstory="writes", llm=model, tools=file_tools(root))
    Crew(agents=[agent], tasks=[Task(description="Work.", expected_output="done", agent=agent)]).kickoff()

    assert plan.read_bytes() == b"theirs\n"
    assert any("STALE_FILE" in said for said in model.said)
    [event] = recorded(root / ".noclobber" / "agent_trace.jsonl")
    assert event["identity"]["agent_id"].startswith("writer")


def test_agents_of_one_crew_that_share_tools_do_not_share_what_they_saw(root: Path) -> None:
    """N-frameworks: the second agent has read nothing; the first one's baseline is not its own."""
    plan = root / "plan.md"
    plan.write_bytes(b"one\n")
    tools = file_tools(root, unread="deny")
    models = [
        StepLLM(model="first", steps=[[("a", *READ)]], said={}),
        StepLLM(model="second", steps=[[("b", *writes("mine\n"))]], said={}),
    ]
    agents = [
        Agent(role=f"agent {number}", goal="g", backstory="b", llm=model, tools=tools)
        for number, model in enumerate(models)
    ]
    tasks = [Task(description="Work.", expected_output="done", agent=agent) for agent in agents]
    Crew(agents=agents, tasks=tasks).kickoff()

    assert "UNREAD_FILE" in models[1].said["b"]
    assert plan.read_bytes() == b"one\n"


def test_a_tool_that_a_checkpoint_restored_works(root: Path) -> None:
    """N-frameworks: CrewAI makes tools anew from what it stored of them."""
    (root / "plan.md").write_bytes(b"one\n")
    for tool in file_tools(root):
        again = _resolve_tool_dict(json.loads(tool.model_dump_json()))
        assert type(again) is type(tool)
        assert again.cache_function({}, "") is False
        if "read" in tool.name.lower():
            assert again.run(file_path="plan.md") == "one\n"


def test_a_file_that_exists_is_not_created(root: Path) -> None:
    """N-frameworks: without `overwrite` CrewAI's own words; nothing on record, for nothing collided."""
    (root / "plan.md").write_bytes(b"theirs\n")
    _, said = crew(
        file_tools(root), [("a", "file_writer_tool", {"filename": "plan.md", "content": "mine\n"})]
    )
    assert "already exists" in said["a"]
    assert not (root / ".noclobber" / "agent_trace.jsonl").exists()


def test_two_calls_that_are_the_same_have_an_id_of_ours(root: Path) -> None:
    """N-frameworks: which of the two it is cannot be told, and a wrong id is worse than another one."""
    write = ("file_writer_tool", {"filename": "plan.md", "content": "x\n", "overwrite": True})
    other = ("file_writer_tool", {"filename": "other.md", "content": "x\n", "overwrite": True})
    crew(file_tools(root), [("a", *write), ("b", *write), ("c", *other)])
    events = recorded(root / ".noclobber" / "agent_trace.jsonl")
    ids = {event["identity"]["call_id"] for event in events}
    assert "c" in ids
    assert not ids & {"a", "b"}


def test_a_tool_that_a_program_calls_itself_works(root: Path) -> None:
    """N-frameworks: no crew, no agent: the program's own turn."""
    (root / "plan.md").write_bytes(b"one\n")
    read, write = file_tools(root)
    assert read.run(file_path="plan.md") == "one\n"
    (root / "plan.md").write_bytes(b"theirs\n")
    assert parse_stale(write.run(filename="plan.md", content="mine\n", overwrite="yes").message) is not None


@pytest.mark.parametrize("name", ["file_writer_tool", "File Writer Tool"])
def test_names_that_clash_are_refused_with_the_remedy(root: Path, name: str) -> None:
    """N-frameworks: CrewAI would silently use one of the two; the model is not even asked."""

    @crew_tool(name)
    def mine(path: str) -> str:
        """Write a file."""
        return path

    guarded = file_tools(root)
    for tools in ([mine, *guarded], [*guarded, mine]):
        with pytest.raises(HookAborted, match=r"named 'file_writer_tool'.*rename"):
            crew(tools, [("a", "file_writer_tool", {"path": "plan.md"})])


@pytest.mark.parametrize("reason", ["error", "guardrail", "words"])
def test_another_try_at_a_task_has_seen_nothing(root: Path, reason: str) -> None:
    """N-frameworks, 009-FR-004: CrewAI begins with new messages, and the model may know the first try's result."""
    plan = root / "plan.md"
    plan.write_bytes(b"one\n")
    refused: list[str] = []

    def again() -> Any:
        plan.write_bytes(b"theirs\n")
        return [("b", *READ)]

    def fails() -> Any:
        raise RuntimeError("the model is not there")

    def is_enough(output: Any) -> bool:
        refused.append(output.raw)
        return len(refused) > 1

    if reason == "words":
        words = WordsLLM(
            model="words",
            steps=[
                ("Read a file's content", READ[1]),
                lambda: ("Read a file's content", again()[0][2]),
                fails,
                ("File Writer Tool", writes("mine\n")[1]),
            ],
            said=[],
        )
        agent = Agent(role="writer", goal="write", backstory="x", llm=words, tools=file_tools(root))
        Crew(agents=[agent], tasks=[Task(description="Work.", expected_output="done", agent=agent)]).kickoff()
        assert "UNREAD_FILE" in words.said[-1]
    else:
        ends: Any = fails if reason == "error" else []
        steps = [[("a", *READ)], again, ends, [("c", *writes("mine\n"))]]
        model = StepLLM(model="steps", steps=steps, said={})
        agent = Agent(role="writer", goal="write", backstory="x", llm=model, tools=file_tools(root))
        rule: dict[str, Any] = {}
        if reason == "guardrail":
            rule["guardrail"] = lambda output: (is_enough(output), output if len(refused) > 1 else "More.")
        task = Task(description="Work.", expected_output="done", agent=agent, **rule)
        Crew(agents=[agent], tasks=[task]).kickoff()
        assert "UNREAD_FILE" in model.said["c"]
    assert plan.read_bytes() == b"theirs\n"
