"""
Scenarios as stories that a scripted model tells.

A scenario is a generator: it yields what the model does next (a call, or a list of calls for one message) and is sent
what came back (a string, or a list of strings). What a person or another program does meanwhile is plain code between two
yields, and so are the assertions. Several scenarios are told in one run of a host, one after the other, each with
files of its own: starting a host takes longer than most of them. A scenario that fails ends; the next one goes on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from noclobber.shell.level import GUARDED, probe
from tests.e2e.calls import Call, Calls
from tests.e2e.driver import HostDriver, Refusal
from tests.e2e.model import ScriptedModel
from tests.e2e.project import Project

Told = Any
"""What a yield returns: a string for a call, a list of strings for a list. Each scenario knows which it asked for."""
Story = Generator[Calls, Told, None]
Record = list[tuple[str, str]]

REQUESTS = "one_request_a_message"
"""Not a scenario of its own: what must be true of the run in which all were told."""
LANDED = ("MUTATION", "APPLIED")
REFUSED = ("MUTATION_CONFLICT", "DENIED")
FAILED = ("MUTATION_FAILED", "FAILED")


class Side:
    """What a subagent does when it is asked to follow `script:side`. A scenario sets it before it delegates."""

    def __init__(self, driver: HostDriver) -> None:
        self._end: list[Calls] = [driver.subagent_ends_with] if driver.subagent_ends_with else []
        self.script: list[Calls] = []

    def __call__(self, told: list[str]) -> Calls | None:
        """Return what the subagent does next."""
        script = [*self.script, *self._end]
        return script[len(told)] if len(told) < len(script) else None


class Person:
    """Who sits at the approval dialogue. A scenario says what they do while it is open, and whether they agree."""

    def __init__(self) -> None:
        self.decide: Callable[[], bool] = lambda: True


class Stage(NamedTuple):
    """Where a scenario plays."""

    driver: HostDriver
    project: Project
    name: str
    side: Side
    person: Person
    heard: Callable[[], list[str]]
    """Every text of the conversation so far, wherever the host puts what a hook adds."""

    def file(self, content: str | bytes, suffix: str = ".txt") -> Path:
        """Make this scenario's file."""
        return self.project.file(f"{self.name}{suffix}", content)

    def path(self, suffix: str = ".txt") -> Path:
        """Return where this scenario's file is, or will be."""
        return self.project.root / f"{self.name}{suffix}"

    def delegate(self, script: Sequence[Calls]) -> Story:
        """Have a subagent do these things, and wait for its end."""
        self.side.script = list(script)
        for call in self.driver.delegate("side"):
            told = yield call
            assert isinstance(told, str)

    def assert_landed(self, told: str) -> None:
        """The host said that it was done, and nobody put an alarm beside it."""
        assert self.driver.is_success(told), told
        assert "MUTATION_RACE" not in told, told

    def assert_refused(self, told: str, path: Path, seen: bytes | str, now: bytes | str) -> Refusal:
        """The model received the exact 009 object, after what this host puts before a reason and nothing else."""
        refusal = self.driver.refusal(told)
        assert refusal.object == stale(path, seen, now)
        befores = {self.driver.refusal_before.format(tool=tool) for tool in self.driver.write_tools}
        assert refusal.before in befores, told
        return refusal

    def is_guarded(self) -> bool:
        """Whether this host's commands are transactions here."""
        return self.driver.routes_shell and probe(str(self.project.root)).name == GUARDED

    def assert_command_refused(self, told: str, path: Path, seen: bytes | str, now: bytes | str) -> None:
        """The model received the exact object for a shell command, and nothing else of ours before it."""
        refusal = self.driver.refusal(told)
        assert refusal.object == stale(path, seen, now)
        assert "error_type" not in refusal.before

    def events(self, path: Path) -> list[dict[str, Any]]:
        """Return what is on record about a file."""
        name = str(path.relative_to(self.project.root))
        return [event for event in self.project.ledger() if event["payload"].get("target_file") == name]

    def assert_record(self, path: Path, *expected: tuple[str, str]) -> None:
        """This is on record about a file, line by line, and nothing else."""
        assert self.project.record(path) == list(expected)


def stale(path: Path, seen: bytes | str, now: bytes | str) -> dict[str, Any]:
    """Return the exact 009 object."""
    return {
        "error_type": "STALE_FILE",
        "message": "File modified by another actor. Re-read required.",
        "details": {"path": str(path), "baseline_hash": sha256(seen), "current_disk_hash": sha256(now)},
        "recovery_hint": "Perform a new 'read_file' to see the latest changes before attempting to write again.",
    }


def sha256(value: bytes | str) -> str:
    """Return the hash of some content; a word for a missing file stays as it is."""
    if value in ("ABSENT", "DELETED"):
        return str(value)
    return hashlib.sha256(value if isinstance(value, bytes) else value.encode()).hexdigest()


class Telling:
    """Scenarios told one after the other; called with what the tools returned, it says what the model does next."""

    def __init__(
        self, driver: HostDriver, project: Project, scenarios: Mapping[str, Callable[[Stage], Story]]
    ) -> None:
        self.driver, self.project = driver, project
        self.side = Side(driver)
        self.person = Person()
        self.heard: Callable[[], list[str]] = list
        self.outcomes: dict[str, BaseException | None] = {}
        """How each scenario ended. None: well."""
        self.messages = 0
        """How many messages of the model were needed."""
        self._left = list(scenarios.items())
        self._now: tuple[str, Story] | None = None
        self._asked: Calls | None = None
        self._seen = 0

    def __call__(self, told: list[str]) -> Calls | None:
        """Return what the model does next, None at the end."""
        new, self._seen = told[self._seen :], len(told)
        calls = None if self._now is None else self._go_on(new if isinstance(self._asked, list) else new[-1])
        while calls is None and self._left:
            name, scenario = self._left.pop(0)
            self._now = name, scenario(self._stage(name))
            calls = self._go_on(None)
        self._asked = calls
        self.messages += 1
        return calls

    def _stage(self, name: str) -> Stage:
        return Stage(self.driver, self.project, name, self.side, self.person, lambda: self.heard())

    def end(self) -> None:
        """Tell the scenario that is being told that the host ended its turn without asking the model again."""
        if self._now is not None:
            self._go_on(None)

    def _go_on(self, told: Told) -> Calls | None:
        assert self._now is not None
        name, story = self._now
        try:
            return story.send(told)
        except StopIteration:
            self.outcomes[name] = None
        except BaseException as failed:
            self.outcomes[name] = failed
        self._now = None
        return None


def tell(
    driver: HostDriver, project: Project, scenarios: Mapping[str, Callable[[Stage], Story]]
) -> Mapping[str, BaseException | None]:
    """Run a host through scenarios, and return how each ended."""
    telling = Telling(driver, project, scenarios)
    with ScriptedModel(one=driver.script(telling), side=driver.script(telling.side)) as model:
        telling.heard = lambda: model.heard["one"]
        done = driver.start(project, model.url, "script:one").wait()
    outcomes = dict(telling.outcomes)
    for name in scenarios:
        outcomes.setdefault(
            name, AssertionError(f"the host ended before: {done.out[-300:]} {done.err[-300:]}")
        )
    # One request a message, and the one that ended the conversation is a message, too.
    extra = model.requests_of["one"] - telling.messages
    outcomes[REQUESTS] = None
    if extra or model.beside or done.returncode:
        said = f"{extra} requests too many, beside them {model.beside}, exit code {done.returncode}"
        outcomes[REQUESTS] = AssertionError(f"{said}: {done.err[-500:]}")
    return outcomes


def tell_attended(
    driver: HostDriver, project: Project, scenarios: Mapping[str, Callable[[Stage], Story]]
) -> Mapping[str, BaseException | None]:
    """Run a host through scenarios with a person at its approval dialogue, and return how each ended."""
    telling = Telling(driver, project, scenarios)
    with ScriptedModel(one=driver.script(telling)) as model:
        ended: BaseException = AssertionError("the host ended before")
        try:
            driver.attend(project, model.url, ["script:one"], lambda: telling.person.decide())
        except AssertionError as failure:
            ended = failure
        telling.end()
    return {name: telling.outcomes.get(name, ended) for name in scenarios}


def demand(outcome: BaseException | None) -> None:
    """Fail as the scenario failed."""
    if isinstance(outcome, Exception):
        raise outcome
    if outcome is not None:
        pytest.fail(repr(outcome))


__all__ = [
    "LANDED",
    "REFUSED",
    "REQUESTS",
    "Call",
    "Record",
    "Stage",
    "Story",
    "Telling",
    "demand",
    "sha256",
    "tell",
]
