"""`noclobber diff`: since when, by whose knowledge, and what it can and cannot show."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from noclobber import AgentTraceLedger, StaleFileError, Turn, Workspace
from tests.conftest import sha256
from tests.rigs.commands import Terminal, run
from tests.rigs.hooks import HookRig


@pytest.fixture
def turn(root: Path) -> Iterator[Turn]:
    with Workspace(root) as workspace, workspace.turn(agent_id="ana") as turn:
        yield turn


def git(root: Path, *words: str) -> None:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(root), *identity, *words], check=True, capture_output=True, timeout=60)


needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def answer(root: Path, *words: str) -> tuple[int, Any]:
    done = run("diff", "--json", *words, cwd=root)
    assert done.err == "", done.err
    return done.code, json.loads(done.out)


def test_a_file_is_unchanged_since_it_was_written(turn: Turn, root: Path) -> None:
    """N-cli: exit code 0, as from diff(1)."""
    turn.write_file("a.md", "one\n")
    code, told = answer(root, "a.md")
    assert (code, told["changed"], told["diff"]) == (0, False, None)
    assert (told["known"]["agent_id"], told["known"]["how"]) == ("ana", "wrote")
    assert "unchanged since it was written by ana" in run("diff", "a.md", cwd=root).err


def test_a_change_is_seen_even_where_no_bytes_are_left_to_show_it(turn: Turn, root: Path) -> None:
    """N-cli: the ledger holds hashes, never content; it says so instead of guessing."""
    turn.write_file("a.md", "one\n")
    (root / "a.md").write_text("two\n")
    code, told = answer(root, "a.md")
    assert (code, told["changed"], told["diff"]) == (1, True, None)
    assert told["known"]["sha256"] == sha256(b"one\n")
    assert told["current_hash"] == sha256(b"two\n")
    done = run("diff", "a.md", cwd=root)
    assert done.out == ""
    assert "no lines can be shown" in done.err


@needs_git
def test_lines_are_shown_from_git_if_it_has_that_version(turn: Turn, root: Path) -> None:
    """N-cli: the index, or one of the last commits; stdout is a patch that applies backwards."""
    git(root, "init", "-q")
    turn.write_file("sub/a.md", "one\ntwo\n")
    git(root, "add", "sub")
    (root / "sub" / "a.md").write_text("one\n2\n")
    code, told = answer(root, "sub/a.md")
    assert (code, told["source"]) == (1, "git's index")
    assert "-two\n+2\n" in told["diff"]
    git(root, "commit", "-qm", "one")
    (root / "sub" / "a.md").write_text("something else\n")
    git(root, "commit", "-qam", "two")
    assert answer(root / "sub", "a.md")[1]["source"].startswith("git commit ")
    if shutil.which("patch") is None:
        return
    patch = run("diff", "sub/a.md", cwd=root).out
    done = subprocess.run(
        ["patch", "-p1", "--reverse", "-o", "-"],  # In the root, without a name.
        cwd=root,
        input=patch,
        capture_output=True,
        text=True,
    )
    assert "one\ntwo\n" in done.stdout


def test_lines_are_shown_from_a_version_that_was_kept_aside(turn: Turn, root: Path) -> None:
    """N-cli: the second place where bytes may still be."""
    turn.write_file("a.md", "one\n")
    (root / ".noclobber" / "kept" / f"kept-0a-{'0' * 64}~a.md").write_text("one\n")
    (root / "a.md").write_text("two\n")
    code, told = answer(root, "a.md")
    assert code == 1
    assert "-one\n+two\n" in told["diff"]
    assert told["source"].endswith("~a.md")


def test_what_an_agent_had_read_when_it_was_refused_counts(turn: Turn, root: Path) -> None:
    """R-ledger: the refusal's baseline is what the agent still believes."""
    (root / "a.md").write_text("one\n")
    turn.read_file("a.md")
    (root / "a.md").write_text("two\n")
    with pytest.raises(StaleFileError):
        turn.write_file("a.md", "mine\n")
    code, told = answer(root, "a.md")
    assert (code, told["known"]["how"], told["known"]["sha256"]) == (1, "refused", sha256(b"one\n"))


def test_an_agent_is_asked_for_by_name(turn: Turn, root: Path) -> None:
    """N-cli: what ana knew may be older than what ben knew."""
    turn.write_file("a.md", "one\n")
    with Workspace(root) as workspace, workspace.turn(agent_id="ben") as other:
        other.write_file("a.md", "two\n")
    assert answer(root, "a.md")[0] == answer(root, "a.md", "--agent", "ben")[0] == 0
    assert answer(root, "a.md", "--agent", "ana")[0] == 1
    assert run("diff", "a.md", "--agent", "cy", cwd=root).code == 3


def test_a_hash_can_be_given_whole_or_in_part(turn: Turn, root: Path) -> None:
    """N-cli: error messages show twelve digits."""
    (root / "a.md").write_text("one\n")
    whole = sha256(b"one\n")
    for spelled in (whole, f"sha256:{whole}", whole[:12], whole[:12].upper() + "…"):
        code, told = answer(root, "a.md", "--against", spelled)
        assert (code, told["changed"]) == (0, False), spelled
    assert answer(root, "a.md", "--against", "0" * 12)[0] == 1
    assert run("diff", "a.md", "--against", "0000000", cwd=root).code == 2


def test_deleted_and_created_files_are_differences_too(turn: Turn, root: Path) -> None:
    """Ruling 5: gone is a state, not an error."""
    turn.write_file("a.md", "one\n")
    turn.delete_file("a.md")
    assert answer(root, "a.md")[0] == 0
    (root / "a.md").write_text("two\n")
    code, told = answer(root, "a.md")
    assert (code, told["source"]) == (1, "there was no file")
    assert "+two\n" in told["diff"]
    turn.write_file("b.md", "one\n")
    turn.move_file("b.md", "c.md")
    assert answer(root, "b.md")[0] == answer(root, "c.md")[0] == 0


def test_what_a_coding_agents_session_has_read_counts(rig: HookRig, root: Path) -> None:
    """R-hook: the latest of what is on record and what hooks remember; by agent or by session."""
    (root / "a.md").write_text("one\n")
    rig.read(root / "a.md")
    assert answer(root, "a.md")[0] == 0
    (root / "a.md").write_text("two\n")
    code, told = answer(root, "a.md", "--agent", "s1")
    assert (code, told["known"]["how"], told["known"]["session_id"]) == (1, "read", "s1")
    assert told["known"]["sha256"] == sha256(b"one\n")
    assert answer(root, "a.md", "--agent", "main")[0] == 1
    assert run("diff", "a.md", "--agent", "s2", cwd=root).code == 3
    rig.read(root / "a.md")
    assert answer(root, "a.md")[0] == 0


def test_nobody_knew_it_is_an_answer_of_its_own(root: Path) -> None:
    """N-cli: exit code 3, and what else could be done."""
    (root / "a.md").write_text("x")
    done = run("diff", "a.md", cwd=root)
    assert (done.code, done.out) == (3, "")
    assert "--against" in done.err
    assert run("diff", "/etc/passwd", "--root", str(root)).code == 3
    assert run("diff", "", cwd=root).code == 3


def test_a_version_that_nobody_could_name_is_not_compared_with(turn: Turn, root: Path) -> None:
    """A hook that does not know what an agent saw puts zeros on record; they are no version."""
    turn.write_file("a.md", "one\n")
    payload = {
        "tool_name": "Write",
        "target_file": str(root / "a.md"),
        "baseline_hash": f"sha256:{'0' * 64}",
        "current_hash": f"sha256:{'1' * 64}",
    }
    result = {"status": "DENIED", "error_type": "STALE_FILE"}
    ledger = AgentTraceLedger(root / ".noclobber" / "agent_trace.jsonl")
    ledger.append({"action_type": "MUTATION_CONFLICT", "payload": payload, "result": result})
    code, told = answer(root, "a.md")
    assert (code, told["known"]["how"]) == (0, "wrote")


@pytest.mark.parametrize("spelled", ["a.md", "{root}/a.md"])
def test_what_was_written_is_known_from_old_lines_and_new_ones(root: Path, spelled: str) -> None:
    """Ruling 27: earlier versions wrote absolute paths."""
    (root / "a.md").write_text("one\n")
    (root / ".noclobber").mkdir()
    payload = {
        "tool_name": "Write",
        "target_file": spelled.format(root=root),
        "before_hash": "ABSENT",
        "after_hash": f"sha256:{sha256(b'one' + bytes([10]))}",
        "level": "create",
    }
    ledger = AgentTraceLedger(root / ".noclobber" / "agent_trace.jsonl")
    ledger.append({"action_type": "MUTATION", "payload": payload, "result": {"status": "APPLIED"}})
    code, told = answer(root, "a.md")
    assert (code, told["known"]["how"]) == (0, "wrote")


def test_a_terminal_gets_colours_and_no_control_characters(turn: Turn, root: Path) -> None:
    """N-cli: a file's content must not drive the terminal of who looks at it."""
    turn.write_file("a.md", "one\n")
    (root / ".noclobber" / "kept" / f"kept-0a-{'0' * 64}~a.md").write_text("one\n")
    (root / "a.md").write_text("two\x1b[2J\tend\n")
    with Terminal("diff", "a.md", cwd=root) as terminal:
        seen = terminal.read_all()
    assert "\x1b[32m+two\\x1b[2J" in seen
    assert "\x1b[2J" not in seen
    assert "+two\x1b[2J\tend\n" in run("diff", "a.md", cwd=root).out  # But a patch is a patch.


@needs_git
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("gpg.program", "{}"),
        ("core.fsmonitor", "{}"),
        ("core.pager", "{}"),
        ("core.sshCommand", "{}"),
        ("diff.external", "{}"),
        ("credential.helper", "!{}"),
    ],
)
def test_nothing_of_a_repository_is_run(root: Path, tmp_path: Path, key: str, value: str) -> None:
    """finding S17: a cloned repository brings its own configuration, and that is somebody else's text."""
    program, proof = tmp_path / "program", tmp_path / "it-ran"
    program.write_text(f"#!/bin/sh\ntouch '{proof}'\nexit 1\n")
    program.chmod(0o755)

    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True)

    git("init", "-q")
    (root / "a.md").write_text("one\n")
    git("add", "a.md")
    git("commit", "-qm", "one")
    commit = subprocess.run(
        ["git", "cat-file", "commit", "HEAD"], cwd=root, check=True, capture_output=True
    ).stdout
    head, _, message = commit.partition(b"\n\n")
    signed = head + b"\ngpgsig -----BEGIN PGP SIGNATURE-----\n x\n -----END PGP SIGNATURE-----\n\n" + message
    made = subprocess.run(
        ["git", "hash-object", "-t", "commit", "-w", "--stdin"],
        cwd=root,
        input=signed,
        check=True,
        capture_output=True,
    )
    git("reset", "-q", "--soft", made.stdout.decode().strip())
    git("config", "log.showSignature", "true")
    git("config", key, value.format(program))
    with Workspace(root) as workspace, workspace.turn() as turn:
        turn.read_file("a.md")
        turn.write_file("a.md", "two\n")
        turn.write_file("a.md", "one\n")
    (root / "a.md").write_text("three\n")
    run("diff", "a.md", cwd=root)
    assert not proof.exists()


def test_what_a_session_was_shown_is_compared_with_after_its_write_was_refused(
    rig: HookRig, root: Path
) -> None:
    """N-cli: no version is kept and there is no git; the session's memory holds what it saw."""
    file = root / "a.md"
    file.write_text("one\n")
    rig.read(file)
    file.write_text("two\n")
    rig.write(file, "mine\n")

    done = run("diff", "--json", "a.md", cwd=root, XDG_RUNTIME_DIR=str(rig.runtime))

    told = json.loads(done.out)
    assert (told["changed"], told["source"]) == (True, "the memory of a session of claude-code")
    assert "-one\n+two\n" in told["diff"]
