"""A guarded command tries to leave its private view (finding S25)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from noclobber import Workspace
from noclobber.shell.supervisor import MACHINES
from tests.shell.test_ordinary_user import AsUser, as_user, user_project
from tests.shell.test_process import is_available, project, shell

__all__ = ["as_user", "project", "user_project"]
pytestmark = [
    pytest.mark.skipif(not is_available(), reason="no namespaces here"),
    pytest.mark.skipif(os.uname().machine not in MACHINES, reason="no filter here"),
    pytest.mark.skipif(not shutil.which("python3"), reason="python3 is needed"),
]

# Whoever is in namespaces that the attacker has made, and is none of its own, is a process of ours.
ATTACK = """
import ctypes, glob, os, signal, sys, time
libc = ctypes.CDLL(None, use_errno=True)
uid, gid = os.getuid(), os.getgid()
if {kinds}:
    assert libc.unshare({kinds}) == 0, ctypes.get_errno()
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {{uid}} 1"), ("gid_map", f"0 {{gid}} 1")):
        open(f"/proc/self/{{name}}", "w").write(text)
ours = os.stat("/proc/self/ns/user").st_ino
mine = {{os.getpid()}}
before = set(os.listdir("/proc"))
go, let_go = os.pipe()
renamer = os.fork()
if renamer == 0:
    os.read(go, 1)
    try: os.rename("big", "moved")
    except OSError as error: print("rename:", error.strerror, flush=True)
    os._exit(0)
mine.add(renamer)
os.write(let_go, b"+")
found = set()
until = time.monotonic() + 20
while time.monotonic() < until and os.waitid(os.P_PID, renamer, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
    for pid in set(map(int, filter(str.isdigit, set(os.listdir("/proc")) - before))) - mine:
        try:
            if os.stat(f"/proc/{{pid}}/ns/user").st_ino == ours:
                print("a process of theirs is in here", flush=True)
                os.kill(pid, signal.SIGSTOP)
            for link in glob.glob(f"/proc/{{pid}}/fd/*"):
                try: open(f"{{link}}/victim", "r+").write("attacked")
                except OSError: pass
            for way in ("root", "cwd"):
                try: open(f"/proc/{{pid}}/{{way}}{{os.getcwd()}}/victim-by-{{way}}", "w").close()
                except OSError: pass
            os.kill(pid, signal.SIGCONT)
        except OSError:
            continue
os._exit(3)
"""


def attacked(user_project: Path, as_user: AsUser, text: str) -> str:
    as_user("mkdir big; for i in $(seq 2000); do : > big/$i; done; echo mine > victim", guarded=False)
    script = user_project.parent / "attack.py"
    script.write_text(text)
    script.chmod(0o644)
    done = as_user(f"python3 {script}")
    return done.stdout + done.stderr


@pytest.mark.parametrize("kinds", [0x10020000, 0x10000000], ids=["its own mounts, too", "only for users"])
def test_nobody_enters_namespaces_that_a_command_has_made(
    user_project: Path, as_user: AsUser, kinds: int
) -> None:
    """finding S25: a child with descriptors of the real tree did, and its descriptors could be opened."""
    said = attacked(user_project, as_user, ATTACK.format(kinds=kinds))

    assert (user_project / "victim").read_text() == "mine\n"
    assert "a process of theirs" not in said, said
    assert "rename: Invalid cross-device link" in said, said


def test_a_folder_is_renamed_in_the_views_own_namespaces_as_before(
    user_project: Path, as_user: AsUser
) -> None:
    """finding S25: who asks from inside is answered."""
    as_user("mkdir big; for i in $(seq 50); do : > big/$i; done; echo mine > victim", guarded=False)
    done = as_user('python3 -c \'import os; os.rename("big", "moved")\'')
    assert (done.returncode, done.stderr) == (0, "")
    assert len(os.listdir(user_project / "moved")) == 50


@pytest.fixture
def root_without_mounts(tmp_path: Path) -> Iterator[Path]:
    """A project of root's, who may not mount: as in many containers."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("root is needed")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


def test_the_process_that_enters_the_view_cannot_be_reached_from_inside(root_without_mounts: Path) -> None:
    """finding S25: a command that is root in the view's own namespace may look into every process in there."""
    root = root_without_mounts / "project"
    (root / "big").mkdir(parents=True)
    for number in range(2000):
        (root / f"big/{number}").touch()
    (root / "victim").write_text("mine\n")
    (root_without_mounts / "attack.py").write_text(ATTACK.format(kinds=0))
    words = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", sys.executable, "-m"]
    words += ["noclobber", "run", "--require", "--", "python3", str(root_without_mounts / "attack.py")]
    environment = {name: text for name, text in os.environ.items() if name != "NOCLOBBER_RUN"}
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=False, env=environment)

    assert (root / "victim").read_text() == "mine\n"
    assert not [name for name in os.listdir(root) if name.startswith("victim-")]
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")
    assert len(os.listdir(root / "moved")) == 2000


@pytest.mark.skipif(os.geteuid() != 0, reason="root is needed")
@pytest.mark.parametrize(
    ("command", "way"),
    [
        ("nsenter --mount=/proc/$PPID/ns/mnt true", "enter another mount namespace"),
        ("nsenter -t $PPID -m true", "enter another mount namespace"),
        ("cd / && umount -l {root}", "unmount {root}"),
        ("cd / && umount {root} 2>/dev/null || true", "unmount {root}"),
    ],
)
def test_a_command_of_root_that_leaves_its_view_is_noticed(project: Path, command: str, way: str) -> None:
    """finding S25: root may, and nothing was said. From the command line, and from the library."""
    text = command.format(root=project)
    done = shell(project, text)
    assert f"the command asked to {way.format(root=project)}, as root may" in done.stderr.replace("\n", " ")

    with Workspace(project) as workspace, workspace.turn() as turn:
        again = turn.run(text)
    assert way.format(root=project).encode() in again.stderr


def test_a_command_that_stays_is_told_nothing(project: Path) -> None:
    """finding S25: namespaces of its own, in which it sees the view as before, are no way out."""
    done = shell(project, "unshare -m true 2>/dev/null; unshare -rm true 2>/dev/null; echo new > new")
    assert (done.returncode, done.stderr) == (0, "")
