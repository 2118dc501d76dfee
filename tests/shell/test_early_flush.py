"""Many files: their write-back begins on the other core, and nothing depends on it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from noclobber.core.project import UNCHECKED
from noclobber.disk import ordering
from noclobber.shell import early_flush
from noclobber.shell.early_flush import FROM_FILES, EarlyFlush


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> int:
    """What is flushed is told by a pipe, also by the forked process."""
    out_fd, in_fd = os.pipe()

    def tell(descriptor: int) -> None:
        os.write(in_fd, os.fsencode(os.readlink(f"/proc/self/fd/{descriptor}")) + b"\n")

    monkeypatch.setattr(ordering, "start", tell)
    monkeypatch.setattr(early_flush, "has_two_cores", lambda: True)
    os.set_blocking(out_fd, False)
    return out_fd


def names(out_fd: int) -> list[str]:
    try:
        return sorted(os.path.basename(line) for line in os.read(out_fd, 1 << 16).decode().splitlines())
    except BlockingIOError:
        return []


def upper_with(folder: Path, count: int) -> Path:
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "node_modules").mkdir()
    (folder / "node_modules" / "package").write_text("x")
    (folder / "link").symlink_to("nowhere")
    for number in range(count):
        (folder / "deep" / ("er" if number % 2 else ".") / f"f{number}").write_text("x")
    return folder


def test_every_checked_file_is_begun_in_a_process_of_its_own(tmp_path: Path, told: int) -> None:
    """N-shell, 1 000 files: build outputs are not flushed when they land, so they are not begun either."""
    upper = upper_with(tmp_path, FROM_FILES)
    with EarlyFlush(str(upper)) as begun:
        os.waitid(os.P_PID, begun._pid, os.WEXITED | os.WNOWAIT)
    assert names(told) == sorted(f"f{number}" for number in range(FROM_FILES))


def test_folders_of_the_options_are_not_begun(tmp_path: Path, told: int) -> None:
    """N-shell: the option `unchecked`. What it takes off the list is flushed, and so begun."""
    upper = upper_with(tmp_path, FROM_FILES)
    with EarlyFlush(str(upper), frozenset(("er",))) as begun:
        assert begun._pid == 0
    with EarlyFlush(str(upper), frozenset()) as begun:
        os.waitid(os.P_PID, begun._pid, os.WEXITED | os.WNOWAIT)
    assert "package" in names(told)


def test_few_files_need_no_process(tmp_path: Path, told: int) -> None:
    """N-shell: one file must not pay for a fork."""
    with EarlyFlush(str(upper_with(tmp_path, FROM_FILES - 1))) as begun:
        assert begun._pid == 0
    assert names(told) == []


def test_nothing_is_left_when_the_landing_is_over(
    tmp_path: Path, told: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-shell: no process left behind, whatever it is at. Here its first flush never ends."""
    out_fd, in_fd = os.pipe()
    never_fd, _ = os.pipe()
    monkeypatch.setattr(ordering, "start", lambda descriptor: (os.write(in_fd, b"+"), os.read(never_fd, 1)))
    with EarlyFlush(str(upper_with(tmp_path, FROM_FILES))) as begun:
        assert os.read(out_fd, 1) == b"+"
        pid = begun._pid
    with pytest.raises(ChildProcessError):  # This one: a server of another test may be a child of ours, too.
        os.waitpid(pid, os.WNOHANG)


def test_what_the_commit_has_taken_is_passed_over(
    tmp_path: Path, told: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-shell: a name that is gone by the time is no error."""
    upper = upper_with(tmp_path, FROM_FILES)
    listed = [*early_flush._files(str(upper), UNCHECKED), f"{upper}/gone"]
    monkeypatch.setattr(early_flush, "_files", lambda folder, unchecked: iter(listed))
    (upper / "deep" / "f0").unlink()
    with EarlyFlush(str(upper)) as begun:
        ended = os.waitid(os.P_PID, begun._pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    assert ended.si_status == 0
    assert names(told) == sorted(f"f{number}" for number in range(1, FROM_FILES))
