"""Connections to the MCP tools, without the protocol: a call in, an answer out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from noclobber.mcp import dispatch
from noclobber.mcp.connection import ClientConnection, Workspaces
from noclobber.mcp.roots import Roots
from noclobber.mcp.tools.definition import McpAnswer
from tests.rigs.ledgers import recorded
from tests.rigs.mcp import check_answer


class Call(Protocol):
    """Calls a tool of one connection; the answer is checked."""

    connection: ClientConnection

    def __call__(self, tool: str, **arguments: Any) -> McpAnswer:
        """Call a tool."""


class Connect(Protocol):
    """Opens a connection, to the test's root or to others."""

    def __call__(self, *roots: Path, **options: Any) -> Call:
        """Return what calls the connection's tools."""


class CheckedCall:
    """A `Call`."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def __call__(self, tool: str, **arguments: Any) -> McpAnswer:
        """Call a tool."""
        answer = dispatch.call(self.connection, tool, arguments, lambda *_: None)
        check_answer(tool, answer.content, answer.structured, answer.is_error)
        return answer


@pytest.fixture
def workspaces() -> Iterator[Workspaces]:
    """The workspaces that the connections of a test share."""
    workspaces = Workspaces()
    yield workspaces
    workspaces.close()


@pytest.fixture
def connect(workspaces: Workspaces, root: Path) -> Connect:
    """Opens a connection, and returns what calls its tools."""

    def connect(*roots: Path, **options: Any) -> Call:
        options = {"is_session": True, "is_process": True, **options}
        folders = Roots([str(one) for one in roots or (root,)])
        return CheckedCall(ClientConnection(workspaces, folders, **options))

    return connect


@pytest.fixture
def call(connect: Connect) -> Call:
    """One connection on stdio."""
    return connect()


def events(root: Path) -> list[dict[str, Any]]:
    """The workspace's ledger."""
    return recorded(root / ".noclobber" / "agent_trace.jsonl")
