"""The list of tools: complete, documented, and each with a function of its own."""

from __future__ import annotations

from pathlib import Path

from noclobber.mcp.tools import OURS, REFERENCE, TOOLS, folders, listing, locks, reading, writing
from noclobber.mcp.tools.definition import McpTool

MODULES = (reading, writing, folders, listing, locks)
ADDED = {"expected_hash", "observation_id", "lock_id"}
DOCUMENT = Path(__file__).parents[3] / "docs" / "mcp.md"


def test_every_tool_that_is_defined_is_listed() -> None:
    """A tool that is defined beside its function and forgotten in the list would not be served."""
    defined = {
        value.name for module in MODULES for value in vars(module).values() if isinstance(value, McpTool)
    }

    assert defined == set(TOOLS)
    assert len(REFERENCE) + len(OURS) == len(TOOLS)


def test_every_tool_is_documented() -> None:
    """N-documented: docs/mcp.md names every tool, and every parameter that is ours."""
    text = DOCUMENT.read_text(encoding="utf-8")
    theirs = {tool.name for tool in REFERENCE}

    for tool in TOOLS.values():
        assert f"`{tool.name}" in text, tool.name
        parameters = set(tool.parameters["properties"])
        for parameter in parameters & ADDED if tool.name in theirs else parameters:
            assert parameter in text, (tool.name, parameter)
