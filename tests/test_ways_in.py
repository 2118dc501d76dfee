"""However a change comes in, its versions are kept: undo, blame, commit, diff and restore work on it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from noclobber import Edit, Workspace
from noclobber.guard.blame import blame
from noclobber.mcp import dispatch
from noclobber.mcp.connection import ClientConnection, Workspaces
from noclobber.mcp.roots import Roots
from noclobber.mcp.tools import WITH_COMMANDS
from noclobber.shell.roots import why_not
from tests.conftest import sha256
from tests.hook.test_approval_window import check
from tests.rigs.clones import IDENTITY, Clone
from tests.rigs.commands import run
from tests.rigs.hooks import HookRig

TEXT = b"".join(b"line %d\n" % number for number in range(1, 21))
MINE = TEXT.replace(b"line 3\n", b"the agent's\n")
THEIRS = b"a person's\n"


class Place:
    """A clone with a committed file, and what the ways in need."""

    def __init__(self, root: Path, rig: HookRig) -> None:
        self.root, self.rig = root, rig
        self.file = root / "a.md"
        self.clone = Clone(root, {"a.md": TEXT, "z.md": TEXT})

    def agent(self) -> str:
        """Who wrote last, by the record."""
        found = [event for event in self.rig.ledger() if event["action_type"] == "MUTATION"]
        return str(found[-1]["identity"]["agent_id"])

    def mcp(self, tool: str, **arguments: object) -> None:
        """Call a tool of the MCP server, on a connection that has read the file."""
        workspaces = Workspaces()
        try:
            roots = Roots([str(self.root)])
            connection = ClientConnection(workspaces, roots, is_session=True, is_process=True)
            for name, given in (("read_file", {"path": "a.md"}), (tool, arguments)):
                answer = dispatch.call(connection, name, given, lambda *_: None, WITH_COMMANDS)
                assert not answer.is_error, answer
        finally:
            workspaces.close()


def library_write(place: Place) -> None:
    with Workspace(place.root) as ws, ws.turn(agent_id="bot") as turn:
        turn.read_file("a.md")
        turn.write_file("a.md", MINE)


def library_write_files(place: Place) -> None:
    with Workspace(place.root) as ws, ws.turn(agent_id="bot") as turn:
        for name in ("a.md", "z.md"):
            turn.read_file(name)
        turn.write_files({"a.md": MINE, "z.md": MINE})


def library_edit(place: Place) -> None:
    with Workspace(place.root) as ws, ws.turn(agent_id="bot") as turn:
        turn.read_file("a.md")
        turn.edit_file("a.md", [Edit(b"line 3\n", b"the agent's\n")])


def command_line_write(place: Place) -> None:
    words = ("write", "a.md", "--expect", sha256(TEXT), "--agent", "bot")
    done = run(*words, stdin=MINE.decode(), cwd=place.root)
    assert done.code == 0, done.err


def hook(place: Place) -> None:
    place.rig.read(place.file)
    given = {"file_path": str(place.file), "old_string": "line 3\n", "new_string": "the agent's\n"}
    check(place.rig, "Edit", given)
    place.file.write_bytes(MINE)
    assert place.rig.told("Edit", given, tool_use_id="w") == {}
    place.rig.call("claude-code", place.rig.event("SessionEnd", reason="exit"), "note")


def mcp_write(place: Place) -> None:
    place.mcp("write_file", path="a.md", content=MINE.decode())


def mcp_command(place: Place) -> None:
    place.mcp("run_command", command=COMMAND)


COMMAND = "sed -i 's/^line 3$/the agent'\"'\"'s/' a.md"


def run_command(place: Place) -> None:
    done = run("run", "--agent", "bot", "--", "sh", "-c", COMMAND, cwd=place.root)
    assert done.code == 0, done.err


def turn_run(place: Place) -> None:
    with Workspace(place.root) as ws, ws.turn(agent_id="bot") as turn:
        assert turn.run(["sh", "-c", COMMAND]).exit_code == 0


WAYS = {
    way.__name__: way
    for way in (
        *(library_write, library_write_files, library_edit, command_line_write, hook),
        *(mcp_write, mcp_command, run_command, turn_run),
    )
}


@pytest.fixture
def place(root: Path, rig: HookRig, monkeypatch: pytest.MonkeyPatch) -> Place:
    if (reason := why_not(str(root))) is not None:
        pytest.skip(reason)
    for name, value in IDENTITY.items():
        monkeypatch.setenv(name, value)
    return Place(root, rig)


def changed_by_both(place: Place, way: Callable[[Place], None]) -> str:
    """The agent changes a line; a person saves another one, by a program that keeps nothing."""
    way(place)
    assert place.file.read_bytes() == MINE
    place.file.write_bytes(MINE.replace(b"line 15\n", THEIRS))
    return place.agent()


@pytest.mark.parametrize("name", WAYS)
def test_a_change_is_kept_whichever_way_it_comes(place: Place, name: str) -> None:
    """Finding U14: who wrote a line, what was there, and what an agent's commit has, is known of all alike."""
    agent = changed_by_both(place, WAYS[name])
    root, file = place.root, place.file

    lines = blame(str(root), str(file), file.read_bytes())
    assert lines[2].author.kind == "agent"
    assert lines[2].author.write is not None
    assert lines[2].author.write.agent_id == agent
    assert lines[14].author.kind == "outsider"

    shown = run("diff", "a.md", "--agent", agent, cwd=root)
    assert "+a person's" in shown.out
    assert "the agent's" not in shown.out.replace(" the agent's", "")

    with Workspace(root) as workspace:
        made = workspace.commit_mine("mine", agent_id=agent, dry_run=True)
    after = {each.path: each.after for each in made.plan.files}
    assert after["a.md"] == MINE

    listed = json.loads(run("versions", "list", "a.md", "--json", cwd=root).out)["versions"]
    assert {each["sha256"] for each in listed if each["size_bytes"] is not None} >= {
        sha256(TEXT),
        sha256(MINE),
    }
    keep = root.parent / "copy"
    shutil.copy2(file, keep)
    assert run("versions", "restore", sha256(MINE)[:12], "a.md", cwd=root).code == 0
    assert file.read_bytes() == MINE
    shutil.copy2(keep, file)

    with Workspace(root) as workspace:
        workspace.undo(agent_id=agent)
    assert file.read_bytes() == TEXT.replace(b"line 15\n", THEIRS)


def removed_by(way: str, place: Place) -> None:
    if way == "delete_file":
        with Workspace(place.root) as ws, ws.turn(agent_id="bot") as turn:
            turn.read_file("a.md")
            turn.delete_file("a.md")
    else:
        assert run("run", "--agent", "bot", "--", "rm", "a.md", cwd=place.root).code == 0


@pytest.mark.parametrize("way", ["delete_file", "run"])
def test_what_was_deleted_comes_back_whichever_way_it_went(place: Place, way: str) -> None:
    """Finding U14: an untracked version that git does not have."""
    place.file.write_bytes(TEXT + b"not committed\n")
    removed_by(way, place)

    with Workspace(place.root) as workspace:
        workspace.undo(agent_id="bot")

    assert place.file.read_bytes() == TEXT + b"not committed\n"


@pytest.mark.parametrize("way", ["move_file", "run"])
def test_what_was_moved_comes_back_whichever_way_it_went(place: Place, way: str) -> None:
    """Finding U14: with what the person changed since, where the move is on record as one."""
    if way == "move_file":
        with Workspace(place.root) as ws, ws.turn(agent_id="bot") as turn:
            turn.read_file("a.md")
            turn.move_file("a.md", "b.md")
    else:
        assert run("run", "--agent", "bot", "--", "mv", "a.md", "b.md", cwd=place.root).code == 0

    with Workspace(place.root) as workspace:
        workspace.undo(agent_id="bot")

    assert place.file.read_bytes() == TEXT
    assert not (place.root / "b.md").exists()
