"""The timeline of one file, asked for by the name that the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from noclobber import Workspace
from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.errors import BadRequestError
from noclobber.view import actions
from noclobber.view.file_timeline import diff_between, timeline
from noclobber.view.shown_events import shortened

LONG = f"{'deep/' * 60}module.py"


@pytest.mark.parametrize("name", ["with\x1b[31mcolour.md", "\u202egnp.exe", "two\nlines.md", LONG])
def test_a_file_whose_name_is_not_shown_as_it_is_has_its_own_timeline(root: Path, name: str) -> None:
    """N-view, bad input: a name that was cut or spelled out led to a file that does not exist."""
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    with Workspace(root) as workspace, workspace.turn(agent_id="builder-1") as turn:
        first = turn.write_file(name, "one\n").sha256
        turn.write_file(name, "two\n")
    asked = shortened(name)
    assert asked != name

    found = timeline(str(root), asked, SYSTEM_CLOCK)
    assert [event.file for event in found.events] == [asked, asked]
    assert len(found.current) == 64
    assert "-one\n+two" in diff_between(str(root), asked, first, "now", SYSTEM_CLOCK)
    done = actions.carry_out(str(root), {"action": "restore", "file": asked, "version": first})
    assert done.done, done.text
    assert (root / name).read_text() == "one\n"


def test_a_name_that_stands_for_several_files_is_refused(root: Path) -> None:
    """N-view, bad input: what is restored is the file that was looked at, or nothing."""
    names = [f"{'a' * 100}/{middle}/{'b' * 100}" for middle in ("one", "two")]
    with Workspace(root) as workspace, workspace.turn(agent_id="builder-1") as turn:
        for name in names:
            (root / name).parent.mkdir(parents=True)
            turn.write_file(name, "x\n")
    assert shortened(names[0]) == shortened(names[1])

    with pytest.raises(BadRequestError, match="Several files are shown by this name"):
        timeline(str(root), shortened(names[0]), SYSTEM_CLOCK)


def test_a_file_that_is_really_called_so_comes_first(root: Path) -> None:
    """N-view, bad input: a backslash in a name is an ordinary character."""
    with Workspace(root) as workspace, workspace.turn(agent_id="builder-1") as turn:
        turn.write_file("a\x1b.md", "control\n")
        turn.write_file("a\\x1b.md", "plain\n")
        turn.write_file("a\\x1b.md", "plain again\n")

    assert len(timeline(str(root), "a\\x1b.md", SYSTEM_CLOCK).events) == 2


def test_control_characters_in_a_diff_are_spelled_out(root: Path) -> None:
    """N-view, bad input: text that is shown in another order than it is in the file fooled who says yes."""
    with Workspace(root) as workspace, workspace.turn(agent_id="builder-1") as turn:
        before = turn.write_file("a.py", "if ok: # \u202e esle\x1b[2J\n").sha256
        turn.write_file("a.py", "nothing\n")

    shown = diff_between(str(root), "a.py", "now", before, SYSTEM_CLOCK)
    assert "+if ok: # \\u202e esle\\x1b[2J\n" in shown
