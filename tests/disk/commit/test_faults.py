"""Every system call of a commit fails once, each in its turn: what must hold whichever it was."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from noclobber.disk import forks, renames
from noclobber.disk.commit import committer, open_stores, sweep
from noclobber.disk.file_guard import Change, FileGuard
from noclobber.errors import ABSENT, NoclobberError
from tests.conftest import sha256

OLD, NEW = b"old" * 10, b"new" * 7
CALLS = (
    "open fstat stat pread preadv pwrite write read ftruncate fsync fchmod fchown rename unlink mkdir"
    " listdir utime listxattr posix_fallocate readlink dup link"
)
MOST_CALLS = 300
# Something may be left behind if just its removal failed, or the mark that says that it may be removed:
# the next process to come adopts it, or a person looks.
REMOVALS = ("unlink", "utime")


class Faults:
    """Counts system calls, and has one of them fail."""

    def __init__(self) -> None:
        self.count, self.failing, self.failed, self.code = 0, 0, "", errno.EIO

    def strikes(self, name: str) -> bool:
        self.count += 1
        if self.count != self.failing:
            return False
        self.failed = name
        return True


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    faults = Faults()

    def breakable(module: object, name: str) -> None:
        original = getattr(module, name)

        def call(*args: object, **more: object) -> object:
            if faults.strikes(name):
                raise OSError(faults.code, os.strerror(faults.code))
            return original(*args, **more)

        monkeypatch.setattr(module, name, call)

    for name in CALLS.split():
        if hasattr(os, name):
            breakable(os, name)
    breakable(fcntl, "fcntl")
    breakable(fcntl, "flock")
    rename = renames._call or renames._load()
    get_errno = renames._get_errno
    monkeypatch.setattr(renames, "_call", lambda *args: -1 if faults.strikes("rename") else rename(*args))
    monkeypatch.setattr(
        renames,
        "_get_errno",
        lambda: faults.code if faults.count == faults.failing and faults.failed == "rename" else get_errno(),
    )
    return faults


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


SCENARIOS: dict[str, Callable[[FileGuard], object]] = {
    "replace": lambda guard: guard.write("a.md", NEW, expected=sha256(OLD)),
    "unchecked": lambda guard: guard.write("a.md", NEW, expected=None),
    "create": lambda guard: guard.write("c.md", NEW, expected=ABSENT),
    "delete": lambda guard: guard.delete("a.md", expected=sha256(OLD)),
    "move": lambda guard: guard.move("a.md", "sub/c.md", expected=sha256(OLD)),
    "linked": lambda guard: guard.write("linked.md", NEW, expected=sha256(OLD)),
    "again": lambda guard: guard.write("sub/again.md", NEW, expected=sha256(OLD)),
    "read": lambda guard: guard.read("a.md"),
    "alone": lambda guard: committer.replace_if_unchanged(f"{guard.root}/sub/b.md", sha256(OLD), NEW),
    "many": lambda guard: guard.write_many(
        [
            Change("a.md", NEW, sha256(OLD)),
            Change("sub/b.md", NEW, sha256(OLD)),
            Change("c.md", NEW, ABSENT),
        ]
    ),
}


DURABLE = {
    f"{name}, durable": SCENARIOS[name] for name in ("again", "create", "delete", "move", "linked", "many")
}


def prepared(root: Path, scenario: str = "") -> FileGuard:
    (root / "sub").mkdir(parents=True)
    for name in ("a.md", "sub/b.md", "sub/again.md", "linked.md", "w.md", "sub/w.md"):
        (root / name).write_bytes(OLD)
    os.link(root / "linked.md", root / "other-name.md")
    guard = FileGuard(root, wait_s=0.05, durable=scenario in DURABLE)
    guard.committer.mutex_wait_s = 0.2
    use(guard)
    if scenario == "again, durable":  # Then an old version waits for being written over.
        guard.write("sub/again.md", b"in between", expected=None)
        guard.write("sub/again.md", OLD, expected=None)
    return guard


def use(guard: FileGuard) -> None:
    for name in ("w.md", "sub/w.md"):
        guard.write(name, b"used", expected=None)
    guard.sweep()
    open_stores.sweep_lingering()


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*.md")
        if not any(part.startswith(".noclobber") for part in path.parts)
        # Where there are no leases, a second name keeps the old bytes; `replace` says so.
        and path.name != "other-name.md"
    }


@pytest.fixture
def small_heap() -> Iterator[None]:
    """Collections look only at what the test makes: whole ones, hundreds of times, took most of the suite's time."""
    gc.collect()  # What earlier tests dropped closes itself now, and not while we count.
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("small_heap")
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors by way of /proc")
@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE, errno.ENOSPC], ids=errno.errorcode.get)
@pytest.mark.parametrize("scenario", SCENARIOS | DURABLE)
def test_whichever_system_call_fails_nothing_is_lost_leaked_or_locked(
    tmp_path: Path, faults: Faults, scenario: str, code: int
) -> None:
    """N-faults: old or new, as the answer says; no traceback; no descriptor, mutex, mask or rubbish stays."""
    run, faults.code = (SCENARIOS | DURABLE)[scenario], code
    prepared(tmp_path / "model")
    before = contents(tmp_path / "model")
    run(FileGuard(tmp_path / "model"))
    after = contents(tmp_path / "model")
    for nth in range(1, MOST_CALLS):
        root = tmp_path / "workspace"
        guard = prepared(root, scenario)
        gc.collect()  # What the last round dropped closes itself now, and not while we count.
        waiting = len(guard.committer.store_if_open.waiting)  # In the end they are swept.
        descriptors, tracked = open_descriptors() - waiting, len(forks._tracked) - waiting
        faults.count, faults.failing, faults.failed = 0, nth, ""
        try:
            run(guard)
            landed = True
        except NoclobberError as error:  # Anything else is a traceback, and fails the test.
            landed = "landed" in error.details  # type: ignore[attr-defined]
        faults.failing = 0
        which = f"call {nth}, {faults.failed}"
        now = contents(root)
        assert now in (before, after), which
        assert now == (after if landed else before), which
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set(), which
        use(guard)
        assert contents(root) == now, which
        assert len(forks._tracked) == tracked, which
        assert open_descriptors() == descriptors, which
        if faults.failed not in REMOVALS:
            state = root / ".noclobber"
            # What is marked as verified, the next process that comes would remove.
            store = guard.committer.store_if_open
            assert store is not None
            sweep.adopt_orphans(store, time.time())
            assert os.listdir(state / "swap") == os.listdir(state / "kept") == [], which
            assert [name for name in os.listdir(state / "notes") if "book" in name] == [], which
        assert guard.committer.store_if_open is not None
        guard.committer.store_if_open.close()
        shutil.rmtree(root)
        if not faults.failed:
            assert nth > 5
            return
    pytest.fail("a commit should not need so many system calls")


def test_a_rewrite_in_place_that_can_neither_go_on_nor_back_is_undone_later(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-faults: the copy of the old version outlives a disk that fails in the middle of both."""
    guard = prepared(root / "below")
    path, pwrite, calls = root / "below" / "linked.md", os.pwrite, 0

    def torn(descriptor: int, data: bytes, offset: int) -> int:
        nonlocal calls
        calls += 1
        if calls == 1 or len(data) < 10:
            return pwrite(descriptor, data, offset)  # The copy that is made first.
        if calls == 2:
            return pwrite(descriptor, data[:4], offset)
        raise OSError(errno.EIO, "I/O error")

    monkeypatch.setattr(os, "pwrite", torn)
    with pytest.raises(NoclobberError):
        guard.write("linked.md", NEW, expected=sha256(OLD))
    monkeypatch.undo()
    assert path.read_bytes() not in (OLD, NEW)
    assert guard.read("linked.md").content == OLD
    use(guard)
    assert os.listdir(root / "below" / ".noclobber" / "swap") == []
