"""Files of colleagues, files that somebody has open, files with flags, files that are mounts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from noclobber.disk.file_guard import FileGuard
from noclobber.disk.hashing import of_bytes
from noclobber.errors import (
    AccessDeniedError,
    FileBusyError,
    MetadataNotKeptError,
    NoclobberError,
    StaleFileError,
)
from tests.rigs.mounts import run_in_mounts

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be two users")
OWNER, WRITER, GROUP = 61001, 61002, 61100


def in_colleagues_project(root: Path, mode: int) -> FileGuard:
    os.chown(root, OWNER, GROUP)
    os.chmod(root, 0o2775)
    file = root / "f"
    file.write_bytes(b"before")
    os.chown(file, OWNER, GROUP)
    os.chmod(file, mode)
    return FileGuard(root)


def as_the_other_member(root: Path) -> dict[str, object]:
    """Write as another member of the group, in a process of its own."""
    report, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([GROUP])
            os.setgid(GROUP)
            os.setuid(WRITER)
            try:
                done = FileGuard(root).write("f", b"after", expected=of_bytes(b"before"))
                answer: dict[str, object] = {"level": done.level, "not_kept": done.not_kept}
            except NoclobberError as error:
                answer = {"error": error.code}
            except Exception as error:  # Also reported, for the one who reads a failed test.
                answer = {"error": repr(error)}
            os.write(theirs, json.dumps(answer).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    os.waitpid(child, 0)
    with os.fdopen(report, "rb") as file:
        result: dict[str, object] = json.loads(file.read())
    return result


@pytest.fixture
def shared(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    # One write and one refusal, to load what is loaded late: the other user may not be able to read Python.
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    FileGuard(elsewhere).write("f", b"before", expected=None)
    FileGuard(elsewhere).write("f", b"after", expected=of_bytes(b"before"))
    for folder in (root, *root.parents):  # pytest's folders are for their user alone.
        if str(folder).startswith("/tmp/") and folder.stat().st_uid == 0:
            folder.chmod(folder.stat().st_mode | 0o011)
    return root


@root_only
def test_a_colleagues_file_in_a_shared_project_is_written(shared: Path) -> None:
    """finding R10: group and mode stay, the owner is the writer, and the result says so."""
    in_colleagues_project(shared, 0o664)
    assert as_the_other_member(shared) == {"level": "exchange", "not_kept": ["owner"]}
    status = (shared / "f").stat()
    assert (shared / "f").read_bytes() == b"after"
    assert (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (WRITER, GROUP, 0o664)


@root_only
def test_the_state_folder_of_a_colleague_does_not_matter(shared: Path) -> None:
    """finding R10: its swap folder is private; then our files are beside the target for a moment."""
    in_colleagues_project(shared, 0o664).write("other", b"", expected=None)
    (shared / ".noclobber" / "swap").chmod(0o700)
    assert as_the_other_member(shared) == {"level": "exchange", "not_kept": ["owner"]}
    assert (shared / "f").read_bytes() == b"after"


@root_only
def test_an_owner_who_would_lose_access_stays_owner(shared: Path) -> None:
    """finding R10: the group may not do all that the owner may, so the write is refused."""
    in_colleagues_project(shared, 0o764)
    assert as_the_other_member(shared) == {"error": MetadataNotKeptError.code}
    assert (shared / "f").stat().st_uid == OWNER
    assert (shared / "f").read_bytes() == b"before"


def test_a_busy_file_says_who_has_it_open(root: Path) -> None:
    """finding D6: our own process too; a reader is not named."""
    (root / "f").write_bytes(b"before")
    program = f"f = open({str(root / 'f')!r}, 'r+b'); print('open', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(FileBusyError, match=rf"process {other.pid}\)"):
            FileGuard(root, wait_s=0.0).write("f", b"after", expected=of_bytes(b"before"))
        other.communicate("\n")
    with open(root / "f", "r+b"), pytest.raises(FileBusyError, match="this process"):
        FileGuard(root, wait_s=0.0).write("f", b"after", expected=of_bytes(b"before"))


def test_a_busy_file_is_replaced_on_demand_and_later_bytes_are_kept(root: Path) -> None:
    """ruling 26: what the other writes to the replaced version is kept and reported."""
    (root / "f").write_bytes(b"before")
    guard = FileGuard(root, wait_s=0.0, busy="exchange")
    with open(root / "f", "r+b", buffering=0) as theirs:
        assert guard.write("f", b"after", expected=of_bytes(b"before")).level == "exchange"
        assert guard.sweep() == []  # Still open.
        theirs.write(b"theirs")
    (kept,) = guard.sweep()
    assert Path(kept).read_bytes() == b"theirs"
    assert (root / "f").read_bytes() == b"after"


def test_a_busy_file_that_was_changed_is_stale_on_demand_too(root: Path) -> None:
    """ruling 26: the option gives up leases, not the comparison."""
    (root / "f").write_bytes(b"before")
    with open(root / "f", "r+b", buffering=0) as theirs:
        theirs.write(b"theirs")
        with pytest.raises(NoclobberError) as refused:
            FileGuard(root, wait_s=0.0, busy="exchange").write("f", b"after", expected=of_bytes(b"before"))
    assert refused.value.code == "STALE_FILE"
    assert (root / "f").read_bytes() == b"theirs"


def test_a_file_that_nobody_may_write_to_is_refused_to_root_as_well(root: Path) -> None:
    """finding D13: a 0444 file was replaced without a word as root."""
    (root / "f").write_bytes(b"before")
    (root / "f").chmod(0o444)
    with pytest.raises(AccessDeniedError, match="chmod u\\+w"):
        FileGuard(root).write("f", b"after", expected=of_bytes(b"before"))
    assert (root / "f").read_bytes() == b"before"


def test_a_deleted_target_is_said_to_be_missing(root: Path) -> None:
    """finding D13: beside the object, whose words are fixed."""
    with pytest.raises(StaleFileError, match="Target missing") as refused:
        FileGuard(root).write("f", b"after", expected=of_bytes(b"before"))
    assert "Target missing" not in str(refused.value.to_agent())


def _chattr(flags: str, path: Path) -> None:
    if shutil.which("chattr") is None:
        pytest.skip("needs chattr")
    if subprocess.run(["chattr", flags, str(path)], capture_output=True, check=False).returncode:
        pytest.skip("this filesystem has no such flags, or they need root")


def test_flags_are_kept(root: Path) -> None:
    """finding R10: chattr's flags were dropped without a word."""
    (root / "f").write_bytes(b"before")
    _chattr("+dA", root / "f")
    assert FileGuard(root).write("f", b"after", expected=of_bytes(b"before")).not_kept == ()
    listed = subprocess.run(["lsattr", str(root / "f")], capture_output=True, text=True, check=True)
    assert {"d", "A"} <= set(listed.stdout.split()[0])


@root_only
@pytest.mark.parametrize("flag", ["a", "i"])
def test_append_only_and_immutable_files_stay(root: Path, flag: str) -> None:
    """finding R10: they are refused, with everything as it was."""
    (root / "f").write_bytes(b"before")
    _chattr(f"+{flag}", root / "f")
    try:
        with pytest.raises(NoclobberError):
            FileGuard(root).write("f", b"after", expected=of_bytes(b"before"))
        assert (root / "f").read_bytes() == b"before"
    finally:
        _chattr(f"-{flag}", root / "f")


def test_a_single_file_that_is_mounted_is_written_in_place(tmp_path: Path) -> None:
    """finding R10: containers mount single files; no rename can replace those."""
    (tmp_path / "back").mkdir()
    (tmp_path / "merged").mkdir()
    (tmp_path / "back" / "f").write_bytes(b"before")
    (tmp_path / "merged" / "f").write_bytes(b"")
    program = """
import json
from noclobber.disk.file_guard import FileGuard
from noclobber.disk.hashing import of_bytes
done = FileGuard("merged").write("f", b"after", expected=of_bytes(b"before"))
print(json.dumps({"level": done.level, "back": open("back/f").read()}))
"""
    done = run_in_mounts(tmp_path, "mount --bind back/f merged/f", program)
    assert done == {"level": "lease+inplace", "back": "after"}
    assert list((tmp_path / "merged" / ".noclobber" / "swap").iterdir()) == []
