"""Folders are renamed inside a private view, although an overlay cannot do that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from noclobber.shell.supervisor import MACHINES
from tests.shell.test_process import events, is_available, noclobber_run, project, shell

__all__ = ["project"]
pytestmark = pytest.mark.skipif(
    not is_available() or os.uname().machine not in MACHINES, reason="no namespaces, or no filter here"
)


def python(root: Path, text: str) -> subprocess.CompletedProcess[str]:
    return noclobber_run(root, "python3", "-c", f"import os\n{text}")


def test_a_folder_is_renamed_with_everything_in_it(project: Path) -> None:
    """N-shell: `os.rename` of a folder that was there before; links, modes and times stay."""
    (project / "a/deep").mkdir(parents=True)
    (project / "a/deep/f").write_text("f")
    os.chmod(project / "a/deep/f", 0o751)
    os.utime(project / "a/deep/f", ns=(10**18, 10**18))
    os.symlink("f", project / "a/deep/link")
    done = python(
        project,
        "os.rename('a', 'b'); os.rename('b/deep', 'b/deeper'); os.chdir('b'); os.rename('deeper', '../c')",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(os.listdir(project)) == [".noclobber", "b", "c", "plan.md"]
    assert os.readlink(project / "c/link") == "f"
    status = (project / "c/f").stat()
    assert (status.st_mode & 0o777, status.st_mtime_ns) == (0o751, 10**18)
    changed = {
        (event["payload"]["target_file"], event["payload"]["after_hash"][:7]) for event in events(project)
    }
    assert ("a/deep/f", "DELETED") in changed


def test_a_rename_that_cannot_be_fails_as_ever(project: Path) -> None:
    """N-shell: over a folder that is not empty, into itself, of nothing."""
    (project / "a/f").mkdir(parents=True)
    (project / "b/f").mkdir(parents=True)
    done = python(
        project,
        "for pair in (('a', 'b'), ('a', 'a/f/g'), ('none', 'c')):\n"
        "    try: os.rename(*pair)\n"
        "    except OSError as error: print(error.errno)",
    )
    assert done.stdout.split() == ["39", "22", "2"]
    assert sorted(os.listdir(project)) == [".noclobber", "a", "b", "plan.md"]


def test_the_projects_own_records_cannot_be_moved_and_the_rest_lands(project: Path) -> None:
    """N-shell: that one call fails, as at any place where something is mounted."""
    done = python(
        project,
        "try: os.rename('.noclobber', 'x')\n"
        "except OSError as error: print(error.errno == 16)\n"
        "open('new.txt', 'w').write('new')",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
    assert sorted(os.listdir(project)) == [".noclobber", "new.txt", "plan.md"]


def test_git_mv_of_a_folder(project: Path) -> None:
    """N-shell: the program that made this necessary."""
    (project / "a").mkdir()
    (project / "a/f").write_text("f")
    made = "git init -q . && git add a && git -c user.name=a -c user.email=a@b commit -qm a"
    subprocess.run(["sh", "-c", made], cwd=project, check=True)
    done = shell(project, "git mv a b && git status --porcelain")
    assert (done.returncode, done.stdout) == (0, "R  a/f -> b/f\n?? plan.md\n")
    assert (project / "b/f").read_text() == "f"


IN_THE_VIEW = (
    "pid=$PPID; v=$(readlink /proc/self/ns/mnt); echo $v; cd /proc; for p in [0-9]*; do"
    ' [ "$(readlink $p/ns/mnt)" = $v ] && echo $p; done; kill -9 $pid; exec sleep 5'
)


def test_nobody_is_left_when_the_process_is_killed(project: Path) -> None:
    """N-shell: the command ends with the process that runs it, whatever ends that."""
    done = shell(project, IN_THE_VIEW)
    view, *pids = done.stdout.split()
    assert view.startswith("mnt:[")
    assert pids, "the command"
    assert done.returncode == -9

    def alive() -> list[str]:
        """Of those: the number of a namespace is given to another one at once."""
        found = []
        for name in pids:
            try:
                found += [name] if os.readlink(f"/proc/{name}/ns/mnt") == view else []
            except OSError:
                continue
        return found

    assert shell(project, "true").returncode == 0  # The next command cleans up.
    for _ in range(200):
        if not alive():
            break
        os.sched_yield()
    assert alive() == []
    assert os.listdir(project / ".noclobber/run") == []


def test_a_folder_behind_a_link_that_the_command_made_is_renamed(project: Path) -> None:
    """N-shell: the real tree does not have that path, so the view has to be asked."""
    (project / "a/deep").mkdir(parents=True)
    (project / "a/deep/f").write_text("f")
    done = python(project, "os.symlink('a', 'link'); os.rename('link/deep', 'link/deeper')")
    assert (done.returncode, done.stderr) == (0, "")
    assert (project / "a/deeper/f").read_text() == "f"


def test_where_no_process_may_look_into_another_only_folders_cannot_be_renamed(project: Path) -> None:
    """N-shell: a kernel with `ptrace_scope` 3 does not give the listener away; the command is run all the same."""
    (project / "a").mkdir()
    program = (
        "import sys; from noclobber.shell.supervisor import Supervisor as S\n"
        "S.take = lambda self, pid, listener: False\n"
        "from noclobber.cli import main; sys.exit(main(['run', '--', *sys.argv[1:]]))"
    )
    text = "mv plan.md new.md && python3 -c \"import os; os.rename('a', 'b')\" 2>&1 | grep -o 'Errno 18'"
    done = subprocess.run(
        [sys.executable, "-c", program, "sh", "-c", text], cwd=project, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "Errno 18\n", "")
    assert sorted(os.listdir(project)) == [".noclobber", "a", "new.md"]
