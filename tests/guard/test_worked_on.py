"""Folders of build outputs: what somebody works on there is checked as everywhere else."""

from __future__ import annotations

import subprocess
import threading
from functools import partial
from pathlib import Path

import pytest

from noclobber import NoclobberError, Workspace
from noclobber.errors import ABSENT, StaleFileError
from noclobber.guard.git.tracked import tracked_below
from noclobber.shell.roots import why_not
from tests.conftest import sha256
from tests.rigs.clones import IDENTITY
from tests.rigs.meanwhile import Meanwhile

ENVIRONMENT = {**IDENTITY, "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent"}


@pytest.fixture(autouse=True)
def guarded(root: Path) -> None:
    if (reason := why_not(str(root))) is not None:
        pytest.skip(reason)


@pytest.fixture
def file(root: Path) -> Path:
    path = root / "build" / "notes.txt"
    path.parent.mkdir()
    path.write_text("v1\n")
    return path


def git(folder: Path, *words: str) -> None:
    """Run git in a folder."""
    subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, env=ENVIRONMENT)


def test_a_file_that_was_read_is_checked_in_an_unchecked_folder(root: Path, file: Path) -> None:
    """Finding E6: a person's change of it was overwritten. What nobody has read lands as ever."""
    with Workspace(root) as workspace, workspace.turn() as turn:
        turn.read_file("build/notes.txt")
        file.write_text("a person's\n")
        for command in ("echo mine > build/notes.txt", "rm -r build", "rm build/notes.txt"):
            with pytest.raises(StaleFileError) as refused:
                turn.run(command)
            assert refused.value.path == str(file)
        assert file.read_text() == "a person's\n"
        turn.run("echo output > build/out.o")
        turn.read_file("build/notes.txt")
        turn.run("rm -r build")
        assert not file.parent.exists()


def test_what_is_expected_is_checked_in_an_unchecked_folder(root: Path, file: Path) -> None:
    """Finding E6: `--expect` was ignored, also of a file that shall not be there."""
    with Workspace(root) as workspace, workspace.turn() as turn:
        for name, expected in (("build/notes.txt", sha256(b"v0\n")), ("build/notes.txt", ABSENT)):
            with pytest.raises(StaleFileError):
                turn.run("echo mine > build/notes.txt", expected_hashes={name: expected})
        with pytest.raises(StaleFileError):
            turn.run("mkdir dist; echo mine > dist/new", expected_hashes={"dist/new": sha256(b"v0\n")})
        assert not (root / "dist").exists()
        turn.run("mkdir dist; echo mine > dist/new", expected_hashes={"dist/new": ABSENT})


@pytest.mark.parametrize("is_read", [False, True])
def test_of_two_that_append_to_a_file_on_which_somebody_works_one_is_refused(
    root: Path, file: Path, tmp_path: Path, is_read: bool
) -> None:
    """Findings E6, G10: one of the two lines was lost."""
    if not is_read:
        git(root, "init", "-q")
        git(root, "add", "-f", "build/notes.txt")
    with Workspace(root) as workspace, workspace.turn() as turn, workspace.turn() as other:
        if is_read:
            turn.read_file("build/notes.txt")
            other.read_file("build/notes.txt")
        then = Meanwhile(tmp_path / "pipes", lambda: other.run("echo two >> build/notes.txt"))
        with pytest.raises(StaleFileError):
            turn.run(f"echo one >> build/notes.txt; {then.pause}")
    assert file.read_text() == "v1\ntwo\n"


def test_of_four_edits_of_a_tracked_file_none_is_lost(root: Path, file: Path) -> None:
    """Finding G10: 1 of 4 survived. Whoever was not refused has its line in the file."""
    git(root, "init", "-q")
    git(root, "add", "-f", "build/notes.txt")
    landed: list[str] = []
    start = threading.Barrier(4)

    def append(name: str) -> None:
        with Workspace(root) as workspace, workspace.turn(agent_id=name) as turn:
            start.wait()
            try:
                turn.run(f"sleep 0.1; echo {name} >> build/notes.txt")
                landed.append(name)
            except NoclobberError:
                pass

    threads = [threading.Thread(target=append, args=(f"agent-{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert landed
    assert sorted(file.read_text().split()) == sorted(["v1", *landed])


def test_what_a_nested_repository_tracks_is_checked(root: Path, tmp_path: Path) -> None:
    """Finding G10: a repository in a folder of build outputs, and one around the project."""
    nested = root / "build" / "sub"
    nested.mkdir(parents=True)
    (nested / "a.txt").write_text("v1\n")
    (nested / "out.o").write_text("v1\n")
    git(nested, "init", "-q")
    git(nested, "add", "a.txt")
    with Workspace(root) as workspace, workspace.turn() as turn:
        for name, is_refused in (("a.txt", True), ("out.o", False)):
            path = nested / name
            then = Meanwhile(tmp_path / name, partial(path.write_text, "a person's\n"))
            try:
                turn.run(f"echo mine >> build/sub/{name}; {then.pause}")
                assert not is_refused
            except StaleFileError:
                assert is_refused


@pytest.mark.parametrize("version", [2, 3, 4])
def test_what_git_tracks_is_read_from_every_kind_of_index(root: Path, version: int) -> None:
    """Finding G10: names of any length, with what git itself says as the oracle."""
    git(root, "init", "-q")
    names = ["build/a", "build/b/c d", f"build/{'x' * 200}", "builds/not", "src/build/not", "build/ü"]
    names += [f"build/deep/{number}/{'y' * (number % 17)}z" for number in range(60)]
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    git(root, "add", "-f", ".")
    if version == 3:
        (root / "build/late").write_text("x")
        git(root, "add", "-fN", "build/late")  # An entry with more flags.
    else:
        git(root, "update-index", "--index-version", str(version))
    assert int.from_bytes((root / ".git/index").read_bytes()[4:8], "big") == version
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "build"], check=True, capture_output=True
    )
    wanted = {f"{root}/{name.decode()}" for name in listed.stdout.split(b"\0") if name}
    assert set(tracked_below(f"{root}/build")) == wanted
    assert tracked_below(f"{root}/nothing") == []


def test_a_damaged_index_tracks_nothing(root: Path) -> None:
    """Finding G10, bad input: no error, and nothing that hangs."""
    git(root, "init", "-q")
    for data in (b"", b"DIRC", b"DIRC\0\0\0\2\0\0\0\5build/", b"DIRC\0\0\0\4\xff\xff\xff\xff", b"x" * 100):
        (root / ".git/index").write_bytes(data)
        assert tracked_below(f"{root}/build") == []
