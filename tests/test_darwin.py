"""What can be said of macOS without one: a process in which Python says it is there, and has no name that it lacks."""

from __future__ import annotations

import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from noclobber.disk import metadata, paths

MAC = """
import fcntl, os, sys
sys.platform = "darwin"
for name in ("O_PATH", "O_TMPFILE", "listxattr", "getxattr", "setxattr", "removexattr", "pidfd_open", "waitid"):
    if hasattr(os, name):
        delattr(os, name)
fcntl.F_SETLEASE = 106  # macOS 13 and later have it, and refuse it without an entitlement.
"""


def said_on_a_mac(code: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", MAC + code, *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_leases_are_linux_alone() -> None:
    """Finding M1: macOS has an F_SETLEASE of its own, and a command 10 that is not F_SETSIG."""
    assert said_on_a_mac("from noclobber.disk import leases; print(leases.SUPPORTED)") == "False"


def test_the_time_of_the_old_version_is_not_copied() -> None:
    """Finding M2: COPYFILE_STAT would set it, and builds would miss the change."""
    copyfile_stat = 1 << 1
    assert not metadata.MACOS_COPYFILE_METADATA & copyfile_stat


def test_links_in_a_command_are_found_without_o_path(tmp_path: Path) -> None:
    """Finding M4: `noclobber run` ended with an internal error before the command began."""
    (tmp_path / "there").write_text("x")
    (tmp_path / "link").symlink_to("there")
    code = "from noclobber.shell.named_links import leads_to; print(leads_to(sys.argv[1]), leads_to(sys.argv[2]))"
    told = said_on_a_mac(code, str(tmp_path / "link"), str(tmp_path / "missing"))
    assert told == f"{os.path.realpath(tmp_path)}/there None"


def test_a_staged_thing_is_stripped_of_nothing_without_an_overlay(tmp_path: Path) -> None:
    """Finding M5: undo of what was made, deleted or moved ended with an internal error."""
    assert (
        said_on_a_mac(
            "from noclobber.disk.commit.staged_things import strip; strip(sys.argv[1])", str(tmp_path)
        )
        == ""
    )


@pytest.mark.parametrize(
    ("there", "asked"),
    [
        ("plan.md", "PLAN.md"),
        ("Straße", "STRASSE"),
        (unicodedata.normalize("NFC", "é.md"), unicodedata.normalize("NFD", "é.md")),
        (unicodedata.normalize("NFD", "é.md"), unicodedata.normalize("NFC", "É.md")),
    ],
)
def test_a_name_is_spelled_as_its_folder_has_it(tmp_path: Path, there: str, asked: str) -> None:
    """Finding M3: a read of `plan.md` and a write of `PLAN.md` were two files to the check, and one to APFS."""
    (tmp_path / there).write_text("x")
    folder_fd = os.open(tmp_path, os.O_RDONLY)
    try:
        assert paths.spelled_in(folder_fd, asked) == there
        assert paths.spelled_in(folder_fd, there) == there
        assert paths.spelled_in(folder_fd, "other.md") == "other.md"
    finally:
        os.close(folder_fd)
