"""OpenAI Agents SDK: runs, sessions, saved states and handovers; what the program is told; names that clash."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents", reason="not installed here; `make frameworks` runs this")

from agents import RunConfig, Runner, RunState, function_tool, handoff
from agents.extensions.handoff_filters import remove_all_tools

from noclobber.adapters.openai_agents import guarded_tools
from noclobber.core.wire import parse_refusal
from noclobber.errors import BadRequestError
from tests.frameworks.driver import Call, Received, Script, read, write
from tests.frameworks.drivers.openai_agents import (
    CommandsDriver,
    Driver,
    LocalCommandsDriver,
)
from tests.frameworks.scenarios import refused_as_stale
from tests.shell.test_process import is_available

pytestmark = pytest.mark.wrong_errors
QUIET = RunConfig(tracing_disabled=True)


def test_the_next_run_reads_before_it_writes(root: Path) -> None:
    """N-frameworks: a session's history may show a version that is gone by now."""
    plan = root / "plan.md"
    plan.write_text("one\n")
    playing = Driver(root, guarded=True)
    playing.run(Script(lambda _: [read("plan.md")]), thread="t")
    received = playing.run(Script(lambda _: [write("plan.md", "mine\n")], name="r"), thread="t")
    refused = parse_refusal(received[-1].text)
    assert refused is not None
    assert refused[0] == "UNREAD_FILE"
    assert plan.read_text() == "one\n"


@pytest.mark.parametrize("is_changed", [False, True], ids=["nobody came", "somebody saved"])
def test_a_saved_run_that_a_person_approved_is_held_to_what_is_there(root: Path, is_changed: bool) -> None:
    """N-frameworks: restored from its saved state, it must not write from a version that it cannot name."""
    plan = root / "plan.md"
    plan.write_text("one\n")
    playing = Driver(root, guarded=True)
    for tool in playing.tools:
        if tool.name == "write_file":
            tool.needs_approval = True
    script = Script(lambda _: [read("plan.md")], lambda _: [write("plan.md", "mine\n")])
    agent = playing.agent(script)

    async def play() -> None:
        paused = await Runner.run(agent, "go", run_config=QUIET)
        [asked] = paused.interruptions
        saved = paused.to_state().to_json()
        if is_changed:
            plan.write_text("theirs\n")
        state: Any = await RunState.from_json(agent, saved)
        [asked] = state.get_interruptions()
        state.approve(asked)
        await Runner.run(agent, state, run_config=QUIET)

    asyncio.run(play())
    refused = parse_refusal(script.received[-1].text)
    assert refused is not None
    assert refused[0] == "UNREAD_FILE"
    assert plan.read_text() == ("theirs\n" if is_changed else "one\n")


def test_names_that_clash_are_refused_with_the_remedy(root: Path) -> None:
    """N-frameworks: a model could not say which of the two it means."""

    @function_tool
    def read_file(path: str) -> str:
        """Read."""
        return path

    with pytest.raises(BadRequestError, match='pass prefix="fs_"'):
        guarded_tools(root, beside=[read_file])
    names = [tool.name for tool in guarded_tools(root, beside=[read_file], prefix="fs_")]
    assert "fs_read_file" in names


@pytest.mark.skipif(not is_available(), reason="no namespaces here")
def test_commands_of_one_call_land_one_by_one_until_one_is_refused(root: Path) -> None:
    """N-frameworks, N-shell: what landed before is told beside the refusal, and what follows is not run."""
    plan = root / "plan.md"
    plan.write_text("one\n")

    def then(_: list[Received]) -> list[Call]:
        plan.write_text("theirs\n")
        asked = ["echo said; echo new > new.md", "echo mine > plan.md", "touch never"]
        return [Call("run", "", raw={"commands": asked})]

    playing = CommandsDriver(root, guarded=True)
    received = playing.run(Script(lambda _: [read("plan.md")], then))
    first, _, rest = received[-1].text.partition("\n")
    assert first == "said"
    assert refused_as_stale(playing, received[-1]._replace(text=rest.strip()))
    assert (root / "new.md").read_text() == "new\n"
    assert plan.read_text() == "theirs\n"
    assert not (root / "never").exists()


@pytest.mark.skipif(not is_available(), reason="no namespaces here")
def test_a_local_command_runs_in_its_folder_with_its_environment(root: Path) -> None:
    """N-frameworks, N-shell: as the model asked; another user is refused, with the reason."""
    (root / "sub").mkdir()
    asked = {"working_directory": "sub", "env": {"WHAT": "made"}}
    playing = LocalCommandsDriver(root, guarded=True)
    received = playing.run(
        Script(
            lambda _: [Call("run", "", 'echo "$WHAT" > here.md', raw=asked)],
            lambda _: [Call("run", "", "touch never", raw={"user": "root"})],
        )
    )
    assert (root / "sub" / "here.md").read_text() == "made\n"
    assert "without a user" in received[1].text
    assert not (root / "never").exists()


@pytest.mark.skipif(not is_available(), reason="no namespaces here")
def test_a_command_whose_time_is_over_lands_nothing(root: Path) -> None:
    """N-frameworks, N-shell: the model hears that it was ended, and what became of its changes."""
    playing = LocalCommandsDriver(root, guarded=True)
    call = Call("run", "", "echo mine > plan.md; exec sleep 600", raw={"timeout_ms": 300})
    [received] = playing.run(Script(lambda _: [call]))
    assert "nothing of it landed" in received.text
    assert not (root / "plan.md").exists()


@pytest.mark.parametrize(
    ("is_filtered", "is_changed", "says"),
    [(False, False, None), (False, True, "STALE_FILE"), (True, False, "UNREAD_FILE")],
    ids=["nobody came", "somebody saved", "a filter took the read out"],
)
def test_an_agent_that_takes_over_knows_what_its_history_shows(
    root: Path, is_filtered: bool, is_changed: bool, says: str | None
) -> None:
    """N-frameworks, 009-FR-004: it shares the run's snapshot, unless its model may not have the reads."""
    plan = root / "plan.md"
    plan.write_text("one\n")
    playing = Driver(root, guarded=True)

    def takes_over(_: list[Received]) -> list[Call]:
        if is_changed:
            plan.write_text("theirs\n")
        return [Call("write", "plan.md", raw={"path": "plan.md", "content": "mine\n"})]

    second = Script(takes_over, name="s")
    builder = playing.agent(second, "builder")
    to_builder = handoff(builder, input_filter=remove_all_tools if is_filtered else None)

    first = Script(lambda _: [read("plan.md")], lambda _: [Call("handoff", "")], name="f")
    triage = playing.agent(first, "triage", handoffs=[to_builder])
    done = asyncio.run(Runner.run(triage, "go", run_config=QUIET))
    assert done.last_agent is builder
    text = second.received[-1].text
    assert f'{{"error_type":"{says}"' in text if says else "error_type" not in text, text
    assert plan.read_text() == ("mine\n" if says is None else "theirs\n" if is_changed else "one\n")
