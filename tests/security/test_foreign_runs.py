"""A refused command that came with a clone or an archive (finding S29)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from noclobber.shell import runs
from noclobber.view import actions, attention
from tests.rigs.commands import run
from tests.shell.test_process import is_available

RUN_ID = "6afb5918-3120-5665d1"
LONG = "echo harmless " + "x" * 300 + "; touch PWNED; echo " + "y" * 300


@pytest.fixture
def clone(root: Path) -> Path:
    """A project with a refused command in it, as somebody could have packed it."""
    folder = root / ".noclobber/run" / RUN_ID
    (folder / "upper").mkdir(parents=True)
    (folder / "upper/plan.md").write_text("theirs\n")
    for each in (root / ".noclobber", root / ".noclobber/run", folder):
        each.chmod(0o700)
    job = {"argv": ["sh", "-c", LONG], "cwd": str(root), "agent_id": "alice", "first_ns": 0}
    (folder / "job.json").write_text(json.dumps(job))
    refused = {"code": "STALE_FILE", "error": {}, "others": [], "token": "0" * 32}
    (folder / "refused.json").write_text(json.dumps(refused))
    return root


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_what_came_with_a_folder_is_never_run(clone: Path, words: tuple[str, ...]) -> None:
    """finding S29: *retry* ran it."""
    told = run("run", "--root", str(clone), "rerun", *words, RUN_ID)

    assert told.code == 1
    assert not (clone / "PWNED").exists()
    assert "came with this folder" in (told.out + told.err).replace("\n", " ")
    assert (clone / ".noclobber/run" / RUN_ID).exists()


def test_it_is_shown_as_what_it_is_and_can_be_removed(clone: Path) -> None:
    """finding S29: status and view took it for a command of an agent here."""
    [item] = attention.refused_runs(str(clone))
    assert item.actions == ("drop",)
    assert "has not run here" in item.title
    done = actions.carry_out(str(clone), {"action": "retry", "kind": "run", "name": RUN_ID})
    assert not done.done
    assert not (clone / "PWNED").exists()
    assert "came with this folder" in run("status", "--root", str(clone)).out.replace("\n", " ")
    assert run("run", "--root", str(clone), "drop", RUN_ID).code == 0
    assert not (clone / ".noclobber/run" / RUN_ID).exists()


@pytest.mark.skipif(not is_available(), reason="no namespaces here")
def test_a_copy_of_a_refused_command_of_ours_is_none(root: Path, tmp_path: Path) -> None:
    """finding S29: its folder is another one, so a packed one says nothing about where it is unpacked."""
    refused = refuse(root)
    copy = tmp_path / "copy"
    shutil.copytree(root, copy, symlinks=True)
    assert run("run", "--root", str(copy), "rerun", refused).code == 1
    assert run("run", "--root", str(root), "rerun", refused).code == 0


@pytest.mark.skipif(not is_available(), reason="no namespaces here")
def test_a_command_is_shown_whole_before_it_is_run_again(root: Path) -> None:
    """finding S29: its middle was cut out, wherever it was offered."""
    refused = refuse(root)
    asked = {"action": "retry", "kind": "run", "name": refused}
    assert LONG in actions.preview(str(root), asked)
    assert LONG in run("run", "--root", str(root), "show", refused).out
    assert LONG in run("run", "--root", str(root), "rerun", refused).err


def refuse(root: Path) -> str:
    """Have a long command refused; return its id."""
    (root / "plan.md").write_text("one\n")
    words = ("--expect", f"plan.md={'0' * 64}", "--", "sh", "-c", f"{LONG}; echo new > plan.md")
    assert run("run", *words, cwd=root).code == 75
    [refused] = runs.all_ids(str(root))
    job = root / ".noclobber/run" / refused / "job.json"
    known = json.loads(job.read_text())
    known["expect"] = {}
    job.write_text(json.dumps(known))
    return refused
