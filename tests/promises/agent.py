"""
An agent, whichever way it comes in: it reads, writes a whole file, edits, and is told what became of it.

A way in makes agents (`Way.make`). What it has no means for it names, with the reason (`Way.cannot`): scenarios
that need that do not apply to it, and the table says so. The names:

| what | |
|---|---|
| `read` | reads, and the way in sees it |
| `edit` | replaces a text in a file |
| `replacement` | an edit says which text it replaces, and not the whole new content |
| `part` | reads some lines of a file |
| `absence` | a read that finds no file is noticed |
| `unsure` | a read by somebody else's program, of which nobody knows which version it showed |
| `expected` | a write that says itself which version it is made from |
| `initial` | `get_initial_hash` |
| `turns` | what was read is forgotten at the end of a turn, session or connection |
| `controller` | the 011 object can be had |
| `folder` | a folder may be named as the file to write |
| `raw` | shows files that are not UTF-8 |
| `empty` | reads and writes empty files |
| `options` | the project's options for stale and unread files count |
| `rewrite` | a whole-file write can land with other content than the agent sent: merged |
| `whole` | has a tool that replaces a whole file, whatever was in it |
| `commands` | runs shell commands |
| `tools` | writes files by itself: not a command of a shell |
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from noclobber.core import wire
from noclobber.errors import NoclobberError
from noclobber.ledger.chosen import ledger_of
from tests.promises.zygote import Zygote
from tests.rigs.hooks import HookRig
from tests.rigs.schemas import check

LANDED = "LANDED"


class Told(NamedTuple):
    """What an agent was told of a change."""

    code: str
    """`LANDED`, or the `error_type` of the refusal."""
    for_agent: dict[str, Any] | None = None
    """The refusal's object for the agent: 009 for a stale write."""
    for_controller: dict[str, Any] | None = None
    """The refusal's object for a controller: 011 for a stale write."""
    text: str = ""
    """What else was told."""


class Stand:
    """A project, and what the ways in need to work on it."""

    def __init__(self, root: Path, rig: HookRig, zygote: Zygote, environment: dict[str, str]) -> None:
        self.root, self.rig, self.zygote, self.environment = root, rig, zygote, environment
        self.closing: list[Callable[[], object]] = []
        self.make: Callable[[Stand, str], Agent] | None = None
        """What makes agents of the way in that is tried."""

    def agent(self, name: str) -> Agent:
        """Return another agent, by the same way."""
        assert self.make is not None
        return self.make(self, name)

    def path(self, name: str) -> Path:
        """Return the path of a file of the project."""
        return self.root / name

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        """Return what is on record, of one kind or all, after checking the chain and every event."""
        ledger = ledger_of(str(self.root))
        try:
            ledger.verify()
            found = list(ledger.events())
        finally:
            ledger.close()
        for event in found:
            check(event, "ledger-event")
        return [event for event in found if kind in ("", event["action_type"])]

    def close(self) -> None:
        """End what agents began."""
        while self.closing:
            self.closing.pop()()


class Agent:
    """One agent. What a way in cannot do is not called."""

    def __init__(self, stand: Stand, name: str) -> None:
        self.stand, self.name, self.root = stand, name, stand.root

    def read(self, name: str, lines: tuple[int, int] | None = None) -> None:
        """Read a file, or the lines from one to another, both counted from 1."""
        raise NotImplementedError

    def read_unsure(self, name: str, shown: bytes) -> None:
        """Be shown something that is no version of the file that anybody knows."""
        raise NotImplementedError

    def write(self, name: str, content: bytes, expected: str | None = None) -> Told:
        """Replace a whole file, or create it."""
        raise NotImplementedError

    def write_by_tool(self, name: str, content: bytes) -> Told:
        """Replace a whole file by the file tool that is beside the commands."""
        raise NotImplementedError

    def edit(self, name: str, old: str, new: str) -> Told:
        """Replace a text that is in the file once."""
        raise NotImplementedError

    def initial_hash(self, name: str) -> str | None:
        """Return the hash of a file's first read in the turn."""
        raise NotImplementedError

    def new_turn(self) -> None:
        """End what remembers, and begin anew."""
        raise NotImplementedError

    def run(self, command: str) -> Told:
        """Run a shell command."""
        raise NotImplementedError


class Way(NamedTuple):
    """One way in."""

    name: str
    group: str
    make: Callable[[Stand, str], Agent]
    cannot: dict[str, str]


def outcome(change: Callable[[], Any]) -> Told:
    """Carry out a change of the library's, and say what became of it."""
    try:
        change()
    except NoclobberError as error:
        return refused(error)
    return Told(LANDED)


def refused(error: NoclobberError) -> Told:
    """What an error tells."""
    agent, controller = wire.to_object(error, "agent"), wire.to_object(error, "controller")
    beside = (getattr(error, "not_merged", None), getattr(error, "target_missing", None), error.beside)
    return Told(error.code, agent, controller, "\n".join(str(text) for text in beside if text))


def all_at_once(acts: Sequence[Callable[[], Told]]) -> list[Told]:
    """Run functions in threads that start together; return what each was told."""
    told: list[Told | None] = [None] * len(acts)
    start = threading.Barrier(len(acts))

    def one(number: int) -> None:
        start.wait(30)
        told[number] = acts[number]()

    threads = [threading.Thread(target=one, args=(number,)) for number in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [each for each in told if each is not None]
    assert len(found) == len(acts), "an agent failed"
    return found


def spelled(path: Path) -> str:
    """A path as a word of a shell command."""
    text = os.fspath(path)
    assert text.replace("/", "").replace("-", "").replace("_", "").replace(".", "").isalnum(), text
    return text
