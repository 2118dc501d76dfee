"""Deleting and moving, if the file is still what was seen; and files with several names."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from noclobber.disk import leases
from noclobber.disk.commit.change_set import delete
from noclobber.disk.commit.committer import Committer
from noclobber.disk.commit.moving import move
from noclobber.disk.commit.sweep import MARK_FROM_BYTES
from noclobber.errors import (
    BadRequestError,
    FileExistsAlreadyError,
    MissingFileError,
    StaleFileError,
)
from tests.conftest import AtStep, sha256

STEPS = ["entered", "staged", "leased", "verified", "before-exchange", "exchanged", "settled"]


def rubbish(root: Path, committer: Committer) -> list[str]:
    committer.sweep()
    return os.listdir(root / ".noclobber/swap")


def test_a_file_that_is_still_what_was_seen_is_deleted(root: Path) -> None:
    """009-FR-003: a delete is a modification like any other."""
    (root / "a.md").write_bytes(b"v1")
    committer = Committer(str(root))
    commit = delete(committer, "a.md", sha256(b"v1"))
    assert commit.sha256 == "DELETED"
    assert not (root / "a.md").exists()
    assert rubbish(root, committer) == []


def test_a_changed_file_is_not_deleted(root: Path) -> None:
    """009-FR-004."""
    (root / "a.md").write_bytes(b"human")
    with pytest.raises(StaleFileError):
        delete(Committer(str(root)), "a.md", sha256(b"v1"))
    assert (root / "a.md").read_bytes() == b"human"


@pytest.mark.parametrize("step", [step for step in STEPS if step != "entered"] + ["placeholder-away"])
def test_a_save_during_a_delete_survives(root: Path, at_step: AtStep, step: str) -> None:
    """009-SC-001: unlinking the name would take the editor's new file with it."""
    path = root / "a.md"
    path.write_bytes(b"v1")

    def save() -> None:
        (root / "e").write_bytes(b"editor")
        os.replace(root / "e", path)

    seen = at_step(step, save)
    committer = Committer(str(root))
    try:
        delete(committer, "a.md", sha256(b"v1"))
    except StaleFileError as refused:
        assert refused.actual == sha256(b"editor")
    assert seen
    assert path.read_bytes() == b"editor"
    assert rubbish(root, committer) == []


@pytest.mark.parametrize("step", ["entered", "staged", "verified", "before-exchange"])
def test_a_file_that_nobody_had_read_and_that_goes_during_a_delete_is_missing_not_stale(
    root: Path, at_step: AtStep, step: str
) -> None:
    """009-FR-006, finding C8: without a baseline there is no stale object to give."""
    path = root / "a.md"
    path.write_bytes(b"v1")
    seen = at_step(step, path.unlink)
    with pytest.raises(MissingFileError):
        delete(Committer(str(root)), "a.md", None)
    assert seen


def test_a_reader_that_opens_during_a_delete_never_finds_an_empty_file(root: Path, at_step: AtStep) -> None:
    """N-delete: the stand-in must not be seen; the reader gets the old bytes or no file."""
    path = root / "a.md"
    path.write_bytes(b"v1")
    got: list[bytes] = []
    threads: list[threading.Thread] = []

    def read() -> None:
        try:
            got.append(path.read_bytes())
        except FileNotFoundError:
            got.append(b"no file")

    def start() -> None:
        threads.append(threading.Thread(target=read))
        threads[0].start()
        while "BREAKING" not in Path("/proc/locks").read_text():
            os.sched_yield()

    at_step("exchanged", start)
    delete(Committer(str(root)), "a.md", sha256(b"v1"))
    threads[0].join()
    assert got == [b"v1"]
    assert not path.exists()


CHILD = """
import os, signal, sys
from noclobber.disk import steps
from noclobber.disk.commit.change_set import delete
from noclobber.disk.commit.committer import Committer
def observe(step):
    if step == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)
steps.observer = observe
delete(Committer(sys.argv[1]), "a.md", sys.argv[3])
"""
CHILD_COVERED = CHILD.replace(
    "    if step == sys",
    """    if step == "settled":
        open(sys.argv[1] + "/e", "wb").write(b"editor")
        os.replace(sys.argv[1] + "/e", sys.argv[1] + "/a.md")
    if step == sys""",
)


@pytest.mark.parametrize("step", [*STEPS, "placeholder-away"])
def test_kill_9_during_a_delete_leaves_the_file_or_no_file(root: Path, step: str) -> None:
    """N-delete: never the empty stand-in."""
    path = root / "a.md"
    path.write_bytes(b"v1")
    child = subprocess.run([sys.executable, "-c", CHILD, str(root), step, sha256(b"v1")], check=False)
    assert child.returncode == -9
    committer = Committer(str(root))
    committer.replace("other.md", None, b"x")  # Recovers the folder.
    assert not path.exists() or path.read_bytes() == b"v1"
    assert rubbish(root, committer) == []


def late_writer(path: Path, data: bytes) -> threading.Thread:
    """An outsider that has looked a file up, and is on its way into open()."""
    inode = path.stat().st_ino

    def work() -> None:
        with open(path, "ab", buffering=0) as file:
            file.write(data)

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(2000):
        locks = Path("/proc/locks").read_text().splitlines()
        if any("LEASE" in line and "BREAKING" in line and f":{inode} " in line for line in locks):
            break
        os.sched_yield()
    return thread


def kept_bytes(committer: Committer) -> list[bytes]:
    return [Path(where).read_bytes() for _, where in committer.sweep()]


needs_leases = pytest.mark.skipif(sys.platform != "linux", reason="kernel file leases exist on Linux only")


@needs_leases
def test_what_is_written_to_the_stand_in_of_a_delete_is_kept(
    root: Path, at_step: AtStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """009-SC-001: its writer looked the name up, and was stopped in open() before the kernel counted it."""
    (root / "a.md").write_bytes(b"v1")
    writers: list[threading.Thread] = []
    quiet = leases.is_quiet

    def come_late() -> None:
        (stand_in,) = (root / ".noclobber/swap").glob("*+")
        writers.append(late_writer(stand_in, b"late"))
        # The kernel cannot tell us of one that it has not counted. This one it has; so look away.
        monkeypatch.setattr(leases, "is_quiet", lambda *_: True)

    at_step("placeholder-away", come_late)
    committer = Committer(str(root))
    delete(committer, "a.md", sha256(b"v1"))
    monkeypatch.setattr(leases, "is_quiet", quiet)
    writers[0].join()
    assert not (root / "a.md").exists()
    assert kept_bytes(committer) == [b"late"]
    assert rubbish(root, committer) == []


@needs_leases
def test_a_writer_that_waits_for_the_stand_in_of_a_delete_whose_name_is_taken_loses_nothing(
    root: Path, at_step: AtStep
) -> None:
    """009-SC-001: the stand-in cannot go back to its name, because somebody has created a file there."""
    path = root / "a.md"
    path.write_bytes(b"v1")
    writers: list[threading.Thread] = []

    def come_late_and_create() -> None:
        (stand_in,) = (root / ".noclobber/swap").glob("*+")
        writers.append(late_writer(stand_in, b" and late"))
        path.write_bytes(b"new")

    at_step("placeholder-away", come_late_and_create)
    committer = Committer(str(root))
    delete(committer, "a.md", sha256(b"v1"))  # It was gone when they created theirs.
    writers[0].join()
    assert path.read_bytes() == b"new"
    assert kept_bytes(committer) == [b"v1 and late"]
    assert rubbish(root, committer) == []


@pytest.mark.parametrize("step", ["exchanged", "settled", "placeholder-away"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_who_opens_the_stand_in_of_a_killed_delete_loses_nothing(root: Path, step: str, when: str) -> None:
    """009-SC-001: the lease died with its holder. What is appended before or after the recovery is somewhere."""
    path = root / "a.md"
    path.write_bytes(b"v1")
    child = subprocess.run([sys.executable, "-c", CHILD, str(root), step, sha256(b"v1")], check=False)
    assert child.returncode == -9
    swap = root / ".noclobber/swap"
    with open(next(swap.glob("*+")) if step == "placeholder-away" else path, "ab", buffering=0) as late:
        if when == "before":
            late.write(b"+late")
        committer = Committer(str(root), wait_s=0.05)
        committer.replace("b.md", "ABSENT", b"x")
        if when == "after":
            late.write(b"+late")
    there = path.read_bytes() if path.exists() else b""
    kept = [each.read_bytes() for each in (root / ".noclobber/kept").iterdir()] + kept_bytes(committer)
    assert any(b"+late" in content for content in (there, *kept))
    committer.sweep()
    assert rubbish(root, committer) == []


def test_somebodys_save_that_a_killed_delete_had_moved_away_comes_back(root: Path) -> None:
    """009-SC-001: it had covered the stand-in; the agent was killed with it in its hands."""
    path = root / "a.md"
    path.write_bytes(b"v1")
    child = subprocess.run(
        [sys.executable, "-c", CHILD_COVERED, str(root), "placeholder-away", sha256(b"v1")], check=False
    )
    assert child.returncode == -9
    assert not path.exists()
    committer = Committer(str(root))
    committer.replace("b.md", "ABSENT", b"x")
    assert path.read_bytes() == b"editor"
    assert rubbish(root, committer) == []


def test_deleting_what_is_not_there_says_so(root: Path) -> None:
    """N-delete: a missing file's error is a FileNotFoundError as well."""
    with pytest.raises(MissingFileError) as missing:
        delete(Committer(str(root)), "nope.md", None)
    assert isinstance(missing.value, FileNotFoundError)
    assert missing.value.errno == 2


def test_a_move_takes_the_inode_along(root: Path) -> None:
    """N-move: bytes, metadata and open descriptors go with it."""
    (root / "a.md").write_bytes(b"v1")
    inode = (root / "a.md").stat().st_ino
    commit = move(Committer(str(root)), "a.md", "sub/b.md", sha256(b"v1"))
    assert commit.path == str(root / "sub/b.md")
    assert (root / "sub/b.md").stat().st_ino == inode
    assert not (root / "a.md").exists()


def test_a_move_does_not_replace(root: Path) -> None:
    """N-move: somebody else's file at the destination stands."""
    (root / "a.md").write_bytes(b"v1")
    (root / "b.md").write_bytes(b"theirs")
    with pytest.raises(FileExistsAlreadyError):
        move(Committer(str(root)), "a.md", "b.md", sha256(b"v1"))
    assert (root / "a.md").read_bytes() == b"v1"
    assert (root / "b.md").read_bytes() == b"theirs"


def test_a_changed_file_is_not_moved(root: Path, at_step: AtStep) -> None:
    """009-FR-004: also if it changes at the last moment."""
    (root / "a.md").write_bytes(b"v1")

    def save() -> None:
        (root / "e").write_bytes(b"editor")
        os.replace(root / "e", root / "a.md")

    at_step("verified", save)
    with pytest.raises(StaleFileError):
        move(Committer(str(root)), "a.md", "b.md", sha256(b"v1"))
    assert (root / "a.md").read_bytes() == b"editor"
    assert not (root / "b.md").exists()


def test_a_move_onto_itself_is_refused(root: Path) -> None:
    """N-move."""
    (root / "a.md").write_bytes(b"v1")
    with pytest.raises(BadRequestError):
        move(Committer(str(root)), "a.md", "./a.md", sha256(b"v1"))
    assert (root / "a.md").read_bytes() == b"v1"


@pytest.mark.skipif(sys.platform != "linux", reason="kernel file leases exist on Linux only")
def test_hard_links_stay_linked(root: Path) -> None:
    """N-links: both names show the new bytes, and the level says that it was done in place."""
    (root / "a.md").write_bytes(b"a longer first version")
    os.link(root / "a.md", root / "b.md")
    commit = Committer(str(root)).replace("a.md", sha256(b"a longer first version"), b"v2")
    assert commit.level == "lease+inplace"
    assert (root / "b.md").read_bytes() == b"v2"
    assert (root / "a.md").stat().st_nlink == 2


@pytest.mark.parametrize("size", [3, MARK_FROM_BYTES])
@pytest.mark.parametrize("is_known", [True, False])
def test_deleting_one_name_of_a_file_leaves_the_others_as_they_are(
    root: Path, tmp_path: Path, size: int, is_known: bool
) -> None:
    """Finding G12: the other names, outside of the project too, got a modification time of 1970."""
    (root / "a.md").write_bytes(b"x" * size)
    os.utime(root / "a.md", ns=(10**18, 10**18))
    others = (root / "b.md", tmp_path / "outside")
    for other in others:
        os.link(root / "a.md", other)
    committer = Committer(str(root))
    delete(committer, "a.md", sha256(b"x" * size) if is_known else None)
    assert rubbish(root, committer) == []
    for other in others:
        assert (other.stat().st_mtime_ns, other.read_bytes()) == (10**18, b"x" * size)
    assert not (root / ".noclobber/kept").exists() or not os.listdir(root / ".noclobber/kept")


@pytest.mark.skipif(sys.platform != "linux", reason="kernel file leases exist on Linux only")
@pytest.mark.parametrize("step", ["inplace-begin", "inplace-half", "inplace-written"])
def test_kill_9_during_a_rewrite_in_place_is_undone_by_the_next_call(root: Path, step: str) -> None:
    """N-links: the mixture that a crash leaves is recognised and the old bytes come back."""
    old = b"old " * 300_000
    path = root / "a.md"
    path.write_bytes(old)
    os.link(path, root / "b.md")
    code = (
        "import os, signal, sys\nfrom noclobber.disk.commit import inplace; from noclobber.disk import steps\n"
        "from noclobber.disk.commit.committer import Committer\n"
        "def observe(s):\n    if s == sys.argv[2]: os.kill(os.getpid(), signal.SIGKILL)\n"
        "steps.observer = observe\n"
        "real, calls = os.pwrite, []\n"
        "def half(fd, data, offset):\n"
        "    if len(data) > 5000:\n"
        "        calls.append(1)\n"
        "        if sys.argv[2] == 'inplace-half' and len(calls) == 7: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return real(fd, data, offset)\n"
        "os.pwrite = half\n"
        "Committer(sys.argv[1]).replace('a.md', sys.argv[3], b'new! ' * 200_000)\n"
    )
    child = subprocess.run([sys.executable, "-c", code, str(root), step, sha256(old)], check=False)
    assert child.returncode == -9
    if step == "inplace-half":
        assert path.read_bytes() not in (old, b"new! " * 200_000)
    committer = Committer(str(root))
    committer.replace("other.md", None, b"x")
    assert path.read_bytes() == old
    assert (root / "b.md").read_bytes() == old
    assert rubbish(root, committer) == []


def test_a_link_is_neither_deleted_nor_moved(root: Path) -> None:
    """N-links: what it leads to would go, and the link would stay behind and lead nowhere."""
    (root / "real.md").write_bytes(b"v1")
    (root / "link.md").symlink_to("real.md")
    with pytest.raises(BadRequestError, match=r"real\.md"):
        delete(Committer(str(root)), "link.md", sha256(b"v1"))
    with pytest.raises(BadRequestError, match=r"real\.md"):
        move(Committer(str(root)), "link.md", "b.md", sha256(b"v1"))
    assert (root / "link.md").read_bytes() == b"v1"


@pytest.mark.parametrize("remove", ["delete", "move"])
def test_what_the_agent_knows_to_be_absent_is_missing_or_was_created_since(root: Path, remove: str) -> None:
    """finding U9: an own delete before is no other actor's doing; and a file that somebody created is theirs."""

    def attempt() -> None:
        committer = Committer(str(root))
        if remove == "delete":
            delete(committer, "a.md", "ABSENT")
        else:
            move(committer, "a.md", "b.md", "ABSENT")

    with pytest.raises(MissingFileError, match="there is no such file"):
        attempt()
    (root / "a.md").write_bytes(b"theirs")
    with pytest.raises(StaleFileError) as refused:
        attempt()
    assert (refused.value.expected, refused.value.actual) == ("ABSENT", sha256(b"theirs"))
    assert (root / "a.md").read_bytes() == b"theirs"


# A move that is killed.

MOVE_STEPS = ["noted", "move-linked", "moved", "decided"]
KILLED_MOVE = """
import os, signal, sys
from noclobber.disk import steps
from noclobber.disk.commit.committer import Committer
from noclobber.disk.commit.moving import move
from noclobber.disk.hashing import of_bytes
root, save_at, kill_at = sys.argv[1:]
def observe(step):
    if step == save_at:
        with open(root + "/new", "wb") as file:
            file.write(b"SAVED")
        os.rename(root + "/new", root + "/a.md")
    if step == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
steps.observer = observe
move(Committer(root), "a.md", "sub/b.md", of_bytes(b"v1"))
"""


def killed_move(root: Path, save_at: str, kill_at: str) -> None:
    """Have a move killed at a step; `save_at`: where somebody saves by rename under the old name."""
    (root / "sub").mkdir(exist_ok=True)
    (root / "a.md").write_bytes(b"v1")
    command = [sys.executable, "-c", KILLED_MOVE, str(root), save_at, kill_at]
    assert subprocess.run(command, check=False).returncode == -9


def recovered(root: Path, other: str = "sub/other.md") -> dict[str, bytes]:
    """Let the next call come, in either folder; return the user's files."""
    committer = Committer(str(root))
    committer.replace(other, None, b"")
    committer.close()
    assert os.listdir(root / ".noclobber/swap") == []
    found = {str(each.relative_to(root)): each.read_bytes() for each in root.rglob("*.md")}
    del found[other]
    return found


@pytest.mark.parametrize("kill_at", MOVE_STEPS)
def test_kill_9_during_a_move_leaves_the_file_under_one_of_its_names(root: Path, kill_at: str) -> None:
    """N-move: and between the kill and the next call under one at least."""
    killed_move(root, "", kill_at)
    assert (root / "a.md").exists() or (root / "sub/b.md").exists()
    has_moved = kill_at in ("moved", "decided")
    assert recovered(root) == {"sub/b.md" if has_moved else "a.md": b"v1"}
    (only,) = [path for path in root.rglob("*.md") if path.name != "other.md"]
    assert only.stat().st_nlink == 1


@pytest.mark.parametrize("other", ["sub/other.md", "other.md"])
def test_a_save_in_the_moment_of_a_killed_move_stays_where_it_was_saved(root: Path, other: str) -> None:
    """N-move: a rename alone took it along to the new name. The next call may be in either folder."""
    killed_move(root, "move-linked", "moved")
    assert not (root / "a.md").exists()  # It was taken away, and the look at it did not come.
    assert recovered(root, other) == {"a.md": b"SAVED"}


@pytest.mark.parametrize("kill_at", MOVE_STEPS)
@pytest.mark.parametrize("name", ["a.md", "sub/b.md"])
@pytest.mark.parametrize("how", ["rename", "in place"])
def test_what_is_saved_after_a_killed_move_stays(root: Path, kill_at: str, name: str, how: str) -> None:
    """N-move, finding R5: under either name, however it is saved, and whatever recovery does."""
    killed_move(root, "", kill_at)
    if how == "rename":
        (root / "new").write_bytes(b"LATER")
        (root / "new").rename(root / name)
    else:
        (root / name).write_bytes(b"LATER")
    assert recovered(root)[name] == b"LATER"


@pytest.mark.parametrize("step", ["noted", "move-linked", "moved"])
def test_a_save_during_a_move_is_not_moved(root: Path, at_step: AtStep, step: str) -> None:
    """N-move: the move is refused, and there is one file, the save."""
    (root / "sub").mkdir()
    (root / "a.md").write_bytes(b"v1")

    def save() -> None:
        (root / "new").write_bytes(b"SAVED")
        (root / "new").rename(root / "a.md")

    at_step(step, save)
    committer = Committer(str(root))
    if step == "moved":  # After the old name was taken away it is a new file.
        move(committer, "a.md", "sub/b.md", sha256(b"v1"))
        assert (root / "sub/b.md").read_bytes() == b"v1"
    else:
        with pytest.raises(StaleFileError):
            move(committer, "a.md", "sub/b.md", sha256(b"v1"))
        assert not (root / "sub/b.md").exists()
    assert (root / "a.md").read_bytes() == b"SAVED"
    committer.close()
    assert os.listdir(root / ".noclobber/swap") == []


def test_without_links_a_move_is_one_rename(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-move: on filesystems that have none, and for files of other users."""

    def no_links(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    (root / "a.md").write_bytes(b"v1")
    assert move(Committer(str(root)), "a.md", "b.md", sha256(b"v1")).sha256 == sha256(b"v1")
    assert (root / "b.md").read_bytes() == b"v1"
    assert not (root / "a.md").exists()
