"""What a user passes to an adapter, and what two adapters on one workspace share."""

from __future__ import annotations

from pathlib import Path

import pytest

from noclobber import BadRequestError, Workspace, aio
from noclobber.adapters.shared import run_turns


def test_adapters_of_one_framework_share_what_was_seen(root: Path) -> None:
    """N-frameworks: a backend knows what was read through a middleware."""
    with Workspace(root) as workspace:
        first = run_turns(workspace, "langgraph")
        assert run_turns(workspace, "langgraph") is first
        assert run_turns(str(root), "langgraph") is first
        assert run_turns(workspace, "crewai") is not first


def test_a_workspace_is_a_path_or_either_kind_of_workspace(root: Path) -> None:
    """N-frameworks: what is passed is named if it is neither."""
    assert run_turns(root, "x").workspace.root == str(root)
    assert run_turns(aio.Workspace(root), "x").workspace.root == str(root)
    with pytest.raises(BadRequestError, match="not a int"):
        run_turns(7, "x")


def test_a_folder_that_does_not_exist_is_named(root: Path) -> None:
    """N-frameworks: an adapter does not make a project out of a typing error."""
    with pytest.raises(BadRequestError, match="no such folder") as refused:
        run_turns(root / "typo", "x")
    assert refused.value.path.endswith("/typo")


def test_two_adapters_with_different_options_are_refused(root: Path) -> None:
    """N-frameworks: which of the two rules would hold for a call is a guess."""
    with Workspace(root) as workspace:
        held = run_turns(workspace, "langgraph", unread="deny")
        with pytest.raises(
            BadRequestError, match=r"\(langgraph\) has unread='deny', and this one \(crewai\)"
        ):
            run_turns(workspace, "crewai")
        assert run_turns(workspace, "crewai", unread="deny").options == held.options


def test_a_closed_workspace_does_not_stand_in_the_way_of_a_new_one(root: Path) -> None:
    """N-frameworks: a program that closes one and opens another on the same folder."""
    workspace = Workspace(root)
    old = run_turns(workspace, "x", unread="deny")
    workspace.close()
    assert run_turns(root, "x") is not old
