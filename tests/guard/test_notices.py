"""Told before it hurts: a change of what an agent has read is told once, with who and what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from noclobber import StaleFileError, Turn, Workspace
from noclobber.guard.notices import ChangeNotice

TEXT = b"one\ntwo\nthree\n"


@pytest.fixture
def turn(root: Path) -> Iterator[Turn]:
    for name in ("a.md", "b.md", "never-read.md"):
        (root / name).write_bytes(TEXT)
    with Workspace(root) as ws, ws.turn(agent_id="ana") as turn:
        turn.read_file("a.md")
        turn.read_file("b.md")
        yield turn


def test_a_change_by_another_agent_is_told_once_with_its_name_and_a_diff(turn: Turn, root: Path) -> None:
    """N-notice, N-who: what changed, by whom, before the next write."""
    assert turn.changes() == []
    with Workspace(root) as ws, ws.turn(agent_id="bob", session_id="session-12345", host="library") as other:
        other.write_file("a.md", TEXT.replace(b"two", b"TWO"))
        other.write_file("never-read.md", b"new\n")

    [notice] = turn.changes()

    assert notice.path == str(root / "a.md")
    assert notice.by.startswith("the agent bob (library session session-) at 20")
    assert "-two\n+TWO\n" in notice.diff
    assert turn.changes() == []


def test_a_change_by_an_outsider_is_told_with_the_time_of_the_disk(turn: Turn, root: Path) -> None:
    """N-notice, N-who: an editor has no name."""
    (root / "b.md").write_bytes(b"edited\n")

    [notice] = turn.changes()

    assert notice.by.startswith("an outsider, at 20")
    assert "was changed since you read it" in str(notice)


def test_a_second_change_is_told_again_and_a_deletion_too(turn: Turn, root: Path) -> None:
    """N-notice: once a change, not once a file."""
    (root / "a.md").write_bytes(b"first\n")
    assert len(turn.changes()) == 1
    (root / "a.md").write_bytes(b"the second\n")
    assert len(turn.changes()) == 1
    (root / "a.md").unlink()
    [notice] = turn.changes()
    assert str(notice) == f"{root / 'a.md'} was deleted since you read it."
    assert turn.changes() == []


def test_own_writes_and_re_reads_are_no_news(turn: Turn, root: Path) -> None:
    """N-notice: only what the agent does not know."""
    turn.write_file("a.md", b"mine\n")
    (root / "b.md").write_bytes(b"edited\n")
    turn.read_file("b.md")

    assert turn.changes() == []


def test_being_told_is_not_having_read(turn: Turn, root: Path) -> None:
    """009-FR-004: the check is not weakened by a notice."""
    (root / "a.md").write_bytes(b"edited\n")
    assert len(turn.changes()) == 1

    with pytest.raises(StaleFileError):
        turn.write_file("a.md", b"mine\n")


def test_a_function_is_called_before_the_next_tool_call(turn: Turn, root: Path) -> None:
    """N-notice: before it hurts, without asking."""
    told: list[ChangeNotice] = []
    turn.on_changes = told.extend
    turn.read_file("a.md")
    assert told == []
    (root / "b.md").write_bytes(b"edited\n")

    turn.read_file("never-read.md")

    assert [notice.path for notice in told] == [str(root / "b.md")]


def test_a_long_diff_is_cut(turn: Turn, root: Path) -> None:
    """N-notice: bounded in lines and letters."""
    (root / "a.md").write_bytes(b"".join(b"line %d\n" % number for number in range(5000)))

    [notice] = turn.changes()

    assert len(notice.diff) < 5000
    assert "more lines of this diff are not shown" in notice.diff


def test_a_file_whose_bytes_were_not_kept_is_told_without_a_diff(root: Path) -> None:
    """N-notice."""
    (root / "a.md").write_bytes(TEXT)
    with Workspace(root, retained_file_bytes=1) as ws, ws.turn() as turn:
        turn.read_file("a.md")
        (root / "a.md").write_bytes(b"edited\n")

        [notice] = turn.changes()

    assert notice.diff == ""
