"""A durable commit writes over the version before the present one; when it must not, and who is safe from it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from noclobber.disk import leases
from noclobber.disk.commit import reuse, swap
from noclobber.disk.commit.committer import Committer
from noclobber.disk.commit.flushing import UnflushedError
from noclobber.disk.commit.sweep import MOST_SPARE, MOST_SPARE_BYTES, MOST_YOUNG
from noclobber.errors import StaleFileError
from tests.conftest import AtStep, sha256

pytestmark = pytest.mark.skipif(not leases.SUPPORTED, reason="only a write lease tells that nobody reads it")


@pytest.fixture
def reused(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each commit that could reuse: whether it did."""
    seen: list[bool] = []

    def watched(*args: object) -> object:
        reused = reuse.reuse(*args)  # type: ignore[arg-type]
        seen.append(reused is not None)
        return reused

    monkeypatch.setattr(swap, "reuse", watched)
    return seen


class Written:
    """A file with a history: each call writes the next version, expecting the last."""

    def __init__(self, root: Path, *, durable: bool = True, name: str = "a.md") -> None:
        self.path, self.name, self.last = root / name, name, b"v0"
        self.path.write_bytes(self.last)
        self.committer = Committer(str(root), durable=durable, wait_s=0.05)

    def write(self, data: bytes) -> None:
        self.committer.replace(self.name, sha256(self.last), data)
        assert self.path.read_bytes() == data
        self.last = data


def failing_for_folders(descriptor: int, fsync: Callable[[int], None] = os.fsync) -> None:
    if os.path.isdir(f"/proc/self/fd/{descriptor}"):
        raise OSError(5, "I/O error")
    fsync(descriptor)


def swap_files(root: Path) -> list[Path]:
    return sorted((root / ".noclobber" / "swap").iterdir())


def kept_files(root: Path) -> list[Path]:
    return sorted((root / ".noclobber" / "kept").iterdir())


def test_two_inodes_change_places(root: Path, reused: list[bool]) -> None:
    """N-durable: from the second write on no inode is made and none is freed; one old version waits."""
    file = Written(root)
    inodes = [file.path.stat().st_ino]
    for number in range(1, 6):
        file.write(b"v%d" % number)
        inodes.append(file.path.stat().st_ino)
    assert reused == [False, True, True, True, True]
    assert inodes[0::2] == [inodes[0]] * 3
    assert inodes[1::2] == [inodes[1]] * 3
    assert [path.read_bytes() for path in swap_files(root)] == [b"v4"]
    assert file.committer.sweep() == []
    assert swap_files(root) == kept_files(root) == []


@pytest.mark.parametrize("sizes", [(10, 300_000, 5, 100_000, 1, 70_000)])
def test_a_shorter_or_longer_version_has_nothing_of_the_one_below_it(
    root: Path, reused: list[bool], sizes: tuple[int, ...]
) -> None:
    """N-durable: also beyond the size from which a sweep goes by the mark instead of the hash."""
    file = Written(root)
    for number, size in enumerate(sizes):
        file.write(bytes([number + 65]) * size)
    assert reused == [False] + [True] * (len(sizes) - 1)


def test_an_empty_version_is_not_written_over_anything(root: Path, reused: list[bool]) -> None:
    """N-durable: there is no byte that would take the old modification time away."""
    file = Written(root)
    for data in (b"x" * 100_000, b"", b"y", b""):
        file.write(data)
        assert file.path.stat().st_mtime > 1_000_000_000
    assert len(reused) == 2


def test_without_durable_nothing_is_reused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-durable: the exchange may not be on the disk yet, and a power cut would show what was written over."""
    monkeypatch.setattr(swap, "reuse", lambda *_: pytest.fail("reused"))
    file = Written(root, durable=False)
    for number in range(4):
        file.write(b"w%d" % number)


def test_a_version_whose_replacement_was_not_flushed_is_not_reused(
    root: Path, reused: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-durable: the same, if the disk would not flush the folder."""
    file = Written(root)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing_for_folders)
        with pytest.raises(UnflushedError):
            file.write(b"v1")
    file.last = b"v1"
    file.write(b"v2")
    file.write(b"v3")
    assert reused == [False, False, True]


def test_who_reads_an_old_version_reads_it_to_the_end(root: Path, reused: list[bool]) -> None:
    """011-SC-002: a descriptor opened on a version never shows another one."""
    file = Written(root)
    with open(file.path, "rb", buffering=0) as reader:
        for number in range(1, 5):
            file.write(b"v%d" % number)
        assert reader.read() == b"v0"
    assert reused == [False, False, True, True]
    file.committer.sweep()
    assert swap_files(root) == []


def test_bytes_that_somebody_wrote_to_an_old_version_are_kept(root: Path, reused: list[bool]) -> None:
    """009-SC-001: a writer that was stopped inside open() wakes up late."""
    file = Written(root)
    file.write(b"v1")
    (aside,) = swap_files(root)
    with open(aside, "ab") as late:
        late.write(b" and late")
    file.write(b"v2")
    assert reused == [False, False]
    assert [Path(where).read_bytes() for _, where in file.committer.sweep()] == [b"v0 and late"]


@pytest.mark.parametrize("trouble", ["refused", "unflushed", "none"])
def test_what_was_kept_is_reported_by_the_next_commit_that_lands(
    root: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """009-SC-001: not lost with a refusal, nor with a flush that failed."""
    file, other = Written(root), Written(root, name="b.md")
    file.write(b"v1")
    with open(swap_files(root)[0], "ab") as late:
        late.write(b" and late")
    committer = Committer(str(root), durable=True)
    committer._store, file.committer._store = file.committer._store, None
    assert committer._store is not None
    committer._store.waiting[0] = committer._store.waiting[0]._replace(is_past=False)
    if trouble == "refused":
        with pytest.raises(StaleFileError):
            committer.replace("b.md", sha256(b"never"), b"x")
    if trouble == "unflushed":
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", failing_for_folders)
            with pytest.raises(UnflushedError) as told:
                committer.replace("b.md", sha256(other.last), b"x")
        kept = told.value.commits[0].kept
    else:
        kept = committer.replace("b.md", sha256(other.last), b"x").kept
    assert [Path(where).read_bytes() for where in kept] == [b"v0 and late"]
    assert committer.sweep() == []


def test_a_late_writer_that_has_it_open_still_is_waited_for_by_the_sweep(
    root: Path, reused: list[bool]
) -> None:
    """009-SC-001: what it is about to write is not known yet."""
    file = Written(root)
    file.write(b"v1")
    with open(swap_files(root)[0], "ab", buffering=0) as late:
        file.write(b"v2")
        file.write(b"v3")
        late.write(b" at last")
    assert reused == [False, False, True]
    assert [Path(where).read_bytes() for _, where in file.committer.sweep()] == [b"v0 at last"]


@pytest.mark.parametrize("change", ["mode", "link"])
def test_an_old_version_that_others_may_reach_is_not_reused(
    root: Path, reused: list[bool], change: str
) -> None:
    """N-metadata: it was readable for all; the new bytes are not for all any more."""
    file = Written(root)
    file.write(b"v1")
    (aside,) = swap_files(root)
    if change == "mode":
        file.path.chmod(0o600)
    else:
        os.link(aside, root / "second-name")
    file.write(b"v2")
    assert reused == [False, False]
    assert file.path.stat().st_mode & 0o777 == (0o600 if change == "mode" else 0o644)
    assert change == "mode" or (root / "second-name").read_bytes() == b"v0"


@pytest.mark.parametrize("present", [[], ["user.new"]])
def test_attributes_of_an_old_version_do_not_come_back(
    root: Path, reused: list[bool], present: list[str]
) -> None:
    """N-metadata: the new version has the present version's attributes and no others."""
    file = Written(root)
    try:
        os.setxattr(file.path, "user.old", b"1")
    except OSError:
        pytest.skip("no extended attributes here")
    file.write(b"v1")
    os.removexattr(file.path, "user.old")
    for name in present:
        os.setxattr(file.path, name, b"2")
    file.write(b"v2")
    assert reused == [False, False]
    assert os.listxattr(file.path) == present
    file.write(b"v3")
    file.write(b"v4")
    assert reused[2:] == [True, True]
    assert os.listxattr(file.path) == present


def test_the_old_versions_of_a_few_small_files_wait(root: Path, reused: list[bool]) -> None:
    """N-durable: who edits some files in turn reuses too; but large ones and many are not left lying about."""
    files = [Written(root, name=f"{number}.md") for number in range(MOST_SPARE)]
    large = Written(root, name="large.md")
    large.last = b"x" * (MOST_SPARE_BYTES + 1)
    large.path.write_bytes(large.last)
    for each in [*files, large]:
        each.committer = files[0].committer
    large.write(b"v1")
    files[0].write(b"v")
    assert len(swap_files(root)) == 1
    for round_ in range(3):
        for each in files:
            each.write(b"v%d" % round_)
    assert reused == [False, False, True] + [False] * (MOST_SPARE - 1) + [True] * 2 * MOST_SPARE
    assert len(swap_files(root)) == MOST_SPARE
    for number in range(3):
        Written(root, name=f"more{number}.md").committer = files[0].committer
        files[0].committer.replace(f"more{number}.md", sha256(b"v0"), b"v1")
    assert len(swap_files(root)) == MOST_SPARE + 1
    files[0].committer.sweep()
    assert swap_files(root) == []


@pytest.mark.parametrize("size", [100, 4000, 4096, 70_000, 5_000_000])
@pytest.mark.parametrize("new_size", [50, 6000, 80_000])
def test_what_sendfile_and_splice_have_taken_stays_as_it_was(
    root: Path, reused: list[bool], size: int, new_size: int
) -> None:
    """011-SC-002: closed long ago, but its pages still lie in a pipe."""
    file = Written(root)
    file.write(b"1" * size)
    reading, writing = os.pipe()
    with open(file.path, "rb") as source:
        count = os.splice(source.fileno(), writing, min(size, 4096))
    file.write(b"2" * size)
    file.write(b"3" * new_size)
    assert reused == [False, True, True]
    assert os.read(reading, 8192) == b"1" * count
    for descriptor in (reading, writing):
        os.close(descriptor)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_holes_are_not_filled_by_taking_the_pages_off(
    root: Path, reused: list[bool], monkeypatch: pytest.MonkeyPatch, is_sparse: bool
) -> None:
    """N-durable: that would take room; a sparse old version gives its blocks back instead."""
    calls: list[tuple[int, ...]] = []

    def fail(*given: int) -> int:
        calls.append(given)
        return -1

    monkeypatch.setattr(reuse, "_fallocate", fail)
    file = Written(root)
    if is_sparse:
        with open(file.path, "r+b") as sparse:
            sparse.truncate(3_000_000)
        file.last = file.path.read_bytes()
    file.write(b"v1")
    file.write(b"v2")
    assert reused == [False, True]
    assert len(calls) == (0 if is_sparse else 1)


@pytest.mark.parametrize(("ceiling", "data"), [("lease+exchange", b""), ("exchange", b"x"), ("plain", b"x")])
def test_old_versions_that_are_never_reused_do_not_pile_up(root: Path, ceiling: Any, data: bytes) -> None:
    """N-leaks: neither files nor descriptors."""
    path = root / "a.md"
    path.write_bytes(b"v0")
    committer = Committer(str(root), durable=True, ceiling=ceiling)
    committer.replace("a.md", None, data)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20 + MOST_YOUNG):
        committer.replace("a.md", None, data)
    assert len(os.listdir("/proc/self/fd")) <= before + 1 + MOST_YOUNG
    assert len(swap_files(root)) <= 2 + MOST_YOUNG


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o6775], ids=oct)
def test_privileged_bits_are_kept(root: Path, durable: bool, mode: int) -> None:
    """N-metadata: the kernel takes them from what an ordinary user writes to."""
    Written(root).write(b"v1")  # Loads what an ordinary user may not be able to load from here.
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        folder.chmod(0o777)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                if os.geteuid() == 0:
                    os.setgroups([])
                    os.setgid(65534)
                    os.setuid(65534)
                path = folder / "a.md"
                path.write_bytes(b"v0")
                path.chmod(mode)
                committer = Committer(str(folder), durable=durable)
                for number in range(3):
                    committer.replace("a.md", None, b"%d" % number)
                    assert path.stat().st_mode & 0o7777 == mode
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert (folder / "a.md").read_bytes() == b"2"
    finally:
        shutil.rmtree(folder)


def test_a_refused_version_is_not_to_be_had_by_a_back_door(
    root: Path, reused: list[bool], at_step: AtStep
) -> None:
    """011-SC-002: a bind mount, or an O_PATH descriptor, keeps a file without having it open."""
    file = Written(root)
    back_door = os.open(file.path, os.O_PATH)
    file.write(b"v1")
    at_step("staged", lambda: file.path.write_bytes(b"editor"))
    with pytest.raises(StaleFileError):
        file.write(b"refused")
    assert reused == [False, True]
    with open(f"/proc/self/fd/{back_door}", "rb") as found:
        assert found.read() == b"editor"
    os.close(back_door)


def test_a_reader_that_comes_to_the_old_version_late_never_sees_a_refused_one(
    root: Path, reused: list[bool], at_step: AtStep
) -> None:
    """011-SC-002: it looked the file up two versions ago, and was stopped until we were writing it over."""
    file = Written(root)
    file.write(b"v1")
    got: list[bytes] = []
    readers: list[threading.Thread] = []

    def conflict_and_read() -> None:
        (staged,) = swap_files(root)
        inode = staged.stat().st_ino
        reader = threading.Thread(target=lambda: got.append(staged.read_bytes()))
        reader.start()
        readers.append(reader)
        while not any(
            "LEASE" in line and "BREAKING" in line and f":{inode} " in line
            for line in Path("/proc/locks").read_text().splitlines()
        ):
            os.sched_yield()
        file.path.write_bytes(b"editor")

    assert at_step("staged", conflict_and_read) == []
    with pytest.raises(StaleFileError):
        file.committer.replace("a.md", sha256(b"v1"), b"refused" * 100)
    readers[0].join()
    assert reused == [False, True]
    assert got == [b"editor"]
    file.committer.sweep()
    assert swap_files(root) == kept_files(root) == []


def test_a_refused_commit_takes_the_old_version_with_it(
    root: Path, reused: list[bool], at_step: AtStep
) -> None:
    """009-FR-005: the editor's bytes stand, and nothing is left."""
    file = Written(root)
    file.write(b"v1")
    at_step("staged", lambda: file.path.write_bytes(b"editor"))
    with pytest.raises(StaleFileError):
        file.write(b"v2")
    assert reused == [False, True]
    assert file.path.read_bytes() == b"editor"
    file.committer.sweep()
    assert swap_files(root) == kept_files(root) == []


def test_an_editor_that_saves_at_the_last_moment_gets_its_version_back(
    root: Path, reused: list[bool], at_step: AtStep
) -> None:
    """009-SC-001: what was displaced is poured into the reused file, which stands at the name."""
    file = Written(root)
    file.write(b"v1")

    def save() -> None:
        (root / "editor").write_bytes(b"editor, and long")
        os.replace(root / "editor", file.path)

    at_step("before-exchange", save)
    with pytest.raises(StaleFileError):
        file.write(b"v2")
    assert reused == [False, True]
    assert file.path.read_bytes() == b"editor, and long"
    file.committer.sweep()
    assert swap_files(root) == kept_files(root) == []


CHILD = """
import os, signal, sys
from noclobber.disk import steps
from noclobber.disk.hashing import of_bytes
from noclobber.disk.commit.committer import Committer
root, step = sys.argv[1:]
committer = Committer(root, durable=True)
committer.replace("a.md", of_bytes(b"v0"), b"v1")
def observe(reached):
    if reached == step:
        os.kill(os.getpid(), signal.SIGKILL)
steps.observer = observe
committer.replace("a.md", of_bytes(b"v1"), b"agent")
"""


@pytest.mark.parametrize(
    "step", ["staging", "staged", "verified", "noted", "before-exchange", "exchanged", "settled", "released"]
)
def test_kill_9_while_an_old_version_is_written_over(root: Path, step: str) -> None:
    """009-SC-001, 011-SC-002: one of the two versions stands, and no rubbish is left."""
    file = Written(root)
    child = subprocess.run([sys.executable, "-c", CHILD, str(root), step], check=False)
    assert child.returncode == -9
    file.last = file.path.read_bytes()
    assert file.last == (b"agent" if step in ("exchanged", "settled", "released") else b"v1")
    file.write(b"next")
    file.committer.sweep()
    assert swap_files(root) == kept_files(root) == []


class Later:
    """A clock by which everything that is left over is old."""

    monotonic_s = staticmethod(lambda: 0.0)
    sleep = staticmethod(lambda _: None)
    now_s = staticmethod(lambda: 4e9)


def test_another_process_that_adopts_orphans_leaves_a_leased_one_alone(
    root: Path, reused: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """009-SC-001: a swap file that cannot be opened because its maker has it is nobody's orphan."""
    file = Written(root)
    file.write(b"v1")
    rename = os.rename
    adopted: list[Any] = []

    def while_others_look(*args: object, **more: object) -> None:
        if not adopted:
            adopted.append(Committer(str(root), clock=Later()).open_store())
        rename(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "rename", while_others_look)
    file.write(b"v2")
    assert adopted
    assert reused == [False, True]
    assert kept_files(root) == []
