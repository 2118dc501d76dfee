"""
One judge: the same table of decisions through the library, a host's hook and the MCP server.

Each row is a story about one file and what a whole-file write is answered at its end. Options come from the
project's file, as all three read it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

from noclobber import DeliverableLock, NoclobberError, Workspace
from noclobber.mcp import dispatch
from noclobber.mcp.connection import ClientConnection, Workspaces
from noclobber.mcp.roots import Roots
from tests.rigs.hooks import HookRig, is_denied, refusal

ALLOW = "ALLOW"
V1 = "one\ntwo\nthree\n"


class Agent(Protocol):
    """One agent, by one of the three ways."""

    def read(self, path: Path, lines: int | None = None) -> None:
        """Read a file, or its first lines."""

    def write(self, path: Path, content: str) -> str:
        """Write a whole file; return `ALLOW`, or the code of the refusal."""


class LibraryAgent:
    """A program with a turn."""

    def __init__(self, root: Path) -> None:
        self.turn = Workspace(root).turn()

    def read(self, path: Path, lines: int | None = None) -> None:
        try:
            self.turn.read_file(path, end_line=lines)
        except NoclobberError:
            pass

    def write(self, path: Path, content: str) -> str:
        try:
            self.turn.write_file(path, content)
        except NoclobberError as error:
            return error.code
        return ALLOW


class HookAgent:
    """Claude Code, by its hook."""

    def __init__(self, rig: HookRig) -> None:
        self.rig = rig

    def read(self, path: Path, lines: int | None = None) -> None:
        given: dict[str, Any] = {"file_path": str(path)}
        if not path.is_file():
            self.rig.call("claude-code", self.rig.tool("PostToolUseFailure", "Read", given, error="ENOENT"))
            return
        text = path.read_text()
        total = text.count("\n") + 1
        shown = text if lines is None else "".join(text.splitlines(keepends=True)[:lines])
        file = {"content": shown, "startLine": 1, "numLines": lines or total, "totalLines": total}
        given |= {} if lines is None else {"limit": lines}
        payload = self.rig.tool("PostToolUse", "Read", given, tool_response={"file": file})
        self.rig.call("claude-code", payload)

    def write(self, path: Path, content: str) -> str:
        given = {"file_path": str(path), "content": content}
        call_id = self.rig.next_id()
        answer = self.rig.ask("Write", given, tool_use_id=call_id)
        if is_denied(answer):
            return str(refusal(answer)["error_type"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        assert self.rig.told("Write", given, tool_use_id=call_id) == {}
        return ALLOW


class McpAgent:
    """A client of the MCP server."""

    def __init__(self, root: Path) -> None:
        self.connection = ClientConnection(Workspaces(), Roots([str(root)]), is_session=True)

    def _call(self, tool: str, **arguments: Any) -> str:
        answer = dispatch.call(self.connection, tool, arguments, lambda *_: None)
        assert answer.structured is not None
        return str(answer.structured["error_type"]) if answer.is_error else ALLOW

    def read(self, path: Path, lines: int | None = None) -> None:
        head = {} if lines is None else {"head": lines}
        self._call("read_text_file", path=str(path), **head)

    def write(self, path: Path, content: str) -> str:
        return self._call("write_file", path=str(path), content=content)


class Row(NamedTuple):
    """A story, and what its last write is answered."""

    name: str
    story: Callable[[Agent, Path], str]
    answer: str
    options: str = ""


def _read_then(change: Callable[[Path], object], content: str = "mine\n") -> Callable[[Agent, Path], str]:
    def story(agent: Agent, file: Path) -> str:
        agent.read(file)
        change(file)
        return agent.write(file, content)

    return story


def _unread(agent: Agent, file: Path) -> str:
    return agent.write(file, "mine\n")


def _partly_read(agent: Agent, file: Path) -> str:
    agent.read(file, lines=2)
    return agent.write(file, "mine\n")


def _read_again(agent: Agent, file: Path) -> str:
    agent.read(file)
    file.write_text("theirs\n")
    assert agent.write(file, "mine\n") == "STALE_FILE"
    agent.read(file)
    return agent.write(file, "theirs and mine\n")


def _resubmitted(agent: Agent, file: Path) -> str:
    agent.read(file)
    file.write_text("theirs\n")
    assert agent.write(file, "mine\n") == "STALE_FILE"
    agent.read(file)
    return agent.write(file, "mine\n")


def _two_own_writes(agent: Agent, file: Path) -> str:
    agent.read(file)
    assert agent.write(file, "first\n") == ALLOW
    return agent.write(file, "second\n")


def _seen_to_be_absent(agent: Agent, file: Path) -> str:
    file.unlink()
    agent.read(file)
    file.write_text("theirs\n")
    return agent.write(file, "mine\n")


def _elsewhere(name: str) -> Callable[[Agent, Path], str]:
    return lambda agent, file: agent.write(file.parent / name, "mine\n")


def _own_records(agent: Agent, file: Path) -> str:
    (file.parent / ".noclobber").mkdir()
    return agent.write(file.parent / ".noclobber/agent_trace.jsonl", "mine\n")


def _replaced_by_a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _locked(agent: Agent, file: Path) -> str:
    folder = file.parent / "deliverable"
    folder.mkdir()
    with DeliverableLock(folder, holder="somebody else"):
        return agent.write(folder / "plan.md", "mine\n")


ROWS = [
    Row("unchanged", _read_then(lambda file: None), ALLOW),
    Row("touched", _read_then(lambda file: file.touch()), ALLOW),
    Row("changed", _read_then(lambda file: file.write_text("theirs\n")), "STALE_FILE"),
    Row("deleted", _read_then(lambda file: file.unlink()), "STALE_FILE"),
    Row("folder now", _read_then(_replaced_by_a_folder), "STALE_FILE"),
    Row("changed and back", _read_then(lambda file: (file.write_text("x"), file.write_text(V1))), ALLOW),
    Row("created since", _seen_to_be_absent, "STALE_FILE"),
    Row("read again", _read_again, ALLOW),
    Row("two own writes", _two_own_writes, ALLOW),
    Row("never read", _unread, ALLOW),
    Row("never read, denied", _unread, "UNREAD_FILE", 'unread = "deny"'),
    Row("new file, unread denied", _elsewhere("new.md"), ALLOW, 'unread = "deny"'),
    Row("partly read", _partly_read, ALLOW),
    Row("partly read, denied", _partly_read, "PARTIAL_READ", 'partial = "deny"'),
    Row("same bytes again", _resubmitted, ALLOW),
    Row("same bytes again, denied", _resubmitted, "STALE_RESUBMITTED", 'resubmitted = "deny"'),
    Row("outside the scope", _read_then(lambda file: None), "OUTSIDE_SCOPE", 'write_scope = ["docs"]'),
    Row("inside the scope", _elsewhere("docs/new.md"), ALLOW, 'write_scope = ["docs"]'),
    Row("its own rules", _elsewhere("noclobber.toml"), "RESERVED_FILE"),
    Row("its own rules, opened", _elsewhere("noclobber.toml"), ALLOW, 'switches = "open"'),
    Row("reserved by the project", _elsewhere("docs/x.md"), "RESERVED_FILE", 'reserved = ["docs"]'),
    Row("lock file", _elsewhere(".lock"), "RESERVED_FILE"),
    Row("own records", _own_records, "OUTSIDE_WORKSPACE"),
    Row("locked by somebody else", _locked, "LOCK_CONTENTION"),
]


@pytest.mark.parametrize("way", ["library", "hook", "mcp"])
@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_the_same_decision_through_library_hook_and_mcp(root: Path, rig: HookRig, row: Row, way: str) -> None:
    """finding C1, 009-FR-003, 009-FR-004: one judge, whoever asks."""
    file = root / "plan.md"
    file.write_text(V1)
    (root / "noclobber.toml").write_text(row.options)
    (root / "docs").mkdir()
    agents: dict[str, Callable[[], Agent]] = {
        "library": lambda: LibraryAgent(root),
        "hook": lambda: HookAgent(rig),
        "mcp": lambda: McpAgent(root),
    }

    assert row.story(agents[way](), file) == row.answer
