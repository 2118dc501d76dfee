"""Fork during a commit of another thread: what the child inherits, at the very moments when it is hardest."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from noclobber.disk import forks
from noclobber.disk.file_guard import FileGuard
from tests.conftest import sha256

WAIT_S = 30

_before_a_fork: list[Callable[[], None]] = []
# Registered after that of `forks`, so called before it.
os.register_at_fork(before=lambda: [call() for call in _before_a_fork])


def inherited(root: Path | str) -> list[str]:
    """The names of files below a folder that this process has open."""
    names = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    targets = [os.readlink(name) for name in names if os.path.lexists(name)]
    # Notes and folders are for the life of a guard, and in nobody's way.
    return [
        name
        for name in targets
        if name.startswith(str(root)) and "/notes/" not in name and not os.path.isdir(name)
    ]


class Hold:
    """Hold up a system call of another thread until somebody forks, and no longer."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, name: str, is_it: Callable[..., bool], *, before: bool
    ) -> None:
        self.is_there, self.is_forking = threading.Event(), threading.Event()
        call, main = getattr(os, name), threading.get_ident()

        def held_up(*given: Any, **options: Any) -> Any:
            is_the_one = (
                not self.is_there.is_set() and threading.get_ident() != main and is_it(*given, **options)
            )
            if is_the_one and before:
                self._wait()
            result = call(*given, **options)
            if is_the_one and not before:
                self._wait()
            return result

        monkeypatch.setattr(os, name, held_up)
        monkeypatch.setattr(f"{__name__}._before_a_fork", [self.is_forking.set])

    def _wait(self) -> None:
        self.is_there.set()
        assert self.is_forking.wait(WAIT_S)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace, with a file that was written through a guard before."""
    root = tmp_path.resolve() / "workspace"
    root.mkdir()
    (root / "a.txt").write_bytes(b"one")
    return root


def in_a_child(root: Path | str) -> list[str]:
    """Fork; return what the child has open."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, "\n".join(inherited(root)).encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as said:
        names = said.read().split("\n")
    os.waitpid(child, 0)
    return [name for name in names if name]


def is_swap_open(name: str, flags: int, *_: object, **__: object) -> bool:
    return str(name).startswith("swap-") and bool(flags & os.O_CREAT)


def is_target_close(descriptor: int) -> bool:
    return os.readlink(f"/proc/self/fd/{descriptor}").endswith("/a.txt") and descriptor not in forks._tracked


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc to see what a child has open")
@pytest.mark.parametrize(
    ("name", "is_it", "before"),
    [("open", is_swap_open, False), ("close", is_target_close, True)],
    ids=["while it is opened", "while it is closed"],
)
def test_a_child_keeps_no_file_of_a_commit_open(
    name: str, is_it: Callable[..., Any], before: bool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-fork: a child's copy counts as a writer, and the file would be busy for its life."""
    guard = FileGuard(str(root))
    guard.write("a.txt", b"two", expected=sha256(b"one"))
    hold = Hold(monkeypatch, name, is_it, before=before)
    thread = threading.Thread(
        target=guard.write, args=("a.txt", b"three"), kwargs={"expected": sha256(b"two")}
    )
    thread.start()
    assert hold.is_there.wait(WAIT_S)
    try:
        assert in_a_child(root) == []
    finally:
        thread.join(WAIT_S)
    assert (root / "a.txt").read_bytes() == b"three"


def test_a_fork_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that hangs in open() must not hang who forks."""
    monkeypatch.setattr(forks, "PATIENCE_S", 0.01)
    hangs, is_over = threading.Event(), threading.Event()

    def hang() -> None:
        with forks.undivided():
            hangs.set()
            is_over.wait(WAIT_S)

    thread = threading.Thread(target=hang)
    thread.start()
    assert hangs.wait(WAIT_S)
    child = os.fork()
    if child == 0:
        os._exit(0 if not forks._undivided and not forks._forking else 1)
    is_over.set()
    thread.join(WAIT_S)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not forks._forking


def test_a_fork_does_not_wait_for_a_block_that_an_interrupt_has_left_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would wait at every fork."""
    monkeypatch.setitem(forks._undivided, -1, time.monotonic())
    monkeypatch.setattr(forks, "NAP_S", "it must not sleep")
    assert in_a_child("/nowhere") == []


def test_who_opens_does_not_wait_for_ever_for_a_fork(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hooks of others take locks before a fork, which this thread may hold."""
    forks._forking.append(time.monotonic() + 0.01)
    descriptor = forks.open_tracked(str(tmp_path), os.O_RDONLY)
    assert descriptor in forks._tracked
    assert not forks._forking, "the next one would wait again"
    monkeypatch.setattr(forks, "NAP_S", "it must not sleep")
    forks.close(descriptor)
    assert not forks._undivided


def test_an_interrupt_while_waiting_for_a_fork_leaves_no_block_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The next one of this thread would not count as one."""
    forks._forking.append(time.monotonic() + WAIT_S)

    class Interrupted:
        monotonic = staticmethod(time.monotonic)

        @staticmethod
        def sleep(_: float) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(forks, "time", Interrupted)
    try:
        for attempt in (lambda: forks.open_tracked(str(tmp_path), os.O_RDONLY), forks.undivided().__enter__):
            with pytest.raises(KeyboardInterrupt):
                attempt()
            assert not forks._undivided
    finally:
        forks._forking.clear()


def test_a_block_in_a_block_does_not_end_it(tmp_path: Path) -> None:
    """A signal handler reads a file while its thread is about to track another."""
    with forks.undivided():
        forks.close(forks.open_tracked(str(tmp_path), os.O_RDONLY))
        with forks.undivided():
            pass
        assert forks._undivided
    assert not forks._undivided


def test_a_handler_that_forks_in_the_middle_does_not_wait_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler runs wherever its thread happens to be."""
    monkeypatch.setattr(forks, "PATIENCE_S", 1e9)
    with forks.undivided():
        child = os.fork()
        if child == 0:
            with forks.undivided():
                os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_an_interrupt_in_the_child_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ctrl-C goes to parent and child alike, and may come while the child closes what it inherited."""
    descriptors = [forks.open_tracked(str(tmp_path), os.O_RDONLY) for _ in range(3)]
    close, interrupts = forks._close_inherited, [KeyboardInterrupt()]

    def closed(descriptor: int) -> None:
        close(descriptor)
        if interrupts:
            raise interrupts.pop()

    monkeypatch.setattr(forks, "_close_inherited", closed)
    child = os.fork()
    if child == 0:
        os._exit(sum(os.path.lexists(f"/dev/fd/{descriptor}") for descriptor in descriptors))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for descriptor in descriptors:
        forks.close(descriptor)


INTERRUPTED = """
import _thread, os
os.register_at_fork(before=_thread.interrupt_main)  # The last before the fork: as if Ctrl-C came in it.
from noclobber.disk import forks
parent = os.getpid()
try:
    if os.fork() == 0:
        os._exit(0)
except KeyboardInterrupt:
    if os.getpid() != parent:
        os._exit(0)
    print("interrupted", len(forks._forking))
"""


def test_a_ctrl_c_during_a_fork_is_not_dropped() -> None:
    """Python drops what a hook raises; so no hook of ours may be where it comes out."""
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["interrupted 0"], done.stderr


STORM = """
import os, random, sys, threading
from noclobber import Workspace
root, threads, times = sys.argv[1], 4, 120
ws, refusals, children = Workspace(root), [], []
def work(name):
    chance = random.Random(name)
    try:
        for _ in range(times):
            with ws.turn(agent_id=name) as turn:
                turn.write_file(name, chance.randbytes(chance.choice((10, 70_000))))
                turn.read_file(name)
                turn.write_file(name, b"again")
    except BaseException as refusal:
        refusals.append(repr(refusal))
crowd = [threading.Thread(target=work, args=(str(number),)) for number in range(threads)]
reading, writing = os.pipe()
for thread in crowd:
    thread.start()
while alive := [thread for thread in crowd if thread.is_alive()]:
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)  # Lives until the end: what it holds, it holds for good.
        os._exit(0)
    children.append(child)
    alive[0].join(0.01)
os.close(writing)
for child in children:
    os.waitpid(child, 0)
ws.ledger.verify()
print(len(children), len(refusals), *refusals)
"""


@pytest.mark.slow
def test_threads_that_commit_while_the_program_forks_are_never_refused(tmp_path: Path) -> None:
    """N-fork: at any moment, with children that outlive it."""
    command = [sys.executable, "-W", "ignore", "-c", STORM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    forks_made, refused, *_ = done.stdout.split()
    assert int(forks_made) > 5, "nobody forked, so nothing was tested"
    assert int(refused) == 0, done.stdout


FIRST_CALL = """
import os, signal, sys, threading
import noclobber

held, what, root = sys.argv[1:]
for name in ("parent", "child"):
    os.mkdir(f"{root}/{name}")
is_there, is_forking = threading.Event(), threading.Event()

class HeldUp:
    def find_spec(self, name, path=None, target=None):
        if name == held and threading.current_thread() is not threading.main_thread():
            is_there.set()
            is_forking.wait(30)

def write(name):
    with noclobber.Workspace(root).turn() as turn:
        turn.write_file(f"{name}/file", b"x")

def lock(name):
    with noclobber.DeliverableLock(f"{root}/{name}", holder=name):
        pass

call = {"write": write, "lock": lock}[what]
sys.meta_path.insert(0, HeldUp())
thread = threading.Thread(target=call, args=("parent",))
thread.start()
if not is_there.wait(30):
    os._exit(3)
os.register_at_fork(before=is_forking.set)  # Called before those of the library.
child = os.fork()
if child == 0:
    signal.alarm(20)  # It hangs.
    call("child")
    os._exit(0)
thread.join()
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize(
    ("what", "module"),
    [
        ("write", "noclobber.guard.workspace"),
        ("write", "noclobber.disk.commit.committer"),
        ("write", "noclobber.ledger.ledger"),
        ("write", "ctypes"),
        ("write", "hashlib"),
        ("lock", "noclobber.lock.lock"),
        ("lock", "noclobber.ledger.ledger"),
    ],
)
def test_a_child_that_is_forked_during_the_first_call_can_make_its_own(
    what: str, module: str, tmp_path: Path
) -> None:
    """finding R9: in the child, the lock of a module that was being loaded would never be released."""
    command = [sys.executable, "-W", "ignore", "-c", FIRST_CALL, module, what, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_a_fork_that_ends_lets_nobody_in_while_another_one_is_under_way(tmp_path: Path) -> None:
    """finding R9: the end of one fork took back what the other had announced."""
    forks._forking.append(time.monotonic() + WAIT_S)  # Of another thread.
    try:
        assert in_a_child(tmp_path) == []
        assert len(forks._forking) == 1
    finally:
        forks._forking.clear()


LATER_CALLS = """
import os, sys
from noclobber import *
root = sys.argv[1]
os.chdir(root)
loaded = set(sys.modules)

def refused(call, *given, **options):
    try:
        call(*given, **options)
    except NoclobberError as error:
        return to_json(error)

open("noclobber.toml", "w").write("durable = true\\n")
os.mkdir("d")
for durable in (False, True):
    ws = Workspace(root, durable=durable)
    with ws.turn(agent_id="a") as turn:
        refused(turn.write_file, "new.txt", b"one")
        turn.write_file("d/new.txt", "two" * 200_000)
        turn.read_file("new.txt")
        turn.read_file("new.txt", start_line=1, end_line=1)
        turn.write_file("new.txt", b"one two")
        open("new.txt", "w").write("theirs")
        refused(turn.write_file, "new.txt", b"lost")
        refused(turn.edit_file, "new.txt", [Edit("theirs", "ours")])
        turn.read_file("new.txt")
        turn.edit_file("new.txt", [Edit("theirs", "ours")])
        refused(turn.edit_file, "new.txt", [Edit("absent", "ours")])
        turn.write_files({"new.txt": b"1", "d/other.txt": b"2"})
        turn.move_file("d/other.txt", "d/moved.txt")
        turn.delete_file("d/moved.txt")
        refused(turn.read_file, "../outside")
        refused(turn.read_file, "missing")
    ws.close()
lock = DeliverableLock("d", holder="h")
with lock:
    lock.assert_held()
    refused(DeliverableLock("d", holder="i").acquire)
    with Workspace(root).turn(agent_id="other") as turn:
        turn.read_file("d/new.txt")
        refused(turn.write_file, "d/new.txt", b"locked")
for ledger in (Workspace(root).ledger, AgentTraceLedger("agent_trace.jsonl")):
    ledger.verify()
    list(ledger.events())
refused(replace_if_unchanged, "new.txt", "0" * 64, b"x")
replace_if_unchanged("d/new.txt", None, b"x")
print(*sorted(set(sys.modules) - loaded))
"""


def test_no_call_imports_anything(tmp_path: Path) -> None:
    """finding R9: no import inside a commit or a lock; all of them come with the first name."""
    command = [sys.executable, "-c", LATER_CALLS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
