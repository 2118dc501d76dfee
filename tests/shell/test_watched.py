"""The weaker level: what is looked at before a command, and what is told after it."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from noclobber.shell import watched
from noclobber.shell.watched import FileSeen, WatchedStart


def sha256(text: str) -> str:
    """Return the hash of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def no_copy(path: str, _: bytes) -> None:
    """Fail: nothing is stale here."""
    raise AssertionError(path)


def test_a_stale_file_is_copied_before_and_its_loss_is_told_after(tmp_path: Path) -> None:
    """N-shell: what a person saved is not lost, although nothing could stop the command."""
    file = tmp_path / "a.md"
    file.write_text("a person's")
    copied: list[tuple[str, bytes]] = []
    known = [FileSeen(str(file), sha256("seen"))]

    start = watched.begin(str(tmp_path), known, lambda path, data: copied.append((path, data)))
    subprocess.run(["sh", "-c", "echo mine > a.md"], cwd=tmp_path, check=True)
    [change] = watched.end(start).files

    assert copied == [(str(file), b"a person's")]
    assert (change.before, change.after) == (sha256("a person's"), sha256("mine\n"))
    assert change.is_overwritten


def test_a_change_of_what_the_agent_had_seen_is_its_own(tmp_path: Path) -> None:
    """N-shell: nobody's version is lost, so nothing is copied and nothing is reported as lost."""
    file = tmp_path / "a.md"
    file.write_text("seen")
    start = watched.begin(str(tmp_path), [FileSeen(str(file), sha256("seen"))], no_copy)
    file.unlink()
    [change] = watched.end(start).files
    assert (change.before, change.after, change.is_overwritten) == (sha256("seen"), "DELETED", False)


def test_other_files_that_changed_are_found_by_their_dates(tmp_path: Path) -> None:
    """N-shell: what the agent never saw, in a folder as well; not what tools make, and nothing unchanged."""
    (tmp_path / "old.md").write_text("old")
    start = watched.begin(str(tmp_path), [], no_copy)
    # A date from before the start, by the filesystem's own clock: no test may wait for it.
    since_ns = os.stat(tmp_path / "old.md").st_ctime_ns + 1
    for name in ("new.md", "sub/deep.md", "node_modules/x.js", ".git/index", ".noclobber/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
        while os.stat(tmp_path / name).st_ctime_ns < since_ns:
            (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to("old.md")

    changes = watched.end(start._replace(since_ns=since_ns))

    assert changes.is_complete
    assert {change.path.removeprefix(f"{tmp_path}/") for change in changes.files} == {"new.md", "sub/deep.md"}
    assert {change.before for change in changes.files} == {"UNKNOWN"}


def test_the_start_is_not_before_what_was_written_before_it(tmp_path: Path) -> None:
    """N-shell: the time is the filesystem's own, so that a file from a clock tick earlier is not taken for new."""
    start = watched.begin(str(tmp_path), [], no_copy)
    (tmp_path / "after").write_text("x")
    assert os.stat(tmp_path / "after").st_ctime_ns >= start.since_ns


def test_a_file_that_is_older_than_the_note_about_it_is_not_read_again(tmp_path: Path) -> None:
    """N-shell: an agent that knows a thousand files does not pay for a thousand hashes."""
    file = tmp_path / "a.md"
    file.write_text("seen")
    noted_at_s = os.stat(file).st_ctime + 60
    start = watched.begin(str(tmp_path), [FileSeen(str(file), "0" * 64, noted_at_s)], no_copy)
    assert start.files[0].sha256 == "0" * 64


def test_a_start_survives_the_way_to_another_process(tmp_path: Path) -> None:
    """N-shell: a hook before and a hook after are two processes."""
    (tmp_path / "a.md").write_text("x")
    start = watched.begin(str(tmp_path), [FileSeen(str(tmp_path / "a.md"), sha256("x"))], no_copy)
    assert WatchedStart.unpack(start.pack()) == start
    for packed in ([], [1, 2], ["/", "x", []], ["/", 1, [["a"]]]):
        with pytest.raises((ValueError, TypeError)):
            WatchedStart.unpack(packed)


def test_more_changes_than_are_told_are_admitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-shell: it says that there was more."""
    monkeypatch.setattr(watched, "MOST_CHANGES", 2)
    start = watched.begin(str(tmp_path), [], no_copy)._replace(since_ns=0)
    for name in "abc":
        (tmp_path / name).write_text(name)
    changes = watched.end(start)
    assert (len(changes.files), changes.is_complete) == (2, False)
