"""The tool that runs commands: the same transaction, and only where it was allowed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from noclobber.mcp import dispatch
from noclobber.mcp.tools import TOOLS, WITH_COMMANDS
from noclobber.mcp.tools.definition import McpAnswer
from tests.mcp.conftest import Call
from tests.shell.test_process import is_available

pytestmark = pytest.mark.skipif(not is_available(), reason="no namespaces here")


def run(call: Call, command: str) -> McpAnswer:
    arguments = {"command": command}
    return dispatch.call(call.connection, "run_command", arguments, lambda *_: None, WITH_COMMANDS)


def test_a_command_is_not_offered_unless_it_was_allowed(call: Call, root: Path) -> None:
    """N-shell: nobody gets a shell by starting a file server."""
    assert "run_command" not in TOOLS
    answer = dispatch.call(call.connection, "run_command", {"command": "touch ran"}, lambda *_: None)
    assert answer.is_error
    assert not (root / "ran").exists()


def test_a_command_lands_and_a_stale_one_is_refused_with_the_object(call: Call, root: Path) -> None:
    """N-shell, ruling 3: what this connection has read counts for its commands, too."""
    (root / "plan.md").write_text("one\n")
    call("read_text_file", path="plan.md")
    done = run(call, "echo out; echo two >> plan.md; exit 3")
    assert (done.structured["exit_code"], done.structured["stdout"]) == (3, "out\n")
    assert [file["path"] for file in done.structured["landed"]] == [f"{root}/plan.md"]
    (root / "plan.md").write_text("theirs\n")
    refused = run(call, "echo mine >> plan.md")
    assert refused.is_error
    assert json.loads(refused.content[0]["text"])["details"]["path"] == f"{root}/plan.md"
    assert (root / "plan.md").read_text() == "theirs\n"


def test_of_a_long_output_the_beginning_and_the_end_are_shown(call: Call) -> None:
    """Finding S31: and how much is left out; as much as a model can use."""
    told = run(call, "echo first; yes | head -c 1000000; echo last").structured["stdout"]
    assert told.startswith("first\ny\n")
    assert told.endswith("y\nlast\n")
    assert "970011 bytes are left out" in told
    assert len(told) < 31_000
