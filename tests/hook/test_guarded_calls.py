"""Notes from the hook before a command to the shell that runs it."""

from __future__ import annotations

import pytest

from noclobber.hook import guarded_calls
from noclobber.hook.guarded_calls import leave, take
from noclobber.hosts.event import Event
from tests.rigs.hooks import HookRig


def event(command: str, call_id: str, agent_id: str = "main", session_id: str = "s") -> Event:
    """Return an event about a command."""
    return Event(
        "claude-code", "pre", session_id=session_id, call_id=call_id, agent_id=agent_id, command=command
    )


def test_a_note_is_taken_once_by_the_command_that_it_is_about(rig: HookRig) -> None:
    """N-shell: two agents of a session at once, and each command runs as the one that asked."""
    leave(event("make a", "1", "one"), "/r", is_plain=False)
    leave(event("make b", "2", "two"), "/r", is_plain=True)
    found = take("claude-code", "s", "make b")
    assert found is not None
    assert (found.agent_id, found.call_id, found.is_plain, found.root) == ("two", "2", True, "/r")
    assert take("claude-code", "other", "make a") is None
    found = take("claude-code", "s", "make a")
    assert found is not None
    assert found.agent_id == "one"
    assert take("claude-code", "s", "make a") is None


def test_one_command_twice_has_two_notes(rig: HookRig) -> None:
    """N-shell: parallel calls of one message."""
    for number in "12":
        leave(event("make", number), "/r", is_plain=False)
    taken = [take("claude-code", "s", "make") for _ in range(3)]
    assert {one.call_id for one in taken if one is not None} == {"1", "2"}
    assert taken[2] is None


def test_a_command_that_the_host_spells_in_another_way_finds_its_note(rig: HookRig) -> None:
    """N-shell: by what is left without blanks and `< /dev/null`; failing that, the oldest note is its own."""
    leave(event("a | b", "1"), "/r", is_plain=False)
    leave(event("c  |  d", "2"), "/r", is_plain=False)
    found = take("claude-code", "s", "c < /dev/null | d")
    assert found is not None
    assert found.call_id == "2"
    found = take("claude-code", "s", "'a' | 'b'")
    assert found is not None
    assert found.call_id == "1"


def test_a_damaged_or_old_note_is_none(rig: HookRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-shell: it is removed, and the command runs as it is."""
    leave(event("a", "1"), "/r", is_plain=False)
    [note] = (rig.runtime / "noclobber").glob("*.run.*")
    note.write_text("[1")
    assert take("claude-code", "s", "a") is None
    assert not note.exists()
    leave(event("a", "1"), "/r", is_plain=False)
    monkeypatch.setattr(guarded_calls, "LIFE_S", -1.0)
    assert take("claude-code", "s", "a") is None
