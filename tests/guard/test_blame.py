"""Where each line comes from: agents by the ledger, outsiders by what nobody else wrote, gaps as gaps."""

from __future__ import annotations

from pathlib import Path

import pytest

from noclobber import Workspace
from noclobber.disk.versions import Versions
from noclobber.guard.blame import blame

TEXT = b"one\ntwo\nthree\nfour\nfive\n"


def told(root: Path, name: str = "plan.md") -> list[str]:
    """Return who wrote each line, shortly."""
    path = root / name
    return [
        each.author.write.agent_id or "?"
        if each.author.kind == "agent" and each.author.write
        else each.author.kind
        for each in blame(str(root), str(path), path.read_bytes())
    ]


@pytest.fixture
def ws(root: Path) -> Workspace:
    (root / "plan.md").write_bytes(TEXT)
    return Workspace(root)


def write(ws: Workspace, agent: str, old: bytes, new: bytes, name: str = "plan.md") -> None:
    with ws.turn(agent_id=agent) as turn:
        content = turn.read_file(name).content
        turn.write_file(name, content.replace(old, new))


def test_every_line_has_its_author(ws: Workspace, root: Path) -> None:
    """N-who: agents, an outsider in between, one at the end, and what was there before."""
    write(ws, "ana", b"two\n", b"two of ana\n")
    (root / "plan.md").write_bytes((root / "plan.md").read_bytes().replace(b"four\n", b"four of vim\n"))
    write(ws, "bob", b"one\n", b"one\nbob added\n")
    with (root / "plan.md").open("ab") as file:
        file.write(b"six\n")

    assert told(root) == ["first", "bob", "ana", "first", "outsider", "first", "outsider"]


def test_a_line_keeps_its_author_when_others_edit_around_it(ws: Workspace, root: Path) -> None:
    """N-who: surviving edits by others."""
    write(ws, "ana", b"three\n", b"three of ana\n")
    for number in range(5):
        write(ws, "bob", b"two\n", b"bob %d\ntwo\n" % number)
        write(ws, "eve", b"four\n", b"four\neve %d\n" % number)

    authors = told(root)
    assert authors.count("ana") == 1
    assert (authors.count("bob"), authors.count("eve")) == (5, 5)


def test_a_file_that_an_agent_created_is_its_own(ws: Workspace, root: Path) -> None:
    """N-who."""
    with ws.turn(agent_id="ana") as turn:
        turn.write_file("new.md", b"a\nb\n")

    assert told(root, "new.md") == ["ana", "ana"]


def test_a_file_that_was_moved_keeps_its_authors(ws: Workspace, root: Path) -> None:
    """N-who: under its old name it is the same file."""
    write(ws, "ana", b"two\n", b"two of ana\n")
    with ws.turn(agent_id="bob") as turn:
        turn.read_file("plan.md")
        turn.move_file("plan.md", "moved.md")
    write(ws, "eve", b"five\n", b"five of eve\n", name="moved.md")

    assert told(root, "moved.md") == ["first", "ana", "first", "first", "eve"]


def test_where_bytes_are_gone_it_says_so(ws: Workspace, root: Path) -> None:
    """N-who: nothing is guessed."""
    write(ws, "ana", b"two\n", b"two of ana\n")
    write(ws, "bob", b"four\n", b"four of bob\n")
    Versions(str(root)).prune(4e9, 0, 0)
    write(ws, "eve", b"one\n", b"one of eve\n")

    assert told(root) == ["eve", "unknown", "unknown", "unknown", "unknown"]
