"""Every dangerous moment of a commit, with an outsider acting at just that moment."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from noclobber.disk.commit.committer import Committer
from noclobber.disk.file_guard import FileGuard
from noclobber.errors import FileBusyError, StaleFileError
from tests.conftest import AtStep, sha256

BEFORE_EXCHANGE = ["entered", "staging", "staged", "leased", "verified", "noted", "before-exchange"]


def save_by_rename(path: Path, data: bytes) -> None:
    other = path.with_name(path.name + ".editor")
    other.write_bytes(data)
    os.replace(other, path)


def swap_files(root: Path) -> list[str]:
    return sorted(os.listdir(root / ".noclobber" / "swap"))


@pytest.mark.parametrize("step", [*BEFORE_EXCHANGE, "exchanged"])
def test_an_editor_that_renames_into_place_during_a_commit_is_not_overwritten(
    root: Path, at_step: AtStep, step: str
) -> None:
    """009-SC-001, 009-FR-005: the editor's version stands, whatever the moment."""
    path = root / "a.md"
    path.write_bytes(b"v1")
    seen = at_step(step, lambda: save_by_rename(path, b"editor"))
    committer = Committer(str(root))
    if step == "exchanged":
        # The editor saved over our still hidden version: it has the last word, and we had landed.
        committer.replace("a.md", sha256(b"v1"), b"agent")
    else:
        with pytest.raises(StaleFileError) as refused:
            committer.replace("a.md", sha256(b"v1"), b"agent")
        assert refused.value.actual == sha256(b"editor")
    assert seen == [step]
    assert path.read_bytes() == b"editor"
    committer.sweep()
    assert swap_files(root) == []


@pytest.mark.parametrize("step", BEFORE_EXCHANGE)
def test_the_same_bytes_renamed_into_place_are_no_conflict(root: Path, at_step: AtStep, step: str) -> None:
    """009-SC-002: no false positive where the content is what the agent saw."""
    path = root / "a.md"
    path.write_bytes(b"v1")
    at_step(step, lambda: save_by_rename(path, b"v1"))
    committer = Committer(str(root))
    commit = committer.replace("a.md", sha256(b"v1"), b"agent")
    assert commit.previous_sha256 == sha256(b"v1")
    assert path.read_bytes() == b"agent"
    committer.sweep()
    assert swap_files(root) == []


def writer_in_thread(path: Path, data: bytes, flags: int) -> threading.Thread:
    """An outsider that opens in place: it waits inside open() while a lease is held."""
    opening = threading.Event()

    def work() -> None:
        opening.set()
        descriptor = os.open(path, flags)
        os.write(descriptor, data)
        os.close(descriptor)

    thread = threading.Thread(target=work)
    thread.start()
    opening.wait()
    return thread


def wait_until_inside_open(path: Path) -> None:
    """Until the kernel reports that somebody is breaking the lease (or has broken it)."""
    deadline = 2000
    for _ in range(deadline):
        locks = Path("/proc/locks").read_text()
        inode = f":{path.stat().st_ino} " if path.exists() else ":0 "
        if any("LEASE" in line and "BREAKING" in line and inode in line for line in locks.splitlines()):
            return
        os.sched_yield()


@pytest.mark.skipif(sys.platform != "linux", reason="kernel file leases exist on Linux only")
@pytest.mark.parametrize("step", ["leased", "verified", "before-exchange"])
@pytest.mark.parametrize(
    "flags", [os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND], ids=["truncate", "append"]
)
def test_a_writer_inside_open_during_a_commit_keeps_its_bytes(
    root: Path, at_step: AtStep, step: str, flags: int
) -> None:
    """009-SC-001: it opened the old file; what it writes there must be what the name shows."""
    path = root / "a.md"
    path.write_bytes(b"v1")
    threads = []

    def intrude() -> None:
        threads.append(writer_in_thread(path, b"+outsider", flags))
        wait_until_inside_open(path)

    seen = at_step(step, intrude)
    committer = Committer(str(root))
    with pytest.raises(StaleFileError):
        committer.replace("a.md", sha256(b"v1"), b"agent")
    threads[0].join()
    assert seen == [step]
    expected = b"+outsider" if flags & os.O_TRUNC else b"v1+outsider"
    assert path.read_bytes() == expected
    assert committer.sweep() == []
    assert swap_files(root) == []


@pytest.mark.skipif(sys.platform != "linux", reason="kernel file leases exist on Linux only")
def test_a_reader_that_waits_for_the_hidden_version_never_sees_a_refused_one(
    root: Path, at_step: AtStep
) -> None:
    """011-SC-002: after a conflict the waiting reader gets the outsider's bytes, not ours."""
    path = root / "a.md"
    path.write_bytes(b"v1")
    got: list[bytes] = []
    threads: list[threading.Thread] = []

    def conflict_and_read() -> None:
        reader = threading.Thread(target=lambda: got.append(path.read_bytes()))
        reader.start()
        threads.append(reader)
        wait_until_inside_open(path)

    saved = at_step("before-exchange", lambda: save_by_rename(path, b"editor"))
    from noclobber.disk import steps

    inner = steps.observer

    def both(step: str) -> None:
        inner(step)  # type: ignore[misc]
        if step == "conflict":
            conflict_and_read()

    steps.observer = both
    with pytest.raises(StaleFileError):
        Committer(str(root)).replace("a.md", sha256(b"v1"), b"agent")
    threads[0].join()
    assert saved == ["before-exchange"]
    assert got == [b"editor"]


@pytest.mark.parametrize("what", ["link", "folder", "deleted"])
@pytest.mark.parametrize("step", BEFORE_EXCHANGE)
def test_something_else_put_in_place_during_a_commit_stays(
    root: Path, at_step: AtStep, step: str, what: str
) -> None:
    """Ruling 5, N-swap: links, folders and deletions are saves too; nothing of theirs is touched."""
    path = root / "a.md"
    path.write_bytes(b"v1")
    (root / "other.md").write_bytes(b"other")

    def intrude() -> None:
        path.unlink()
        if what == "link":
            path.symlink_to("other.md")
        elif what == "folder":
            path.mkdir()

    seen = at_step(step, intrude)
    committer = Committer(str(root))
    with pytest.raises(StaleFileError) as refused:
        committer.replace("a.md", sha256(b"v1"), b"agent")
    assert seen == [step]
    actual = {"link": sha256(b"other"), "folder": "NOT_A_FILE", "deleted": "DELETED"}[what]
    assert refused.value.actual == actual
    assert path.is_symlink() == (what == "link")
    assert path.is_dir() == (what == "folder")
    assert (root / "other.md").read_bytes() == b"other"
    committer.sweep()
    assert swap_files(root) == []


def test_a_file_that_somebody_keeps_open_for_writing_is_busy(root: Path) -> None:
    """N-busy: a lasting writer is waited for briefly; then the write is refused and nothing changes."""
    path = root / "a.md"
    path.write_bytes(b"v1")
    with open(path, "r+b"), pytest.raises(FileBusyError):
        Committer(str(root), wait_s=0.02).replace("a.md", sha256(b"v1"), b"agent")
    assert path.read_bytes() == b"v1"
    Committer(str(root)).replace("a.md", sha256(b"v1"), b"agent")
    assert path.read_bytes() == b"agent"


def test_chmod_between_our_copy_and_the_exchange_is_not_lost(root: Path, at_step: AtStep) -> None:
    """N-metadata: the mode that somebody sets during a commit is the mode afterwards."""
    path = root / "a.md"
    path.write_bytes(b"v1")
    seen = at_step("before-exchange", lambda: path.chmod(0o751))
    Committer(str(root)).replace("a.md", sha256(b"v1"), b"agent")
    assert seen
    assert path.stat().st_mode & 0o777 == 0o751


KILLED_AT = [
    *BEFORE_EXCHANGE,
    "exchanged",
    "settled",
    "released",
]
CHILD = """
import os, signal, sys
from noclobber.disk import steps
from noclobber.disk.commit.committer import Committer
root, step, expected = sys.argv[1:]
def observe(reached):
    if reached == step:
        os.kill(os.getpid(), signal.SIGKILL)
steps.observer = observe
Committer(root).replace("a.md", expected, b"agent")
"""


@pytest.mark.parametrize("step", KILLED_AT)
def test_kill_9_at_every_step_leaves_the_old_or_the_new_version_and_no_rubbish(root: Path, step: str) -> None:
    """009-SC-001, 011-SC-002: the next call finishes or undoes what was cut off."""
    path = root / "a.md"
    path.write_bytes(b"v1")
    child = subprocess.run([sys.executable, "-c", CHILD, str(root), step, sha256(b"v1")], check=False)
    assert child.returncode == -9
    stands = path.read_bytes()
    assert stands in (b"v1", b"agent")
    committer = Committer(str(root))
    commit = committer.replace("a.md", sha256(stands), b"next")
    assert path.read_bytes() == b"next"
    assert commit.previous_sha256 == sha256(stands)
    committer.sweep()
    committer.replace("a.md", sha256(b"next"), b"last")
    committer.sweep()
    assert swap_files(root) == []


CHILD_CONFLICT = """
import os, signal, sys
from noclobber.disk import steps
from noclobber.disk.commit.committer import Committer
root, step, expected = sys.argv[1:]
def observe(reached):
    if reached == "before-exchange":
        open(root + "/e", "wb").write(b"editor")
        os.replace(root + "/e", root + "/a.md")
    if reached == step:
        os.kill(os.getpid(), signal.SIGKILL)
steps.observer = observe
Committer(root).replace("a.md", expected, b"agent")
"""


@pytest.mark.parametrize("step", ["exchanged", "conflict", "restoring", "copied-back"])
def test_kill_9_in_the_middle_of_a_conflict_brings_the_editors_version_back(root: Path, step: str) -> None:
    """009-SC-001: the displaced bytes were never verified, so they are put back, not deleted."""
    path = root / "a.md"
    path.write_bytes(b"v1")
    child = subprocess.run(
        [sys.executable, "-c", CHILD_CONFLICT, str(root), step, sha256(b"v1")], check=False
    )
    assert child.returncode == -9
    committer = Committer(str(root))
    with pytest.raises(StaleFileError) as refused:
        committer.replace("a.md", sha256(b"agent"), b"next")
    assert refused.value.actual == sha256(b"editor")
    assert path.read_bytes() == b"editor"
    committer.sweep()
    assert swap_files(root) == []


@pytest.mark.parametrize("step", ["exchanged", "conflict"])
def test_who_opened_a_killed_agents_version_before_the_recovery_loses_nothing(root: Path, step: str) -> None:
    """009-SC-001: the lease died with the agent; what is appended after the recovery is kept."""
    path = root / "a.md"
    path.write_bytes(b"v1")
    subprocess.run([sys.executable, "-c", CHILD_CONFLICT, str(root), step, sha256(b"v1")], check=False)
    committer = Committer(str(root))
    with open(path, "ab", buffering=0) as late:
        committer.replace("b.md", "ABSENT", b"x")
        assert path.read_bytes() == b"editor"
        late.write(b"+late")
    assert [Path(where).read_bytes() for _, where in committer.sweep()] == [b"agent+late"]
    assert swap_files(root) == []


CHILD_RECOVERY = """
import os, signal, sys
from noclobber.disk.commit import restore; from noclobber.disk import steps
from noclobber.disk.commit.committer import Committer
root = sys.argv[1]
def observe(reached):
    if reached == "put-back":
        os.kill(os.getpid(), signal.SIGKILL)
steps.observer = observe
def nap(seconds, told=[]):
    if not told:
        told.append(True)
        open(root + "/a.md", "ab").write(b"+late")
restore.time.sleep = nap
Committer(root).replace("b.md", "ABSENT", b"x")
"""


def test_a_recovery_that_is_killed_itself_loses_nothing(root: Path) -> None:
    """009-SC-001: somebody wrote to the dead agent's version while it was being taken back."""
    path = root / "a.md"
    path.write_bytes(b"v1")
    subprocess.run([sys.executable, "-c", CHILD_CONFLICT, str(root), "exchanged", sha256(b"v1")], check=False)
    child = subprocess.run([sys.executable, "-c", CHILD_RECOVERY, str(root)], check=False)
    assert child.returncode == -9
    committer = Committer(str(root))
    commit = committer.replace("b.md", "ABSENT", b"x")
    assert path.read_bytes() == b"editor"
    assert [Path(found.kept).read_bytes() for found in commit.recovered] == [b"agent+late"]
    committer.sweep()
    assert swap_files(root) == []


@pytest.mark.parametrize("step", ["exchanged", "conflict", "restoring", "copied-back"])
def test_a_read_after_a_crash_sees_the_recovered_file(root: Path, step: str) -> None:
    """009-SC-001: whoever reads first must not be shown a version that was never verified."""
    path = root / "a.md"
    path.write_bytes(b"v1")
    subprocess.run([sys.executable, "-c", CHILD_CONFLICT, str(root), step, sha256(b"v1")], check=False)
    seen = FileGuard(root).read("a.md")
    assert seen.content == b"editor"
    assert [(found.path, found.outcome) for found in seen.recovered] == [(str(path), "restored")]
    # The refused version was in view for a while; who read it will save over this without having seen it.
    kept = [found.kept for found in seen.recovered if found.kept]
    assert step == "copied-back" or [Path(where).read_bytes() for where in kept] == [b"editor"]


@pytest.mark.parametrize("step", BEFORE_EXCHANGE)
def test_a_link_to_the_expected_bytes_that_appears_during_a_commit_is_written_through(
    root: Path, at_step: AtStep, step: str
) -> None:
    """009-SC-002: what it leads to is what the agent saw, so there is no conflict."""
    path = root / "a.md"
    path.write_bytes(b"v1")
    (root / "moved.md").write_bytes(b"v1")

    def link() -> None:
        (root / "l").symlink_to("moved.md")
        os.replace(root / "l", path)

    seen = at_step(step, link)
    committer = Committer(str(root))
    commit = committer.replace("a.md", sha256(b"v1"), b"agent")
    assert seen
    assert commit.path == str(root / "moved.md")
    assert path.is_symlink()
    assert path.read_bytes() == b"agent"
    committer.sweep()
    assert swap_files(root) == []
