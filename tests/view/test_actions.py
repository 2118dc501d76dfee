"""What a person can do from the page, and what a browser may not make it do."""

from __future__ import annotations

from pathlib import Path

import pytest

from noclobber import Workspace
from noclobber.errors import BadRequestError, NoclobberError
from noclobber.shell import runs
from noclobber.view import actions
from tests.view.scene import busy_project, refused_run


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"action": "restore"},
        {"action": "restore", "file": "a", "version": "--all"},
        {"action": "restore", "file": "../outside", "version": "a" * 64},
        {"action": "restore", "file": "/etc/passwd", "version": "a" * 64},
        {"action": "undo", "scope": "root", "id": "x"},
        {"action": "undo", "scope": "call", "id": ""},
        {"action": "retry", "kind": "run", "name": "--json"},
        {"action": "retry", "kind": "run", "name": "../../x"},
        {"action": "drop", "kind": "kept", "name": "../agent_trace.jsonl"},
        {"action": "restore", "kind": "kept", "name": "x\0y"},
    ],
)
def test_what_makes_no_sense_is_refused(root: Path, asked: dict[str, str]) -> None:
    """N-view, bad input: no option is smuggled in, nothing outside the project is named."""
    with pytest.raises(NoclobberError):
        actions.carry_out(str(root), asked)
    with pytest.raises(NoclobberError):
        actions.preview(str(root), asked)


def test_an_undo_in_the_way_of_somebody_elses_change_is_refused(tmp_path: Path) -> None:
    """N-view: the command line's own judgement, and its reason."""
    root = (tmp_path / "shop").resolve()
    with busy_project(root):
        before = (root / "src" / "app.py").read_bytes()
        done = actions.carry_out(str(root), {"action": "undo", "scope": "agent", "id": "builder-1"})
        assert not done.done
        assert "conflict" in done.text
        assert (root / "src" / "app.py").read_bytes() == before


def test_a_refused_command_is_run_again_and_dropped(root: Path) -> None:
    """N-view: `run rerun` on the files as they are now; the kept one goes."""
    (root / "docs").mkdir()
    (root / "docs" / "plan.md").write_text("- one\n")
    with Workspace(root) as workspace, workspace.turn(agent_id="a") as turn:
        turn.write_file("x", "y")  # Makes the state folder.
    runs.folder_of(str(root))
    refused_run(root)
    name = runs.all_ids(str(root))[0]
    done = actions.carry_out(str(root), {"action": "retry", "kind": "run", "name": name})
    assert done.done, done.text
    assert (root / "docs" / "plan.md").read_text() == "* one\n"
    assert name not in runs.all_ids(str(root))


def test_an_unknown_version_says_so(root: Path) -> None:
    """N-view: in the words of `versions restore`."""
    (root / "a").write_text("a")
    asked = {"action": "restore", "file": "a", "version": "a" * 64}
    assert not actions.carry_out(str(root), asked).done
    with pytest.raises(BadRequestError):
        actions.preview(str(root), {**asked, "version": "short"})
