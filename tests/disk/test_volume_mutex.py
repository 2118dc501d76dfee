"""Guarded writers on a volume that two mounts, or two machines, use: the lock of a file, and old names."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from noclobber.cli import main, other_machines
from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.disk import (
    file_guard,
    filesystems,
    forks,
    leases,
    metadata,
    mutex,
    reach,
    reading,
    renames,
    volume_mutex,
)
from noclobber.disk.commit import committer, note_keys, sweep
from noclobber.disk.commit.rows import Change
from noclobber.disk.file_guard import FileGuard
from noclobber.disk.hashing import of_bytes
from noclobber.disk.reach import hands_on_locks
from noclobber.errors import BadRequestError, FileBusyError
from tests.rigs.mounts import run_in_mounts

HANDS_ON = "bindfs --multithreaded --enable-lock-forwarding -o hard_remove back merged"
TWO_MOUNTS = f"{HANDS_ON} && {HANDS_ON.replace('merged', 'work')}"


@pytest.fixture
def on_nfs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take this disk for an NFS volume."""
    monkeypatch.setattr(filesystems, "kind_of", lambda _: "nfs")


def test_two_mounts_whose_locks_are_handed_on_lose_nothing(tmp_path: Path) -> None:
    """finding R3: at the lowest level nothing but the mutex keeps two commits apart."""
    program = """
import json, os, subprocess, sys
os.mkdir("back/.noclobber")
open("back/f", "wb").close()
AGENT = '''
import sys
from noclobber.disk.file_guard import FileGuard
from noclobber.errors import NoclobberError
guard, done = FileGuard(sys.argv[1], ceiling="plain"), 0
while done < 12:
    read = guard.read("f")
    try:
        guard.write("f", read.content + sys.argv[2].encode(), expected=read.sha256)
        done += 1
    except NoclobberError:
        pass
'''
agents = [
    subprocess.Popen([sys.executable, "-c", AGENT, mount, letter])
    for mount, letter in (("merged", "a"), ("work", "b"), ("merged", "c"), ("work", "d"))
]
codes = [agent.wait() for agent in agents]
content = open("back/f").read()
print(json.dumps({"codes": codes, "counts": [content.count(letter) for letter in "abcd"]}))
"""
    done = run_in_mounts(tmp_path, TWO_MOUNTS, program)
    assert done == {"codes": [0] * 4, "counts": [12] * 4}


def test_it_is_said_before_a_write_whom_it_excludes(tmp_path: Path) -> None:
    """finding R3: by who decides about locks, and by a try; not by a call that succeeded."""
    program = """
import json
from noclobber import Workspace
print(json.dumps({mount: Workspace(mount).reach for mount in ("merged", "upper")}))
"""
    assert run_in_mounts(tmp_path, HANDS_ON, program) == {"merged": "volume", "upper": "machine"}
    assert run_in_mounts(tmp_path, "bindfs back merged", program) == {"merged": "mount", "upper": "machine"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("rw,vers=4.2,hard,proto=tcp,local_lock=none,addr=10.78.0.1", True),
        ("rw,vers=3,nolock,local_lock=all", False),
        ("rw,vers=3,local_lock=flock", False),
        ("rw,vers=3,local_lock=posix", True),
    ],
)
def test_a_mount_that_keeps_its_locks_is_told_by_its_options(options: str, expected: bool) -> None:
    """finding R3: NFS clients ask the server about locks, unless they were told not to."""
    assert hands_on_locks(options) is expected


def test_doctor_does_not_call_a_mount_healthy_that_keeps_its_locks_to_itself(tmp_path: Path) -> None:
    """finding R3: two such mounts lost a quarter of all updates while `doctor` said healthy."""
    program = """
import json
from noclobber.cli import other_machines
from noclobber.cli.doctor.workspace_checks import check_level
found = {finding.name: finding for finding in check_level("merged")}["other machines"]
print(json.dumps([found.ok, found.detail, found.remedy, other_machines.warning("merged")]))
"""
    ok, detail, remedy, warning = run_in_mounts(tmp_path, "bindfs back merged", program)
    assert not ok
    assert "may lose updates" in warning
    assert "not promised" in detail
    assert "NOCLOBBER_COORDINATOR" in remedy
    ok, detail, remedy, warning = run_in_mounts(tmp_path, HANDS_ON, program)
    assert ok
    assert warning == ""
    assert "every machine" in detail
    assert "cut off" in remedy


def test_what_sets_a_project_up_warns_of_a_mount_that_keeps_its_locks_to_itself(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """finding R3: before the first write, not after the first loss."""
    monkeypatch.setattr(other_machines, "reach_of", lambda _: "mount")
    main(["install", "claude-code", "--root", str(root)])
    assert "not promised: " in capsys.readouterr().out
    monkeypatch.setattr(other_machines, "reach_of", lambda _: "machine")
    main(["install", "claude-code", "--root", str(root)])
    assert "not promised: " not in capsys.readouterr().out


@pytest.mark.usefixtures("on_nfs")
def test_a_write_waits_for_a_commit_on_another_machine(root: Path) -> None:
    """finding R3: what a machine elsewhere holds is the lock of the file, not that of the folder."""
    guard = FileGuard(root)
    before = guard.write("f", b"before", expected="ABSENT")
    guard.committer.mutex_wait_s = 0.05
    notes_fd = os.open(root / ".noclobber/notes", os.O_RDONLY)
    theirs = volume_mutex.take(notes_fd, "", patience_s=0.0, clock=SYSTEM_CLOCK)
    assert theirs is not None
    with pytest.raises(FileBusyError, match="another machine"):
        guard.write("f", b"after", expected=before.sha256)
    mutex.release(theirs)
    forks.close(theirs)
    assert guard.write("f", b"after", expected=before.sha256).level in ("exchange", "plain")
    os.close(notes_fd)


def test_the_mutex_that_somebody_removed_is_not_taken_for_held(root: Path) -> None:
    """finding R3: `git clean -fdx` while a process waits; who comes later would hold another file."""
    folder_fd = os.open(root, os.O_RDONLY)
    first = volume_mutex.take(folder_fd, "", patience_s=0.0, clock=SYSTEM_CLOCK)
    assert first is not None
    assert volume_mutex.take(folder_fd, "", patience_s=0.0, clock=SYSTEM_CLOCK) is None
    (root / "mutex").unlink()
    second = volume_mutex.take(folder_fd, "", patience_s=0.0, clock=SYSTEM_CLOCK)
    assert second is not None
    assert os.fstat(second).st_ino == (root / "mutex").stat().st_ino
    for descriptor in (first, second):
        mutex.release(descriptor)
        forks.close(descriptor)
    os.close(folder_fd)


@pytest.mark.usefixtures("on_nfs")
def test_machines_leave_each_others_notes_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """finding R3: under one name each would remove the other's note, which may be mapped there."""
    FileGuard(root).write("f", b"1", expected="ABSENT")
    monkeypatch.setattr(note_keys, "_keys", (b"another machine",))
    FileGuard(root).write("f", b"2", expected=of_bytes(b"1"))
    notes = [name for name in os.listdir(root / ".noclobber/notes") if name != "mutex"]
    assert len(notes) == 2
    assert len({name.partition(".")[0] for name in notes}) == 1


@pytest.mark.parametrize("times", [1, 3])
def test_a_name_that_leads_to_a_file_that_is_gone_is_asked_for_again(
    root: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """finding R3: another machine has replaced it (ESTALE), for a read and for a write."""
    guard = FileGuard(root)
    before = guard.write("f", b"before", expected="ABSENT")
    really, left = os.open, {"f": 0}

    def stale(path: Any, *args: Any, **named: Any) -> int:
        if left.get(path, 0):
            left[path] -= 1
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)
        return really(path, *args, **named)

    monkeypatch.setattr(os, "open", stale)
    left["f"] = times
    assert guard.read("f").content == b"before"
    left["f"] = times
    assert guard.digest("f") == before.sha256
    left["f"] = times
    assert guard.write("f", b"after", expected=before.sha256).previous_sha256 == before.sha256
    assert left["f"] == 0


@pytest.mark.parametrize("error", [errno.ENOENT, errno.ESTALE])
def test_an_open_file_that_is_gone_is_read_again_and_not_taken_for_deleted(
    root: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """finding R3: FUSE by path says ENOENT of an open file that was replaced through another mount."""
    (root / "f").write_bytes(b"after")
    really, left = reading.read_all, [0]

    def gone(descriptor: int) -> bytes:
        if left[0]:
            left[0] -= 1
            raise OSError(error, os.strerror(error))
        return really(descriptor)

    monkeypatch.setattr(reading, "read_all", gone)
    monkeypatch.setattr(file_guard, "read_all", gone)
    left[0] = 2
    assert FileGuard(root).read("f").content == b"after"
    left[0] = 2
    assert reading.look_at(str(root / "f"), str(root), keep=True).sha256 == of_bytes(b"after")
    assert left == [0]


def test_a_commit_begins_again_if_a_file_is_gone_on_the_server(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding R3: ESTALE from any other step of a commit: nothing has landed yet."""
    guard = FileGuard(root)
    before = guard.write("f", b"before", expected="ABSENT")
    really, left = metadata.of, [2]

    def stale(*args: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return really(*args)

    monkeypatch.setattr(metadata, "of", stale)
    assert guard.write("f", b"after", expected=before.sha256).sha256 == of_bytes(b"after")
    assert left == [0]


@pytest.mark.skipif(not leases.SUPPORTED, reason="Linux has leases")
def test_no_lease_is_taken_on_a_network_filesystem(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """finding R3: an NFS client with a delegation grants one, and then our own `utime` waited for 45 s."""
    (root / "f").write_bytes(b"x")
    with (root / "f").open("rb") as file:
        assert leases.try_lease(file.fileno(), leases.READ)
        leases.release(file.fileno())
        monkeypatch.setattr(filesystems, "has_seen_network", True)
        monkeypatch.setattr(filesystems, "kind_of", lambda _: "nfs")
        with pytest.raises(leases.LeasesUnavailableError):
            leases.try_lease(file.fileno(), leases.READ)
        assert fcntl.fcntl(file, fcntl.F_GETLEASE) == fcntl.F_UNLCK


@pytest.mark.usefixtures("on_nfs")
def test_several_files_are_refused_untouched_where_names_cannot_be_exchanged(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding R3: as on NFS. One file, and files that are new, are written there all the same."""

    def cannot(*_: object) -> None:
        raise OSError(errno.EINVAL, "not here")

    monkeypatch.setattr(renames, "exchange", cannot)
    monkeypatch.setattr(committer, "_tried_devices", set())
    guard = FileGuard(root)
    guard.commit([Change("a", b"1", "ABSENT"), Change("b", b"1", "ABSENT")])
    both = [Change("a", b"2", of_bytes(b"1")), Change("b", b"2", of_bytes(b"1"))]
    with pytest.raises(BadRequestError, match="one by one"):
        guard.commit(both)
    assert [(root / name).read_bytes() for name in "ab"] == [b"1", b"1"]
    assert [guard.commit([each])[0].level for each in both] == ["plain", "plain"]
    assert os.listdir(root / ".noclobber/kept") == []


@pytest.fixture
def on_one_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take this disk for FUSE: its locks stay in this kernel, so they reach no other mount."""
    monkeypatch.setattr(filesystems, "kind_of", lambda _: "fuse")
    monkeypatch.setattr(reach, "_known", {})


@pytest.mark.usefixtures("on_one_mount")
def test_where_locks_reach_one_mount_only_a_write_is_plain_and_says_so(root: Path) -> None:
    """finding R11: what takes more than one step would be in another mount's way."""
    guard = FileGuard(root)
    assert guard.reach() == "mount"
    guard.write("f", b"1", expected="ABSENT")
    assert guard.write("f", b"2", expected=of_bytes(b"1")).level == "plain"
    assert guard.commit([Change("f", None, of_bytes(b"2"))])[0].level == "plain"
    guard.commit([Change("a", b"1", "ABSENT"), Change("b", b"1", "ABSENT")])
    with pytest.raises(BadRequestError, match="one by one"):
        guard.commit([Change("a", b"2", of_bytes(b"1")), Change("b", b"2", of_bytes(b"1"))])
    assert [(root / name).read_bytes() for name in "ab"] == [b"1", b"1"]
    guard.close()
    assert os.listdir(root / ".noclobber/swap") == []


@pytest.mark.usefixtures("on_one_mount")
def test_what_another_mount_has_staged_or_noted_stays_as_it_is(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding R11: its commit may be alive, however old its files look. A name was lost when they went."""
    there = FileGuard(root)
    there.write("f", b"1", expected="ABSENT")
    store = there.committer.open_store()
    assert store is not None
    note, prefix = store.note(root.stat()), store.new_prefix()
    note.prepare(prefix)
    name, staged_fd = store.create_swap(prefix, "f", of_bytes(b"1"), 0o600)
    os.write(staged_fd, b"2")
    os.close(staged_fd)
    monkeypatch.setattr(sweep, "YOUNG_S", 0.0)
    monkeypatch.setattr(note_keys, "mount_tag", lambda _: "0123abcd")
    here = FileGuard(root)
    here.write("f", b"3", expected=of_bytes(b"1"))
    here.close()
    assert note.state == b"P"
    assert (root / ".noclobber/swap" / name).read_bytes() == b"2"


def test_mounts_are_told_apart_by_their_number_and_by_the_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    """finding R11: two machines that were made from one image have one machine's id."""
    first = note_keys.mount_tag(42)
    assert note_keys.mount_tag(42) == first != note_keys.mount_tag(43)
    monkeypatch.setattr(note_keys, "_keys", (note_keys._keys[0], b"another boot"))
    assert note_keys.mount_tag(42) != first


def test_a_commit_that_is_stopped_on_another_mount_is_not_taken_for_a_dead_one(tmp_path: Path) -> None:
    """finding R11: with real mounts. The stopped one goes on, and lands."""
    program = """
import json, os, signal, subprocess, sys
open("back/f", "wb").close()
STOPS = '''
import os, signal
from noclobber.disk import steps
from noclobber.disk.file_guard import FileGuard
steps.observer = lambda step: step == "staged" and os.kill(os.getpid(), signal.SIGSTOP)
read = FileGuard("merged").read("f")
FileGuard("merged").write("f", b"one", expected=read.sha256)
'''
one = subprocess.Popen([sys.executable, "-c", STOPS])
os.waitpid(one.pid, os.WUNTRACED)
from noclobber.disk import lease_file
from noclobber.disk.commit import sweep
from noclobber.disk.file_guard import FileGuard
lease_file.LEASE_S = sweep.YOUNG_S = 0.0
two = FileGuard("work")
two.write("g", b"two", expected="ABSENT")
two.close()
os.kill(one.pid, signal.SIGCONT)
print(json.dumps({"code": one.wait(), "f": open("back/f").read(), "g": open("back/g").read()}))
"""
    found = run_in_mounts(tmp_path, "bindfs back merged && bindfs back work", program)
    assert found == {"code": 0, "f": "one", "g": "two"}


@pytest.mark.usefixtures("on_one_mount")
def test_the_second_name_that_a_killed_commit_of_another_mount_left_is_no_hard_link(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding R11: its mount may never come back. Nobody removes the name, and nobody is refused for it."""
    FileGuard(root).write("f", b"1", expected="ABSENT")
    left = root / f".noclobber/swap/swap-{'0' * 16}01-{of_bytes(b'1')}~f"
    os.link(root / "f", left)
    guard = FileGuard(root)
    assert guard.write("f", b"2", expected=of_bytes(b"1")).level == "plain"
    guard.close()
    assert left.read_bytes() == b"1"
    (root / ".noclobber/swap/lease.old").touch()
    FileGuard(root).write("f", b"3", expected=of_bytes(b"2"))
    assert left.name in os.listdir(root / ".noclobber/swap")
    assert "lease.old" not in os.listdir(root / ".noclobber/swap")
