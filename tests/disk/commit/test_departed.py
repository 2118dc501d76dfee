"""Who opens a displaced file while the sweep lets go of it, or right after: what they write is kept."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.options import Options
from noclobber.disk import leases, steps
from noclobber.disk.commit import sweep
from noclobber.disk.commit.committer import Committer, replace_if_unchanged
from noclobber.disk.version_keeper import VersionKeeper
from tests.conftest import sha256

pytestmark = pytest.mark.skipif(not leases.SUPPORTED, reason="needs file leases")

# Finds a file, says so, and opens it when it is told to: by a handle, as a file server does, or by /proc.
LATE_WRITER = """
import ctypes, os, sys

way, path = sys.argv[1:]
folder = os.open(os.path.dirname(path), os.O_RDONLY)
libc = ctypes.CDLL(None, use_errno=True)


class Handle(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint), ("kind", ctypes.c_int), ("body", ctypes.c_char * 128)]


def open_now():
    if way == "proc":
        return os.open(f"/proc/self/fd/{found}", os.O_WRONLY | os.O_APPEND)
    descriptor = libc.open_by_handle_at(folder, ctypes.byref(handle), os.O_WRONLY | os.O_APPEND)
    return descriptor if descriptor >= 0 else sys.exit(os.strerror(ctypes.get_errno()))


if way == "proc":
    found = os.open(path, os.O_PATH)
else:
    handle, mount = Handle(128), ctypes.c_int()
    if libc.name_to_handle_at(-100, os.fsencode(path), ctypes.byref(handle), ctypes.byref(mount), 0):
        print("no", os.strerror(ctypes.get_errno()), flush=True)
        sys.exit()
    try:
        os.close(open_now())
    except SystemExit as no:
        print("no", no, flush=True)
        sys.exit()
print("found", flush=True)
sys.stdin.readline()
descriptor = open_now()
os.write(descriptor, b"PRECIOUS")
os.close(descriptor)
print("written", flush=True)
"""


class LateWriter:
    """A process that has found a file, and opens it by other means than its name when it is told to."""

    def __init__(self, way: str, path: Path) -> None:
        self.inode = path.stat().st_ino
        self._process = subprocess.Popen(
            [sys.executable, "-c", LATE_WRITER, way, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        found = self._line()
        if found != "found":
            self.end()
            pytest.skip(f"cannot open by handle here ({found.removeprefix('no ')}); needs root")

    def _line(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()

    def go(self) -> None:
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def go_and_wait_in_open(self) -> None:
        self.go()
        while not self._is_waiting():
            assert self._process.poll() is None
            os.sched_yield()

    def _is_waiting(self) -> bool:
        locks = Path("/proc/locks").read_text().splitlines()
        return any("BREAKING" in line and f":{self.inode} " in line for line in locks)

    def has_written(self) -> bool:
        return self._line() == "written"

    def end(self) -> None:
        self._process.communicate()


@pytest.fixture(params=["proc", "handle"])
def writer(request: pytest.FixtureRequest, root: Path) -> Iterator[LateWriter]:
    (root / "x").write_bytes(b"old")
    late = LateWriter(request.param, root / "x")
    yield late
    late.end()


@pytest.fixture(params=["removed", "past version"])
def committer(request: pytest.FixtureRequest, root: Path) -> Committer:
    keeper = None if request.param == "removed" else VersionKeeper(str(root), Options(), SYSTEM_CLOCK)
    return Committer(str(root), keeper=keeper)


@pytest.fixture(autouse=True)
def _who_comes_late(monkeypatch: pytest.MonkeyPatch, _nobody_comes_late: None) -> None:
    monkeypatch.setattr(sweep, "LATE_S", 60.0)


@pytest.fixture(autouse=True)
def _no_observer() -> Iterator[None]:
    yield
    steps.observer = None


def once_at(step: str, act: Callable[[], object]) -> None:
    def observe(reached: str) -> None:
        if reached == step:
            steps.observer = None
            act()

    steps.observer = observe


def kept_in(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in (root / ".noclobber/kept").iterdir()]


@pytest.mark.parametrize("step", ["sweeping", "swept"])
def test_who_opens_it_between_the_sweeps_last_look_and_the_end_of_its_lease_loses_nothing(
    root: Path, writer: LateWriter, committer: Committer, step: str
) -> None:
    """011-SC-002: it waits for the lease, and then writes to a file that has no name any more."""
    committer.replace("x", sha256(b"old"), b"new")
    once_at(step, writer.go_and_wait_in_open)
    assert committer.sweep() == []
    assert writer.has_written()
    ((path, where),) = committer.sweep()
    assert (path, Path(where).read_bytes()) == (str(root / "x"), b"oldPRECIOUS")
    assert committer.sweep() == []


def test_who_had_found_a_file_before_it_was_displaced_loses_nothing_though_the_next_commit_has_come(
    root: Path, writer: LateWriter, committer: Committer
) -> None:
    """011-SC-002: nobody can see who is on the way into a file, so it keeps its name for a moment."""
    committer.replace("x", sha256(b"old"), b"new")
    committer.replace("x", sha256(b"new"), b"newer")  # Sweeps, but not what is as young as that.
    writer.go()
    assert writer.has_written()
    ((_, where),) = committer.sweep()
    assert Path(where).read_bytes() == b"oldPRECIOUS"


def test_closing_waits_for_who_has_just_been_let_in(
    root: Path, writer: LateWriter, committer: Committer
) -> None:
    """011-SC-002: a program that writes once closes its workspace a moment later."""
    committer.replace("x", sha256(b"old"), b"new")
    once_at("swept", writer.go_and_wait_in_open)
    committer.close()
    assert writer.has_written()
    assert kept_in(root) == [b"oldPRECIOUS"]


def test_a_program_that_ends_without_closing_looks_once_more(root: Path, writer: LateWriter) -> None:
    """011-SC-002: nobody else has the file open."""
    program = f"""
import sys
from noclobber.disk import steps
from noclobber.disk.commit.committer import Committer
committer = Committer({str(root)!r})
committer.replace("x", None, b"new")
def observe(step):
    if step == "swept":
        print(step, flush=True)
        sys.stdin.readline()
steps.observer = observe
committer.sweep()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as guard:
        assert guard.stdout is not None
        assert guard.stdout.readline() == "swept\n"
        writer.go_and_wait_in_open()
    assert writer.has_written()
    assert guard.returncode == 0
    assert kept_in(root) == [b"oldPRECIOUS"]


def test_the_same_without_a_workspace(root: Path, writer: LateWriter) -> None:
    """011-SC-002: there the next write sweeps, or the end of the program."""
    replace_if_unchanged(root / "x", sha256(b"old"), b"new")
    once_at("sweeping", writer.go_and_wait_in_open)
    result = replace_if_unchanged(root / "x", sha256(b"new"), b"newer")
    assert writer.has_written()
    (where,) = result.kept
    assert Path(where).read_bytes() == b"oldPRECIOUS"


def test_what_nobody_came_to_is_closed_at_once(root: Path, committer: Committer) -> None:
    """N-leaks: a handle of it is stale then, and who has it looks the name up again."""
    (root / "x").write_bytes(b"old")
    committer.replace("x", sha256(b"old"), b"new")
    committer.sweep()
    store = committer.store_if_open
    assert store is not None
    assert (len(store.departed), len(store.waiting)) == (0, 0)


def test_no_more_than_so_many_displaced_files_wait(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-leaks: a program that writes all the time runs out of neither descriptors nor space."""
    monkeypatch.setattr(sweep, "LATE_S", 1e9)
    committer = Committer(str(root))
    for number in range(2 * sweep.MOST_YOUNG):
        committer.replace("x", None, b"%d" % number)
    assert len(list((root / ".noclobber/swap").iterdir())) == sweep.MOST_YOUNG + 1
    for _ in range(3):
        committer.replace("x", None, bytes(sweep.LARGE_BYTES))
    sizes = [path.stat().st_size for path in (root / ".noclobber/swap").iterdir()]
    assert sizes.count(sweep.LARGE_BYTES) == 1
    committer.close()
    assert list((root / ".noclobber/swap").iterdir()) == []
