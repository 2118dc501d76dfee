"""Landings in unchecked folders that are cut off: the next command finds the old tree or the new one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from noclobber.disk import steps
from noclobber.errors import LockContention
from noclobber.guard.workspace import Workspace
from noclobber.lock.lock import DeliverableLock
from noclobber.shell import runs
from noclobber.shell.changes import FOLDER, MODE, TreeChange, TreeChanges
from noclobber.shell.landing_unchecked import land_unchecked
from tests.shell.test_git_locks import run_observed
from tests.shell.test_ordinary_user import NOBODY, AsUser, as_user, user_project
from tests.shell.test_process import events, is_available, project, shell

__all__ = ["as_user", "project", "user_project"]
pytestmark = pytest.mark.skipif(not is_available(), reason="no namespaces here")

OLD = "mkdir -p dist/sub build/deep target node_modules/a; for f in dist/a dist/sub/b build/deep/c target/d; do echo old > $f; done"
NEW = (
    "echo new > dist/a; echo new > dist/sub/b; mkdir dist/more; echo new > dist/more/e; rm -r build;"
    " rm -r target; ln -s dist target; echo new > node_modules/a/f; chmod 750 node_modules/a;"
    " rm -r dist/sub; mkdir dist/sub; echo new > dist/sub/g"
)
CHECKED = "echo two >> plan.md; echo two > other.md; "
STEPS = ("noted", "one-visible", "all-visible", "decided", "unchecked-")


def tree(root: Path) -> dict[str, str]:
    """What is in a project, with the modes of folders."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if name.split("/")[0] == ".noclobber":
            continue
        mode = oct(path.lstat().st_mode)
        found[name] = os.readlink(path) if path.is_symlink() else path.read_text() if path.is_file() else mode
    return found


def left(root: Path) -> list[str]:
    """What of killed commands is left."""
    folder = root / ".noclobber/run"
    return [str(path) for path in folder.rglob("*") if not path.is_dir() or path.parent == folder][1:]


def at_step(number: int) -> Callable[[str], None]:
    """Dies at the step of that number."""
    reached = 0

    def die(step: str) -> None:
        nonlocal reached
        reached += step.startswith(STEPS)
        if step.startswith(STEPS) and reached == number:
            os.kill(os.getpid(), signal.SIGKILL)

    return die


def at(wanted: str) -> Callable[[str], None]:
    """Dies at the first step of that name."""

    def die(step: str) -> None:
        if step == wanted:
            os.kill(os.getpid(), signal.SIGKILL)

    return die


def in_removal(number: int) -> Callable[[str], None]:
    """Dies after the list counts, before the removal of the folder of that number."""
    removed = 0

    def die(*words: object, **options: object) -> None:
        nonlocal removed
        removed += 1
        if removed == number:
            os.kill(os.getpid(), signal.SIGKILL)
        rmdir(*words, **options)  # type: ignore[arg-type]

    rmdir = os.rmdir

    def prepare(step: str) -> None:
        if step == "unchecked-decided":
            os.rmdir = die

    return prepare


def plainly(root: Path, text: str) -> None:
    subprocess.run(["sh", "-c", text], cwd=root, check=True)


def wait_for_a_tick(root: Path) -> None:
    """Return when files get newer times than the list of what is owed has."""
    (marker,) = (root / ".noclobber/run/landed").glob("*/*")
    probe = root.parent / "probe"
    while not probe.exists() or probe.stat().st_ctime_ns <= marker.stat().st_ctime_ns:
        probe.touch()


@pytest.fixture
def built(project: Path) -> Path:
    plainly(project, OLD)
    return project


def fresh(built: Path, number: int) -> Path:
    """Another project like that one."""
    other = built.parent / f"project-{number}"
    shutil.copytree(built, other, symlinks=True)
    return other


@pytest.mark.parametrize("before", [CHECKED, ""], ids=["with checked files", "alone"])
def test_killed_at_any_step_a_landing_is_finished_or_never_began(built: Path, before: str) -> None:
    """N-shell: also what is in unchecked folders is old or new, all of it, once the next command has begun."""
    old, outcomes = tree(built), []
    whole = fresh(built, 0)
    assert shell(whole, before + NEW).returncode == 0
    new = tree(whole)
    assert left(whole) == []
    for number in range(1, 200):
        root = fresh(built, number)
        code = run_observed(root, before + NEW, at_step(number))
        if code == 0:
            break
        assert code == -signal.SIGKILL
        done = shell(root, "true")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        found = tree(root)
        assert found in (old, new), f"step {number}"
        assert left(root) == []
        assert not [each for each in events(root) if "run/landed" in str(each)]
        outcomes.append(found == new)
        shutil.rmtree(root)
    assert outcomes == sorted(outcomes)  # Old ones first: what was decided stays so.
    assert outcomes.count(True) > 8
    assert outcomes.count(False) > (2 if before else -1)


def test_the_rest_can_be_cut_off_as_often_as_you_like(built: Path) -> None:
    """N-shell: each call that is killed while it lands the rest leaves it to the next one."""
    whole = fresh(built, 0)
    assert shell(whole, NEW).returncode == 0
    for number in range(1, 200):
        root = fresh(built, number)
        assert run_observed(root, NEW, at("unchecked-decided")) == -signal.SIGKILL
        code = run_observed(root, "true", at_step(number))
        assert shell(root, "true").returncode == 0
        assert tree(root) == tree(whole), f"step {number}"
        assert left(root) == []
        if code == 0:
            break
    assert number > 8


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_folder_that_goes_is_there_or_gone(built: Path, number: int) -> None:
    """N-shell: half of it was left if its removal was cut off, and looked as if somebody worked in it."""
    assert run_observed(built, "rm -r build target", in_removal(number)) == -signal.SIGKILL
    assert not (built / "build").exists()
    assert shell(built, "true").returncode == 0
    assert not (built / "build").exists()
    assert not (built / "target").exists()
    assert left(built) == []


def test_what_somebody_has_made_since_stays(built: Path) -> None:
    """N-shell: the last writer wins, and that is not the one who was killed before."""
    assert run_observed(built, NEW, at("unchecked-decided")) == -signal.SIGKILL
    wait_for_a_tick(built)
    theirs = "echo theirs > dist/a; rm -r build; mkdir build; echo theirs > build/x; touch target/theirs"
    plainly(built, f"{theirs}; rm -r node_modules")
    assert shell(built, "true").returncode == 0
    found = tree(built)
    assert (found["dist/a"], found["build/x"], found["target/theirs"]) == ("theirs\n", "theirs\n", "")
    assert "node_modules" not in found
    assert found["dist/more/e"] == "new\n"
    assert found["dist/sub/g"] == "new\n"
    assert left(built) == []


def test_what_is_owed_does_not_follow_a_link_that_was_put_there_since(built: Path) -> None:
    """N-shell, finding S1: nothing outside is written to."""
    outside = built.parent / "outside"
    outside.mkdir()
    outside.chmod(0o755)
    (outside / "a").write_text("precious")
    assert run_observed(built, NEW, at("unchecked-decided")) == -signal.SIGKILL
    plainly(built, "rm -r dist node_modules/a; ln -s ../outside dist; ln -s ../../outside node_modules/a")
    assert shell(built, "true").returncode == 0
    assert outside.stat().st_mode & 0o777 == 0o755
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"a": "precious"}


def test_a_link_with_the_number_of_a_removed_folder_is_not_that_folder(tmp_path: Path) -> None:
    """N-shell, finding S1: filesystems use the numbers of inodes again, and permissions follow links."""
    outside, link, upper = tmp_path / "outside", tmp_path / "root/dist", tmp_path / "upper"
    for folder in (outside, link.parent, upper):
        folder.mkdir(0o755)
    link.symlink_to(outside)
    change = TreeChange(MODE, FOLDER, "dist", str(upper), link.lstat(), 0o700, is_checked=False)
    changes = TreeChanges(str(link.parent), (change,))
    assert land_unchecked(changes, 0, decided_ns=link.lstat().st_ctime_ns) == []
    assert outside.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("step", ["unchecked-decided", "unchecked-landed", "unchecked-aside"])
def test_an_interrupted_landing_is_finished_by_the_next_command(built: Path, step: str) -> None:
    """N-shell: Ctrl-C in the middle of it threw away what had not landed."""
    whole = fresh(built, 0)
    assert shell(whole, CHECKED + NEW).returncode == 0

    def interrupt(reached: str) -> None:
        if reached == step:
            steps.observer = None
            raise KeyboardInterrupt

    assert run_observed(built, CHECKED + NEW, interrupt) != 0
    assert shell(built, "true").returncode == 0
    assert tree(built) == tree(whole)
    assert left(built) == []


def _other_token(marker: Path) -> None:
    text = marker.read_bytes()
    marker.write_bytes(b"0" * 32 + text[32:])


def _copy(marker: Path) -> None:
    text = marker.read_bytes()
    spare = marker.with_name("spare")  # So that the copy does not get the same inode.
    spare.write_bytes(text)
    marker.unlink()
    spare.rename(marker)


def _link(marker: Path) -> None:
    elsewhere = marker.parents[5] / "elsewhere"
    marker.rename(elsewhere)
    marker.symlink_to(elsewhere)


def _fifo(marker: Path) -> None:
    marker.unlink()
    os.mkfifo(marker)


def _cut(marker: Path) -> None:
    os.truncate(marker, marker.stat().st_size - 40)


@pytest.mark.parametrize("plant", [_other_token, _copy, _link, _fifo, _cut])
def test_a_list_that_was_not_made_here_lands_nothing(built: Path, plant: Callable[[Path], None]) -> None:
    """N-shell, finding S1: a repository can bring along a folder of runs with everything in it."""
    old = tree(built)
    assert run_observed(built, NEW, at("unchecked-decided")) == -signal.SIGKILL
    run_id = runs.all_ids(str(built))[0]
    plant(Path(runs.owed_path(str(built), run_id)))
    done = shell(built, "true")
    assert (done.returncode, done.stderr) == (0, "")
    assert tree(built) == old
    runs.tidy(str(built), kept_days=0)
    assert runs.all_ids(str(built)) == []  # In the end it goes, as everything that is left does.


def test_a_lock_on_a_folder_is_enough_for_what_lands_in_it(built: Path) -> None:
    """N-shell: what is noted in the state folder is outside of every locked folder, and nobody's file."""
    folder = built / "package"
    (folder / "dist").mkdir(parents=True)
    with DeliverableLock(str(folder), holder="builder") as lock, Workspace(built) as workspace:
        with workspace.turn(agent_id="builder", lock=lock) as turn:
            turn.run("echo a > package/a; echo b > package/dist/b")
        with workspace.turn(agent_id="another") as turn, pytest.raises(LockContention):
            turn.run("echo c > package/dist/c")
    assert ((folder / "a").read_text(), (folder / "dist/b").read_text()) == ("a\n", "b\n")
    assert not (folder / "dist/c").exists()


def test_a_user_who_is_not_root_finishes_a_landing(user_project: Path, as_user: AsUser) -> None:
    """N-shell: root leaves what this user's killed command owes to this user."""
    as_user(f"echo one > plan.md; {OLD}", guarded=False)
    program = user_project.parent / "killed.py"
    program.write_text(
        "import os, sys\n"
        "from noclobber.cli import run\n"
        "from noclobber.disk import steps\n"
        "steps.observer = lambda step: step == 'unchecked-decided' and os.kill(os.getpid(), 9)\n"
        "run.main(['--require', '--', 'sh', '-c', sys.argv[1]])\n"
    )
    words = [sys.executable, str(program), CHECKED + NEW]
    if os.geteuid() == 0:
        words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *words]
    assert subprocess.run(words, cwd=user_project).returncode == -signal.SIGKILL
    assert (user_project / "plan.md").read_text() == "one\ntwo\n"
    assert (user_project / "dist/a").read_text() == "old\n"
    if os.geteuid() == 0:
        runs.tidy(str(user_project))
        assert (user_project / "dist/a").read_text() == "old\n"
    assert as_user("true").returncode == 0
    assert (user_project / "dist/a").read_text() == "new\n"
    assert (user_project / "target").is_symlink()
    assert left(user_project) == []


def test_a_command_without_unchecked_changes_notes_nothing_more(project: Path) -> None:
    """N-shell, N-speed: neither a folder nor a file is made for it."""
    assert shell(project, "echo two >> plan.md; touch -d 2001-01-01 plan.md").returncode == 0
    assert os.listdir(project / ".noclobber/run") == []
