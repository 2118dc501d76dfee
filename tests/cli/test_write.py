"""`noclobber write`, `hash` and `kept`: a way in for scripts."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from noclobber import Workspace
from noclobber.core.project import KEPT_FOLDER, state_folder
from tests.rigs.commands import environment, noclobber_command, run


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_a_script_writes_what_it_has_seen_and_nothing_else(root: Path) -> None:
    """finding U12: hash, think, write; a save in between refuses it and survives."""
    plan = root / "plan.md"
    plan.write_text("one\n")
    seen = run("hash", "plan.md", cwd=root)
    assert (seen.code, seen.out) == (0, f"{sha('one' + chr(10))}\n")

    done = run("write", "plan.md", "--expect", seen.out.strip(), cwd=root, stdin="two\n")
    assert done.code == 0, done.err
    assert plan.read_text() == "two\n"

    refused = run("write", "plan.md", "--expect", seen.out.strip(), "--json", cwd=root, stdin="three\n")
    assert refused.code == 3
    assert json.loads(refused.out)["error_type"] == "STALE_FILE"
    assert plan.read_text() == "two\n"
    with Workspace(root) as workspace:
        kinds = [event["action_type"] for event in workspace.ledger.events()]
        assert kinds == ["MUTATION", "MUTATION_CONFLICT"]
        assert [event["identity"]["agent_id"] for event in workspace.ledger.events()] == ["script", "script"]


def test_a_file_that_is_not_there_has_a_hash_of_its_own(root: Path) -> None:
    """finding U12: so that creating is a compare and swap, too."""
    absent = run("hash", "new.md", cwd=root)
    assert (absent.code, absent.out) == (1, "ABSENT\n")
    assert run("write", "new.md", "--expect", "ABSENT", cwd=root, stdin="a").code == 0
    assert run("write", "new.md", "--expect", "absent", cwd=root, stdin="b").code == 3
    assert (root / "new.md").read_text() == "a"


def test_any_and_from_and_names(root: Path) -> None:
    """finding U12: whatever is there, from a file, in the name of an agent; the version before is kept."""
    (root / "a.md").write_text("theirs")
    (root / "draft").write_bytes(b"\xff\x00bytes")
    words = ("write", "a.md", "--any", "--from", "draft", "--agent", "ci", "--session", "s1", "--json")
    done = json.loads(run(*words, cwd=root).out)
    assert (root / "a.md").read_bytes() == b"\xff\x00bytes"
    assert done["previous_sha256"] == sha("theirs")
    assert "theirs" in run("versions", "show", sha("theirs"), cwd=root).out


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("write", "a.md"), 2),
        (("write", "a.md", "--expect", "12ab"), 2),
        (("write", "a.md", "--any", "--from", "none"), 3),
        (("write", "../../outside.md", "--root", ".", "--any"), 3),
        (("hash",), 2),
        (("write", "", "--any"), 3),
    ],
)
def test_a_wrong_call_changes_nothing(words: tuple[str, ...], code: int, root: Path) -> None:
    """finding U12: and the exit code says which kind of wrong."""
    done = run(*words, cwd=root, stdin="x")
    assert done.code == code, done.err
    assert not (root / "a.md").exists()


def test_several_scripts_at_once_lose_nothing(root: Path) -> None:
    """finding U12: real processes that add a line each, and try again when they are refused."""
    (root / "count").write_text("")
    script = (
        'for n in 1 2; do while :; do seen=$("$@" hash count); '
        '{ cat count; echo "$LINE-$n"; } | "$@" write count --expect "$seen" > /dev/null 2>&1 && break; '
        "done; done"
    )
    started = [
        subprocess.Popen(
            ["sh", "-c", script, "sh", *noclobber_command()],
            cwd=root,
            env=environment(LINE=f"writer{number}"),
        )
        for number in range(2)
    ]
    for process in started:
        assert process.wait(120) == 0
    assert sorted((root / "count").read_text().split()) == sorted(
        f"writer{number}-{n}" for number in range(2) for n in (1, 2)
    )


def test_kept_versions_are_listed_shown_put_back_and_dropped(root: Path) -> None:
    """finding U12: by the beginning of a name, if no other begins so."""
    (root / "plan.md").write_text("now\n")
    with Workspace(root) as workspace, workspace.turn(agent_id="a") as turn:
        turn.read_file("plan.md")
        turn.write_file("plan.md", b"later\n")
    kept = Path(state_folder(str(root))) / KEPT_FOLDER
    kept.mkdir(exist_ok=True)
    for name in ("kept-aaaa1111-None~plan.md", "kept-bbbb2222-None~plan.md"):
        (kept / name).write_text(f"{name}\n")

    assert "kept-aaaa1111-None~plan.md" in run("kept", "list", cwd=root).out
    rows = json.loads(run("kept", "list", "--json", cwd=root).out)["kept"]
    assert {row["name"] for row in rows} == {"kept-aaaa1111-None~plan.md", "kept-bbbb2222-None~plan.md"}
    assert run("kept", "show", "kept-a", cwd=root).out == "kept-aaaa1111-None~plan.md\n"
    assert run("kept", "show", "kept-", cwd=root).code == 3

    assert run("kept", "restore", "kept-a", "plan.md", cwd=root).code == 0
    assert (root / "plan.md").read_text() == "kept-aaaa1111-None~plan.md\n"
    assert run("kept", "drop", "kept-b", cwd=root).code == 0
    assert run("kept", "list", cwd=root).out == "Nothing is kept.\n"


def test_a_write_makes_no_project_of_a_folder_around_others(tmp_path: Path) -> None:
    """ruling 16: a mark further up wins, so every repository below would belong to it."""
    inner = tmp_path / "project"
    (inner / ".git").mkdir(parents=True)
    refused = run("write", "../a.md", "--any", cwd=inner, stdin="x")
    assert refused.code == 2
    assert "--root" in refused.err
    assert not (tmp_path / ".noclobber").exists()
    assert run("write", "../a.md", "--any", "--root", "..", cwd=inner, stdin="x").code == 0
    home = tmp_path / "home"
    home.mkdir()
    assert (
        run("write", "a.md", "--any", cwd=home, HOME=str(home), stdin="x").code == 0
    )  # In `tmp_path`, marked now.
    alone = run("write", "a.md", "--any", cwd="/", HOME="/", stdin="x")
    assert alone.code == 2


def test_a_hash_of_what_is_no_file_says_why(root: Path) -> None:
    """finding U12: a misspelled name would otherwise become a new file, with nothing said."""
    missing = run("hash", "plna.md", cwd=root)
    assert (missing.code, missing.out) == (1, "ABSENT\n")
    assert "plna.md: there is no such file" in missing.err
    folder = run("hash", ".", cwd=root)
    assert folder.code == 1
    assert "not a file" in folder.err
