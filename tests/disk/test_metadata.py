"""What a replaced file keeps: mode, owner, ACL, extended attributes, hard links."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from noclobber.disk import leases
from noclobber.disk.file_guard import FileGuard
from noclobber.errors import (
    MetadataNotKeptError,
)
from tests.conftest import sha256


def test_metadata_is_kept(root: Path) -> None:
    """N-metadata: mode and extended attributes survive a guarded write."""
    path = root / "a.sh"
    path.write_bytes(b"v1")
    path.chmod(0o750)
    try:
        os.setxattr(path, "user.colour", b"blue")
    except OSError:
        pytest.skip("no extended attributes on this filesystem")
    FileGuard(root).write("a.sh", b"v2", expected=sha256(b"v1"))
    assert path.stat().st_mode & 0o777 == 0o750
    assert os.getxattr(path, "user.colour") == b"blue"


def test_owner_and_acl_are_kept(root: Path) -> None:
    """N-metadata: the owner stays, and so does the ACL."""
    if os.geteuid() != 0 or sys.platform != "linux":
        pytest.skip("giving files away needs root")
    path = root / "a.md"
    path.write_bytes(b"v1")
    # user::rw- user:1234:rw- group::r-- mask::rw- other::---
    acl = bytes.fromhex(
        "02000000 0100 0600 ffffffff 0200 0600 d2040000 0400 0400 ffffffff 1000 0600 ffffffff 2000 0000 ffffffff".replace(
            " ", ""
        )
    )
    try:
        os.setxattr(path, "system.posix_acl_access", acl)
    except OSError:
        pytest.skip("no ACL on this filesystem")
    os.chown(path, 1234, 4321)
    FileGuard(root).write("a.md", b"v2", expected=sha256(b"v1"))
    status = path.stat()
    assert (status.st_uid, status.st_gid) == (1234, 4321)
    assert os.getxattr(path, "system.posix_acl_access") == acl


def test_a_created_file_gets_what_its_folder_gives(root: Path) -> None:
    """N-metadata: the group of a set-group-id folder, as if it had been made there."""
    if os.geteuid() != 0:
        pytest.skip("giving folders away needs root")
    (root / "team").mkdir()
    os.chown(root / "team", 0, 4321)
    (root / "team").chmod(0o2775)
    FileGuard(root).write("team/a.md", b"x", expected="ABSENT")
    assert (root / "team/a.md").stat().st_gid == 4321


def test_a_hard_link_that_cannot_be_kept_is_a_refusal(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-links: without leases the rename would leave the other name with the old bytes, silently."""

    def none_to_be_had(*_: object) -> bool:
        raise leases.LeasesUnavailableError(22, "none here")

    (root / "a.md").write_bytes(b"v1")
    os.link(root / "a.md", root / "b.md")
    monkeypatch.setattr(leases, "try_lease", none_to_be_had)
    with pytest.raises(MetadataNotKeptError, match="hard links"):
        FileGuard(root).write("a.md", b"v2", expected=sha256(b"v1"))
    assert (root / "a.md").read_bytes() == (root / "b.md").read_bytes() == b"v1"
