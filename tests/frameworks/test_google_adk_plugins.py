"""Google ADK with a plugin that answers for tools that failed, and tools that use the guarded environment."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.adk", reason="not installed here; `make frameworks` runs this")

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.plugins import BasePlugin, ReflectAndRetryToolPlugin
from google.adk.runners import Runner

from noclobber import parse_stale
from noclobber.adapters import google_adk
from noclobber.adapters.google_adk import GuardedFilesPlugin
from tests.frameworks.test_google_adk import Stage, Step, StepModel

pytestmark = pytest.mark.wrong_errors

OURS_FIRST = pytest.mark.parametrize("is_ours_first", [True, False], ids=["ours first", "ours last"])


class Retrying(Stage):
    """A stage with one more plugin."""

    def __init__(
        self, plugin: GuardedFilesPlugin, tools: list[Any], other: BasePlugin, *, is_ours_first: bool
    ) -> None:
        super().__init__(plugin, tools)
        self._plugins = [self.plugin, other] if is_ours_first else [other, self.plugin]

    def runner(self, *steps: Any) -> Runner:
        model = StepModel(model="steps", steps=list(steps))
        agent = LlmAgent(name="writer", model=model, tools=self.tools or [])
        app = App(name="app", root_agent=agent, plugins=[*self._plugins])
        return Runner(app=app, session_service=self.sessions)


@OURS_FIRST
def test_a_read_that_failed_and_is_answered_by_another_plugin_has_shown_nothing(
    root: Path, is_ours_first: bool
) -> None:
    """N-frameworks, 009-FR-004: the model was told of an error, so it still knows the old version only."""
    plan = root / "plan.md"
    plan.write_bytes(b"one\n")
    plugin = GuardedFilesPlugin(root)
    is_down: list[bool] = []

    async def load(path: str) -> str:
        text = (await plugin.environment.read_file(path)).decode()
        if is_down:
            raise RuntimeError("the connection is down")
        return text

    async def save(path: str, body: str) -> str:
        await plugin.environment.write_file(path, body)
        return "saved"

    def then() -> Step:
        plan.write_bytes(b"theirs\n")
        is_down.append(True)
        return [("b", "load", {"path": "plan.md"})]

    stage = Retrying(plugin, [load, save], ReflectAndRetryToolPlugin(), is_ours_first=is_ours_first)
    _, said = stage.run(
        [("a", "load", {"path": "plan.md"})], then, [("c", "save", {"path": "plan.md", "body": "mine\n"})]
    )
    assert said["b"]["retry_count"] == 1
    assert parse_stale(said["c"]["error"]) is not None
    assert plan.read_bytes() == b"theirs\n"


@OURS_FIRST
def test_a_write_that_failed_keeps_nobody_waiting(
    root: Path, is_ours_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-frameworks: calls of one step queue for a file; one that failed lets the next one in."""
    monkeypatch.setattr(google_adk, "WAIT_S", 3600.0)
    (root / "plan.md").write_bytes(b"one\n")
    plugin = GuardedFilesPlugin(root)
    tried: list[str] = []

    async def save(path: str, body: str) -> str:
        await plugin.environment.read_file(path)
        tried.append(body)
        if len(tried) == 1:
            raise RuntimeError("the disk is full")
        await plugin.environment.write_file(path, body)
        return "saved"

    stage = Retrying(plugin, [save], ReflectAndRetryToolPlugin(), is_ours_first=is_ours_first)
    calls: Step = [(name, "save", {"path": "plan.md", "body": f"{name}\n"}) for name in ("a", "b", "c")]
    _, said = stage.run(calls, [("d", "save", {"path": "plan.md", "body": "d\n"})])
    assert [name for name in said if "retry_count" in said[name]] == [tried[0].strip()]
    assert (root / "plan.md").read_bytes() == b"d\n"


@OURS_FIRST
def test_a_write_that_is_tried_again_is_judged_again(root: Path, is_ours_first: bool) -> None:
    """N-frameworks, 009-FR-004: somebody saved between the first try and the second."""
    plan = root / "plan.md"
    plan.write_bytes(b"one\n")
    plugin = GuardedFilesPlugin(root)
    tried: list[str] = []

    async def load(path: str) -> str:
        return (await plugin.environment.read_file(path)).decode()

    async def save(path: str, body: str) -> str:
        tried.append(body)
        if len(tried) == 1:
            plan.write_bytes(b"theirs\n")
            raise RuntimeError("the connection is down")
        await plugin.environment.write_file(path, body)
        return "saved"

    stage = Retrying(plugin, [load, save], ReflectAndRetryToolPlugin(), is_ours_first=is_ours_first)
    mine = {"path": "plan.md", "body": "mine\n"}
    _, said = stage.run([("a", "load", {"path": "plan.md"})], [("b", "save", mine)], [("c", "save", mine)])
    assert said["b"]["retry_count"] == 1
    assert parse_stale(said["c"]["error"]) is not None
    assert plan.read_bytes() == b"theirs\n"


class Answering(BasePlugin):
    """Answers every write itself, as a plugin that asks for permission does."""

    async def before_tool_callback(self, *, tool: Any, **_: Any) -> dict[str, Any] | None:
        return {"status": "not allowed"} if tool.name == "save" else None


@OURS_FIRST
def test_a_call_that_another_plugin_answers_keeps_nobody_waiting(
    root: Path, is_ours_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-frameworks: the tool is not run, and every call of the step is over."""
    monkeypatch.setattr(google_adk, "WAIT_S", 3600.0)
    (root / "plan.md").write_bytes(b"one\n")
    plugin = GuardedFilesPlugin(root)

    def save(path: str, body: str) -> str:
        raise AssertionError("it must not run")

    stage = Retrying(plugin, [save], Answering("answering"), is_ours_first=is_ours_first)
    calls: Step = [(name, "save", {"path": "plan.md", "body": f"{name}\n"}) for name in ("a", "b")]
    _, said = stage.run(calls)
    assert [answer["status"] for answer in said.values()] == ["not allowed"] * 2


def test_a_call_that_never_ends_is_not_waited_for_for_ever(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-frameworks: a framework may drop a call without telling; who waited too long goes on."""
    monkeypatch.setattr(google_adk, "WAIT_S", 0.0)
    (root / "plan.md").write_bytes(b"one\n")
    plugin = GuardedFilesPlugin(root)
    done = asyncio.Event()

    async def save(path: str, body: str) -> str:
        await plugin.environment.read_file(path)
        if body == "b\n":
            done.set()
        await done.wait()
        return "seen"

    calls: Step = [(name, "save", {"path": "plan.md", "body": f"{name}\n"}) for name in ("a", "b")]
    _, said = Stage(plugin, [save]).run(calls)
    assert [answer["result"] for answer in said.values()] == ["seen"] * 2
