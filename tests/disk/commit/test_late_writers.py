"""Whoever writes to a version that is no longer at its name, or comes back to one that was: nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from noclobber.disk import filesystems, leases, steps
from noclobber.disk.commit import sweep
from noclobber.disk.commit.change_set import Change, commit_changes, delete
from noclobber.disk.commit.committer import Committer, replace_if_unchanged
from noclobber.disk.file_guard import FileGuard
from noclobber.errors import (
    ABSENT,
    FileBusyError,
    MetadataNotKeptError,
    NoclobberError,
    StaleFileError,
)
from tests.conftest import sha256

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


class Later:
    """A clock by which everything that is left over is old."""

    monotonic_s = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)
    now_s = staticmethod(lambda: time.time() + 3600)


@pytest.fixture(autouse=True)
def _no_observer() -> Iterator[None]:
    yield
    steps.observer = None


def at(step: str, act: Callable[[], object], nth: int = 1) -> None:
    count = 0

    def observe(reached: str) -> None:
        nonlocal count
        if reached == step:
            count += 1
            if count == nth:
                act()

    steps.observer = observe


def killed(work: Callable[[], object], step: str, nth: int = 1, before: Callable[[], object] = bool) -> None:
    """Run something in a child that is killed at a step."""
    child = os.fork()
    if child == 0:
        try:

            def die() -> None:
                before()
                os.kill(os.getpid(), signal.SIGKILL)

            at(step, die, nth)
            work()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9


def append(path: Path, data: bytes) -> None:
    with open(path, "ab", buffering=0) as file:
        file.write(data)


def everywhere(root: Path) -> bytes:
    return b"|".join(
        path.read_bytes() for path in root.rglob("*") if path.is_file() and "notes" not in path.parts
    )


def waiting_in_open(inode: int) -> bool:
    locks = Path("/proc/locks").read_text().splitlines()
    return any("BREAKING" in line and f":{inode} " in line for line in locks)


@pytest.mark.parametrize(("size", "is_checked"), [(100, True), (100, False), (100_000, True)])
def test_a_writer_that_waits_for_the_displaced_version_writes_before_the_mark_would_hide_it(
    root: Path, monkeypatch: pytest.MonkeyPatch, size: int, is_checked: bool
) -> None:
    """009-SC-001: it is let in when the lease ends; the mark has to be there by then."""
    path, old = root / "x", b"o" * size
    path.write_bytes(old)
    late = os.open(path, os.O_PATH)
    thread = threading.Thread(target=lambda: append(Path(f"/proc/self/fd/{late}"), b"PRECIOUS"))

    def come_late() -> None:
        thread.start()
        while not waiting_in_open(os.fstat(late).st_ino):
            os.sched_yield()

    at("settled", come_late)
    release = leases.release

    def release_and_let_them_write(descriptor: int) -> None:
        release(descriptor)
        if thread.is_alive():
            thread.join(0.05)

    monkeypatch.setattr(leases, "release", release_and_let_them_write)
    committer = Committer(str(root))
    committer.replace("x", sha256(old) if is_checked else None, b"new")
    thread.join()
    committer.sweep()
    assert b"PRECIOUS" in everywhere(root)
    os.close(late)


@pytest.mark.parametrize("expected", [sha256(b"o" * 100_000), None])
def test_without_leases_a_write_between_the_last_look_and_the_mark_is_kept(
    root: Path, expected: str | None
) -> None:
    """009-SC-001, level exchange: what outsiders lose is kept aside."""
    (root / "x").write_bytes(b"o" * 100_000)
    with open(root / "x", "ab", buffering=0) as writer:
        at("settled", lambda: writer.write(b"PRECIOUS"))
        committer = Committer(str(root), ceiling="exchange")
        committer.replace("x", expected, b"new")
    assert len(committer.sweep()) == 1
    assert b"PRECIOUS" in everywhere(root)


def test_without_leases_a_write_to_a_deletes_stand_in_is_kept(root: Path) -> None:
    """009-SC-001, level exchange."""
    (root / "x").write_bytes(b"old")
    at("settled", lambda: append(root / "x", b"PRECIOUS"))
    committer = Committer(str(root), ceiling="exchange")
    with_answer(lambda: delete(committer, "x", sha256(b"old")))
    committer.sweep()
    assert b"PRECIOUS" in everywhere(root)


def test_without_leases_a_write_to_a_file_that_is_created_and_taken_back_is_kept(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """009-SC-001, level exchange."""
    monkeypatch.setattr(leases, "SUPPORTED", False)
    (root / "a").write_bytes(b"old")

    def intrude() -> None:
        append(root / "created", b"PRECIOUS")
        (root / "a").write_bytes(b"editor")

    at("one-visible", intrude)
    committer = Committer(str(root))
    with pytest.raises(StaleFileError):
        commit_changes(committer, [Change("created", b"new", ABSENT), Change("a", b"new", sha256(b"old"))])
    committer.sweep()
    assert b"PRECIOUS" in everywhere(root)


def with_answer(act: Callable[[], object]) -> None:
    try:
        act()
    except NoclobberError:
        pass


def test_a_write_to_a_reused_version_whose_commit_is_refused_is_kept(root: Path) -> None:
    """009-SC-001: its writer looked the name up two versions ago."""
    path = root / "x"
    path.write_bytes(b"v0")
    late = os.open(path, os.O_PATH)
    committer = Committer(str(root), durable=True)
    committer.replace("x", sha256(b"v0"), b"v1")
    thread = threading.Thread(target=lambda: append(Path(f"/proc/self/fd/{late}"), b"PRECIOUS"))

    def come_late() -> None:
        thread.start()
        while not waiting_in_open(os.fstat(late).st_ino):
            os.sched_yield()
        path.write_bytes(b"editor")

    at("staged", come_late)
    with pytest.raises(StaleFileError):
        committer.replace("x", sha256(b"v1"), b"refused")
    thread.join()
    committer.sweep()
    assert b"editorPRECIOUS" in everywhere(root)
    os.close(late)


def test_an_opener_during_a_sweep_does_not_kill_the_process(root: Path) -> None:
    """N-leases: ending a lease forgets its signal, and the next one would come with SIGIO."""
    path = root / "a"
    path.write_bytes(b"old")
    late = os.open(path, os.O_PATH)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            committer = Committer(str(root))
            committer.replace("a", sha256(b"old"), b"new")
            real, thread = (
                sweep.is_unchanged,
                threading.Thread(target=lambda: append(Path(f"/proc/self/fd/{late}"), b"PRECIOUS")),
            )

            def look_slowly(name: str, descriptor: int, status: os.stat_result | None = None) -> bool:
                answer = real(name, descriptor, status)
                thread.start()
                while not waiting_in_open(os.fstat(late).st_ino):
                    os.sched_yield()
                return answer

            sweep.is_unchanged = look_slowly
            committer.sweep()
            thread.join()
            sweep.is_unchanged = real
            assert [Path(where).read_bytes() for _, where in committer.sweep()] == [b"oldPRECIOUS"]
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(late)


@pytest.mark.parametrize(
    "content",
    [
        b"S" + b"[" * 2900,
        b'S[["exchange",1,2,3,4,5,6]]',
        b'S[["exchange","/x","a\\u0000b",null,"n","swap-1",5]]',
        b'S[["exchange","/x","\\ud800",null,"n","swap-1",5]]',
        b'S[["exchange","/x","../a",null,"n","swap-1",5]]',
        b'S{"book":"fifo"}',
        b"M" + b"[" * 2900,
        b"Pswap-",
        b"\xff" * 100,
    ],
    ids=["deep", "types", "nul", "surrogate", "path", "fifo", "deep leader", "all", "garbage"],
)
def test_a_note_that_somebody_else_wrote_closes_no_folder_and_removes_nothing(
    root: Path, content: bytes
) -> None:
    """N-hostile: whatever it says, the next commit goes through, and does not hang."""
    committer = Committer(str(root))
    committer.replace("a", ABSENT, b"v0")
    committer.replace("a", None, b"v1")
    append(next((root / ".noclobber/swap").iterdir()), b"PRECIOUS")
    notes = root / ".noclobber/notes"
    os.mkfifo(notes / "fifo")
    note = next(each for each in notes.iterdir() if each.name != "fifo")
    at_record = 1 if content[:1] == b"P" else 1024
    page = bytearray(4096)
    page[0:1] = content[:1]
    page[at_record : at_record + len(content)] = content[1:] + b"\n"
    note.write_bytes(bytes(page))
    Committer(str(root)).replace("a", sha256(b"v1"), b"v2")
    assert (root / "a").read_bytes() == b"v2"
    assert b"v0PRECIOUS" in everywhere(root)


# After a crash.


def test_a_late_write_to_a_version_that_a_landed_commit_displaced_is_kept(root: Path) -> None:
    """N-many: killed after the commit point; the write came before the next call."""
    for name in "ab":
        (root / name).write_bytes(b"old")
    changes = [Change(name, b"new", sha256(b"old")) for name in "ab"]
    killed(lambda: commit_changes(Committer(str(root)), changes), "decided")
    append(next((root / ".noclobber/swap").glob("*~a")), b"PRECIOUS")
    committer = Committer(str(root))
    committer.replace("probe", ABSENT, b"1")
    committer.sweep()
    assert b"oldPRECIOUS" in everywhere(root)
    assert (root / "a").read_bytes() == (root / "b").read_bytes() == b"new"


@pytest.mark.parametrize("in_workspace", [False, True])
def test_a_commit_of_several_folders_is_recovered_from_any_of_them_an_hour_later(
    root: Path, in_workspace: bool
) -> None:
    """N-many: what it displaced is nobody's orphan, as long as one note speaks of it."""
    for name in ("a", "b"):
        (root / name).mkdir()
        (root / name / "x").write_bytes(b"old")
    where = str(root) if in_workspace else None
    changes = [Change(str(root / name / "x"), b"new", sha256(b"old")) for name in ("a", "b")]
    killed(lambda: commit_changes(Committer(where), changes), "one-visible", 2)
    Committer(where, clock=Later()).replace(root / "b" / "other", ABSENT, b"1")
    assert (root / "a" / "x").read_bytes() == (root / "b" / "x").read_bytes()


def test_a_killed_rewrite_in_place_that_had_only_made_room_is_undone(root: Path) -> None:
    """009-SC-001: the old bytes, and behind them zeros."""
    (root / "a").write_bytes(b"old")
    os.link(root / "a", root / "a2")
    killed(lambda: Committer(str(root)).replace("a", sha256(b"old"), b"much longer"), "inplace-begin")
    assert (root / "a").read_bytes() != b"old"
    Committer(str(root)).replace("probe", ABSENT, b"1")
    assert (root / "a").read_bytes() == (root / "a2").read_bytes() == b"old"


def test_a_save_over_a_created_file_that_a_killed_agent_was_taking_back_comes_back(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-many: it had moved somebody's file off the name; and the folder must not be closed for ever."""
    (root / "a").write_bytes(b"old")

    def intrude() -> None:
        (root / "e").write_bytes(b"PRECIOUS")
        os.replace(root / "e", root / "created")
        (root / "e").write_bytes(b"editor")
        os.replace(root / "e", root / "a")
        real = os.stat

        def die_when_looking(path: object, **more: object) -> os.stat_result:
            if "None~created" in str(path):
                os.kill(os.getpid(), signal.SIGKILL)
            return real(path, **more)  # type: ignore[arg-type]

        os.stat = die_when_looking

    child = os.fork()
    if child == 0:
        try:
            at("one-visible", intrude)
            changes = [Change("created", b"new", ABSENT), Change("a", b"new", sha256(b"old"))]
            commit_changes(Committer(str(root)), changes)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9
    assert not (root / "created").exists()
    committer = Committer(str(root))
    committer.replace("probe", ABSENT, b"1")
    committer.sweep()
    assert (root / "created").read_bytes() == b"PRECIOUS"
    assert (root / "a").read_bytes() == b"editor"


def test_a_recovery_cut_off_after_the_sweep_took_what_it_handed_over_finds_it_landed(root: Path) -> None:
    """N-many: ours stands and nothing is displaced any more: then that file's part was over."""
    for name in "ab":
        (root / name).write_bytes(b"old")
    changes = [Change(name, b"new", sha256(b"old")) for name in "ab"]
    killed(lambda: commit_changes(Committer(str(root)), changes), "one-visible", 2)
    next((root / ".noclobber/swap").glob("*~a")).unlink()
    Committer(str(root)).replace("probe", ABSENT, b"1")
    assert (root / "a").read_bytes() == (root / "b").read_bytes() == b"new"


def test_a_child_forked_in_the_middle_of_a_commit_does_not_keep_the_folder_when_its_parent_dies(
    root: Path,
) -> None:
    """N-fork: also without a workspace, where our files are beside the target."""
    (root / "a").write_bytes(b"old")
    reading, writing = os.pipe()

    def fork_and_leave_a_child() -> None:
        if os.fork() == 0:
            os.close(writing)
            os.read(reading, 1)  # Until the test lets go.
            os._exit(0)

    killed(
        lambda: replace_if_unchanged(root / "a", sha256(b"old"), b"new"),
        "staged",
        before=fork_and_leave_a_child,
    )
    Committer(None, mutex_wait_s=1.0).replace(root / "a", sha256(b"old"), b"next")
    assert (root / "a").read_bytes() == b"next"
    os.close(writing)
    os.close(reading)


def test_a_folder_that_root_has_written_in_once_is_not_closed_to_its_owner(root: Path, is_root: bool) -> None:
    """N-access: the note is the owner's, whoever makes it."""
    if not is_root:
        pytest.skip("needs root, to be somebody else")
    Committer(str(root)).replace("a", ABSENT, b"v0")
    for each in [root, *root.rglob("*")]:
        os.chown(each, 65534, 65534)
    (root / "sub").mkdir()
    Committer(str(root)).replace("sub/b", ABSENT, b"v0")
    assert {each.stat().st_uid for each in (root / ".noclobber/notes").iterdir()} == {65534}


@pytest.mark.parametrize("what", ["file", "link", "folder"])
@pytest.mark.parametrize("is_covered", [False, True])
def test_a_save_that_a_killed_agent_displaced_is_kept_besides_being_put_back(
    root: Path, what: str, is_covered: bool
) -> None:
    """009-SC-001: the agent's version was in view; who read it saves over what comes back, unseen."""
    path = root / "a"
    path.write_bytes(b"v0")
    (root / "elsewhere").write_bytes(b"PRECIOUS")

    def save() -> None:
        new = root / "new"
        if what == "file":
            new.write_bytes(b"PRECIOUS")
        elif what == "link":
            new.symlink_to("elsewhere")
        else:
            new.mkdir()
            (new / "index").write_bytes(b"PRECIOUS")
            path.unlink()
        os.rename(new, path)

    child = os.fork()
    if child == 0:
        try:

            def observe(step: str) -> None:
                if step == "before-exchange":
                    save()
                if step == "exchanged":
                    os.kill(os.getpid(), signal.SIGKILL)

            steps.observer = observe
            Committer(str(root)).replace("a", sha256(b"v0"), b"agent")
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9
    assert path.read_bytes() == b"agent"
    if is_covered:
        (root / "new").write_bytes(b"on top of agent")
        os.rename(root / "new", path)
    committer = Committer(str(root))
    [recovered] = committer.replace("probe", ABSENT, b"1").recovered
    (root / "elsewhere").unlink()
    kept = Path(recovered.kept)
    assert (kept / "index" if what == "folder" else kept).read_bytes() == b"PRECIOUS"
    committer.sweep()
    assert list((root / ".noclobber/swap").iterdir()) == []


# Reports.


def test_what_is_kept_is_reported_once_whichever_thread_asks(root: Path) -> None:
    """009-SC-001: neither doubled nor dropped."""
    committer = Committer(str(root))
    committer.report_later("a", ["FIRST"])
    assert committer.sweep() == [("a", "FIRST")]
    committer.report_later("a", ["SECOND"])
    assert committer.replace("b", ABSENT, b"x").kept == ("SECOND",)
    assert committer.sweep() == []


def test_what_is_kept_without_a_workspace_is_reported_by_the_next_write_that_lands(root: Path) -> None:
    """009-SC-001: the one between is refused, and says nothing of it."""
    path = root / "a"
    path.write_bytes(b"v0")
    late = os.open(path, os.O_PATH)
    replace_if_unchanged(path, sha256(b"v0"), b"v1")
    append(Path(f"/proc/self/fd/{late}"), b"PRECIOUS")
    with pytest.raises(StaleFileError):
        replace_if_unchanged(path, sha256(b"wrong"), b"v2")
    kept = replace_if_unchanged(path, sha256(b"v1"), b"v2").kept
    assert [Path(where).read_bytes() for where in kept] == [b"v0PRECIOUS"]
    os.close(late)


def test_a_note_that_names_everything_removes_nothing(root: Path) -> None:
    """N-hostile: a prefix has a token in it."""
    committer = Committer(str(root))
    committer.replace("a", ABSENT, b"v0")
    committer.replace("a", None, b"v1")
    swap = root / ".noclobber/swap"
    assert len(list(swap.iterdir())) == 1
    store = committer.store_if_open
    assert store is not None
    for prefix in ("", "swap-", "swap-00", "../swap-000000000000"):
        store.remove_swaps(prefix)
    assert len(list(swap.iterdir())) == 1


# finding R8: a guard that is stopped for longer than the kernel keeps others waiting for its lease.

LARGE = 600_000  # Copied in three parts.


def end_leases_on(path: Path) -> None:
    """What the kernel does by force: it takes our lease away, and says nothing."""
    inode = path.stat().st_ino
    for number in os.listdir("/proc/self/fd"):
        try:
            if os.stat(f"/proc/self/fd/{number}").st_ino == inode:
                leases.release(int(number))
        except OSError:
            continue


def save_in_place(path: Path, data: bytes) -> None:
    end_leases_on(path)
    path.write_bytes(data)


@pytest.fixture
def stopped_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """By this, whatever our lease has hidden so far was hidden for too long."""
    monkeypatch.setattr(leases, "break_time_s", lambda: leases.BREAK_MARGIN_S)


@pytest.mark.usefixtures("stopped_for_long")
@pytest.mark.parametrize(
    ("step", "nth"), [("restoring", 1), ("set-ours-aside", 1), ("copying", 1), ("copying", 2), ("copying", 3)]
)
def test_a_guard_that_was_stopped_does_not_restore_over_a_save(root: Path, step: str, nth: int) -> None:
    """finding R8: its lease is over, and what is at the name by now is somebody else's."""
    path, old, first, second = root / "x", b"o" * LARGE, b"1" * LARGE, b"THE SAVE OF LATER"
    path.write_bytes(old)
    (root / "first").write_bytes(first)
    counts = {"before-exchange": 0, step: 0}

    def observe(reached: str) -> None:
        if reached in counts:
            counts[reached] += 1
            if reached == "before-exchange" and counts[reached] == 1:
                os.replace(root / "first", path)  # This is what will have to be restored.
            elif reached == step and counts[reached] == nth:
                save_in_place(path, second)

    steps.observer = observe
    committer = Committer(str(root))
    with pytest.raises(StaleFileError):
        committer.replace("x", sha256(old), b"n" * LARGE)
    assert counts[step] >= nth
    assert path.read_bytes() == second
    steps.observer = None
    committer.sweep()
    assert first in everywhere(root)


@pytest.mark.usefixtures("stopped_for_long")
def test_a_restore_that_others_have_seen_a_half_of_is_completed(root: Path) -> None:
    """finding R8: nobody has saved, so the half of ours and the half of theirs are not left at the name."""
    path, old, first = root / "x", b"o" * LARGE, b"1" * LARGE
    path.write_bytes(old)
    (root / "first").write_bytes(first)
    seen: list[str] = []

    def observe(reached: str) -> None:
        if reached == "before-exchange" and (root / "first").exists():
            os.replace(root / "first", path)
        elif reached == "copying" and len(seen) < 2:
            seen.append(reached)
            if len(seen) == 2:
                end_leases_on(path)

    steps.observer = observe
    committer = Committer(str(root))
    with pytest.raises(StaleFileError):
        committer.replace("x", sha256(old), b"n" * LARGE)
    assert len(seen) == 2
    assert path.read_bytes() == first


@pytest.mark.usefixtures("stopped_for_long")
@pytest.mark.parametrize(("step", "nth"), [("inplace-begin", 1), ("copying", 2), ("inplace-written", 1)])
def test_a_guard_that_was_stopped_does_not_write_in_place_over_a_save(
    root: Path, step: str, nth: int
) -> None:
    """finding R8: the same for a file with two names, which is rewritten where it is."""
    path, old, saved = root / "x", b"o" * LARGE, b"THE SAVE OF LATER"
    path.write_bytes(old)
    os.link(path, root / "other name")
    at(step, lambda: save_in_place(path, saved), nth)
    committer = Committer(str(root))
    with pytest.raises(FileBusyError, match="stopped"):
        committer.replace("x", sha256(old), b"n" * LARGE)
    assert path.read_bytes() == saved
    steps.observer = None
    with pytest.raises(StaleFileError):  # It recovers first.
        committer.replace("x", sha256(old), b"again")
    assert path.read_bytes() == saved
    assert old in everywhere(root), "what the rewrite had begun to destroy is kept"


STOPPED = """
import os, signal, sys
from noclobber.disk import steps
from noclobber.disk.commit.committer import Committer
root, step = sys.argv[1:]
os.chdir(root)
def observe(reached):
    if reached == "before-exchange" and os.path.exists("first"):
        os.replace("first", "x")
    if reached == step:
        os.kill(os.getpid(), signal.SIGSTOP)
steps.observer = observe
Committer(root).replace("x", sys.stdin.read(), b"n" * 1000)
"""


@pytest.mark.slow
def test_a_guard_that_is_really_stopped_does_not_write_over_a_save(root: Path) -> None:
    """finding R8: with SIGSTOP, for as long as the kernel makes others wait (45 s)."""
    limit_s = leases.break_time_s()
    if limit_s is None or limit_s > 60:
        pytest.skip("this kernel makes others wait for ever")
    guards, savers = {}, []
    for step in ("conflict", "set-ours-aside", "inplace-begin"):
        (root / step).mkdir()
        path = root / step / "x"
        path.write_bytes(b"old")
        if step == "inplace-begin":
            os.link(path, root / step / "other name")
        else:
            (root / step / "first").write_bytes(b"FIRST SAVE")
        command = [sys.executable, "-c", STOPPED, str(root / step), step]
        guards[step] = process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdin
        process.stdin.write(sha256(b"old").encode())
        process.stdin.close()
        assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
        savers.append(threading.Thread(target=path.write_bytes, args=(b"SECOND SAVE",)))
        savers[-1].start()
    try:
        for saver in savers:
            saver.join(limit_s + 60)  # The kernel lets them in.
            assert not saver.is_alive()
    finally:
        for process in guards.values():
            process.send_signal(signal.SIGCONT)
    for step, process in guards.items():
        assert process.stderr
        assert (b"FileBusyError" if step == "inplace-begin" else b"StaleFileError") in process.stderr.read()
        process.stderr.close()
        process.wait()
        assert (root / step / "x").read_bytes() == b"SECOND SAVE"
        lost = b"old" if step == "inplace-begin" else b"FIRST SAVE"
        assert lost in everywhere(root / step)


# At `plain`: the rename would delete the old file.


def _when_linked(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Act between the final check and the rename: right after the old file got its second name."""
    link = os.link

    def link_and_act(*words: Any, **options: Any) -> None:
        link(*words, **options)
        monkeypatch.setattr(os, "link", link)
        act()

    monkeypatch.setattr(os, "link", link_and_act)


def test_at_plain_what_an_open_file_is_given_later_is_kept(root: Path) -> None:
    """finding R3: the rename deleted it with its last name."""
    (root / "f").write_bytes(b"before")
    guard = FileGuard(root, ceiling="plain")
    with open(root / "f", "r+b", buffering=0) as theirs:
        assert guard.write("f", b"after", expected=sha256(b"before")).level == "plain"
        theirs.write(b"theirs")
    (kept,) = guard.sweep()
    assert Path(kept).read_bytes() == b"theirs"
    assert (root / "f").read_bytes() == b"after"
    assert guard.write("f", b"more", expected=sha256(b"after")).level == "plain"
    assert guard.sweep() == []
    assert list((root / ".noclobber" / "swap").iterdir()) == []


def test_at_plain_a_save_in_place_after_the_final_check_is_kept(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding R3: it was lost."""
    (root / "f").write_bytes(b"before")
    _when_linked(monkeypatch, lambda: (root / "f").write_bytes(b"theirs"))
    guard = FileGuard(root, ceiling="plain")
    guard.write("f", b"after", expected=sha256(b"before"))
    (kept,) = guard.sweep()
    assert Path(kept).read_bytes() == b"theirs"


def test_at_plain_a_file_that_is_put_in_place_meanwhile_is_verified_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding R3: refused, with nothing left behind."""
    (root / "f").write_bytes(b"before")
    (root / "theirs").write_bytes(b"theirs")
    _when_linked(monkeypatch, lambda: (root / "theirs").rename(root / "f"))
    guard = FileGuard(root, ceiling="plain")
    with pytest.raises(StaleFileError):
        guard.write("f", b"after", expected=sha256(b"before"))
    assert (root / "f").read_bytes() == b"theirs"
    assert guard.sweep() == []
    assert list((root / ".noclobber" / "swap").iterdir()) == []


def test_at_plain_a_filesystem_without_links_is_written_as_well(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding R3: then nothing can be kept, and the level says so."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    (root / "f").write_bytes(b"before")
    monkeypatch.setattr(os, "link", refuse)
    assert FileGuard(root, ceiling="plain").write("f", b"after", expected=sha256(b"before")).level == "plain"
    assert (root / "f").read_bytes() == b"after"


def test_a_guard_killed_with_a_second_name_leaves_no_hard_link(root: Path) -> None:
    """finding R3: the next write would be refused for it."""
    (root / "f").write_bytes(b"before")
    child = os.fork()
    if child == 0:
        os.rename = lambda *_, **__: os.kill(os.getpid(), 9)
        FileGuard(root, ceiling="plain").write("f", b"after", expected=sha256(b"before"))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == 9
    assert (root / "f").stat().st_nlink == 2
    assert FileGuard(root, ceiling="plain").write("f", b"after", expected=sha256(b"before")).level == "plain"
    assert (root / "f").stat().st_nlink == 1


def test_a_second_name_that_a_power_cut_left_is_no_hard_link(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding R3, N-power: its note is gone, and where leases are blind hard links are refused."""
    (root / "f").write_bytes(b"before")
    guard = FileGuard(root, ceiling="plain")
    guard.write("other", b"", expected=None)
    left = root / ".noclobber" / "swap" / f"swap-{'0' * 12}01-{sha256(b'before')}~f"
    left.hardlink_to(root / "f")
    monkeypatch.setattr(filesystems, "kind_of", lambda _: "fuse")
    assert guard.write("f", b"after", expected=sha256(b"before")).level == "plain"
    assert not left.exists()
    (root / "second").hardlink_to(root / "f")
    with pytest.raises(MetadataNotKeptError):
        guard.write("f", b"again", expected=sha256(b"after"))


def test_at_plain_a_delete_does_not_take_what_was_put_in_place_meanwhile(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding R3: unlinking the name deleted it."""
    (root / "f").write_bytes(b"before")
    (root / "theirs").write_bytes(b"theirs")
    rename = os.rename

    def replaced_first(*words: Any, **options: Any) -> None:
        monkeypatch.setattr(os, "rename", rename)
        rename(root / "theirs", root / "f")
        rename(*words, **options)

    guard = FileGuard(root, ceiling="plain")
    monkeypatch.setattr(os, "rename", replaced_first)
    with pytest.raises(StaleFileError) as refused:
        guard.delete("f", expected=sha256(b"before"))
    assert refused.value.actual == sha256(b"theirs")
    assert (root / "f").read_bytes() == b"theirs"
    with open(root / "f", "r+b", buffering=0) as late:
        assert guard.delete("f", expected=sha256(b"theirs")).level == "plain"
        late.write(b"LATE")
    (kept,) = guard.sweep()
    assert Path(kept).read_bytes() == b"LATErs"
    assert not (root / "f").exists()


def test_a_reader_of_the_old_version_who_opens_it_again_for_writing_loses_nothing(root: Path) -> None:
    """011-SC-002: the sweep deleted the file, because nobody had it open for writing."""
    if not leases.SUPPORTED:
        pytest.skip("needs file leases")
    (root / "f").write_bytes(b"before")
    guard = FileGuard(root)
    with open(root / "f", "rb") as theirs:
        guard.write("f", b"after", expected=sha256(b"before"))
        assert guard.sweep() == []
        with open(f"/proc/self/fd/{theirs.fileno()}", "r+b", buffering=0) as again:
            again.write(b"theirs")
        assert guard.sweep() == []
    (kept,) = guard.sweep()
    assert Path(kept).read_bytes() == b"theirs"
