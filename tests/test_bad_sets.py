"""Changes that cannot be meant: whichever way they come in, a clear error, nothing changed, nothing lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from noclobber import Edit, Turn, Workspace
from noclobber.errors import BadRequestError, NoclobberError
from noclobber.mcp import dispatch
from noclobber.mcp.connection import ClientConnection, Workspaces
from noclobber.mcp.roots import Roots
from noclobber.mcp.tools import WITH_COMMANDS
from noclobber.shell.roots import why_not
from tests.conftest import sha256
from tests.rigs.commands import run

ONE, TWO = b"one\n", b"two\n"
NEVER = "ab" * 32  # The hash of nothing that ever was.


def in_turn(do: Callable[[Turn], object], **options: str) -> Callable[[Path], str]:
    """A way through the library: the code of its refusal."""

    def way(root: Path) -> str:
        with Workspace(root, **options) as ws, ws.turn(agent_id="bot") as turn:  # type: ignore[arg-type]
            turn.read_file("a.md")
            with pytest.raises(NoclobberError) as refused:
                do(turn)
        return refused.value.code

    return way


def by_mcp(tool: str, **arguments: object) -> Callable[[Path], str]:
    """A way through the MCP server."""

    def way(root: Path) -> str:
        workspaces = Workspaces()
        try:
            connection = ClientConnection(workspaces, Roots([str(root)]), is_session=True, is_process=True)
            dispatch.call(connection, "read_file", {"path": "a.md"}, lambda *_: None, WITH_COMMANDS)
            answer = dispatch.call(connection, tool, arguments, lambda *_: None, WITH_COMMANDS)
        finally:
            workspaces.close()
        assert answer.is_error, answer
        return str(answer)

    return way


def by_command(*words: str, stdin: str = "") -> Callable[[Path], str]:
    """A way through the command line."""

    def way(root: Path) -> str:
        done = run(*words, stdin=stdin, cwd=root)
        assert done.code in (3, 75), (done.code, done.out, done.err)
        assert "Traceback" not in done.err
        return done.out + done.err

    return way


NEVER_WAS = {
    "write": in_turn(lambda turn: turn.write_file("a.md", TWO, expected_hash=NEVER)),
    "write of a new file": in_turn(lambda turn: turn.write_file("new.md", TWO, expected_hash=NEVER)),
    "edit": in_turn(lambda turn: turn.edit_file("a.md", [Edit(b"one", b"two")], expected_hash=NEVER)),
    "delete": in_turn(lambda turn: turn.delete_file("a.md", expected_hash=NEVER)),
    "move": in_turn(lambda turn: turn.move_file("a.md", "new.md", expected_hash=NEVER)),
    "write_files": in_turn(
        lambda turn: turn.write_files({"b.md": TWO, "a.md": TWO}, expected_hashes={"a.md": NEVER})
    ),
    "merge": in_turn(lambda turn: turn.write_file("a.md", TWO, expected_hash=NEVER), on_stale="merge"),
    "mcp": by_mcp("write_file", path="a.md", content="two\n", expected_hash=NEVER),
    "noclobber write": by_command("write", "a.md", "--expect", NEVER, "--json", stdin="two\n"),
    "run": by_command("run", "--expect", f"a.md={NEVER}", "--", "sh", "-c", "echo two > a.md"),
}
NO_RECORD = {
    "write": in_turn(lambda turn: turn.write_file("a.md", TWO)),
    "edit": in_turn(lambda turn: turn.edit_file("a.md", [Edit(b"one", b"two")])),
    "delete": in_turn(lambda turn: turn.delete_file("a.md")),
    "move": in_turn(lambda turn: turn.move_file("a.md", "new.md")),
    "write_files": in_turn(lambda turn: turn.write_files({"a.md": TWO, "new.md": TWO})),
    "turn.run": in_turn(lambda turn: turn.run("echo two > a.md")),
    "mcp": by_mcp("write_file", path="a.md", content="two\n"),
    "run_command": by_mcp("run_command", command="echo two > a.md"),
    "noclobber write": by_command("write", "a.md", "--expect", sha256(ONE), "--json", stdin="two\n"),
    "run": by_command("run", "--", "sh", "-c", "echo two > a.md; echo two > new.md"),
    "undo": by_command("undo", "--agent", "earlier", "--json"),
}


@pytest.fixture
def project(root: Path) -> Path:
    """Two files, one of them written by an agent before."""
    if (reason := why_not(str(root))) is not None:
        pytest.skip(reason)
    for name in ("a.md", "b.md"):
        (root / name).write_bytes(ONE)
    with Workspace(root) as ws, ws.turn(agent_id="earlier") as turn:
        turn.write_file("c.md", TWO)
    return root


def files(root: Path) -> dict[str, bytes]:
    """Everything in a project that is not noclobber's own."""
    return {path.name: path.read_bytes() for path in root.iterdir() if path.is_file()}


@pytest.mark.parametrize("way", NEVER_WAS)
def test_a_base_that_never_existed_is_stale(project: Path, way: str) -> None:
    """N-input, 009-FR-004: a hash that the file never had is one that it does not have now."""
    before = files(project)
    assert "STALE_FILE" in NEVER_WAS[way](project)
    assert files(project) == before


@pytest.mark.broken_ledger
@pytest.mark.parametrize("way", NO_RECORD)
def test_nothing_lands_that_cannot_be_recorded(project: Path, way: str) -> None:
    """Ruling 13, N-input: the refusal is about the ledger, and the record is whole when it can be written again."""
    before = files(project)
    ledger = project / ".noclobber/agent_trace.jsonl"
    ledger.rename(ledger.with_suffix(".aside"))
    ledger.mkdir()
    said = NO_RECORD[way](project)
    assert "LEDGER_" in said or "ledger" in said, said
    assert files(project) == before
    ledger.rmdir()
    ledger.with_suffix(".aside").rename(ledger)
    done = run("undo", "--agent", "earlier", cwd=project)
    assert (done.code, (project / "c.md").exists()) == (0, False), done.err


def test_what_was_seen_in_another_project_says_nothing_here(project: Path, tmp_path: Path) -> None:
    """N-input: neither an observation of it, nor its files."""
    other = tmp_path / "other"
    (other / ".noclobber").mkdir(parents=True)
    (other / "a.md").write_bytes(ONE)
    before = files(project)
    with Workspace(other) as theirs, theirs.turn() as there, Workspace(project) as ws, ws.turn() as turn:
        seen = there.read_file("a.md").observation_id
        with pytest.raises(BadRequestError, match="read the file again"):
            turn.write_file("a.md", TWO, observation_id=seen)
        with pytest.raises(NoclobberError, match="outside the workspace"):
            turn.write_files({"b.md": TWO, str(other / "a.md"): TWO})
    assert (files(project), (other / "a.md").read_bytes()) == (before, ONE)


@pytest.mark.slow
def test_more_files_than_one_commit_takes_are_refused_by_number(project: Path) -> None:
    """N-input: nothing of them is made, not even a folder."""
    before = sorted(project.iterdir())
    with Workspace(project) as ws, ws.turn() as turn, pytest.raises(BadRequestError, match="too many"):
        turn.write_files({f"new/{number}": TWO for number in range(100_000)})
    assert sorted(project.iterdir()) == before
