"""git in the guarded shell: every repository that a command reaches is guarded, wherever its git folder is."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from noclobber import OthersWorkError, StaleFileError, Workspace
from noclobber.guard.commands import run_command
from noclobber.shell.roots import why_not
from tests.guard.git.test_others_work import REFUSED, TEXT
from tests.rigs.clones import IDENTITY, Clone
from tests.shell.test_git_locks import run_observed
from tests.shell.test_ordinary_user import AsUser, as_user, user_project
from tests.shell.test_owed import at_step

__all__ = ["as_user", "user_project"]
FILES = {"of-ana.md": TEXT, "of-bob.md": TEXT, ".gitignore": b"*.log\n"}


@pytest.fixture(autouse=True)
def identity(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who commits; and submodules may come from folders."""
    if (reason := why_not(str(root))) is not None:
        pytest.skip(reason)
    for name, value in {**IDENTITY, "GIT_ALLOW_PROTOCOL": "file"}.items():
        monkeypatch.setenv(name, value)


class WorkTree(Clone):
    """A work tree that git made somewhere."""

    def __init__(self, root: Path) -> None:
        self.root = root


def nested_clone(project: Path, elsewhere: Path) -> Clone:
    """A clone of its own below the project, which is no repository."""
    (project / "libs/sub").mkdir(parents=True)
    return Clone(project / "libs/sub", FILES)


def submodule(project: Path, elsewhere: Path) -> Clone:
    """Its git folder is `.git/modules/libs/sub` of the repository around it."""
    elsewhere.mkdir()
    Clone(elsewhere, FILES)
    Clone(project, {"README": b"around\n"}).git("submodule", "--quiet", "add", str(elsewhere), "libs/sub")
    return WorkTree(project / "libs/sub")


def linked_inside(project: Path, elsewhere: Path) -> Clone:
    """A linked work tree below the project, as coding agents make them."""
    Clone(project, FILES).git("worktree", "add", "-q", "-b", "side", "libs/sub")
    return WorkTree(project / "libs/sub")


KINDS = (nested_clone, submodule, linked_inside)


def write(project: Path, name: str, content: bytes) -> None:
    """Another agent writes a file."""
    with (
        Workspace(project) as workspace,
        workspace.turn(agent_id="bob", session_id="session-of-bob") as turn,
    ):
        if (project / name).exists():
            turn.read_file(name)
        turn.write_file(name, content)


def run(project: Path, command: str) -> None:
    """An agent runs a command in the guarded shell."""
    with Workspace(project) as workspace, workspace.turn(agent_id="ana") as turn:
        done = run_command(turn, command)
        assert done.exit_code == 0, done.stderr


@contextmanager
def outsider(folder: Path, text: str) -> Iterator[str]:
    """Somebody in no view. The text for a shell that comes of it lets them do something, and waits for that."""
    begin, done = folder / "begin", folder / "done"
    os.mkfifo(begin)
    os.mkfifo(done)
    process = subprocess.Popen(["sh", "-c", f"read x <{begin}; {text}; echo >{done}"])
    yield f"echo >{begin}; read x <{done}"
    process.wait()
    begin.unlink()
    done.unlink()


def state_of(clone: Clone) -> tuple[object, ...]:
    """Everything that git knows."""
    return (
        clone.status(),
        clone.git("rev-parse", "HEAD"),
        clone.git("symbolic-ref", "HEAD"),
        clone.git("ls-files", "--stage"),
        clone.git("stash", "list"),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_repository_below_the_project_is_guarded_as_the_one_at_its_root(
    root: Path, tmp_path: Path, kind: object
) -> None:
    """finding G7: from the project's root (`git -C`, `cd`), and in a script."""
    clone = kind(root, tmp_path / "elsewhere")  # type: ignore[operator]
    write(root, "libs/sub/of-bob.md", TEXT.replace(b"line 3\n", b"bob\n"))
    write(root, "libs/sub/new-of-bob.md", b"bob\n")
    before = state_of(clone)
    for command, what, files in REFUSED:
        with pytest.raises(OthersWorkError, match=f"would be {what}") as refused:
            run(root, f"cd libs/sub && {command}")
        named = ", ".join(f"libs/sub/{name}" for name in files.split(", "))
        assert refused.value.details["files"] == named, command
        assert state_of(clone) == before, command
    with pytest.raises(OthersWorkError):
        run(root, "git -C libs/sub reset -q --hard")
    run(root, "cd libs/sub && echo ana >>of-ana.md && git add of-ana.md && git commit -qm mine")
    assert clone.status() == [" M of-bob.md", "?? new-of-bob.md"]


def test_a_nested_clone_with_uncommitted_work_is_not_removed(root: Path, tmp_path: Path) -> None:
    """Finding G7: with its git folder all that can bring the work back would be gone."""
    nested_clone(root, tmp_path)
    write(root, "libs/sub/of-bob.md", b"bob\n")
    with pytest.raises(OthersWorkError, match="taken away"):
        run(root, "rm -rf libs/sub")


def test_a_submodule_is_not_emptied_from_above(root: Path, tmp_path: Path) -> None:
    """Finding G7: `deinit` changes the repository around it, and the files of the other."""
    submodule(root, tmp_path / "elsewhere")
    write(root, "libs/sub/of-bob.md", b"bob\n")
    with pytest.raises(OthersWorkError, match="taken away"):
        run(root, "git submodule --quiet deinit -f libs/sub")


# The git folder is outside of the project.


def linked_outside(project: Path, elsewhere: Path) -> Clone:
    """A linked work tree is the project; its git folder is in another one."""
    elsewhere.mkdir()
    project.rmdir()
    Clone(elsewhere, FILES).git("worktree", "add", "-q", "-b", "side", str(project))
    return WorkTree(project)


def in_larger_clone(project: Path, elsewhere: Path) -> Clone:
    """The project is a folder of a clone, and marked as a project."""
    for name, content in FILES.items():
        (project / name).write_bytes(content)
    (project / "noclobber.toml").write_text("")
    clone = Clone(project.parent)
    clone.git("add", str(project))
    clone.git("commit", "-qm", "first")
    return WorkTree(project)


@pytest.mark.parametrize("kind", [linked_outside, in_larger_clone])
def test_a_git_folder_outside_of_the_project_is_as_it_was_after_a_refusal(
    root: Path, tmp_path: Path, kind: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding G7: HEAD and the index moved although nothing landed, and the next commit reverted a merge."""
    monkeypatch.setenv("GIT_DISCOVERY_ACROSS_FILESYSTEM", "1")  # Without it git does not leave the view.
    clone = kind(root, tmp_path / "elsewhere")  # type: ignore[operator]
    write(root, "of-bob.md", TEXT.replace(b"line 3\n", b"bob\n"))
    write(root, "new-of-bob.md", b"bob\n")
    before = state_of(clone)
    for command, what, files in REFUSED:
        with pytest.raises(OthersWorkError, match=f"would be {what}") as refused:
            run(root, command)
        assert refused.value.details["files"] == files, command
        assert refused.value.beside == ""
        assert state_of(clone) == before, command
    run(root, "echo ana >>of-ana.md && git add of-ana.md && git commit -qm mine")
    assert clone.shown("./of-ana.md").endswith(b"ana\n")
    assert [line[:3] for line in clone.status() if "bob" in line] == [" M ", "?? "]
    assert clone.git("fsck", "--strict") == ""


def test_a_merge_that_is_refused_as_stale_leaves_a_linked_work_tree_alone(root: Path, tmp_path: Path) -> None:
    """Finding G7: a person saves a file while the merge runs; then the merge is done again."""
    clone = linked_outside(root, tmp_path / "elsewhere")
    main = WorkTree(tmp_path / "elsewhere")
    (main.root / "of-bob.md").write_bytes(b"from main\n")
    main.git("commit", "-qam", "main")
    before = state_of(clone)
    with (
        outsider(tmp_path, f"echo person >>{root}/of-bob.md") as let,
        pytest.raises(StaleFileError) as refused,
    ):
        run(root, f"git merge -q --no-ff -m merged main; {let}")
    assert refused.value.beside == ""
    assert state_of(clone)[1:] == before[1:]
    assert clone.status() == [" M of-bob.md"]
    clone.git("checkout", "-q", "--", ".")
    run(root, "git merge -q --no-ff -m merged main")
    assert clone.status() == []
    assert clone.shown("of-bob.md") == b"from main\n"


def test_what_somebody_does_in_the_git_folder_meanwhile_is_not_undone(root: Path, tmp_path: Path) -> None:
    """Finding G7: a branch that moved since the command began is stale; another work tree's commit is not."""
    clone = linked_outside(root, tmp_path / "elsewhere")
    main = WorkTree(tmp_path / "elsewhere")
    ours, theirs = "echo x >>of-ana.md; git commit -qam mine", "commit -q --allow-empty -m theirs"
    with outsider(tmp_path, f"git -C {main.root} {theirs}") as let:
        run(root, f"{ours}; {let}")
    with outsider(tmp_path, f"git -C {root} {theirs}") as let, pytest.raises(StaleFileError):
        run(root, f"{ours}; {let}")
    assert clone.git("log", "--format=%s").split() == ["theirs", "mine", "first"]
    assert main.git("log", "--format=%s").split() == ["theirs", "first"]
    assert clone.status() == []


def test_killed_at_any_step_a_commit_in_a_linked_work_tree_is_done_or_not(root: Path, tmp_path: Path) -> None:
    """Finding G7: the next command finds HEAD, index and files of one moment, and no lock of ours."""
    clone = linked_outside(root, tmp_path / "elsewhere")
    with Workspace(root) as workspace:
        workspace.recorder.prepare()
    outcomes = []
    for number in range(1, 100):
        copies = [tmp_path / f"{number}-{name}" for name in ("tree", "main")]
        shutil.copytree(root, copies[0], symlinks=True)
        shutil.copytree(tmp_path / "elsewhere", copies[1], symlinks=True)
        inside = copies[1] / ".git/worktrees/workspace"
        (inside / "gitdir").write_text(f"{copies[0]}/.git\n")
        (copies[0] / ".git").write_text(f"gitdir: {inside}\n")
        copy = WorkTree(copies[0])
        code = run_observed(copy.root, "echo x >>of-ana.md; git commit -qam mine", at_step(number))
        assert code in (0, -signal.SIGKILL)
        run(copy.root, "true")
        assert copy.status() == [], number
        assert copy.git("fsck", "--strict") == ""
        assert list(copies[1].glob(".git/**/*.lock")) == []
        outcomes.append(copy.count() == 2)
        if code == 0:
            break
    assert outcomes == sorted(outcomes)
    assert outcomes.count(True) > 3
    assert clone.count() == 1


def test_a_git_folder_that_cannot_be_in_the_view_is_named(root: Path, tmp_path: Path) -> None:
    """Finding G7: a refusal is true: what has changed all the same is said beside it."""
    (root / "sub").mkdir()
    linked_outside(root / "sub", tmp_path / "elsewhere")
    (root / "script").write_text("cd sub && git commit -q --allow-empty -m mine && echo x >of-ana.md")
    with (
        outsider(tmp_path, f"echo person >{root}/sub/of-ana.md") as let,
        pytest.raises(StaleFileError) as refused,
    ):
        run(root, f"sh script; {let}")
    assert "elsewhere/.git/worktrees/sub/logs/HEAD" in refused.value.beside


@pytest.mark.skipif(not shutil.which("git"), reason="git is needed")
def test_an_ordinary_user_works_in_a_linked_work_tree(user_project: Path, as_user: AsUser) -> None:
    """Finding G7: with ids of its own in the view."""
    made = "git init -q main && cd main && git commit -q --allow-empty -m 1 && git worktree add -q ../tree"
    assert as_user(f"{made} && touch ../tree/noclobber.toml", guarded=False).returncode == 0
    text = "cd tree && noclobber=1 && echo 1 >f && git add f && git commit -qm 2 && git gc -q"
    done = as_user(text)
    assert (done.returncode, done.stderr) == (0, "")
    checked = as_user("cd tree && git status --porcelain -uno && git rev-list --count HEAD", guarded=False)
    assert checked.stdout == "2\n"
