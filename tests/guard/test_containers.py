"""
The whole product where agents run: overlay roots, bind mounts, user namespaces, projects of a group.

Real mounts, in mount namespaces of their own. Every program uses a workspace as an agent's tools do: read, write,
several files, move, delete, a lock, and its ledger must verify.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import noclobber
from noclobber.errors import NoclobberError
from tests.rigs.mounts import OVERLAY, USER_OVERLAY, run_in_mounts

OWN_PIDS = ("--mount", "--pid", "--fork", "--mount-proc")
IN_USER_NAMESPACE = ("--user", "--map-root-user", *OWN_PIDS)
APART = (
    "mkdir -p mem && mount -t tmpfs t mem && mkdir mem/upper mem/work && mount -t overlay o -o"
    " lowerdir=lower,upperdir=mem/upper,workdir=mem/work{more} merged"
)
STRONG = {"create", "lease+exchange"}
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be two users")

USE = """
import json, os
import noclobber
PROJECT = "merged/project"
levels, seen = {}, {}
os.makedirs(PROJECT, exist_ok=True)
with noclobber.Workspace(PROJECT) as workspace:
    with workspace.turn(agent_id="agent") as turn:
        def change(name, text):
            if os.path.exists(f"{PROJECT}/{name}"):
                seen[name] = turn.read_file(name).text
            levels[name] = turn.write_file(name, text).level
        change("image.md", "changed\\n")
        change("image.md", "changed again\\n")
        change("new.md", "new\\n")
        change("new.md", "newer\\n")
        change("deep/er/new.md", "new\\n")
        for name in ("one.md", "two.md"):
            if os.path.exists(f"{PROJECT}/{name}"):
                turn.read_file(name)
        turn.write_files({"one.md": "1\\n", "two.md": "2\\n"})
        if os.path.exists(f"{PROJECT}/old.md"):
            turn.read_file("old.md")
            turn.move_file("old.md", "moved.md")
            turn.read_file("gone.md")
            turn.delete_file("gone.md")
        stale = workspace.turn(agent_id="other")
        stale.read_file("new.md")
        with open(f"{PROJECT}/new.md", "a") as file:
            file.write("a person\\n")
        try:
            stale.write_file("new.md", "over it\\n")
            refused = ""
        except noclobber.StaleFileError as error:
            refused = error.code
    with noclobber.DeliverableLock(f"{PROJECT}/deep", holder="agent"):
        pass
    events = workspace.ledger.verify().event_count
files = {}
for folder, folders, names in os.walk(PROJECT):
    folders[:] = [each for each in folders if each != ".noclobber"]
    for name in names:
        if not name.startswith("."):
            files[os.path.relpath(f"{folder}/{name}", PROJECT)] = open(f"{folder}/{name}").read()
print(json.dumps({"levels": levels, "seen": seen, "files": files, "refused": refused, "events": events,
                  "left": os.listdir(f"{PROJECT}/.noclobber/swap")}))
"""
WRITTEN = {
    "image.md": "changed again\n",
    "new.md": "newer\na person\n",
    "deep/er/new.md": "new\n",
    "one.md": "1\n",
    "two.md": "2\n",
}


def _image(folder: Path) -> None:
    """A project that came with the image: all of it is in the lower layer."""
    project = folder / "lower" / "project"
    project.mkdir(parents=True)
    for name in ("image", "one", "two", "old", "gone"):
        (project / f"{name}.md").write_text(f"{name} of the image\n")


def _check(done: dict[str, Any], files: dict[str, str], levels: set[str] = STRONG) -> None:
    assert done["files"] == files
    assert done["refused"] == "STALE_FILE"
    assert set(done["levels"].values()) <= levels, done["levels"]
    assert done["events"] >= 8
    # The last displaced version waits for the next write; nothing else may be left.
    assert len(done["left"]) <= 2


@pytest.mark.parametrize(
    ("mount", "flags"),
    [
        (OVERLAY, OWN_PIDS),
        (USER_OVERLAY, IN_USER_NAMESPACE),
        (APART.format(more=""), OWN_PIDS),
        (APART.format(more=",metacopy=on"), OWN_PIDS),
        (APART.format(more=",xino=on,index=on"), OWN_PIDS),
    ],
    ids=["one disk", "user namespace", "two filesystems", "metacopy", "xino"],
)
def test_a_project_of_the_image_is_worked_in(tmp_path: Path, mount: str, flags: tuple[str, ...]) -> None:
    """finding R2: the first write copies a file up, which may change its inode and its device under us."""
    _image(tmp_path)
    done = run_in_mounts(tmp_path, mount, USE, flags=flags)
    _check(done, {**WRITTEN, "moved.md": "old of the image\n"})
    assert done["seen"]["image.md"] == "changed\n"
    assert (tmp_path / "lower" / "project" / "image.md").read_text() == "image of the image\n"


@pytest.mark.parametrize("flags", [OWN_PIDS, IN_USER_NAMESPACE], ids=["root", "user namespace"])
def test_a_project_that_is_mounted_into_a_container_is_worked_in(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """finding R2, finding R5: `docker run -v project:/project`, as root and rootless."""
    overlay = USER_OVERLAY if "--user" in flags else OVERLAY
    mount = f"{overlay} && mkdir -p merged/project && mount --bind back merged/project"
    _check(run_in_mounts(tmp_path, mount, USE, flags=flags), WRITTEN)
    assert (tmp_path / "back" / "new.md").read_text() == "newer\na person\n"
    assert not (tmp_path / "upper" / "project" / "new.md").exists()


def test_a_volume_inside_of_a_project_is_worked_in(tmp_path: Path) -> None:
    """finding R5: `deep` is another filesystem, to which nothing of the project's can be renamed."""
    mount = f"{OVERLAY} && mkdir -p merged/project/deep && mount -t tmpfs t merged/project/deep"
    _check(run_in_mounts(tmp_path, mount, USE, flags=OWN_PIDS), WRITTEN)


def test_a_single_file_of_the_host_inside_of_a_container_is_worked_in(tmp_path: Path) -> None:
    """finding R10: `docker run -v notes.md:/project/image.md` on an overlay root."""
    (tmp_path / "back").mkdir()
    (tmp_path / "back" / "notes.md").write_text("of the host\n")
    mount = (
        f"{OVERLAY} && mkdir -p merged/project && : > merged/project/image.md"
        " && mount --bind back/notes.md merged/project/image.md"
    )
    done = run_in_mounts(tmp_path, mount, USE, flags=OWN_PIDS)
    _check(done, WRITTEN, {*STRONG, "lease+inplace"})
    assert done["levels"]["image.md"] == "lease+inplace"
    assert (tmp_path / "back" / "notes.md").read_text() == "changed again\n"


CUT_OFF = """
import json, os, signal
from noclobber.disk import steps
from noclobber.disk.file_guard import FileGuard
from noclobber.disk.hashing import of_bytes
wrong = []
OLD, NEW = b"of the image\\n", b"new\\n"
for number in range(1, 12):
    name = f"f{number}"
    child = os.fork()
    if not child:
        left = [number]
        def at(step):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
        guard = FileGuard("merged/project")
        steps.observer = at
        guard.write(name, NEW, expected=of_bytes(OLD))
        os._exit(0)
    os.waitpid(child, 0)
    there = FileGuard("merged/project").read(name).content
    if there not in (OLD, NEW):
        wrong.append([number, there.decode()])
print(json.dumps({"wrong": wrong}))
"""


@pytest.mark.parametrize("mount", [OVERLAY, APART.format(more="")], ids=["one disk", "two filesystems"])
def test_a_guard_that_is_killed_while_a_file_is_copied_up_leaves_a_whole_version(
    tmp_path: Path, mount: str
) -> None:
    """finding R5: the crash note's inode may be one that the file has no more."""
    project = tmp_path / "lower" / "project"
    project.mkdir(parents=True)
    for number in range(1, 12):
        (project / f"f{number}").write_text("of the image\n")
    assert run_in_mounts(tmp_path, mount, CUT_OFF, flags=OWN_PIDS) == {"wrong": []}


# A project of a group.

ANA, BOB, GROUP = 61001, 61002, 61100


def _as_member(user: int, root: Path, umask: int) -> dict[str, str]:
    """Work in the project as another user; return the level of each call, or its refusal."""
    hears, tells = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.umask(umask)
            os.setgroups([GROUP])
            os.setgid(GROUP)
            os.setuid(user)
            try:
                answer = _work(root, str(user))
            except Exception as error:
                answer = {"error": repr(error)}
            os.write(tells, json.dumps(answer).encode())
        finally:
            os._exit(0)
    os.close(tells)
    os.waitpid(child, 0)
    with os.fdopen(hears) as file:
        said: dict[str, str] = json.loads(file.read())
    return said


def _work(root: Path, name: str) -> dict[str, str]:
    answer: dict[str, str] = {}
    with noclobber.Workspace(root) as workspace, workspace.turn(agent_id=name) as turn:
        for path in ("plan.md", "one.md", "two.md"):
            turn.read_file(path)
        calls: dict[str, Callable[[], noclobber.WriteResult]] = {
            "write": lambda: turn.write_file("plan.md", f"{name}\n"),
            "create": lambda: turn.write_file(f"{name}.md", "mine\n"),
            "several": lambda: turn.write_files({"one.md": name, "two.md": name})["one.md"],
        }
        for what, act in calls.items():
            try:
                answer[what] = act().level
            except NoclobberError as error:
                answer[what] = f"{error.code}: {error}"
        answer["events"] = str(workspace.ledger.verify().event_count)
    return answer


@root_only
@pytest.mark.parametrize("umask", [0o002, 0o022])
def test_two_members_of_a_group_work_in_one_project(tmp_path: Path, umask: int) -> None:
    """finding R10: with the usual umask the first member's ledger was closed to all others, who were refused."""
    _work_as_root_first(tmp_path / "warm")  # What is loaded late: the others may not be able to read Python.
    for folder in (tmp_path, *tmp_path.parents):
        if str(folder).startswith("/tmp/") and folder.stat().st_uid == 0:
            folder.chmod(folder.stat().st_mode | 0o011)
    root = tmp_path / "team"
    root.mkdir()
    for path in (root, *(root / name for name in ("plan.md", "one.md", "two.md"))):
        if path != root:
            path.write_text("first\n")
        os.chown(path, ANA, GROUP)
        path.chmod(0o2775 if path == root else 0o664)
    assert _as_member(ANA, root, umask) == {
        "write": "lease+exchange",
        "create": "create",
        "several": "lease+exchange",
        "events": "4",
    }
    colleagues = {"write": "exchange", "create": "create", "several": "exchange"}
    assert _as_member(BOB, root, umask) == {**colleagues, "events": "8"}
    assert _as_member(ANA, root, umask)["write"] == "exchange"  # It is Bob's file now.
    assert (root / "plan.md").read_text() == f"{ANA}\n"
    status = (root / "plan.md").stat()
    assert (status.st_gid, status.st_mode & 0o7777) == (GROUP, 0o664)


def _work_as_root_first(folder: Path) -> None:
    folder.mkdir()
    for name in ("plan.md", "one.md", "two.md"):
        (folder / name).write_text("first\n")
    _work(folder, "root")
    with pytest.raises(NoclobberError), noclobber.Workspace(folder) as ws, ws.turn(agent_id="root") as turn:
        turn.write_file("../outside", "")


@root_only
def test_a_ledger_stays_closed_to_a_group_that_may_not_write_in_the_project(tmp_path: Path) -> None:
    """finding R10: shared only where the project is."""
    tmp_path.chmod(0o755)
    with noclobber.Workspace(tmp_path) as workspace, workspace.turn(agent_id="a") as turn:
        turn.write_file("f", "x")
    assert (tmp_path / ".noclobber" / "agent_trace.jsonl").stat().st_mode & 0o020 == 0
