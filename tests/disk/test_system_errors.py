"""When no more files can be opened: an error that says so, and nothing of what is at the path."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from noclobber import LedgerError, StaleFileError, TooManyFilesError, Turn, Workspace
from noclobber.disk import forks, reading
from noclobber.disk.system_errors import commit_failed, lookup_failed
from noclobber.errors import NoclobberError, StorageError
from tests.rigs.commands import environment

LIMIT = 512
CALLS: dict[str, Callable[[Turn], object]] = {
    "read": lambda turn: turn.read_file("a.md"),
    "write": lambda turn: turn.write_file("a.md", "new\n"),
    "create": lambda turn: turn.write_file("new/b.md", "new\n"),
    "delete": lambda turn: turn.delete_file("a.md"),
    "move": lambda turn: turn.move_file("a.md", "b.md"),
    "several": lambda turn: turn.write_files({"a.md": "new\n", "b.md": "new\n"}),
    "command": lambda turn: turn.run("echo new > a.md"),
}


@contextmanager
def no_more_files(spare: int) -> Iterator[None]:
    """Let this process open `spare` more files, until the end of the block."""
    held = []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(LIMIT, hard), hard))
    try:
        try:
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            assert error.errno == errno.EMFILE
        for descriptor in held[:spare]:
            os.close(descriptor)
        del held[:spare]
        yield
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("name", CALLS)
def test_too_many_open_files_are_said_and_nothing_is_changed(root: Path, name: str) -> None:
    """Finding R18: was NOT_A_FILE. However many files are left, the call is done or says why it is not."""
    file = root / "a.md"
    errors = set()
    with Workspace(root) as workspace:
        commit_failed(OSError(errno.EMFILE, ""), "a.md")  # What is loaded or read once, is.
        for spare in (100, *range(12)):
            file.write_text("old\n")
            with workspace.turn() as turn:
                turn.read_file("a.md")
                with no_more_files(spare):
                    try:
                        CALLS[name](turn)
                        failed = None
                    except NoclobberError as error:
                        failed = error
            if failed is not None:
                errors.add(type(failed))
                assert "too many files open" in str(failed) or "Too many open files" in str(failed), str(
                    failed
                )
                assert file.read_text() == "old\n"
                assert sorted(each.name for each in root.iterdir() if each.name != ".noclobber") == ["a.md"]
            for other in ("b.md", "new/b.md"):
                (root / other).unlink(missing_ok=True)
            if (root / "new").exists():
                (root / "new").rmdir()
    assert errors <= {TooManyFilesError, LedgerError, StorageError}
    assert TooManyFilesError in errors


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (errno.EMFILE, "TOO_MANY_OPEN_FILES", "ulimit -n"),
        (errno.ENFILE, "TOO_MANY_OPEN_FILES", "machine"),
        (errno.ENOMEM, "STORAGE_FAILED", "memory"),
        (errno.EIO, "STORAGE_FAILED", "Input/output error"),
        (errno.EINTR, "STORAGE_FAILED", "Interrupted"),
    ],
)
def test_what_ran_out_says_nothing_about_the_file(
    root: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: str, said: str
) -> None:
    """Finding R18: neither missing, nor no file, nor stale."""
    (root / "a.md").write_text("old\n")
    failed = OSError(number, os.strerror(number))
    for made in (lookup_failed(failed, "a.md"), commit_failed(failed, "a.md")):
        assert isinstance(made, NoclobberError)
        assert (made.code, said in str(made)) == (code, True)
    with Workspace(root) as workspace, workspace.turn() as turn:
        turn.read_file("a.md")

        def fail(*_: object, **__: object) -> int:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(forks, "open_tracked", fail)
        with pytest.raises(StorageError) as refused:
            turn.read_file("a.md")
        assert refused.value.code == code
        with pytest.raises(NoclobberError) as refused_write:
            turn.write_file("a.md", "new\n")
        assert not isinstance(refused_write.value, StaleFileError)
        if number in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            with pytest.raises(StorageError):
                reading.look_at(str(root / "a.md"))
        monkeypatch.undo()
    assert (root / "a.md").read_text() == "old\n"


def test_the_command_line_says_it_in_one_line(root: Path) -> None:
    """Finding R18, bad input: no traceback, and the file stays."""
    (root / "a.md").write_text("old\n")
    done = subprocess.run(
        [sys.executable, "-m", "noclobber", "write", "a.md", "--from", "/dev/null"],
        cwd=root,
        env=environment(),
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (6, 6)),
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert (root / "a.md").read_text() == "old\n"
