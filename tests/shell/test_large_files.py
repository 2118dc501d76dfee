"""Large files that a command changes in place pass through; everything else about them is guarded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from noclobber.shell.supervisor import MACHINES
from tests.shell.test_process import events, is_available, project, shell

__all__ = ["project"]
pytestmark = pytest.mark.skipif(
    not is_available() or os.uname().machine not in MACHINES, reason="no namespaces, or no filter here"
)
LIMIT = 100_000
LARGE = b"x" * LIMIT


@pytest.fixture
def large(project: Path) -> Path:
    (project / "noclobber.toml").write_text(f"shell_through_bytes = {LIMIT}\n")
    file = project / "large.bin"
    file.write_bytes(LARGE)
    return file


def told(root: Path) -> list[tuple[str, str]]:
    """Every change on record: file and level."""
    return [(event["payload"]["target_file"], event["payload"].get("level", "")) for event in events(root)]


def test_a_byte_appended_to_a_large_file_copies_nothing(project: Path, large: Path) -> None:
    """N-shell: it is the real file that is written, the command sees that, and the record has the level."""
    before = large.stat().st_ino
    done = shell(
        project, "printf y >> large.bin; tail -c 2 large.bin; ls -A .noclobber/run; echo two > plan.md"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "xy", "")
    assert (large.read_bytes(), large.stat().st_ino) == (LARGE + b"y", before)
    assert told(project) == [("large.bin", "plain"), ("plan.md", "lease+exchange")]
    assert events(project)[0]["payload"]["before_hash"] == "UNKNOWN"


@pytest.mark.parametrize("size", [LIMIT - 1, LIMIT])
def test_what_a_refused_command_wrote_into_a_large_file_stays(project: Path, large: Path, size: int) -> None:
    """N-shell: passing through is being outside of the transaction; a file below the limit is inside."""
    large.write_bytes(LARGE[:size])
    done = shell(project, "printf y >> large.bin; echo two > plan.md", "--expect", "plan.md=" + "1" * 64)
    assert done.returncode == 75
    assert large.read_bytes() == LARGE[:size] + (b"y" if size == LIMIT else b"")
    assert (project / "plan.md").read_text() == "one\n"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("rm large.bin", None),
        ("mv large.bin other", None),
        ("printf y >> large.bin; rm large.bin", None),
        ("echo small > large.bin", b"small\n"),
        ("mv large.bin l; echo new > large.bin; printf y >> large.bin", b"new\ny"),
    ],
)
def test_a_large_file_is_removed_moved_and_replaced_as_any_other(
    project: Path, large: Path, text: str, left: bytes | None
) -> None:
    """N-shell: no mount is in the way of that."""
    done = shell(project, text)
    assert (done.returncode, done.stderr) == (0, "")
    assert (large.read_bytes() if large.exists() else None) == left


def test_a_large_file_that_somebody_speaks_about_is_guarded(project: Path, large: Path) -> None:
    """N-shell: what the agent knows of it, and where it may write, counts whatever its size."""
    known = "0" * 63 + "1"
    assert shell(project, "printf y >> large.bin", "--expect", f"large.bin={known}").returncode == 75
    assert large.read_bytes() == LARGE
    (project / "noclobber.toml").write_text(f"shell_through_bytes = {LIMIT}\nwrite_scope = ['src']\n")
    assert shell(project, "printf y >> large.bin").returncode == 75
    assert large.read_bytes() == LARGE


def test_no_file_passes_through_if_the_limit_is_0(project: Path, large: Path) -> None:
    """N-shell: the option `shell_through_bytes`."""
    (project / "noclobber.toml").write_text("shell_through_bytes = 0\n")
    before = large.stat().st_ino
    assert shell(project, "printf y >> large.bin").returncode == 0
    assert (large.read_bytes() == LARGE + b"y", large.stat().st_ino == before) == (True, False)


@pytest.mark.parametrize("text", ["truncate -s 64M new", "printf x >> old"])
def test_holes_stay_holes(project: Path, text: str) -> None:
    """N-shell: a sparse file lands with the blocks that it has, new or changed."""
    with (project / "old").open("wb") as file:
        file.truncate(64 << 20)
    assert shell(project, text).returncode == 0
    status = (project / text.split()[-1]).stat()
    assert status.st_size >= 64 << 20
    assert status.st_blocks * 512 < 1 << 20
