"""Workspaces: their turns, their sessions, their options and their records."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

import noclobber
from noclobber.errors import (
    BadRequestError,
    StaleFileError,
    TurnClosedError,
)
from noclobber.guard.workspace import Workspace
from tests.conftest import sha256


def test_a_new_turn_starts_empty_and_reads_afresh(root: Path, ws: Workspace) -> None:
    """010-FR-005, 010-US3, R-turn, ruling 14."""
    (root / "a.md").write_bytes(b"v1")
    with ws.turn() as one:
        one.read_file("a.md")
    (root / "a.md").write_bytes(b"v2")
    with ws.turn() as two:
        assert two.get_initial_hash("a.md") is None
        two.write_file("a.md", b"v3")  # Not read in this turn, so not checked.
        two.read_file("a.md")
        assert two.get_initial_hash("a.md") == sha256(b"v3")
    for use in (
        lambda: one.get_initial_hash("a.md"),
        lambda: one.read_file("a.md"),
        lambda: one.write_file("a.md", b"x"),
    ):
        with pytest.raises(TurnClosedError):
            use()
    with pytest.raises(TurnClosedError), one:
        pass


def test_turns_at_once_know_nothing_of_each_other(root: Path, ws: Workspace) -> None:
    """009-SC-001: two agents, one file, and the second writer is refused."""
    (root / "a.md").write_bytes(b"v1")
    with ws.turn(agent_id="one") as one, ws.turn(agent_id="two") as two:
        one.read_file("a.md")
        two.read_file("a.md")
        one.write_file("a.md", b"one")
        with pytest.raises(StaleFileError):
            two.write_file("a.md", b"two")
    assert (root / "a.md").read_bytes() == b"one"


def test_a_turn_ends_also_when_its_block_raises(root: Path, ws: Workspace) -> None:
    """010-FR-005: however it ends."""
    with pytest.raises(KeyError), ws.turn() as turn:
        raise KeyError
    with pytest.raises(TurnClosedError):
        turn.get_initial_hash("a.md")


def test_no_turn_leaks_anything_into_the_next(root: Path, ws: Workspace) -> None:
    """010-SC-003: counted over a hundred turns."""
    for number in range(20):
        (root / f"{number}.md").write_bytes(b"%d" % number)

    def one_turn() -> None:
        with ws.turn(agent_id="a") as turn:
            for number in range(20):
                turn.read_file(f"{number}.md")
            turn.write_file("0.md", b"x")

    def alive() -> int:
        gc.collect()
        return len(gc.get_objects())

    for _ in range(3):
        one_turn()
    before = alive()
    for _ in range(100):
        one_turn()
    assert alive() <= before + 20
    assert list(ws._state.turns) == []


def test_a_turn_that_is_dropped_is_not_kept_alive(ws: Workspace) -> None:
    """010-SC-003: also without an end."""
    turn_id = ws.turn().turn_id
    gc.collect()
    assert turn_id not in [turn.turn_id for turn in ws._state.turns]


def test_session_scope_keeps_baselines_but_not_initial_hashes(root: Path, ws: Workspace) -> None:
    """Ruling 14."""
    (root / "a.md").write_bytes(b"v1")
    (root / "real.md").write_bytes(b"v1")
    (root / "link.md").symlink_to("real.md")
    session: dict[str, Any] = {"agent_id": "a", "session_id": "s", "scope": "session"}
    with ws.turn(**session) as turn:
        turn.read_file("a.md")
        turn.read_file("link.md")
    with ws.turn(**session) as turn:
        assert turn.get_initial_hash("a.md") is None
        assert turn.changes_since_read("a.md") == ""
        (root / "a.md").write_bytes(b"theirs")
        (root / "real.md").write_bytes(b"theirs")
        for path in ("a.md", "link.md", "real.md"):
            with pytest.raises(StaleFileError):
                turn.write_file(path, b"x")
        turn.read_file("a.md")
        assert turn.get_initial_hash("a.md") == sha256(b"theirs")
    with ws.turn(**session) as turn:
        turn.write_file("a.md", b"mine")
    for other in ({"agent_id": "b"}, {"session_id": "t"}):
        with ws.turn(**{**session, **other}) as turn:
            assert turn.context.expected_for(str(root / "a.md"), str(root / "a.md")) is None
    ws.end_session("s")
    with ws.turn(**session) as turn:
        assert len(turn.context) == 0


def test_two_turns_of_one_session_each_add_what_they_saw(root: Path, ws: Workspace) -> None:
    """Ruling 14: neither loses the other's baselines, nor puts old ones back."""
    for name in ("a.md", "b.md"):
        (root / name).write_bytes(b"v1")
    session: dict[str, Any] = {"agent_id": "a", "session_id": "s", "scope": "session"}
    with ws.turn(**session) as turn:
        turn.read_file("a.md")
    with ws.turn(**session) as one, ws.turn(**session) as two:
        two.write_file("a.md", b"v2")
        two.end()
        one.read_file("b.md")
    with ws.turn(**session) as turn:
        assert turn.context.expected_for(str(root / "a.md"), str(root / "a.md")) == sha256(b"v2")
        turn.write_file("a.md", b"v3")
        assert turn.context.expected_for(str(root / "b.md"), str(root / "b.md")) == sha256(b"v1")


def test_a_workspace_that_is_only_read_leaves_nothing_behind(root: Path) -> None:
    """DESIGN: state is created when first needed, and ignores itself in git."""
    (root / "a.md").write_bytes(b"v1")
    with Workspace(root) as ws:
        with ws.turn() as turn:
            turn.read_file("a.md")
        assert not (root / ".noclobber").exists()
        with ws.turn() as turn:
            turn.write_file("a.md", b"v2")
        assert (root / ".noclobber/.gitignore").read_text() == "*\n"
        assert ws.ledger.verify().event_count == 1


def test_a_workspace_with_a_mistake_in_its_options_says_so(root: Path) -> None:
    """N-codes, N-input: clear errors."""
    with pytest.raises(BadRequestError, match="Did you mean 'partial'"):
        Workspace(root, partail="deny")  # type: ignore[call-arg]
    with Workspace(root, unread="deny") as ws, pytest.raises(BadRequestError, match="no option"):
        ws.turn(read_only=True)  # type: ignore[call-arg]


@pytest.mark.broken_ledger
def test_a_file_that_is_no_ledger_any_more_lets_no_write_through(tmp_path: Path) -> None:
    """Ruling 13: an append would fail, so nothing may be changed."""
    with noclobber.Workspace(tmp_path) as ws, ws.turn() as turn:
        turn.write_file("a.md", b"v1")
        with open(ws.ledger.path, "wb") as garbage:
            garbage.write(b"\xff{not json\nzzz")
        with pytest.raises(noclobber.LedgerError):
            turn.write_file("a.md", b"v2")
        assert (tmp_path / "a.md").read_bytes() == b"v1"
