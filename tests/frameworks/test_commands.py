"""Commands of a framework's agent: what they change lands all together, or is refused with the exact object."""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frameworks.driver import Call, FrameworkDriver, Received, Script, read, run_command, write
from tests.frameworks.drivers import driver
from tests.frameworks.scenarios import conflicts, refused_as_stale
from tests.shell.test_process import is_available

pytestmark = [
    pytest.mark.wrong_errors,
    pytest.mark.skipif(not is_available(), reason="no namespaces here"),
]


@pytest.fixture(params=[0, 1], ids=["first way", "second way"])
def playing(framework: str, root: Path, request: pytest.FixtureRequest) -> Iterator[FrameworkDriver]:
    """The framework's driver that runs commands. One has two tools for them."""
    kinds = getattr(importlib.import_module(driver(framework).__module__), "COMMANDS", ())
    if request.param >= len(kinds):
        pytest.skip("this adapter offers no commands, or no second tool for them; its page says so")
    driving = kinds[request.param](root, guarded=True)
    yield driving
    driving.close()


def test_a_command_lands_and_its_agent_goes_on(playing: FrameworkDriver, root: Path) -> None:
    """N-frameworks, N-shell, finding E5: what it printed arrives; what it wrote is read before all of it goes."""
    (root / "plan.md").write_text("- one\n")
    received = playing.run(
        Script(
            lambda _: [read("plan.md")],
            lambda _: [run_command("echo said; echo '- two' >> plan.md")],
            lambda _: [read("plan.md")],
            lambda _: [write("plan.md", "- three\n")],
        )
    )
    assert "said" in received[1].text
    assert (root / "plan.md").read_text() == "- three\n"
    assert conflicts(root) == 0


def test_a_stale_command_is_refused_whole(playing: FrameworkDriver, root: Path) -> None:
    """N-frameworks, N-shell, 009-FR-004: somebody saved since the agent read; no other file lands either."""
    plan = root / "plan.md"
    plan.write_text("- one\n")

    def then(_: list[Received]) -> list[Call]:
        plan.write_text("- theirs\n")
        return [run_command("echo mine > plan.md; echo new > new.md")]

    received = playing.run(Script(lambda _: [read("plan.md")], then))
    assert plan.read_text() == "- theirs\n"
    assert not (root / "new.md").exists()
    assert refused_as_stale(playing, received[-1]), received[-1].text
    assert conflicts(root) == 1


def test_somebody_saves_while_a_command_runs(playing: FrameworkDriver, root: Path) -> None:
    """N-frameworks, N-shell: the command read the old version, so what it made of it is refused."""
    plan, begun, saved = root / "plan.md", root.parent / "begun", root.parent / "saved"
    plan.write_text("- one\n")
    os.mkfifo(begun)
    os.mkfifo(saved)
    command = f"cp plan.md made.md; echo > {begun}; cat {saved}; echo mine >> made.md; mv made.md plan.md"

    async def play() -> list[Received]:
        running = asyncio.ensure_future(playing.arun(Script(lambda _: [run_command(command)])))
        await asyncio.to_thread(begun.read_text)
        plan.write_text("- theirs\n")
        await asyncio.to_thread(saved.write_text, "go on\n")
        return await running

    [received] = asyncio.run(play())
    assert plan.read_text() == "- theirs\n"
    assert refused_as_stale(playing, received), received.text


def test_a_cancelled_run_ends_its_command_and_nothing_lands(playing: FrameworkDriver, root: Path) -> None:
    """N-frameworks, N-shell: the run does not wait for the command's own end."""
    begun = root.parent / "begun"
    os.mkfifo(begun)
    command = f"echo mine > plan.md; echo > {begun}; exec sleep 600"

    async def play() -> None:
        running = asyncio.ensure_future(playing.arun(Script(lambda _: [run_command(command)])))
        await asyncio.to_thread(begun.read_text)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(play())
    assert not (root / "plan.md").exists()


def test_a_failing_command_says_its_exit_code(playing: FrameworkDriver, root: Path) -> None:
    """N-frameworks: as the framework's own tool says it, and what it changed before lands."""
    received = playing.run(Script(lambda _: [run_command("echo done > made.md; echo why; exit 3")]))
    assert "why" in received[0].text
    assert (root / "made.md").read_text() == "done\n"
