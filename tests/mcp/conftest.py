"""Connections to the MCP tools, without the protocol: a call in, an outcome out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from noclobber.mcp import dispatch
from noclobber.mcp.connection import House, Memory
from noclobber.mcp.dispatch import Outcome
from noclobber.mcp.roots import Roots
from noclobber.mcp.tools.definition import TOOLS

Call = Callable[..., Outcome]


def silent(*_: object) -> None:
    """Nobody asked for progress."""


@pytest.fixture
def house() -> Iterator[House]:
    """The workspaces that the connections of a test share."""
    house = House()
    yield house
    house.close()


@pytest.fixture
def connect(house: House, root: Path) -> Callable[..., Call]:
    """Opens a connection, and returns what calls its tools."""

    def connect(*roots: Path, **options: Any) -> Call:
        options = {"is_session": True, "is_process": True, **options}
        memory = Memory(house, Roots([str(one) for one in roots or (root,)]), **options)

        def call(tool: str, **arguments: Any) -> Outcome:
            outcome = dispatch.call(memory, tool, arguments, silent)
            if outcome.structured is not None and tool in TOOLS:
                jsonschema.validate(outcome.structured, TOOLS[tool].output)  # As every client does.
            return outcome

        call.memory = memory  # type: ignore[attr-defined]
        return call

    return connect


@pytest.fixture
def call(connect: Callable[..., Call]) -> Call:
    """One connection on stdio."""
    return connect()
