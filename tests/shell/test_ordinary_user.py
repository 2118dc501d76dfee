"""What the kernel asks of a user who is not root, and what a command of that user does to a tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.shell.test_process import is_available

NOBODY = 65534
AsUser = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = pytest.mark.skipif(not is_available(), reason="no namespaces here")


@pytest.fixture
def user_project() -> Iterator[Path]:
    """A project of a user without rights: of `nobody`, if we are root."""
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        pytest.skip("another user is needed")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        root = Path(folder, "project")
        root.mkdir()
        if os.geteuid() == 0:
            os.chown(root, NOBODY, NOBODY)
        yield root


@pytest.fixture
def as_user(user_project: Path) -> AsUser:
    """Runs a text for a shell as that user, plainly or guarded."""

    def run(text: str, *, guarded: bool = True) -> subprocess.CompletedProcess[str]:
        words = ["sh", "-c", text]
        if guarded:
            words = [sys.executable, "-m", "noclobber", "run", "--require", "--", *words]
        if os.geteuid() == 0:
            user = str(NOBODY)
            words = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", *words]
        names = dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "t")
        names |= dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "t@t")
        environment = {**os.environ, **names, "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
        environment.pop("NOCLOBBER_RUN", None)
        return subprocess.run(words, cwd=user_project, capture_output=True, text=True, env=environment)

    if run("true").returncode:
        pytest.skip("that user cannot read this installation, or may not make namespaces")
    return run


def landed(done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stderr) == (0, "")


def test_a_read_only_file_is_replaced_moved_and_removed_as_by_a_plain_command(
    user_project: Path, as_user: AsUser
) -> None:
    """N-shell: the right to write in the folder is what `mv`, `rm` and `sed -i` need."""
    as_user("for n in a b c d; do echo one > $n; chmod 444 $n; done", guarded=False)
    landed(as_user("sed -i s/one/two/ a; rm -f b; mv c moved; echo new > n; mv -f n d"))
    assert (user_project / "a").read_text() == "two\n"
    assert (user_project / "a").stat().st_mode & 0o777 == 0o444
    assert (user_project / "moved").read_text() == "one\n"
    assert (user_project / "d").read_text() == "new\n"
    assert sorted(path.name for path in user_project.iterdir()) == [".noclobber", "a", "d", "moved"]


@pytest.mark.skipif(not shutil.which("git"), reason="git is needed")
def test_git_collects_its_garbage(user_project: Path, as_user: AsUser) -> None:
    """N-shell: objects, packs and the commit graph are read-only files."""
    as_user("git init -q; for i in 1 2 3; do echo $i > f; git add f; git commit -qm $i; done", guarded=False)
    landed(as_user("git gc -q"))
    landed(as_user("echo 4 > f; git commit -qam 4; git gc -q"))
    landed(as_user("git reflog expire --expire=now --all; git gc -q --prune=now"))
    checked = as_user("git fsck --strict && git rev-list --count HEAD", guarded=False)
    assert checked.stdout == "4\n"


def test_a_folder_that_its_owner_may_not_write_to_comes_and_goes(user_project: Path, as_user: AsUser) -> None:
    """N-shell: new ones, renamed ones, removed ones, and in unchecked folders, where it was lost in silence."""
    as_user("mkdir old gone nm node_modules; echo 1 > old/f; chmod 555 old gone", guarded=False)
    text = "mkdir new; echo 2 > new/f; chmod 555 new; mv old renamed; rmdir gone"
    landed(as_user(f"{text}; cp -r new node_modules/new; chmod 555 node_modules/new"))
    for name, content in (("new", "2\n"), ("renamed", "1\n"), ("node_modules/new", "2\n")):
        assert (user_project / name / "f").read_text() == content
        assert (user_project / name).stat().st_mode & 0o777 == 0o555
        assert not [each for each in os.listxattr(user_project / name) if "overlay" in each]
    assert not (user_project / "gone").exists()


def test_a_folder_is_closed_after_what_the_command_put_into_it(user_project: Path, as_user: AsUser) -> None:
    """N-shell: the permissions land last, or nothing else could."""
    as_user("mkdir a b; echo 1 > a/f", guarded=False)
    landed(as_user("echo 2 > a/new; sed -i s/1/3/ a/f; chmod 500 a; chmod 000 b"))
    assert (user_project / "a/new").read_text() == "2\n"
    assert (user_project / "a/f").read_text() == "3\n"
    assert [(user_project / name).stat().st_mode & 0o777 for name in ("a", "b")] == [0o500, 0]


def test_nothing_of_the_overlay_is_left_on_what_is_read_only(user_project: Path, as_user: AsUser) -> None:
    """N-shell: its attributes mean nothing outside, and would travel with the file."""
    as_user("mkdir -p d/e; echo 1 > f; echo 1 > d/f; chmod 444 d/f; chmod 555 d/e", guarded=False)
    landed(as_user("echo 2 >> f; chmod 400 f; mv d g"))
    for path in (user_project / "f", user_project / "g", user_project / "g/f", user_project / "g/e"):
        assert os.listxattr(path) == []
    assert (user_project / "g/f").stat().st_mode & 0o777 == 0o444


def test_what_cannot_be_read_is_refused_with_that_reason(user_project: Path, as_user: AsUser) -> None:
    """N-shell: it was called stale, "modified by another actor", though nobody had touched it."""
    as_user("echo 1 > f; chmod 000 f", guarded=False)
    refused = as_user("rm -f f")
    assert refused.returncode == 75
    assert '"ACCESS_DENIED"' in refused.stderr
    assert "chmod u+r" in refused.stderr
    assert (user_project / "f").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's files are needed")
def test_a_folder_that_cannot_be_copied_up_is_left_whole(user_project: Path, as_user: AsUser) -> None:
    """N-shell: half of it was left under a name of ours, and the command was refused for that name."""
    as_user("mkdir -p d/e; for i in 1 2 3; do echo $i > d/$i; echo $i > d/e/$i; done", guarded=False)
    (user_project / "d/e/foreign").write_text("theirs\n")
    os.chmod(user_project / "d/e/foreign", 0o600)
    done = as_user('echo 1 > other; python3 -c \'import os; os.rename("d", "g")\' 2>/dev/null; ls -A . d d/e')
    assert done.returncode == 0
    assert "moving" not in done.stdout
    assert "g\n" not in done.stdout
    assert sorted(os.listdir(user_project / "d/e")) == ["1", "2", "3", "foreign"]
    assert (user_project / "other").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's files are needed")
def test_another_users_file_in_a_folder_of_ours_can_be_removed(user_project: Path, as_user: AsUser) -> None:
    """N-shell: as by plain `rm`. It was refused because a placeholder could not have that owner."""
    (user_project / "theirs").write_text("theirs\n")
    landed(as_user("rm -f theirs"))
    assert not (user_project / "theirs").exists()


def test_a_kept_command_does_not_keep_the_project_from_being_removed(
    user_project: Path, as_user: AsUser
) -> None:
    """N-shell: the kernel makes a folder of mode 0 for itself; `rm -r` of the project stopped there."""
    assert as_user("echo 1 > .lock").returncode == 75
    removed = as_user("rm -r .noclobber", guarded=False)
    assert (removed.returncode, removed.stderr) == (0, "")


@pytest.mark.skipif(not shutil.which("git"), reason="git is needed")
def test_a_commit_in_a_submodule_lands(user_project: Path, as_user: AsUser) -> None:
    """N-shell: our own look at the repository wrote the submodule's index, and the command was refused."""
    allowed = "git -c protocol.file.allow=always"
    made = (
        "git init -q lib; cd lib; echo 1 > f; git add f; git commit -qm 1; cd ..; mkdir top; mv lib top/lib"
    )
    added = f"git init -q; {allowed} submodule add -q ./top/lib part; git commit -qm part; git status"
    assert as_user(f"{made}; {added}", guarded=False).returncode == 0
    landed(as_user("cd part && echo 2 >> f && git commit -qam 2 && cd .. && git commit -qam bump"))
    checked = as_user("git fsck --strict && git -C part log --format=%s && git status --porcelain part")
    assert checked.stdout == "2\n1\n"


def test_what_a_command_did_in_a_read_only_folder_of_packages_lands(
    user_project: Path, as_user: AsUser
) -> None:
    """N-shell: it made the folder writable and read-only again, as package managers do. That was lost."""
    folder = "node_modules/package"
    landed(as_user(f"mkdir -p {folder}; echo one > {folder}/a; echo one > {folder}/b; chmod 555 {folder}"))
    change = f"echo two > {folder}/new; echo two > {folder}/a; rm -f {folder}/b"
    landed(as_user(f"chmod 755 {folder}; {change}; chmod 555 {folder}"))
    package = user_project / folder
    assert sorted(os.listdir(package)) == ["a", "new"]
    assert (package / "a").read_text() == "two\n"
    assert package.stat().st_mode & 0o777 == 0o555
