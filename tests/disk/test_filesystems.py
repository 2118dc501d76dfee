"""Levels by filesystem: what is claimed is what holds, on real overlay, FUSE and bind mounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from noclobber.disk import filesystems, leases, mappings
from noclobber.disk.file_guard import FileGuard
from noclobber.disk.hashing import of_bytes
from noclobber.errors import MetadataNotKeptError
from tests.rigs.mounts import BINDFS, OVERLAY, USER_OVERLAY, run_in_mounts

LEVELS = Path(__file__).parents[2] / "docs/levels.md"
OWN_PIDS = ("--mount", "--pid", "--fork", "--mount-proc")  # All processes there are ours to look at.
IN_USER_NAMESPACE = ("--user", "--map-root-user", *OWN_PIDS)

WRITE = """
import json
from noclobber.disk.file_guard import FileGuard
from noclobber.disk.hashing import of_bytes
open("merged/f", "wb").write(b"before")
done = FileGuard("merged").write("f", b"after", expected=of_bytes(b"before"))
print(json.dumps({"level": done.level, "content": open("merged/f").read()}))
"""

MAPPED = """
import json, subprocess, sys
from noclobber.disk.file_guard import FileGuard
from noclobber.disk.hashing import of_bytes
from noclobber.errors import FileBusyError
open("merged/f", "wb").write(b"before")
MAPPER = '''
import ctypes, mmap, os, sys
# Not Python's own mmap: it keeps a second descriptor, which a lease sees.
call = ctypes.CDLL(None).mmap
call.restype, call.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
fd = os.open("merged/f", os.O_RDWR)
held = call(None, 6, PROTECTION, mmap.MAP_SHARED, fd, 0)
os.close(fd)
print("mapped", flush=True)
sys.stdin.readline()
if PROTECTION & mmap.PROT_WRITE:
    ctypes.memmove(held, b"theirs", 6)
'''.replace("PROTECTION", PROTECTION)
mapper = subprocess.Popen([sys.executable, "-c", MAPPER], stdin=-1, stdout=-1, text=True)
mapper.stdout.readline()
try:
    level = FileGuard("merged", wait_s=0.05).write("f", b"after", expected=of_bytes(b"before")).level
except FileBusyError:
    level = "busy"
mapper.communicate("go")
print(json.dumps({"level": level, "content": open("merged/f").read()}))
"""


@pytest.mark.parametrize("flags", [OWN_PIDS, IN_USER_NAMESPACE])
def test_a_write_in_a_container_is_at_the_strongest_level(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """finding R2: overlay, as root and in a user namespace, when every process can be looked at."""
    mount = USER_OVERLAY if "--user" in flags else OVERLAY
    assert run_in_mounts(tmp_path, mount, WRITE, flags=flags) == {
        "level": "lease+exchange",
        "content": "after",
    }


@pytest.mark.parametrize("protection", ["mmap.PROT_READ | mmap.PROT_WRITE", "mmap.PROT_READ"])
def test_a_mapping_of_a_file_on_overlay_is_seen(tmp_path: Path, protection: str) -> None:
    """finding R2: mapped, then closed: the lease is blind to it, and what is written later was lost.

    A mapping that may only read is seen as well, if `mprotect` can make it writable."""
    program = f"PROTECTION = {protection!r}\n{MAPPED}"
    seen = run_in_mounts(tmp_path, OVERLAY, program, flags=OWN_PIDS)
    assert seen == {"level": "busy", "content": "theirs" if "WRITE" in protection else "before"}


def test_a_lease_alone_does_not_see_a_mapping_on_overlay(tmp_path: Path) -> None:
    """finding R2: the look at the mappings is what sees it. Once a kernel's leases do, it may go."""
    program = f"""
PROTECTION = "mmap.PROT_READ | mmap.PROT_WRITE"
from noclobber.disk import mappings
mappings.is_mapped_for_writing = lambda _: False
{MAPPED}"""
    seen = run_in_mounts(tmp_path, OVERLAY, program, flags=OWN_PIDS)
    assert seen == {"level": "lease+exchange", "content": "after"}, "leases see it here: drop the look"


@pytest.mark.parametrize("protection", ["mmap.PROT_READ | mmap.PROT_WRITE", "mmap.PROT_READ"])
def test_a_mapping_is_seen_by_kernels_that_answer_no_questions_about_it(
    tmp_path: Path, protection: str
) -> None:
    """finding R2: before Linux 6.11 the lists are read as text."""
    program = f"""
import errno
PROTECTION = {protection!r}
from noclobber.disk import mappings
def unknown(*_):
    raise OSError(errno.ENOTTY, "not here")
mappings.fcntl = type("old", (), dict(ioctl=unknown))
{MAPPED}"""
    seen = run_in_mounts(tmp_path, OVERLAY, program, flags=OWN_PIDS)
    assert seen == {"level": "busy", "content": "theirs" if "WRITE" in protection else "before"}


def test_a_level_on_overlay_is_weaker_where_processes_cannot_be_looked_at(
    tmp_path: Path,
) -> None:
    """finding R2: what could not be proved is not claimed."""
    blind = f"from noclobber.disk import mappings\nmappings.is_mapped_for_writing = lambda _: None\n{WRITE}"
    assert run_in_mounts(tmp_path, OVERLAY, blind)["level"] == "exchange"


def test_no_lease_is_trusted_on_fuse(tmp_path: Path) -> None:
    """finding R3: the kernel grants leases there that do not see writers behind the mount."""
    done = run_in_mounts(tmp_path, BINDFS, WRITE)
    assert done["content"] == "after"
    assert done["level"] in ("exchange", "plain")  # Old versions of bindfs cannot exchange names.


def test_a_file_that_was_just_created_on_fuse_can_be_written(tmp_path: Path) -> None:
    """finding R3: created by link and unlink, it has two names for as long as the mount caches them."""
    program = """
import json
from noclobber.disk.file_guard import FileGuard
guard = FileGuard("merged")
first = guard.write("new", b"before", expected="ABSENT")
print(json.dumps({"level": guard.write("new", b"after", expected=first.sha256).level}))
"""
    assert run_in_mounts(tmp_path, BINDFS, program)["level"] in ("exchange", "plain")


def test_a_save_behind_a_fuse_mount_is_seen_before_the_write(tmp_path: Path) -> None:
    """finding R3: also if it changed the size, which the mount had cached."""
    program = """
import json
from noclobber.disk.file_guard import FileGuard
from noclobber.errors import StaleFileError
open("merged/f", "wb").write(b"before")
guard = FileGuard("merged")
lost = 0
for number in range(50):
    read = guard.read("f")
    open("back/f", "ab").write(b"+")
    try:
        guard.write("f", b"after", expected=read.sha256)
        lost += 1
    except StaleFileError:
        pass
print(json.dumps({"lost": lost}))
"""
    assert run_in_mounts(tmp_path, BINDFS, program) == {"lost": 0}


def test_a_file_that_is_being_replaced_on_fuse_is_not_taken_for_deleted(tmp_path: Path) -> None:
    """finding R3: such mounts lose a name for a moment, whoever renames; one look in ten found nothing."""
    program = """
import json, os
from noclobber.disk.file_guard import FileGuard
from noclobber.disk.reading import look_at
def save(number):
    with open("merged/new", "wb") as file:
        file.write(b"%d" % number)
    os.replace("merged/new", "merged/f")
save(0)
saver = os.fork()
if not saver:
    for number in range(10**9):
        save(number)
guard, missing = FileGuard("merged"), 0
try:
    for _ in range(2000):
        missing += look_at(os.path.abspath("merged/f"), None).sha256 == "DELETED"
        try:
            guard.read("f")
        except Exception as error:
            missing += type(error).__name__ == "MissingFileError"
finally:
    os.kill(saver, 9)
    os.wait()
print(json.dumps({"missing": missing}))
"""
    assert run_in_mounts(tmp_path, BINDFS, program) == {"missing": 0}


def test_a_lease_that_a_network_filesystem_refuses_does_not_make_a_file_busy(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding R3: EAGAIN is their answer to everybody. On a disk it means that somebody writes."""
    (root / "f").write_bytes(b"before")
    with (root / "f").open("r+b") as theirs, (root / "f").open("rb") as ours:
        assert not leases.try_lease(ours.fileno(), leases.READ)
        monkeypatch.setattr(filesystems, "kind_of", lambda _: "nfs")
        with pytest.raises(leases.LeasesUnavailableError):
            leases.try_lease(ours.fileno(), leases.READ)
        theirs.write(b"theirs")


def test_an_unknown_filesystem_gets_no_lease(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """finding R3: what is not known to be good is taken for bad; hard links are then refused."""
    monkeypatch.setattr(filesystems, "kind_of", lambda _: "unknown")
    (root / "f").write_bytes(b"before")
    assert FileGuard(root).write("f", b"after", expected=of_bytes(b"before")).level == "exchange"
    (root / "second").hardlink_to(root / "f")
    with pytest.raises(MetadataNotKeptError):
        FileGuard(root).write("f", b"again", expected=of_bytes(b"after"))


def test_the_documents_say_of_each_level_what_doctor_says() -> None:
    """finding R3: one table, in `filesystems`; `doctor` prints its words."""
    rows = [line for line in LEVELS.read_text().splitlines() if line.startswith("| `")]
    for level, (where, guarded, outsiders) in filesystems.PROMISES.items():
        assert f"| `{level}` | {where} | {guarded} | {outsiders} |" in rows


def test_a_file_that_nobody_has_mapped_is_not_mapped(tmp_path: Path) -> None:
    """finding R2: our own look, and a private or read-only mapping, do not count."""
    import mmap
    import os

    file = tmp_path / "f"
    file.write_bytes(b"x" * 10)
    descriptor = os.open(file, os.O_RDONLY)
    try:
        with mmap.mmap(descriptor, 10, mmap.MAP_SHARED, mmap.PROT_READ):
            assert mappings.is_mapped_for_writing(descriptor) in (False, None)
        both = os.open(file, os.O_RDWR)
        with mmap.mmap(both, 10, mmap.MAP_SHARED):
            os.close(both)
            assert mappings.is_mapped_for_writing(descriptor) is True
    finally:
        os.close(descriptor)


OBJECT_STORE = """
import json, os
from noclobber.disk import filesystems
from noclobber.disk.file_guard import FileGuard
from noclobber.errors import StorageError
open("merged/f", "wb").write(b"before")
said = []
for path, expected in (("f", None), ("new", "ABSENT")):
    try:
        FileGuard("merged").write(path, b"after", expected=expected)
    except StorageError as error:
        said.append(str(error))
kept = open("merged/f").read()
print(json.dumps({"said": said, "kept": kept, "new": os.path.exists("merged/new")}))
"""


def test_the_first_write_on_an_object_stores_mount_is_refused(tmp_path: Path) -> None:
    """N-machines, N-input: there a rename is a copy and a deletion; nothing of ours would hold."""
    seen = run_in_mounts(tmp_path, "bindfs -o subtype=s3fs back merged", OBJECT_STORE)
    assert [("object store" in said, "local disk" in said) for said in seen["said"]] == [(True, True)] * 2
    assert (seen["kept"], seen["new"]) == ("before", False)


@pytest.mark.parametrize(
    ("mount", "store"),
    [
        (("fuse.rclone", "remote:bucket"), "rclone"),
        (("fuse", "mountpoint-s3"), "mountpoint-s3"),
        (("fuse.bindfs", "/data"), None),
        (("nfs4", "server:/s3fs"), None),
        (("ext4", "/dev/sda1"), None),
    ],
)
def test_an_object_store_is_told_by_its_kind_or_by_what_is_mounted(
    mount: tuple[str, str], store: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines: programs call themselves by one or the other."""
    monkeypatch.setattr(filesystems, "_mount_linux", lambda _: mount)
    assert filesystems.object_store("/somewhere") == store
