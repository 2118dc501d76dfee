"""A commit of thousands of files in hundreds of folders: the same promises as for two, or a clear refusal."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from noclobber.disk import leases, paths, steps
from noclobber.disk.commit.change_set import Change, commit_changes
from noclobber.disk.commit.committer import Committer
from noclobber.errors import FileBusyError, NoclobberError, StaleFileError, StorageError
from tests.conftest import sha256

FOLDERS = 60
NAMES = [f"{number:02x}/file" for number in range(FOLDERS)]
WAIT_S = 60


@pytest.fixture(autouse=True)
def _no_observer() -> Iterator[None]:
    yield
    steps.observer = None


@pytest.fixture
def tree(root: Path) -> Path:
    """A workspace with a file in each of many folders."""
    for name in NAMES:
        (root / name).parent.mkdir()
        (root / name).write_bytes(b"old")
    return root


def contents(root: Path) -> set[bytes]:
    return {(root / name).read_bytes() for name in NAMES}


def changes(new: bytes = b"new", old: bytes = b"old") -> list[Change]:
    return [Change(name, new, sha256(old)) for name in NAMES]


def at(step: str, nth: int, act: Callable[[], object]) -> None:
    count = 0

    def observe(reached: str) -> None:
        nonlocal count
        if reached == step:
            count += 1
            if count == nth:
                act()

    steps.observer = observe


def swept(root: Path, committer: Committer) -> bool:
    committer.sweep()
    return left_over(root) == []


def left_over(root: Path) -> list[str]:
    """What is in the swap folder, and notes in use."""
    state = root / ".noclobber"
    in_use = [note.name for note in (state / "notes").iterdir() if note.read_bytes()[:1] not in (b"-", b"\0")]
    return [*os.listdir(state / "swap"), *in_use]


THOUSANDS = """
import os, resource, sys
root, files, folders, soft, hard = sys.argv[1], *map(int, sys.argv[2:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
from noclobber import BadRequestError, StaleFileError, Workspace
names = [f"{number % folders:x}/{number:x}" for number in range(files)]
ws = Workspace(root)
try:
    with ws.turn() as turn:
        turn.write_files({name: b"1" for name in names})
    with ws.turn() as turn:
        for name in names:
            turn.read_file(name)
        turn.write_files({name: b"2" for name in names})
        open(f"{root}/{names[-2]}", "wb").write(b"theirs")
        try:
            turn.write_files({name: b"3" for name in names})
        except StaleFileError:
            print(sorted({open(f"{root}/{name}").read() for name in names}))
except BadRequestError as refused:
    print("refused", refused.details["most"], [name for name in os.listdir(root) if name != ".noclobber"])
"""


def thousands(root: Path, files: int, folders: int, soft: int, hard: int) -> str:
    numbers = [str(number) for number in (files, folders, soft, hard)]
    command = [sys.executable, "-c", THOUSANDS, str(root), *numbers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=220, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _hard_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_thousands_of_files_in_hundreds_of_folders_land_or_none_does(root: Path) -> None:
    """finding R6: 5 000 files in 500 folders with the promise of two; the limit is raised."""
    if 0 <= _hard_limit() < 12_000:
        pytest.skip("the limit of open files cannot be raised that far here")
    assert thousands(root, 5000, 500, 256, _hard_limit()) == "['2', 'theirs']\n"


@pytest.mark.parametrize(("files", "most"), [(2000, 10), (100, 10), (100_000, 20_000)])
def test_more_files_than_can_be_open_are_refused_before_anything_happens(
    root: Path, files: int, most: int
) -> None:
    """finding R6: there is no weaker promise for many files. The answer says how many are possible."""
    if files > 50_000:
        told = thousands(root, files, 500, 256, _hard_limit())
    else:
        told = thousands(root, files, 5, 256, 256)
    word, number, left = told.split(" ", 2)
    assert (word, left) == ("refused", "[]\n")
    assert most <= int(number) <= max(25, most)


def test_a_process_with_few_open_files_allowed_raises_its_limit(root: Path) -> None:
    """finding R6: 200 files were the most, and with a limit of 256 open files not even those."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    names = [f"{number}" for number in range(250)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 220, hard))
    try:
        for count in (100, 250):
            commit_changes(Committer(str(root)), [Change(name, b"1", None) for name in names[:count]])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert {(root / name).read_bytes() for name in names} == {b"1"}


def test_new_and_old_files_land_together(tree: Path) -> None:
    """finding R6: with their hashes, and nothing is left over."""
    new = [Change(f"{name}.new", b"created", "ABSENT") for name in NAMES]
    committer = Committer(str(tree))
    results = commit_changes(committer, [*changes(), *new])
    assert [result.sha256 for result in results] == [sha256(b"new")] * FOLDERS + [
        sha256(b"created")
    ] * FOLDERS
    assert {result.previous_sha256 for result in results[:FOLDERS]} == {sha256(b"old")}
    assert contents(tree) == {b"new"}
    assert swept(tree, committer)


@pytest.mark.parametrize("when", ["before", "while it is staged", "after the first exchanges"])
def test_one_that_changed_takes_all_back(tree: Path, when: str) -> None:
    """finding R6: all or none, and the save stays."""
    victim = tree / NAMES[-3]
    if when == "before":
        victim.write_bytes(b"theirs")
    elif when == "while it is staged":
        at("noted", 1, lambda: os.replace(_written(tree / "tmp", b"theirs"), victim))
    else:
        at("one-visible", 5, lambda: os.replace(_written(tree / "tmp", b"theirs"), victim))
    (tree / "00/other").write_bytes(b"")
    before = (tree / NAMES[0]).stat().st_mtime_ns
    committer = Committer(str(tree))
    with pytest.raises(StaleFileError) as refused:
        commit_changes(committer, [*changes(), Change("00/created", b"x", "ABSENT")])
    assert refused.value.path == str(victim)
    assert victim.read_bytes() == b"theirs"
    assert contents(tree) == {b"old", b"theirs"}
    assert not (tree / "00/created").exists()
    assert (tree / NAMES[0]).stat().st_mtime_ns == before
    assert swept(tree, committer)


@pytest.mark.skipif(not leases.SUPPORTED, reason="leases hide a version until it is committed")
def test_nobody_sees_a_version_of_a_commit_that_is_refused_in_the_end(tree: Path) -> None:
    """finding R6: the commit of many files showed new versions before the last one was verified."""
    seen: list[bytes] = []
    victim = tree / NAMES[-1]

    def read_and_save() -> None:
        readers.append(threading.Thread(target=lambda: seen.append((tree / NAMES[0]).read_bytes())))
        readers[0].start()
        os.replace(_written(tree / "tmp", b"theirs"), victim)

    readers: list[threading.Thread] = []
    at("one-visible", 5, read_and_save)
    with pytest.raises(StaleFileError):
        commit_changes(Committer(str(tree)), changes())
    readers[0].join(WAIT_S)
    assert seen == [b"old"]
    assert contents(tree) == {b"old", b"theirs"}


KILLED = """
import os, resource, signal, sys
from noclobber.disk import steps
from noclobber.disk.commit.change_set import Change, commit_changes
from noclobber.disk.commit.committer import Committer
root, step, nth, how, expected, *names = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_NOFILE, (128, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
count = 0
def observe(reached):
    global count
    if reached == step:
        count += 1
        if count == int(nth):
            os.kill(os.getpid(), getattr(signal, how))
steps.observer = observe
commit_changes(Committer(root), [Change(name, b"new", expected) for name in names])
"""


def crash(root: Path, step: str, nth: int, how: str = "SIGKILL") -> subprocess.Popen[bytes]:
    """Have another process commit, and die or stop at a step."""
    command = [sys.executable, "-c", KILLED, str(root), step, str(nth), how, sha256(b"old"), *NAMES]
    process = subprocess.Popen(command)
    if how == "SIGSTOP":
        assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
    else:
        assert process.wait() == -signal.SIGKILL
    return process


MOMENTS = [
    ("staging", 1, b"old"),
    ("staged", FOLDERS, b"old"),
    ("noted", 1, b"old"),
    ("exchanged", 1, b"old"),
    ("one-visible", 1, b"old"),
    ("exchanged", FOLDERS // 2, b"old"),
    ("one-visible", FOLDERS - 1, b"old"),
    ("exchanged", FOLDERS, b"new"),
    ("one-visible", FOLDERS, b"new"),
    ("all-visible", 1, b"new"),
    ("decided", 1, b"new"),
]


@pytest.mark.parametrize(("step", "nth", "expected"), MOMENTS)
def test_after_a_kill_all_or_none_are_there(tree: Path, step: str, nth: int, expected: bytes) -> None:
    """finding R6, N-many: the next call in any of the folders finishes it, with few descriptors."""
    crash(tree, step, nth)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 100, hard))
    try:
        committer = Committer(str(tree))
        committer.replace(f"{NAMES[FOLDERS // 3]}.new", "ABSENT", b"")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert contents(tree) == {expected}
    for name in NAMES:  # Each folder can be used, and no note sends anybody anywhere any more.
        committer.replace(name, sha256(expected), b"next")
    assert contents(tree) == {b"next"}


@pytest.mark.parametrize("nth", [3, FOLDERS - 1])
def test_a_kill_in_the_recovery_is_recovered_from(tree: Path, nth: int) -> None:
    """finding R6, N-many: recovery can be cut off anywhere, and goes on from there."""
    crash(tree, "one-visible", nth)
    child = os.fork()
    if child == 0:
        at("put-back", 2, lambda: os.kill(os.getpid(), signal.SIGKILL))
        try:
            Committer(str(tree)).replace(NAMES[0], sha256(b"old"), b"x")
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    with pytest.raises(StaleFileError):
        Committer(str(tree)).replace(NAMES[-1], "0" * 64, b"x")
    assert contents(tree) == {b"old"}


def test_what_is_saved_after_a_kill_stays(tree: Path) -> None:
    """finding R6, finding R4: recovery gives up what is no longer its own."""
    crash(tree, "one-visible", 5)
    saved = next(tree / name for name in NAMES if (tree / name).read_bytes() == b"new")
    os.replace(_written(tree / "tmp", b"a person's"), saved)
    with pytest.raises(StaleFileError):
        Committer(str(tree)).replace(NAMES[-1], "0" * 64, b"x")
    assert saved.read_bytes() == b"a person's"
    assert contents(tree) == {b"old", b"a person's"}


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_others_wait_for_it_in_every_folder(tree: Path) -> None:
    """finding R6: every mutex is held, and keeps the others out."""
    process = crash(tree, "one-visible", FOLDERS // 2, how="SIGSTOP")
    impatient = Committer(str(tree), mutex_wait_s=0.05)
    try:
        for name in (NAMES[0], NAMES[FOLDERS // 2], NAMES[-1]):
            with pytest.raises(FileBusyError):
                impatient.replace(f"{name}.other", "ABSENT", b"x")
            with pytest.raises(FileBusyError):
                commit_changes(
                    impatient, [Change(f"{name}.other", b"x", None), Change("unrelated", b"x", None)]
                )
            with pytest.raises(FileBusyError):
                commit_changes(impatient, changes(b"second"))
        assert not (tree / "unrelated").exists()
        impatient.replace("elsewhere", "ABSENT", b"x")
    finally:
        process.send_signal(signal.SIGCONT)
        process.wait()
    assert contents(tree) == {b"new"}
    impatient.replace(f"{NAMES[0]}.other", "ABSENT", b"x")


def test_a_leader_that_cannot_be_looked_for_is_not_gone(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """finding R6: out of descriptors, a process must not take a commit under way for one that is over."""
    process = crash(tree, "one-visible", FOLDERS // 2, how="SIGSTOP")

    def no_more(*_: object) -> int:
        raise OSError(24, "Too many open files")

    try:
        with monkeypatch.context() as patch:
            patch.setattr(paths, "open_below", no_more)
            with pytest.raises((StorageError, FileBusyError)):
                Committer(str(tree), mutex_wait_s=0.05).replace(NAMES[0], None, b"x")
            with pytest.raises((StorageError, FileBusyError)):
                Committer(str(tree), mutex_wait_s=0.05).replace(NAMES[-1], None, b"x")
    finally:
        process.send_signal(signal.SIGCONT)
        process.wait()
    assert contents(tree) == {b"new"}


def test_large_and_small_commits_at_once_neither_deadlock_nor_lose(tree: Path) -> None:
    """finding R6, N-threads: each takes the mutexes in its own way; who waits holds nothing that others need."""
    landed: list[tuple[int, int]] = []
    troubles: list[BaseException] = []
    rounds = 6

    def many_times(number: int) -> None:
        committer = Committer(str(tree), mutex_wait_s=WAIT_S)
        names = NAMES if number < 2 else NAMES[number :: number + 1][:20]
        if number % 2:
            names = names[::-1]
        for turn in range(rounds):
            try:
                commit_changes(committer, [Change(name, b"%d-%d" % (number, turn), None) for name in names])
                landed.append((number, turn))
            except FileBusyError:
                pass
            except BaseException as error:
                troubles.append(error)

    threads = [threading.Thread(target=many_times, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert troubles == []
    assert len(landed) >= rounds
    Committer(str(tree)).replace("end", "ABSENT", b"")
    # The last one to write a file wrote its whole set after every other that shares a file with it, or not at all.
    assert all(b"-" in data for data in contents(tree) if data != b"old")
    committer = Committer(str(tree))
    committer.sweep()
    assert [name for name in left_over(tree) if not name.startswith("swap-")] == []


def test_many_folders_outside_a_workspace_are_committed_together(tmp_path: Path) -> None:
    """finding R6: such a commit was refused, because its record could name no folder."""
    folders = [tmp_path / f"{number}" for number in range(FOLDERS)]
    for folder in folders:
        folder.mkdir()
    commit_changes(Committer(None), [Change(f"{folder}/a", b"x", "ABSENT") for folder in folders])
    assert {(folder / "a").read_bytes() for folder in folders} == {b"x"}


def test_a_note_of_a_dead_process_is_finished_first(tree: Path) -> None:
    """finding R6: a folder in which a commit was cut off is recovered, and then the commit goes on."""
    child = os.fork()
    if child == 0:
        at("exchanged", 1, lambda: os.kill(os.getpid(), signal.SIGKILL))
        Committer(str(tree)).replace(NAMES[7], sha256(b"old"), b"half")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    with pytest.raises(StaleFileError) as refused:
        commit_changes(Committer(str(tree)), changes())
    assert refused.value.path.endswith(NAMES[7])
    assert contents(tree) == {b"old", b"half"}


@pytest.mark.skipif(not leases.SUPPORTED, reason="an interrupt in the middle of what leases protect")
@pytest.mark.parametrize("step", ["staged", "noted", "exchanged", "one-visible"])
def test_an_error_out_of_nowhere_takes_all_back(tree: Path, step: str) -> None:
    """finding R6, N-faults: the same as a crash, while the mutex is still held."""

    def fail() -> None:
        raise OSError(5, "I/O error")

    at(step, 1 if step == "noted" else 4, fail)
    with pytest.raises((NoclobberError, OSError)):
        commit_changes(Committer(str(tree)), changes())
    steps.observer = None
    assert contents(tree) == {b"old"}
    commit_changes(Committer(str(tree)), changes())
    assert contents(tree) == {b"new"}
