"""
What every implementation of `StaleWrites` must keep, today's and the next one.

The suite runs over `RefuseStale` and over a small one that joins appended lines, which shows that the
engine asks and commits as the protocol says.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from noclobber import AgentTraceLedger, Edit, StaleFileError, Workspace
from noclobber.disk.reading import FileState
from noclobber.guard.facts import Target
from noclobber.guard.merging import MergeStale
from noclobber.guard.stale_writes import RefuseStale, Resolution
from noclobber.guard.turn import Turn

if TYPE_CHECKING:
    from noclobber.guard.stale_writes import StaleWrites


class JoinAppended:
    """Lets a write land that only appended to what was seen, if what is there now was only appended to as well."""

    def __init__(self) -> None:
        self.asked = 0

    def resolve(self, target: Target, seen: bytes | None, current: FileState) -> Resolution | None:
        """Keep their lines, then ours."""
        self.asked += 1
        theirs = current.content
        if seen is None or theirs is None or not theirs.startswith(seen):
            return None
        if target.sent is None:
            return Resolution(current.sha256)
        if not target.sent.startswith(seen):
            return None
        return Resolution(current.sha256, theirs + target.sent[len(seen) :])


IMPLEMENTATIONS = [RefuseStale, MergeStale, JoinAppended]
REFUSING = (RefuseStale, MergeStale)  # In these small files everything is adjacent: a conflict for a merge.


@pytest.fixture
def file(root: Path) -> Path:
    path = root / "a.md"
    path.write_bytes(b"one\n")
    return path


@pytest.fixture(params=IMPLEMENTATIONS)
def stale_writes(request: pytest.FixtureRequest) -> StaleWrites:
    made: StaleWrites = request.param()
    return made


@pytest.fixture
def turn(root: Path, file: Path, stale_writes: StaleWrites) -> Iterator[Turn]:
    with Workspace(root) as workspace, workspace.turn() as turn:
        turn.stale_writes = stale_writes
        turn.read_file("a.md")
        yield turn


def test_a_real_conflict_is_refused_and_nothing_is_lost(turn: Turn, file: Path) -> None:
    """009-FR-004: whatever the implementation."""
    file.write_bytes(b"rewritten\n")
    with pytest.raises(StaleFileError):
        turn.write_file("a.md", b"one\nmine\n")
    assert file.read_bytes() == b"rewritten\n"


@pytest.mark.parametrize("change", ["delete", "move"])
def test_deletes_and_moves_are_never_resolved(turn: Turn, file: Path, change: str) -> None:
    """N-merge: there is nothing to merge."""
    file.write_bytes(b"one\ntheirs\n")
    with pytest.raises(StaleFileError):
        turn.delete_file("a.md") if change == "delete" else turn.move_file("a.md", "b.md")
    assert file.read_bytes() == b"one\ntheirs\n"


def test_a_file_that_is_gone_or_was_created_since_is_never_resolved(
    turn: Turn, root: Path, file: Path
) -> None:
    """N-merge, ruling 5."""
    file.unlink()
    with pytest.raises(StaleFileError) as refused:
        turn.write_file("a.md", b"one\nmine\n")
    assert refused.value.actual == "DELETED"
    with pytest.raises(FileNotFoundError):
        turn.read_file("b.md")
    (root / "b.md").write_bytes(b"theirs\n")
    with pytest.raises(StaleFileError) as refused:
        turn.write_file("b.md", b"mine\n")
    assert refused.value.expected == "ABSENT"


def test_what_can_be_joined_lands_or_is_refused_whole(
    turn: Turn, file: Path, stale_writes: StaleWrites
) -> None:
    """N-merge: their lines and ours, or theirs alone; one event; and the baseline is what is there."""
    file.write_bytes(b"one\ntheirs\n")
    if isinstance(stale_writes, REFUSING):
        with pytest.raises(StaleFileError):
            turn.write_file("a.md", b"one\nmine\n")
        assert file.read_bytes() == b"one\ntheirs\n"
        return
    turn.write_file("a.md", b"one\nmine\n")
    assert file.read_bytes() == b"one\ntheirs\nmine\n"
    assert [event["action_type"] for event in AgentTraceLedger(turn.recorder.ledger.path).events()] == [
        "MUTATION"
    ]
    turn.write_file("a.md", b"next\n")


def test_an_edit_may_be_made_in_what_is_there_now(turn: Turn, file: Path, stale_writes: StaleWrites) -> None:
    """N-merge: the same edit, in the current version."""
    file.write_bytes(b"one\ntheirs\n")
    if isinstance(stale_writes, REFUSING):
        with pytest.raises(StaleFileError):
            turn.edit_file("a.md", [Edit("one", "1")])
        return
    turn.edit_file("a.md", [Edit("one", "1")])
    assert file.read_bytes() == b"1\ntheirs\n"


def test_a_file_that_changes_again_is_asked_about_again_within_bounds(root: Path, file: Path) -> None:
    """N-merge: each commit is a compare-and-swap on what is there, and there is an end to it."""

    class AlwaysChanging(JoinAppended):
        def resolve(self, target: Target, seen: bytes | None, current: FileState) -> Resolution | None:
            found = super().resolve(target, seen, current)
            with file.open("ab") as other:
                other.write(b"theirs\n")
            return found

    with Workspace(root) as workspace, workspace.turn() as turn:
        turn.read_file("a.md")
        turn.stale_writes = changing = AlwaysChanging()
        file.write_bytes(b"one\ntheirs\n")
        with pytest.raises(StaleFileError):
            turn.write_file("a.md", b"one\nmine\n")
    assert 1 < changing.asked < 100
    assert b"mine" not in file.read_bytes()
    assert file.read_bytes().count(b"theirs\n") == changing.asked + 1


def test_all_of_several_files_land_or_none(
    root: Path, turn: Turn, file: Path, stale_writes: StaleWrites
) -> None:
    """N-merge: one that cannot be joined refuses them all."""
    (root / "b.md").write_bytes(b"b\n")
    turn.read_file("b.md")
    file.write_bytes(b"one\ntheirs\n")
    (root / "b.md").write_bytes(b"rewritten\n")
    with pytest.raises(StaleFileError):
        turn.write_files({"a.md": b"one\nmine\n", "b.md": b"b\nmine\n"})
    assert file.read_bytes() == b"one\ntheirs\n"
    assert (root / "b.md").read_bytes() == b"rewritten\n"
    if not isinstance(stale_writes, REFUSING):
        (root / "b.md").write_bytes(b"b\ntheirs\n")
        turn.write_files({"a.md": b"one\nmine\n", "b.md": b"b\nmine\n"})
        assert (root / "b.md").read_bytes() == b"b\ntheirs\nmine\n"
