"""Several files in one commit: all of them, or none, whatever happens in the middle."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from noclobber.disk import steps
from noclobber.disk.commit.change_set import MOST_ROWS, Change, commit_changes
from noclobber.disk.commit.committer import Committer
from noclobber.errors import BadRequestError, FileBusyError, StaleFileError, StorageError
from tests.conftest import AtStep, sha256

FILES = {"a.md": b"a1", "sub/b.md": b"b1", "sub/c.md": b"c1"}


@pytest.fixture
def three(root: Path) -> Path:
    (root / "sub").mkdir()
    for name, data in FILES.items():
        (root / name).write_bytes(data)
    return root


def changes() -> list[Change]:
    rewritten = [Change(name, b"new " + data, sha256(data)) for name, data in FILES.items()]
    return [*rewritten, Change("fresh/d.md", b"new d", "ABSENT")]


def contents(root: Path) -> dict[str, bytes]:
    names = [*FILES, "fresh/d.md"]
    return {name: (root / name).read_bytes() for name in names if (root / name).exists()}


BEFORE = dict(FILES)
AFTER = {**{name: b"new " + data for name, data in FILES.items()}, "fresh/d.md": b"new d"}


def no_rubbish(root: Path, committer: Committer) -> bool:
    committer.sweep()
    return os.listdir(root / ".noclobber/swap") == [] and os.listdir(root / ".noclobber/kept") == []


def test_all_of_them_land(three: Path) -> None:
    """009-US2, N-many: replacements and creations in one step, each with its own result."""
    committer = Committer(str(three))
    commits = commit_changes(committer, changes())
    assert contents(three) == AFTER
    assert [commit.level for commit in commits] == ["lease+exchange"] * 3 + ["create"]
    assert [commit.previous_sha256 for commit in commits][-1] == "ABSENT"
    assert no_rubbish(three, committer)


@pytest.mark.parametrize("changed", list(FILES))
def test_one_stale_file_refuses_all(three: Path, changed: str) -> None:
    """011-edge-atomic: rejection happens before any partial change is written."""
    (three / changed).write_bytes(b"human")
    committer = Committer(str(three))
    with pytest.raises(StaleFileError) as refused:
        commit_changes(committer, changes())
    assert refused.value.path == str(three / changed)
    assert contents(three) == {**BEFORE, changed: b"human"}
    assert no_rubbish(three, committer)


@pytest.mark.skipif(sys.platform != "linux", reason="kernel file leases exist on Linux only")
def test_who_writes_to_a_file_that_is_created_and_taken_back_loses_nothing(
    three: Path, at_step: AtStep
) -> None:
    """009-SC-001: it found the name, and waits inside open() while the commit is refused for another file."""
    created, writers = three / "fresh.md", []

    def work() -> None:
        with open(created, "ab", buffering=0) as file:
            file.write(b"+late")

    def intrude() -> None:
        writers.append(threading.Thread(target=work))
        writers[0].start()
        inode = created.stat().st_ino
        while not any(
            "LEASE" in line and "BREAKING" in line and f":{inode} " in line
            for line in Path("/proc/locks").read_text().splitlines()
        ):
            os.sched_yield()
        (three / "e").write_bytes(b"editor")
        os.replace(three / "e", three / "a.md")

    at_step("one-visible", intrude)
    committer = Committer(str(three))
    with pytest.raises(StaleFileError):
        commit_changes(
            committer, [Change("fresh.md", b"new", "ABSENT"), Change("a.md", b"new a", sha256(b"a1"))]
        )
    writers[0].join()
    assert not created.exists()
    assert contents(three) == {**BEFORE, "a.md": b"editor"}
    assert [Path(where).read_bytes() for _, where in committer.sweep()] == [b"new+late"]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_save_between_two_exchanges_takes_all_of_them_back(
    three: Path, at_step: AtStep, count: int
) -> None:
    """011-FR-002: the last file changes while the first are already exchanged."""
    calls = []

    def intrude() -> None:
        calls.append(1)
        if len(calls) == count:
            victim = three / "fresh/d.md" if count == 3 else three / "sub/c.md"
            other = three / "editor"
            other.write_bytes(b"human")
            os.replace(other, victim)

    at_step("one-visible", intrude, times=99)
    committer = Committer(str(three))
    with pytest.raises(StaleFileError):
        commit_changes(committer, changes())
    expected = {**BEFORE, ("fresh/d.md" if count == 3 else "sub/c.md"): b"human"}
    assert contents(three) == expected
    assert no_rubbish(three, committer)


def test_a_busy_file_takes_back_the_others(three: Path) -> None:
    """N-many: somebody keeps one file open for writing."""
    committer = Committer(str(three), wait_s=0.02)
    with open(three / "sub/c.md", "r+b"), pytest.raises(FileBusyError):
        commit_changes(committer, changes())
    assert contents(three) == BEFORE
    assert no_rubbish(three, committer)


CHILD = """
import os, signal, sys
from noclobber.disk import steps
from noclobber.disk import steps
from noclobber.disk.commit.change_set import Change, commit_changes
from noclobber.disk.commit.committer import Committer
root, step, nth = sys.argv[1], sys.argv[2], int(sys.argv[3])
rows = sys.argv[4:]
count = 0
def observe(reached):
    global count
    if reached == step:
        count += 1
        if count == nth:
            os.kill(os.getpid(), signal.SIGKILL)
steps.observer = observe
changes = [Change(rows[i], rows[i + 1].encode(), rows[i + 2]) for i in range(0, len(rows), 3)]
commit_changes(Committer(root), changes)
"""


@pytest.mark.parametrize(
    ("step", "nth"),
    [
        ("staging", 2),
        ("staged", 3),
        ("verified", 1),
        ("verified", 3),
        ("noted", 1),
        *[("exchanged", n) for n in (1, 2, 3)],
        *[("one-visible", n) for n in (1, 2, 3, 4)],
        ("decided", 1),
        ("released", 2),
    ],
)
@pytest.mark.parametrize("next_in", ["a.md", "sub/b.md"])
def test_kill_9_anywhere_leaves_all_or_none_after_the_next_call(
    three: Path, step: str, nth: int, next_in: str
) -> None:
    """N-many: the journal survives kill -9; any folder of the commit may be the one that notices."""
    rows = [
        part for change in changes() for part in (change.path, change.data.decode(), str(change.expected))
    ]
    child = subprocess.run([sys.executable, "-c", CHILD, str(three), step, str(nth), *rows], check=False)
    assert child.returncode == -9
    committer = Committer(str(three))
    with pytest.raises(StaleFileError):  # Any call in one of the folders recovers first.
        committer.replace(next_in, sha256(b"no such version"), b"x")
    assert contents(three) in (BEFORE, AFTER)
    if step in ("decided", "released"):
        assert contents(three) == AFTER
    committer.replace("sub/b.md", None, b"y")
    committer.replace("a.md", None, b"y")
    assert no_rubbish(three, committer)


def killed_at(three: Path, step: str, nth: int) -> None:
    rows = [
        part for change in changes() for part in (change.path, change.data.decode(), str(change.expected))
    ]
    child = subprocess.run([sys.executable, "-c", CHILD, str(three), step, str(nth), *rows], check=False)
    assert child.returncode == -9


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_a_write_on_top_of_a_killed_agents_version_is_never_rolled_back_and_the_rest_lands(
    three: Path, nth: int
) -> None:
    """N-many: all or none, and what cannot be taken back any more cannot be none."""
    killed_at(three, "one-visible", nth)
    assert (three / "a.md").read_bytes() == b"new a1"
    with open(three / "a.md", "ab") as human:
        human.write(b", said the human")
    committer = Committer(str(three))
    with pytest.raises(StaleFileError):
        committer.replace("sub/c.md", sha256(b"no such version"), b"x")
    assert contents(three) == {**AFTER, "a.md": b"new a1, said the human"}
    assert no_rubbish(three, committer)


def test_a_killed_agents_file_that_cannot_be_finished_leaves_the_save_that_is_in_its_way(three: Path) -> None:
    """009-SC-001: nothing is overwritten that the dead agent had not seen."""
    killed_at(three, "one-visible", 1)
    with open(three / "a.md", "ab") as human:
        human.write(b", said the human")
    (three / "sub/c.md").write_bytes(b"saved since")
    committer = Committer(str(three))
    with pytest.raises(StaleFileError):
        committer.replace("sub/c.md", sha256(b"no such version"), b"x")
    assert contents(three) == {**AFTER, "a.md": b"new a1, said the human", "sub/c.md": b"saved since"}
    assert no_rubbish(three, committer)


def test_both_versions_of_a_killed_agents_file_were_written_to(three: Path) -> None:
    """N-many: one stands with the rest of the commit, the other is kept; nothing is lost."""
    killed_at(three, "one-visible", 4)
    with open(three / "sub/b.md", "ab") as human:
        human.write(b"+human")
    displaced = next((three / ".noclobber/swap").glob("*b.md"))
    with open(displaced, "ab") as late:
        late.write(b"+late")
    committer = Committer(str(three))
    with pytest.raises(StaleFileError):
        committer.replace("a.md", sha256(b"no such version"), b"x")
    assert contents(three) == {**AFTER, "sub/b.md": b"new b1+human"}
    committer.sweep()
    assert [each.read_bytes() for each in (three / ".noclobber/kept").iterdir()] == [b"b1+late"]


@pytest.mark.parametrize("cleared", [1, 2])
def test_what_a_commit_replaced_does_not_stay_if_it_was_killed_while_it_cleared_its_notes(
    three: Path, cleared: int
) -> None:
    """N-many: one note is idle, another still speaks of files that nobody else is going to sweep."""
    code = CHILD.replace("steps.observer", "from noclobber.disk.commit.journal import Note\n"
        f"clear, left = Note.clear, [{cleared}]\n"
        "def clear_some(note):\n"
        "    if left[0] == 0:\n"
        "        os.kill(os.getpid(), 9)\n"
        "    left[0] -= 1\n"
        "    clear(note)\n"
        "Note.clear = clear_some\n"
        "steps.observer", 1)  # fmt: skip
    rows = [
        part for change in changes() for part in (change.path, change.data.decode(), str(change.expected))
    ]
    child = subprocess.run([sys.executable, "-c", code, str(three), "never", "1", *rows], check=False)
    assert child.returncode == -9
    late = next((three / ".noclobber/swap").glob("*c.md"))
    late.write_bytes(b"written to it since")
    committer = Committer(str(three))
    for name in ("a.md", "sub/b.md", "fresh/d.md"):
        committer.replace(name, None, b"y")
    committer.sweep()
    assert os.listdir(three / ".noclobber/swap") == []
    assert [each.read_bytes() for each in (three / ".noclobber/kept").iterdir()] == [b"written to it since"]


@pytest.mark.parametrize("moment", ["before the note speaks of it", "after it spoke of it"])
def test_the_record_of_a_commit_that_is_over_does_not_stay_for_ever(three: Path, moment: str) -> None:
    """N-many: kill -9 between the note and its book."""
    if moment.startswith("before"):
        code = CHILD.replace("steps.observer", "from noclobber.disk.commit.journal import Note\n"
            "Note._put = lambda self, at, text: None if at == 1 else os.kill(os.getpid(), 9)\n"
            "steps.observer")  # fmt: skip
    else:
        code = CHILD.replace("steps.observer", "unlink = os.unlink\n"
            "os.unlink = lambda name, **k: os.kill(os.getpid(), 9) if 'book' in name else unlink(name, **k)\n"
            "steps.observer")  # fmt: skip
    rows = [
        part for change in changes() for part in (change.path, change.data.decode(), str(change.expected))
    ]
    child = subprocess.run([sys.executable, "-c", code, str(three), "never", "1", *rows], check=False)
    assert child.returncode == -9
    notes = three / ".noclobber/notes"
    assert len(list(notes.glob("*book*"))) == 1
    committer = Committer(str(three))
    committer.replace("a.md", None, b"x")
    committer.replace("sub/b.md", None, b"x")
    assert len(list(notes.glob("*book*"))) == 1  # Too young: it might be somebody's who is about to speak.
    Committer(str(three), clock=Later()).open_store()
    assert list(notes.glob("*book*")) == []


class Later:
    """A clock by which everything that is left over is old."""

    monotonic_s = staticmethod(lambda: 0.0)
    sleep = staticmethod(lambda _: None)
    now_s = staticmethod(lambda: 4e9)


def test_the_same_file_twice_is_refused(three: Path) -> None:
    """N-many: which of the two would win is nobody's guess."""
    with pytest.raises(BadRequestError):
        commit_changes(Committer(str(three)), [Change("a.md", b"1", None), Change("./a.md", b"2", None)])
    assert contents(three) == BEFORE


def test_too_many_files_are_refused_by_number(root: Path) -> None:
    """N-many: a limit that is named beats running out of descriptors in the middle."""
    with pytest.raises(BadRequestError, match=str(MOST_ROWS)):
        commit_changes(Committer(str(root)), [Change(f"{n}", b"", None) for n in range(MOST_ROWS + 1)])


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
@pytest.mark.parametrize("trouble", [KeyboardInterrupt(), OSError(5, "I/O error")])
def test_an_exception_out_of_nowhere_between_exchanges_takes_all_back(
    three: Path, nth: int, trouble: BaseException
) -> None:
    """011-FR-002: not a refusal, so it is treated like a crash, while the mutex is still held."""
    count = 0

    def observe(reached: str) -> None:
        nonlocal count
        count += reached == "one-visible"
        if count == nth and reached == "one-visible":
            raise trouble

    steps.observer = observe
    committer = Committer(str(three))
    try:
        with pytest.raises((KeyboardInterrupt, StorageError)):
            commit_changes(committer, changes())
    finally:
        steps.observer = None
    # After the fourth nothing was missing, so an interrupt finds it landed. A disk that fails is a refusal,
    # and a refusal changes nothing.
    is_landed = nth == 4 and isinstance(trouble, KeyboardInterrupt)
    assert contents(three) == (AFTER if is_landed else BEFORE)
    assert no_rubbish(three, committer)
