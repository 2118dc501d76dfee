"""What a guarded command left, as the agent's memory takes it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from noclobber.hook.landed import learn
from noclobber.hook.session_memory import SessionMemory
from noclobber.hook.turn import HookTurn
from noclobber.hosts.event import Event
from tests.rigs.hooks import HookRig

NEW = hashlib.sha256(b"new").hexdigest()


def baseline(rig: HookRig, path: Path) -> str | None:
    """Return what the agent is taken to have seen."""
    with SessionMemory("claude-code", rig.session, "main", root=str(rig.root)) as memory:
        return memory.recall(str(path), str(path))[0].expected_for(str(path), str(path))


@pytest.mark.parametrize(
    "landed",
    [None, "x", [1], [["a"]], [["relative", "ABSENT", NEW]], [["/a", "x", NEW]], [["/a", "ABSENT", None]]],
)
def test_a_report_of_another_shape_teaches_nothing(rig: HookRig, file: Path, landed: Any) -> None:
    """N-shell: the runtime folder is the user's alone, and still nothing in it is believed blindly."""
    rig.read(file)
    before = baseline(rig, file)
    turn = HookTurn(Event("claude-code", "post", session_id=rig.session, cwd=str(rig.root)))
    learn(turn, {"landed": landed, "refused": landed})
    assert baseline(rig, file) == before


def test_seen_before_is_own_now_and_never_seen_is_unknown(rig: HookRig, file: Path) -> None:
    """N-shell: where it is known what the agent saw, and must be read otherwise."""
    rig.read(file)
    seen = baseline(rig, file)
    rows = [[str(file), seen, NEW], [str(rig.root / "b"), NEW, NEW], [str(rig.root / "c"), "ABSENT", NEW]]
    turn = HookTurn(Event("claude-code", "post", session_id=rig.session, cwd=str(rig.root)))
    learn(turn, {"landed": rows})
    found = [baseline(rig, rig.root / name) for name in ("a.txt", "b", "c")]
    assert found == [NEW, "UNKNOWN", NEW]


def test_what_a_command_changed_that_was_only_watched_must_be_read_again(rig: HookRig, file: Path) -> None:
    """N-shell: no view could be made when it ran, so somebody else may have written in the file meanwhile."""
    rig.read(file)
    seen = baseline(rig, file)
    turn = HookTurn(Event("claude-code", "post", session_id=rig.session, cwd=str(rig.root)))
    learn(turn, {"level": "watched", "landed": [[str(file), seen, NEW]]})
    assert baseline(rig, file) == seen
