"""A durable commit writes over the version before the present one; when it must not, and who is safe from it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from conftest import sha256
from noclobber.disk import openers, reuse, swap
from noclobber.disk.replace import Committer
from noclobber.disk.store import MOST_SPARE, MOST_SPARE_BYTES
from noclobber.errors import StaleFileError, StorageError

pytestmark = pytest.mark.skipif(not openers.SUPPORTED, reason="only a write lease tells that nobody reads it")


@pytest.fixture
def reused(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each commit that could reuse: whether it did."""
    seen: list[bool] = []

    def watched(*args: object) -> int:
        descriptor = reuse.reuse(*args)  # type: ignore[arg-type]
        seen.append(descriptor != reuse.NO_FD)
        return descriptor

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


def swap_files(root: Path) -> list[Path]:
    return sorted((root / ".noclobber" / "swap").iterdir())


def kept_files(root: Path) -> list[Path]:
    return sorted((root / ".noclobber" / "kept").iterdir())


def test_two_inodes_change_places(root, reused):
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
def test_a_shorter_or_longer_version_has_nothing_of_the_one_below_it(root, reused, sizes):
    """N-durable: also beyond the size from which a sweep goes by the mark instead of the hash."""
    file = Written(root)
    for number, size in enumerate(sizes):
        file.write(bytes([number + 65]) * size)
    assert reused == [False] + [True] * (len(sizes) - 1)


def test_an_empty_version_is_not_written_over_anything(root, reused):
    """N-durable: there is no byte that would take the old modification time away."""
    file = Written(root)
    for data in (b"x" * 100_000, b"", b"y", b""):
        file.write(data)
        assert file.path.stat().st_mtime > 1_000_000_000
    assert len(reused) == 2


def test_without_durable_nothing_is_reused(root, monkeypatch):
    """N-durable: the exchange may not be on the disk yet, and a power cut would show what was written over."""
    monkeypatch.setattr(swap, "reuse", lambda *_: pytest.fail("reused"))
    file = Written(root, durable=False)
    for number in range(4):
        file.write(b"w%d" % number)


def test_a_version_whose_replacement_was_not_flushed_is_not_reused(root, reused, monkeypatch):
    """N-durable: the same, if the disk would not flush the folder."""
    file = Written(root)
    fsync = os.fsync

    def failing(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(5, "I/O error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(StorageError):
        file.write(b"v1")
    monkeypatch.setattr(os, "fsync", fsync)
    file.last = b"v1"
    file.write(b"v2")
    file.write(b"v3")
    assert reused == [False, False, True]


def test_who_reads_an_old_version_reads_it_to_the_end(root, reused):
    """011-SC-002: a descriptor opened on a version never shows another one."""
    file = Written(root)
    with open(file.path, "rb", buffering=0) as reader:
        for number in range(1, 5):
            file.write(b"v%d" % number)
        assert reader.read() == b"v0"
    assert reused == [False, False, True, True]
    file.committer.sweep()
    assert swap_files(root) == []


def test_bytes_that_somebody_wrote_to_an_old_version_are_kept(root, reused):
    """009-SC-001: a writer that was stopped inside open() wakes up late."""
    file = Written(root)
    file.write(b"v1")
    (aside,) = swap_files(root)
    with open(aside, "ab") as late:
        late.write(b" and late")
    file.write(b"v2")
    assert reused == [False, False]
    assert [Path(where).read_bytes() for _, where in file.committer.sweep()] == [b"v0 and late"]


def test_a_late_writer_that_has_it_open_still_is_waited_for_by_the_sweep(root, reused):
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
def test_an_old_version_that_others_may_reach_is_not_reused(root, reused, change):
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
def test_attributes_of_an_old_version_do_not_come_back(root, reused, present):
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
    assert reused == [False, True]
    assert os.listxattr(file.path) == present


def test_the_old_versions_of_a_few_small_files_wait(root, reused):
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


def test_a_reader_that_comes_to_the_old_version_late_never_sees_a_refused_one(root, reused, at_step):
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
    assert swap_files(root) == []


def test_a_refused_commit_takes_the_old_version_with_it(root, reused, at_step):
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


def test_an_editor_that_saves_at_the_last_moment_gets_its_version_back(root, reused, at_step):
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
from noclobber.disk.digest import of_bytes
from noclobber.disk.replace import Committer
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
def test_kill_9_while_an_old_version_is_written_over(root, step):
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


def test_another_process_that_adopts_orphans_leaves_a_leased_one_alone(root, reused, monkeypatch):
    """009-SC-001: a swap file that cannot be opened because its maker has it is nobody's orphan."""
    file = Written(root)
    file.write(b"v1")
    rename, adopted = os.rename, []

    def while_others_look(*args: object, **more: object) -> None:
        if not adopted:
            adopted.append(Committer(str(root), clock=Later()).open_store())
        rename(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "rename", while_others_look)
    file.write(b"v2")
    assert adopted
    assert reused == [False, True]
    assert kept_files(root) == []
