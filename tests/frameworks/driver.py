"""What a scenario asks of a framework. README.md has the contract in words."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple


class Call(NamedTuple):
    """One tool call of the scripted model, without any framework's names."""

    kind: str
    """`read`, `write` (the whole file), `edit`, `delete`, `run` (`content` is the command); `handoff`, in one framework."""
    path: str
    content: str = ""
    old: str = ""
    new: str = ""
    raw: Mapping[str, Any] | None = None
    """For wrong arguments: instead of those above, by the names `path`, `content`, `old`, `new`."""

    def given(self) -> dict[str, Any]:
        """The arguments by the names above."""
        if self.raw is not None:
            return dict(self.raw)
        by_kind = {
            "read": {"path": self.path},
            "write": {"path": self.path, "content": self.content},
            "edit": {"path": self.path, "old": self.old, "new": self.new},
            "delete": {"path": self.path},
            "run": {"command": self.content},
        }
        return by_kind[self.kind]


def read(path: str) -> Call:
    """Read a file."""
    return Call("read", path)


def write(path: str, content: str) -> Call:
    """Write a whole file."""
    return Call("write", path, content)


def edit(path: str, old: str, new: str) -> Call:
    """Replace a piece of a file."""
    return Call("edit", path, old=old, new=new)


def run_command(command: str) -> Call:
    """Run a command."""
    return Call("run", "", command)


class Received(NamedTuple):
    """What the model received for one call."""

    call: Call
    text: str
    is_error: bool
    """As the framework marks it; where it has no mark, False."""


Step = Callable[[list[Received]], Sequence[Call]]
"""Called when the model is asked: gets everything received so far, returns the calls to make; none: the end."""


class Script:
    """What a scripted model does, step by step."""

    def __init__(self, *steps: Step, name: str = "") -> None:
        self._steps, self._asked = list(steps), 0
        self._name = name
        self._calls: dict[str, Call] = {}
        self._received: dict[str, Received] = {}
        self._lock = threading.Lock()

    @property
    def received(self) -> list[Received]:
        """What the model has received so far, in the order of its calls."""
        return [self._received[call_id] for call_id in self._calls if call_id in self._received]

    def ask(self, results: Mapping[str, tuple[str, bool]]) -> list[tuple[str, Call]]:
        """Return the next calls with their ids. `results`: every tool result in the model's messages."""
        with self._lock:
            for call_id, (text, is_error) in results.items():
                if call_id in self._calls and call_id not in self._received:
                    self._received[call_id] = Received(self._calls[call_id], text, is_error)
            if self._asked >= len(self._steps):
                return []
            step = self._steps[self._asked]
            self._asked += 1
        calls = list(step(self.received))
        named = []
        for call in calls:
            call_id = f"call{self._name}{id(self) % 100_000}x{len(self._calls)}"
            self._calls[call_id] = call
            named.append((call_id, call))
        return named


class FrameworkDriver(ABC):
    """One framework on one folder, with its own file tools or with noclobber's."""

    name: ClassVar[str]
    """The extra, and the file in adapters/."""
    packages: ClassVar[tuple[str, ...]]
    """The packages whose versions the table names, the framework itself first."""
    host: ClassVar[str] = ""
    """How the ledger calls the framework, if not by this name."""
    lacks: ClassVar[Mapping[str, str]] = {}
    own_lacks: ClassVar[Mapping[str, str]] = {}
    untold: ClassVar[Mapping[str, str]] = {}
    """What the framework does not tell a tool, with the reason: `call`, `thread`."""

    def __init__(self, root: Path, *, guarded: bool, options: Mapping[str, Any] | None = None) -> None:
        self.root, self.guarded, self.options = root, guarded, dict(options or {})

    @abstractmethod
    def run(self, script: Script, *, agent: str = "agent", thread: str | None = None) -> list[Received]:
        """Run an agent to its end."""

    @abstractmethod
    async def arun(
        self, script: Script, *, agent: str = "agent", thread: str | None = None
    ) -> list[Received]:
        """Run an agent to its end by the framework's asynchronous entry point."""

    @abstractmethod
    def arguments(self, call: Call) -> tuple[str, dict[str, Any]]:
        """Return the tool's name and arguments for a call."""

    def read_part(self, path: str) -> Call:
        """Return the call that reads the beginning of a file that is too large for one answer."""
        return read(path)

    def shown(self, text: str) -> str:
        """Return a file's text as a model would write it back, given what the read tool answered."""
        return text

    def refusal(self, text: str) -> str:
        """Return the part of an error that holds the refusal's object, where a framework wraps its errors."""
        return text

    def refuses_itself(self, text: str) -> bool:
        """True for a refusal in the framework's own words, where it refuses a call before we are asked."""
        return False

    def refuses_in_a_race(self, text: str) -> bool:
        """The same, where that depends on who is faster: only if two agents write in the same moment."""
        return False

    def run_together(self, scripts: Sequence[Script]) -> list[list[Received]]:
        """Run several agents at once; as long as the framework has nothing better, several runs in threads."""
        results: dict[int, list[Received]] = {}
        failures: list[BaseException] = []

        def one(number: int) -> None:
            try:
                results[number] = self.run(scripts[number], agent=f"agent-{number}")
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=one, args=(number,)) for number in range(len(scripts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return [results[number] for number in range(len(scripts))]

    def restart(self) -> None:  # noqa: B027 - not every framework keeps anything
        """Forget what the adapter has in memory, as a new process would."""

    def close(self) -> None:  # noqa: B027
        """Give back what the driver holds."""

    def run_async(self, script: Script, **more: Any) -> list[Received]:
        """`arun` in an event loop of its own."""
        return asyncio.run(self.arun(script, **more))
