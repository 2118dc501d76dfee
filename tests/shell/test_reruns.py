"""`noclobber run rerun`: the same command, held to what the first run was held to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from noclobber import Workspace
from noclobber.core.values import WHOLE
from noclobber.errors import StaleFileError
from noclobber.hook.session_memory import SessionMemory, end_session
from noclobber.shell.roots import why_not
from tests.conftest import sha256
from tests.rigs.commands import Done, run
from tests.rigs.hooks import HookRig

THEIRS = "a person's\n"


@pytest.fixture(autouse=True)
def guarded(root: Path) -> None:
    if (reason := why_not(str(root))) is not None:
        pytest.skip(reason)


@pytest.fixture
def file(root: Path) -> Path:
    path = root / "f.txt"
    path.write_text("v1\n")
    return path


def kept(root: Path) -> list[str]:
    """Return the ids of what is kept."""
    return [row["id"] for row in json.loads(run("run", "list", "--json", cwd=root).out)]


def test_a_rerun_expects_what_the_first_run_expected(root: Path, file: Path) -> None:
    """Finding E7: `rerun` forgot it. Who says what is there now may run it."""
    words = ("run", "--expect", f"f.txt={sha256(b'v0')}", "--", "sed", "-i", "s/v/w/", "f.txt")
    assert run(*words, cwd=root).code == 75
    [first] = kept(root)
    again = run("run", "rerun", first, cwd=root)
    assert again.code == 75
    assert "STALE_FILE" in again.err
    assert file.read_text() == "v1\n"
    now = f"f.txt={sha256(b'v1' + bytes([10]))}"
    assert run("run", "--expect", now, "rerun", first, cwd=root).code == 0
    assert file.read_text() == "w1\n"


def test_a_rerun_is_held_to_what_the_agent_of_a_turn_had_seen(root: Path, file: Path) -> None:
    """Finding E7: nothing was expected, and the agent had read the file. What must be read stays so, too."""
    with Workspace(root) as workspace, workspace.turn(agent_id="bot") as turn:
        turn.read_file("f.txt")
        file.write_text(THEIRS)
        with pytest.raises(StaleFileError) as refused:
            turn.run("echo mine > f.txt")
        run_id = refused.value.run_id  # type: ignore[attr-defined]
    for words in ((), ("--agent", "another")):
        assert run("run", *words, "rerun", run_id, cwd=root).code == 75
    assert file.read_text() == THEIRS


def test_an_agent_of_a_host_must_read_before_a_rerun(root: Path, file: Path, rig: HookRig) -> None:
    """Finding E7: and once it has read, the rerun lands; also if the session has ended by then."""
    session = ("--host", "claude-code", "--session", rig.session, "--agent", "main")

    def again(run_id: str) -> Done:
        return run("run", "rerun", run_id, cwd=root, XDG_RUNTIME_DIR=str(rig.runtime))

    rig.read(file)
    file.write_text(THEIRS)
    command = ("sh", "-c", "echo mine > f.txt")
    refused = run("run", *session, "--", *command, cwd=root, XDG_RUNTIME_DIR=str(rig.runtime))
    assert refused.code == 75
    assert f"read {file} with Read first" in refused.err  # Finding H25.
    [first] = kept(root)
    assert again(first).code == 75
    assert file.read_text() == THEIRS
    rig.read(file)
    assert again(first).code == 0
    assert file.read_text() == "mine\n"

    file.write_text(THEIRS)
    assert run("run", *session, "--", *command, cwd=root, XDG_RUNTIME_DIR=str(rig.runtime)).code == 75
    end_session("claude-code", rig.session)
    last = [run_id for run_id in kept(root) if run_id != first][-1]
    assert again(last).code == 75
    assert file.read_text() == THEIRS


def test_a_read_since_counts_instead_of_what_was_expected(root: Path, file: Path, rig: HookRig) -> None:
    """Finding E7: unless the agent has read since."""
    session = ("--host", "claude-code", "--session", rig.session, "--agent", "main")
    expected = ("--expect", f"f.txt={sha256(b'v0')}")
    words = ("run", *session, *expected, "--", "sed", "-i", "s/v/w/", "f.txt")
    assert run(*words, cwd=root, XDG_RUNTIME_DIR=str(rig.runtime)).code == 75
    [first] = kept(root)
    with SessionMemory("claude-code", rig.session, "main", root=str(root)) as memory:
        snapshot, notes = memory.recall(str(file), str(file))
        snapshot.observe(str(file), str(file), sha256(b"v1\n"), None, WHOLE)
        memory.keep(snapshot, str(file), str(file), notes)
    assert run("run", "rerun", first, cwd=root, XDG_RUNTIME_DIR=str(rig.runtime)).code == 0


@pytest.mark.parametrize(
    "seen", [[], {"/x": 1}, {"/x": {}}, {"/x": {"files": {"/x": [1]}, "name": None}}, "x"]
)
def test_a_damaged_note_of_what_was_seen_is_no_traceback(root: Path, file: Path, seen: object) -> None:
    """Finding E7, bad input: refused with a sentence, or run without it."""
    words = ("run", "--expect", f"f.txt={sha256(b'v0')}", "--", "sed", "-i", "s/v/w/", "f.txt")
    assert run(*words, cwd=root).code == 75
    [first] = kept(root)
    [note] = (root / ".noclobber/run").glob("*/job.json")
    note.write_text(json.dumps({**json.loads(note.read_text()), "seen": seen, "expect": seen}))
    again = run("run", "rerun", first, cwd=root)
    assert "Traceback" not in again.err
    assert again.code in (0, 75)
