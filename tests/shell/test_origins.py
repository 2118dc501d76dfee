"""Two commands that overlap, or a command and an outsider: of those that did the same, one has done it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from noclobber import StaleFileError, Workspace
from tests.rigs.meanwhile import Meanwhile
from tests.shell.test_process import events, is_available, project, run_with_an_outsider, shell

__all__ = ["project"]
pytestmark = pytest.mark.skipif(not is_available(), reason="no namespaces here")

PREPARE = """
echo 3 > c; touch -d '1 hour ago' c; mkdir -p d/e src build2 empty; echo a > src/a; echo b > src/b
echo g > d/e/g; echo f > d/f; echo j > job; ln -s c link; echo 10 > x; echo log > log
"""


@pytest.fixture
def tree(project: Path) -> Path:
    subprocess.run(["sh", "-c", PREPARE], cwd=project, check=True)
    return project


def spelled(root: Path) -> dict[str, object]:
    """Everything in a project, but for our own state."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if not name.startswith(".noclobber"):
            is_file = path.is_file() and not path.is_symlink()
            found[name] = path.read_bytes() if is_file else os.readlink(path) if path.is_symlink() else None
    return found


EXCLUSIVE = {
    "counter": "n=$(cat c); echo $((n+1)) > c",
    "counter by rename": "n=$(cat c); echo $((n+1)) > t.$$; mv t.$$ c",
    "counter by sed": "sed -i s/3/4/ c",
    "append": "echo line >> log",
    "folder": "mkdir claim",
    "folder in a folder": "mkdir d/claim",
    "noclobber file": "set -C; : > f",
    "link": "ln -s c claim",
    "changed link": "ln -sfn x link",
    "removed file": "rm job",
    "removed folder": "rmdir empty",
    "removed tree": "rm -r d",
    "moved file": "mv job taken",
    "moved into a folder": "mv job d/",
    "moved folder": "mv d d2",
    "replaced file": "rm c; echo 4 > c",
    "fifo": "mkfifo claim",
}


@pytest.mark.parametrize("what", EXCLUSIVE)
@pytest.mark.parametrize("is_guarded", [False, True])
def test_of_two_that_do_the_same_at_once_one_has_done_it(tree: Path, what: str, is_guarded: bool) -> None:
    """Finding E1: the second is refused, also if what it made is just what is there."""
    text = EXCLUSIVE[what]
    outside = f"{sys.executable} -m noclobber run -- sh -c '{text}'" if is_guarded else text
    refused = run_with_an_outsider(tree, "echo too > too", outside, before=text)
    after = spelled(tree)
    assert (refused.returncode, "too" in after) == (75, False), refused.stderr
    assert json.loads(refused.stderr.splitlines()[0])["error_type"] == "STALE_FILE"
    subprocess.run(["sh", "-c", PREPARE], cwd=tree, check=False)


@pytest.mark.parametrize("what", ["counter", "counter by rename", "append"])
def test_what_is_written_twice_with_one_result_is_not_lost(tree: Path, what: str) -> None:
    """Finding E1: run again, the second counts on."""
    text = EXCLUSIVE[what]
    assert run_with_an_outsider(tree, "true", text, before=text).returncode == 75
    run_id = next(name for name in os.listdir(tree / ".noclobber/run") if name != "landed")
    rerun = subprocess.run([sys.executable, "-m", "noclobber", "run", "rerun", run_id], cwd=tree)
    assert rerun.returncode == 0
    assert (tree / "c").read_text() == ("3\n" if what == "append" else "5\n")
    assert (tree / "log").read_text() == ("log\nline\nline\n" if what == "append" else "log\n")


def test_what_was_expected_counts_whatever_is_written(tree: Path) -> None:
    """Finding E1, without a race: the file is 4, the agent expects 3, and writes 4."""
    (tree / "c").write_text("4\n")
    three = hashlib.sha256(b"3\n").hexdigest()
    for text in ("echo 4 > c", "echo 4 > t; mv t c", "rm c; echo 4 > c"):
        refused = shell(tree, text, "--expect", f"c={three}")
        assert refused.returncode == 75, text
    assert [event["action_type"] for event in events(tree)] == ["MUTATION_CONFLICT"] * 3


@pytest.mark.parametrize(
    "text",
    [
        ": >> c",
        "chmod 600 c; chmod 644 c",
        "mkdir -p d/e",
        "touch -r c c",
        "cat c >/dev/null",
        "mkdir t; rmdir t",
    ],
)
def test_what_a_command_left_alone_is_no_change(tree: Path, text: str) -> None:
    """Finding E1: it is neither stale nor on record, even if the agent expected another version."""
    (tree / "c").chmod(0o644)
    three = hashlib.sha256(b"other\n").hexdigest()
    done = shell(tree, text, "--expect", f"c={three}")
    assert (done.returncode, done.stderr) == (0, "")
    assert events(tree) == []


def test_a_copy_of_the_current_version_that_nobody_wrote_to_is_no_change(tree: Path) -> None:
    """Finding E1: opened for writing after somebody else's save, and left alone."""
    done = run_with_an_outsider(tree, "sleep 0.05; : >> c; echo new > new", "echo theirs > c")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tree / "c").read_text() == "theirs\n"


def test_half_of_a_command_does_not_land(tree: Path) -> None:
    """Finding G4: of two that take one from x, only one gives it to somebody."""
    take = "n=$(cat x); echo $((n-1)) > x; echo 1 > {}"
    refused = run_with_an_outsider(tree, "true", take.format("z"), before=take.format("y"))
    assert refused.returncode == 75
    assert ((tree / "x").read_text(), (tree / "y").exists()) == ("9\n", False)


@pytest.mark.parametrize(
    "text",
    [
        "mv src/a top",
        "sed -i s/a/x/ src/a",
        "echo x >> src/a",
        "echo new > src/new",
        "rm src/a",
        "chmod 600 src/a",
    ],
)
@pytest.mark.parametrize(
    "outside", ["mv src lib", "mv src lib; mkdir src; cp -p lib/* src", "mv src lib; mv d src", "rm -r src"]
)
def test_what_a_command_did_in_a_folder_that_is_elsewhere_by_now_is_refused(
    tree: Path, text: str, outside: str
) -> None:
    """Finding G4: the file would be there twice, and half of the folder would come back."""
    (tree / "d/a").write_text("a\n")
    refused = run_with_an_outsider(tree, "true", outside, before=text)
    after = spelled(tree)
    assert refused.returncode == 75, refused.stderr
    assert not {"top", "src/new"} & set(after)
    assert "src" not in after or ";" in outside


@pytest.mark.parametrize(
    "outside",
    [
        "mv src build2/",
        "mv src build2/; echo s > build2/src/c",
        "mv build2 away; mv src build2; echo s > build2/c",
        "mv build2 away; mv src build2",
        "touch build2/new",
        "echo more >> build2/old",
        "rm build2/old",
    ],
)
@pytest.mark.parametrize(
    "text", ["rm -rf build2", "rm -rf build2; mkdir build2; echo 1 > build2/x", "mv build2 b3"]
)
def test_what_was_not_there_when_a_command_began_is_not_removed_by_it(
    tree: Path, text: str, outside: str
) -> None:
    """finding G3: what somebody has put into the folder meanwhile is still there."""
    (tree / "build2/old").write_text("old\n")
    refused = run_with_an_outsider(tree, "true", outside, before=text)
    assert refused.returncode == 75, refused.stderr
    after = spelled(tree)
    if "src" in outside:
        assert b"a\n" in after.values()
    assert not {"b3", "build2/x"} & set(after)


@pytest.mark.parametrize(
    "text",
    [
        "mv job d/j",
        "mv c c.bak; echo 1 > c",
        "ln c c2",
        "mv src/a top; rm -r src",
        "mv d d2; mv d2/f f",
        "ln c c2; rm c",
    ],
)
def test_what_a_command_moved_lands(tree: Path, text: str) -> None:
    """Finding E7: a file that was moved is not taken for one that somebody else has removed."""
    (tree / "d/other").write_text("")
    done = (
        run_with_an_outsider(tree, "true", "echo x > elsewhere; touch d/by-others", before=text)
        if "d d2" not in text
        else shell(tree, text)
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("text", ["echo 4 > c", "echo 4 >> c", "sed -i s/3/4/ c", "chmod 600 c"])
@pytest.mark.parametrize("outside", ["rm c", "mv c elsewhere", "rm c; mkdir c"])
def test_a_file_that_somebody_deletes_meanwhile_does_not_come_back(
    tree: Path, text: str, outside: str
) -> None:
    """Finding E7."""
    refused = run_with_an_outsider(tree, "true", outside, before=text)
    assert refused.returncode == 75, refused.stderr
    assert not (tree / "c").is_file()


def test_two_git_commands_that_make_one_object_both_land(tree: Path) -> None:
    """Finding E1: what is named by its content is made by whoever makes it."""
    subprocess.run(["git", "init", "-q", "."], cwd=tree, check=True)
    make = "printf same | git hash-object -w --stdin > /dev/null"
    done = run_with_an_outsider(tree, "true", make, before=make)
    assert (done.returncode, done.stderr) == (0, "")


def test_times_of_folders_and_of_files_with_a_new_mode_land(tree: Path) -> None:
    """finding G12: `touch node_modules` in a Makefile; chmod together with touch."""
    (tree / "node_modules").mkdir()
    old = (1_600_000_000, 1_600_000_000)
    for name in ("node_modules", "d", "c"):
        os.utime(tree / name, old)
    done = shell(tree, "touch node_modules d; chmod 600 c; touch -d @1700000000 c")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tree / "node_modules").stat().st_mtime > 1_700_000_000
    assert (tree / "d").stat().st_mtime > 1_700_000_000
    assert ((tree / "c").stat().st_mtime, (tree / "c").stat().st_mode & 0o777) == (1_700_000_000, 0o600)
    done = run_with_an_outsider(
        tree, "true", "touch -d @1750000000 d/by-others d", before="touch -d @1650000000 d"
    )
    assert (tree / "d").stat().st_mtime == 1_750_000_000


def test_a_folder_that_somebody_else_has_moved_is_not_taken_again(root: Path, tmp_path: Path) -> None:
    """Findings E1, G4: the overlay leaves no trace of a folder that is gone from the real tree when it goes."""
    (root / "job").mkdir()
    (root / "job" / "a").write_text("work\n")
    then = Meanwhile(tmp_path / "pipes", lambda: os.rename(root / "job", root / "theirs"))
    with Workspace(root).turn() as turn, pytest.raises(StaleFileError) as refused:
        turn.run(f"ls job; {then.pause}; mv job mine")
    assert refused.value.path == f"{root}/job"
    assert sorted(path.name for path in root.iterdir() if path.name != ".noclobber") == ["theirs"]
