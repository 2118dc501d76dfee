"""Two system calls fail, one after the other; `make faults` tries thousands of pairs, this a fixed choice."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from torture.fault_pairs import Search, parsed, run, spelled
from torture.fault_trials import TRIALS
from torture.faults import Faults

from noclobber.disk.commit import recovery
from noclobber.disk.commit.section import Section
from noclobber.lock.lock_file import LockFile

pytestmark = [
    pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors by way of /proc"),
    pytest.mark.usefixtures("small_heap"),  # Without it one of these took 42 s instead of one.
]
SEED = 20_261_116


@pytest.mark.slow
@pytest.mark.parametrize("name", TRIALS)
def test_whichever_two_system_calls_fail_the_next_call_finds_everything_whole(name: str) -> None:
    """N-faults: commits, recoveries, ledger and locks; old or new, as the answer said; nothing stays locked."""
    search = Search(name, SEED, most=20)
    search.run()
    assert search.failures == [], search.failures[0]
    assert search.singles >= 2


# Each is an error that was once taken for an answer: the trial, and the calls that have to fail.
FOUND = [
    # A record that could not be read counted as none: the note was cleared, and half of a commit stayed.
    ("delete, killed at exchanged", "pread"),
    ("delete, killed at settled", "open"),
    ("linked, killed at inplace-written", "open"),
    ("many, killed at one-visible", "open"),
    # What a broken bid left behind looked live for as long as its process ran.
    ("lock bid", "open"),
    ("lock recover", "fstat"),
    ("lock above theirs", "scandir"),
    ("ledger verify", "fstat"),
]


@pytest.mark.parametrize("call", ["fstat", "fcntl"])
def test_a_commit_that_also_deletes_leaves_no_descriptor_and_no_raw_error(tmp_path: Path, call: str) -> None:
    """N-faults: its files, folders and notes are all open at once, and none stays open."""
    with Faults().installed() as faults:
        for number in range(1, 200, 9):
            folder = tmp_path / str(number)
            folder.mkdir()
            _, calls = run(folder, faults, "patch", {number: errno.EIO}, only=call)
            if number > calls:
                return
    raise AssertionError("it has no end")


@pytest.mark.parametrize(("name", "call"), FOUND)
def test_an_error_is_not_taken_for_an_answer(tmp_path: Path, name: str, call: str) -> None:
    """N-faults: every single call of one kind fails once; each of these had left something half done."""
    tried = 0
    with Faults().installed() as faults:
        for number in range(1, 200):
            folder = tmp_path / str(number)
            folder.mkdir()
            struck, calls = run(folder, faults, name, {number: errno.EMFILE}, only=call)
            tried += struck
            if number > calls:
                break
    assert tried


def test_a_move_that_can_neither_be_looked_at_nor_taken_back_is_not_reported_as_refused(
    tmp_path: Path,
) -> None:
    """N-faults: it had been moved, and the answer was that nothing had changed."""
    with Faults().installed() as faults:
        for number in range(20, 60):
            folder = tmp_path / str(number)
            folder.mkdir()
            run(folder, faults, "move", {number: errno.EIO, number + 1: errno.EIO})


def test_a_plan_is_spelled_as_it_is_read() -> None:
    """N-faults: the failure's message repeats it."""
    assert spelled(parsed("5:EIO,9:SHORT")) == "5:EIO,9:SHORT"


@pytest.mark.parametrize(
    ("name", "mutation"),
    [
        # Recovery that gives up what it cannot do now, and clears the note all the same.
        ("delete, killed at exchanged", "forgets"),
        # A section that keeps its mutex if something in it fails.
        ("replace", "stays locked"),
        # A release that leaves its bid if it is interrupted.
        ("lock take over", "keeps its bid"),
    ],
)
def test_planted_errors_are_convicted(name: str, mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-faults: a search that cannot fail proves nothing."""
    if mutation == "forgets":
        recover = recovery.recover

        def forgetful(*args: Any) -> list[Any]:
            try:
                return list(recover(*args))
            except OSError:
                return []

        monkeypatch.setattr(recovery, "recover", forgetful)
    elif mutation == "stays locked":

        def leave(section: Section, *exc: object) -> None:
            if not isinstance(exc[1], OSError):
                section._leave()

        monkeypatch.setattr(Section, "__exit__", leave)
    else:
        monkeypatch.setattr(LockFile, "_drop", lambda *_: None)
    search = Search(name, SEED, most=150)
    search.run()
    assert search.failures
    assert "repeat with" in search.failures[0]
