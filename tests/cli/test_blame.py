"""`noclobber blame`, as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from noclobber import Workspace
from tests.rigs.commands import Terminal, run

TEXT = b"".join(b"line %d\n" % number for number in range(1, 21))


@pytest.fixture
def file(root: Path) -> Path:
    """A file that ana and bob have changed."""
    path = root / "plan.md"
    path.write_bytes(TEXT)
    with Workspace(root) as ws:
        for agent, old in (("ana", b"line 3\n"), ("bob", b"line 12\n")):
            with ws.turn(agent_id=agent, session_id=f"session-of-{agent}") as turn:
                content = turn.read_file("plan.md").content
                turn.write_file("plan.md", content.replace(old, agent.encode() + b"\n"))
    return path


def test_blame_names_the_author_of_every_line(root: Path, file: Path) -> None:
    """N-who."""
    lines = run("blame", "plan.md", cwd=root).out.splitlines()

    assert lines[2].startswith("ana session- ")
    assert lines[2].endswith("    3  ana")
    assert lines[11].startswith("bob")
    assert lines[0].startswith("(before the first event)")
    told = json.loads(run("blame", "plan.md", "--json", cwd=root).out)
    assert (told["lines"][2]["agent"], told["lines"][2]["session"]) == ("ana", "session-of-ana")
    assert told["lines"][0]["by"] == "first"


def test_blame_leaves_room_for_the_text_in_a_narrow_terminal(root: Path, file: Path) -> None:
    """finding U11: who and when were wider than the terminal, and the session's id was cut off."""
    with Terminal("blame", "plan.md", cwd=root, columns=40, NO_COLOR="1") as terminal:
        lines = terminal.read_all().replace("\r", "").splitlines()
    assert lines[0] == "(before)       1  line 1"
    assert lines[2] == "ana session-   3  ana"


def test_blame_of_a_missing_file_is_said_plainly(root: Path) -> None:
    """N-input."""
    done = run("blame", "missing.md", cwd=root)

    assert done.code == 3
    assert "there is no such file" in done.err
