"""
How a test drives a host: one driver per host, in a file of its own in `drivers`.

A driver says where the program comes from, how it is set up and started, how the host says each neutral call with
its own tools, and how it passes a refusal on to its model. What a host makes impossible is in its driver as well,
by scenario and with the reason: such a scenario is not skipped, it is a fact about the host.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from tests.e2e.attended import Decide, JsonLines, agent_client
from tests.e2e.calls import Act, Acts, Call, Calls, Delegate, Native
from tests.e2e.model import Script, Step, Uses
from tests.e2e.programs import Program
from tests.e2e.project import Project
from tests.e2e.protocols import Use

RUN_TIMEOUT_S = 210


class Refusal(NamedTuple):
    """A refusal as the model received it: the exact object, and what the host and we put around it."""

    before: str
    object: dict[str, Any]
    beside: str


class Finished(NamedTuple):
    """A host that has ended."""

    returncode: int
    out: str
    err: str


class Running:
    """A host at work."""

    def __init__(
        self, command: list[str], project: Project, environment: Mapping[str, str], stdin: int
    ) -> None:
        self.process = subprocess.Popen(
            command,
            cwd=project.root,
            env=dict(environment),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Its own group: what it leaves behind can be ended with it.
            start_new_session=True,
        )

    def wait(self, timeout_s: float = RUN_TIMEOUT_S) -> Finished:
        """Wait until it ends; end it, and say so, if it does not."""
        try:
            out, err = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            out, err = self.process.communicate()
            raise AssertionError(
                f"the host did not end within {timeout_s} s: {out[-2000:]}\n{err[-2000:]}"
            ) from None
        return Finished(self.process.returncode, out, err)

    def kill(self) -> None:
        """End it and all that it started."""
        os.killpg(self.process.pid, signal.SIGKILL)


class HostDriver(ABC):
    """One host."""

    name: str
    """As `noclobber install` spells it."""
    read_tool: str
    """The host's own name for its tool that reads a file."""
    write_tools: tuple[str, ...]
    """Its tools that write."""
    routes_shell = False
    """Whether its commands go through the guarded shell, where there can be one; otherwise they are watched."""
    server_tool: str = "mcp__{server}__{tool}"
    """What it calls a tool of an MCP server."""
    refusal_before: str = ""
    """What the model is given before our reason, with `{tool}` for the tool's name."""
    subagent_ends_with: Native | None = None
    """The call by which a subagent must end, where words are not enough."""
    limits: ClassVar[Mapping[str, str]] = {}
    """What this host does otherwise than the others, by scenario, and why. The scenario asserts what it does."""
    impossible: ClassVar[Mapping[str, str]] = {}
    """Scenarios that this host makes impossible, and why. Tests read it, and its page in `docs` repeats it."""

    # -- the program -----------------------------------------------------------------------------------

    @abstractmethod
    def locate(self) -> Program:
        """Return the program; raise `MissingHostError` if it cannot be had."""

    @abstractmethod
    def configure(self, project: Project, url: str, *, is_trusted: bool) -> None:
        """Write what the host wants to find in its home: the endpoint, trust in the folder."""

    @abstractmethod
    def command(self, prompt: str, *, is_trusted: bool) -> list[str]:
        """Return the words after the program that run one prompt without a terminal, all tools allowed."""

    def environment(self, url: str) -> dict[str, str]:
        """Return what it wants in its environment."""
        return {}

    def before_a_race(self, project: Project, url: str) -> None:
        """Do what a host's first start does, where two first starts at once would fail by themselves."""
        self.configure(project, url, is_trusted=True)

    def start(
        self, project: Project, url: str, prompt: str, *, is_trusted: bool = True, **more: str
    ) -> Running:
        """Start it on a prompt, and return at once."""
        program = self.locate()
        self.configure(project, url, is_trusted=is_trusted)
        return Running(
            [program.path, *self.command(prompt, is_trusted=is_trusted)],
            project,
            project.environment(**{**program.environment(), **self.environment(url), **more}),
            subprocess.DEVNULL,
        )

    def run(
        self, project: Project, url: str, prompt: str, *, is_trusted: bool = True, **more: str
    ) -> Finished:
        """Run it on a prompt; it must end well."""
        done = self.start(project, url, prompt, is_trusted=is_trusted, **more).wait()
        assert done.returncode == 0, (
            f"{self.name} ended with {done.returncode}: {done.out[-2000:]}\n{done.err[-2000:]}"
        )
        return done

    def attend(self, project: Project, url: str, prompts: Iterable[str], decide: Decide) -> None:
        """Say prompts in one session, with a person at the approval dialogue; `decide` is called while it is open."""
        program = self.locate()
        self.configure(project, url, is_trusted=True)
        environment = project.environment(**{**program.environment(), **self.environment(url)})
        with JsonLines([program.path, *self.attended_command()], project, environment) as talk:
            self.talk(talk, project, prompts, decide)

    def attended_command(self) -> list[str]:
        """Return the words after the program that make it talk to an editor, and ask before it writes."""
        raise NotImplementedError(f"nobody can attend {self.name} yet")

    def talk(self, talk: JsonLines, project: Project, prompts: Iterable[str], decide: Decide) -> None:
        """Play the editor and the person in front of it."""
        agent_client(talk, project, prompts, decide)

    @abstractmethod
    def add_hook(self, project: Project, command: str) -> None:
        """Add a hook of the user's own: a command that the host runs after each of its writes."""

    @abstractmethod
    def add_server(self, project: Project, name: str, command: list[str]) -> None:
        """Add an MCP server of the user's own, whose tools may be used without a question."""

    # -- its words -------------------------------------------------------------------------------------

    @abstractmethod
    def use(self, call: Call) -> Use:
        """Return a neutral call in the host's own words."""

    def delegate(self, word: str) -> list[Call]:
        """Return the calls, one message each, that have a subagent follow a script and wait for its end."""
        return [Delegate(word)]

    def script(self, acts: Acts) -> Script:
        """Return a neutral script in the host's own words."""
        if not callable(acts):
            return [self._step(act) for act in acts]
        following = acts

        def next_uses(told: list[str]) -> Uses | None:
            calls = following(told)
            return None if calls is None else self._uses(calls)

        return next_uses

    def _step(self, act: Act) -> Step:
        if not callable(act):
            return self._uses(act)
        asked: Callable[[], Calls] = act
        return lambda: self._uses(asked())

    def _uses(self, calls: Calls) -> Uses:
        return [self.use(call) for call in calls] if isinstance(calls, list) else self.use(calls)

    # -- what its model receives -----------------------------------------------------------------------

    def shown(self, told: str) -> str | None:
        """Return the content that a whole read showed the model; None if this is no read's result."""
        return told

    @abstractmethod
    def is_success(self, told: str) -> bool:
        """Return whether the model was told that a write or an edit was carried out."""

    def refusal(self, told: str) -> Refusal:
        """Return a refusal's parts as the model received them."""
        at = told.find('{"error_type"')
        assert at >= 0, f"no refusal: {told!r}"
        value, length = json.JSONDecoder().raw_decode(told[at:])
        return Refusal(told[:at], value, told[at + length :])


def add_group(file: Path, event: str, matcher: str, command: str) -> None:
    """Add a hook to a configuration of the shape that Claude Code, Codex, Gemini CLI and Qwen Code share."""
    configuration = json.loads(file.read_text()) if file.exists() else {}
    group = {"matcher": matcher, "hooks": [{"type": "command", "command": command}]}
    configuration.setdefault("hooks", {}).setdefault(event, []).append(group)
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(configuration, indent=2))


def add_member(file: Path, name: str, value: Any) -> None:
    """Add a member to a configuration in JSON."""
    configuration = json.loads(file.read_text()) if file.exists() else {}
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({**configuration, name: value}, indent=2))
